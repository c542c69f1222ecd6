import os
import re
import signal
import threading
import time
import weakref
from pathlib import Path

import pytest

from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import Kind
from rec_summary.records.writing import background
from rec_summary.records.writing.background import BackgroundWriter
from tests.support.waiting import PATIENCE_SECS, eventually


class Item:
    kind = Kind.SUMMARY

    def __init__(self, value, nbytes=10):
        self.value = value
        self.nbytes = nbytes

    def encode(self):
        return self.value


class SlowSink:
    """A disk that waits for the test, and fails on request."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.written = []
        self.flushed = []
        self.closed = 0
        self.failing = False

    def write(self, record):
        self.gate.wait()
        if self.failing:
            raise OSError(28, "No space left on device")
        self.written.append(record.encode())

    def flush(self):
        if self.failing:
            raise OSError(28, "No space left on device")
        self.flushed = list(self.written)

    def close(self):
        self.flush()
        self.closed += 1


@pytest.fixture
def sink():
    return SlowSink()


@pytest.fixture
def troubles():
    return Troubles()


def wake_ups(writer):
    status = Path(f"/proc/self/task/{writer._thread.native_id}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)[1])


def exit_code(child):
    """Waits for a forked child; one that hangs fails the test."""
    _, status = eventually(lambda: os.waitpid(child, os.WNOHANG), lambda found: found[0])
    return os.waitstatus_to_exitcode(status)


def test_everything_arrives_in_order_and_close_waits_for_it(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    for n in range(1000):
        writer.write(Item(n))
    writer.close()
    writer.close()
    assert sink.flushed == list(range(1000))
    assert sink.closed == 1
    assert troubles.counts == {}


def test_records_are_flushed_without_being_asked(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=0.05)
    writer.write(Item(1))
    eventually(lambda: sink.flushed == [1])
    writer.write(Item(2))
    eventually(lambda: sink.flushed == [1, 2])
    writer.close()


def test_flush_returns_when_all_is_out(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=3600)
    for n in range(20):
        writer.write(Item(n))
    assert writer.flush() is True
    assert sink.flushed == list(range(20))
    writer.close()


def test_flush_says_when_it_did_not_work(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=3600)
    writer.write(Item(1))
    eventually(lambda: sink.written == [1])
    sink.failing = True
    assert writer.flush() is False
    assert troubles.counts == {"flush": 1}
    sink.failing = False
    assert writer.flush() is True  # asked again, it tries again
    assert sink.flushed == [1]
    writer.close()
    assert sink.flushed == [1]


@pytest.mark.parametrize(("nbytes", "most"), [(10, 256), (32 << 20, 7)])
def test_without_other_limits_256_records_or_mebibytes_wait(sink, troubles, nbytes, most):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, block_secs=0)
    writer.write(Item("being written", nbytes))
    eventually(lambda: not writer._waiting)  # the thread holds it
    for n in range(300):
        writer.write(Item(n, nbytes))
    assert writer.accepted == 1 + most
    sink.gate.set()
    writer.close()


def test_a_record_that_was_written_takes_no_memory(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=3600)
    writer.write(item := Item(1))
    left = weakref.ref(item)
    del item
    eventually(lambda: left() is None)
    writer.close()


@pytest.mark.parametrize(("poll", "most"), [(None, 0), (int, 1)])
def test_an_idle_writer_does_not_run(sink, troubles, monkeypatch, poll, most):
    monkeypatch.setattr(background, "_RETRY_SECS", 0.0)  # there is nothing to try again
    writer = BackgroundWriter(sink, troubles, flush_secs=0.01, poll=poll)
    writer.write(Item(1))
    eventually(lambda: sink.flushed == [1])

    def wakes_up():
        before = wake_ups(writer)
        time.sleep(0.3)  # MindSpore's writer polls thousands of times in this
        return wake_ups(writer) - before

    eventually(wakes_up, lambda often: often <= most)  # it may still be on its way to sleep
    writer.close()


def test_a_failing_disk_is_logged_once_counted_and_survived(sink, troubles, caplog):
    writer = BackgroundWriter(sink, troubles)
    sink.failing = True
    for n in range(50):
        writer.write(Item(n))
    eventually(lambda: troubles.counts.get("write") == 50)
    sink.failing = False
    writer.write(Item("after"))
    writer.close()
    assert sink.flushed == ["after"]
    assert len([r for r in caplog.records if "No space left" in r.message]) == 1


def test_a_full_queue_holds_up_the_caller_once_and_then_drops_and_counts(
    sink, troubles, monkeypatch
):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, capacity=4, block_secs=0.2)
    wait, waits = writer._wait_for_room, []
    monkeypatch.setattr(writer, "_wait_for_room", lambda size: waits.append(size) or wait(size))
    writer.write(Item(0))
    eventually(lambda: not writer._waiting)  # the thread holds it
    for n in range(1, 100):
        writer.write(Item(n))
    assert len(waits) == 1  # not for each record
    dropped = troubles.counts["record dropped"]
    assert dropped == 95
    sink.gate.set()
    writer.flush()
    writer.write(Item("room again"))
    writer.close()
    assert sink.flushed[-1] == "room again"
    assert len(sink.flushed) == 100 - dropped + 1
    assert sink.flushed[:-1] == list(range(100 - dropped))


def test_the_caller_goes_on_as_soon_as_there_is_room(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, capacity=2, capacity_bytes=1000, block_secs=60)
    threading.Timer(0.1, sink.gate.set).start()
    for n in range(30):
        writer.write(Item(n, 10 if n % 3 else 990))  # it may need the room of both
    writer.close()
    assert sink.flushed == list(range(30))
    assert troubles.counts == {}


def test_the_queue_is_bounded_in_bytes_but_lets_one_giant_through(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, capacity_bytes=1000, block_secs=0.05)
    writer.write(Item("giant", 5000))
    eventually(lambda: not writer._waiting)  # the thread holds it
    writer.write(Item("first in line", 10))
    writer.write(Item("over budget", 900))
    assert troubles.counts == {"record dropped": 1}
    sink.gate.set()
    writer.close()
    assert sink.flushed == ["giant", "first in line"]


def test_what_was_written_takes_no_room_any_more(sink, troubles):
    writer = BackgroundWriter(sink, troubles, capacity_bytes=1000, block_secs=0)
    writer.write(Item("before", 990))
    assert writer.flush()
    sink.gate.clear()
    writer.write(Item("being written", 10))
    eventually(lambda: not writer._waiting)  # the thread holds it
    writer.write(Item("first in line", 10))
    writer.write(Item("as much as fits", 980))
    writer.write(Item("too much", 1))
    assert troubles.counts == {"record dropped": 1}
    sink.gate.set()
    writer.close()
    assert sink.flushed == ["before", "being written", "first in line", "as much as fits"]


def test_a_flush_that_fails_is_tried_again_without_being_asked(sink, troubles):
    failures = [OSError(28, "No space left on device")]
    flush = sink.flush
    sink.flush = lambda: flush() if not failures else _raise(failures.pop())
    writer = BackgroundWriter(sink, troubles, flush_secs=0.01)
    writer.write(Item(1))
    eventually(lambda: sink.flushed == [1])
    assert troubles.counts == {"flush": 1}
    writer.close()


@pytest.mark.parametrize(("flush_secs", "retry_secs"), [(0.001, 1e6), (1e6, 0.001)])
def test_a_flush_is_not_tried_again_at_once(sink, troubles, monkeypatch, flush_secs, retry_secs):
    monkeypatch.setattr(background, "_RETRY_SECS", retry_secs)
    writer = BackgroundWriter(sink, troubles, flush_secs=flush_secs)
    sink.failing = True
    assert writer.flush() is False
    writer.write(Item(1))
    eventually(lambda: troubles.counts.get("write") == 1)
    time.sleep(0.1)  # the next try would be long past
    assert troubles.counts == {"flush": 1, "write": 1}
    writer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_thread_that_has_died(sink, troubles):
    class Deadly(Item):
        def encode(self):
            raise SystemExit

    writer = BackgroundWriter(sink, troubles, flush_secs=3600)
    writer.write(Deadly(1))
    assert writer.flush(timeout=threading.TIMEOUT_MAX) is False
    writer.close(timeout=threading.TIMEOUT_MAX)


def test_a_close_that_takes_too_long_is_reported(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles)
    writer.write(Item(1))
    writer.close(timeout=0)
    assert troubles.counts == {"close": 1}
    sink.gate.set()
    writer.close()
    assert sink.flushed == [1]


def _raise(error):
    raise error


def test_records_that_come_all_the_time_are_flushed(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=0.5)
    eventually(lambda: writer.write(Item(1)) or sink.flushed)
    writer.close()


def test_a_flush_that_waits_is_not_in_the_way_of_a_giant(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, capacity_bytes=1000, block_secs=0)
    writer.write(Item("first", 10))
    eventually(lambda: not writer._waiting)  # the thread holds it
    assert not writer.flush(timeout=0)
    writer.write(Item("giant", 5000))
    assert troubles.counts == {}
    sink.gate.set()
    writer.close()
    assert sink.flushed == ["first", "giant"]


def test_a_record_after_close_is_counted_not_raised(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    writer.close()
    writer.write(Item(1))
    assert troubles.counts == {"record after close": 1}


def test_a_forked_child_writes_nothing_and_does_not_hang(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    child = os.fork()
    if child == 0:
        writer.write(Item("from the child"))
        writer.flush()
        writer.close()
        os._exit(7)
    assert exit_code(child) == 7
    writer.write(Item("from the parent"))
    writer.close()
    assert sink.flushed == ["from the parent"]


def test_a_slow_disk_is_waited_for_as_long_as_it_moves(troubles):
    class Slow(SlowSink):
        def write(self, record):
            time.sleep(0.05)
            super().write(record)

    sink = Slow()
    writer = BackgroundWriter(sink, troubles, capacity=2, block_secs=2)
    for n in range(50):  # 2.5 seconds in all, longer than a disk may stand still
        writer.write(Item(n))
    writer.close()
    assert sink.flushed == list(range(50))
    assert troubles.counts == {}
    assert writer.accepted == 50
    assert writer.dropped == 0


def test_without_waiting_what_finds_no_room_is_dropped_and_counted(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, capacity=4, block_secs=0)
    for n in range(50):
        writer.write(Item(n))
    assert not sink.written  # the gate is closed: a wait would have been for ever
    assert writer.take_longest() == 4
    sink.gate.set()
    writer.close()
    assert writer.dropped == troubles.counts["record dropped"]
    assert writer.accepted + writer.dropped == 50
    assert len(sink.flushed) == writer.accepted
    assert writer.take_longest() == 4  # it was so long when this was last asked
    assert writer.take_longest() == 0


def test_flush_after_a_close_that_failed_does_not_wait(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=3600)
    writer.write(Item(1))
    eventually(lambda: sink.written == [1])
    sink.failing = True
    writer.close()
    assert writer.flush(timeout=float("inf")) is False


def test_a_record_that_waited_for_room_while_another_thread_closed_is_counted(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, capacity=1, block_secs=60)
    writer.write(Item(1))
    eventually(lambda: not writer._waiting)
    writer.write(Item(2))
    waiting = threading.Thread(target=writer.write, args=(Item(3),))
    waiting.start()
    closing = threading.Thread(target=writer.close)
    closing.start()
    eventually(lambda: writer._closing)
    sink.gate.set()
    waiting.join(PATIENCE_SECS)
    closing.join(PATIENCE_SECS)
    assert sink.flushed == [1, 2]
    assert writer.accepted == 2
    assert troubles.counts == {"record after close": 1}
    assert writer.flush(timeout=30) is True


def test_a_handler_that_closes_may_interrupt_a_write(sink, troubles):
    """It runs in the thread that holds the lock."""
    writer = BackgroundWriter(sink, troubles)
    closed = []

    def close(*_):
        writer.close(timeout=PATIENCE_SECS)
        closed.append(sink.closed)

    before = signal.signal(signal.SIGUSR1, close)
    try:
        writer.write(Item(1))
        with writer._changed:  # as `write` does
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert closed == [1]  # within the handler
    assert sink.flushed == [1]
    assert troubles.counts == {}


def test_a_child_that_is_forked_while_the_lock_is_held_can_ask_for_numbers(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    held, done = threading.Event(), threading.Event()

    def hold():
        with writer._changed:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        writer.take_longest()
        writer.write(Item(1))
        writer.flush()
        writer.close()
        os._exit(7)
    done.set()
    holder.join()
    assert exit_code(child) == 7
    writer.close()


class Sum(Item):
    """Adds numbers up where it is encoded."""

    def encode(self):
        self.thread = threading.current_thread()
        return sum(self.value)


def test_records_are_encoded_in_the_thread_in_order(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    added = Sum([2, 3])
    for each in (Item(1), added, Sum([None]), Item(9)):
        writer.write(each)
    writer.close()
    assert sink.flushed == [1, 5, 9]
    assert added.thread is writer._thread
    assert troubles.counts == {"write": 1}
    assert writer.accepted == 4


@pytest.mark.parametrize("pause", [0.001, 1e6])
def test_the_thread_polls_also_while_there_is_nothing_to_write(sink, troubles, monkeypatch, pause):
    monkeypatch.setattr(background, "_POLL_SECS", pause)
    threads = []

    def poll():
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise OSError("a failed poll")

    writer = BackgroundWriter(sink, troubles, poll=poll)
    eventually(lambda: len(threads), until=lambda count: count > (pause < 1))
    for number in range(3):
        writer.write(Item(number))
        assert writer.flush()
    writer.close()
    assert len(threads) == 1 or pause < 1
    assert set(threads) == {writer._thread}
    assert troubles.counts == {"poll": 1}
