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
from rec_summary.records.writing.background import BackgroundWriter, Limits, TaskQueue
from rec_summary.records.writing.record import Record, Task
from tests.support.forked import in_child
from tests.support.waiting import PATIENCE_SECS, eventually


class Item:
    kind = Kind.SUMMARY

    def __init__(self, value, nbytes=10):
        self.value = value
        self.nbytes = nbytes

    def encode(self):
        return self.value


def task(run, nbytes=10, name="count"):
    return Task(name, run, nbytes)


class SlowSink:
    """A disk that waits for the test, and fails on request."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.held = 0  # records that the thread has brought
        self.thread = None
        self.written = []
        self.flushed = []
        self.closed = 0
        self.failing = False

    def write(self, record):
        self.held += 1
        self.thread = threading.current_thread()
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


def write(writer, *values, nbytes=10):
    for value in values:
        writer.write(Item(value, nbytes))


def held_up(sink, troubles, first=1, first_bytes=10, **limits):
    """Returns a writer whose thread has brought a record to the sink, and waits there."""
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, Limits(**limits))
    write(writer, first, nbytes=first_bytes)
    eventually(lambda: sink.held)
    return writer


def finish(sink, writer):
    """Lets the thread go on, and waits until all is written."""
    sink.gate.set()
    writer.close()


def wake_ups(thread):
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)[1])


def exit_code(child):
    """Waits for a forked child; one that hangs fails the test."""
    _, status = eventually(lambda: os.waitpid(child, os.WNOHANG), lambda found: found[0])
    return os.waitstatus_to_exitcode(status)


def use(writer):
    """Calls what a forked child may call."""
    writer.take_longest()
    writer.write(Item("from the child"))
    writer.put(task(lambda: None))
    writer.flush()
    writer.close()


def test_everything_arrives_in_order_and_close_waits_for_it(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    write(writer, *range(1000))
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
    write(writer, *range(20))
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
    writer = held_up(sink, troubles, "being written", nbytes, block_secs=0)
    write(writer, *range(300), nbytes=nbytes)
    finish(sink, writer)
    assert writer.records == 1 + most


def test_a_record_that_was_written_takes_no_memory(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=3600)
    writer.write(item := Item(1))
    left = weakref.ref(item)
    del item
    eventually(lambda: left() is None)
    writer.close()


@pytest.mark.parametrize(("poll", "most"), [(None, 0), (int, 1)])
def test_an_idle_writer_does_not_run(sink, troubles, poll, most):
    writer = BackgroundWriter(sink, troubles, flush_secs=0.01, retry_secs=0.0, poll=poll)
    writer.write(Item(1))
    eventually(lambda: sink.flushed == [1])

    def wakes_up():
        before = wake_ups(sink.thread)
        time.sleep(0.3)  # MindSpore's writer polls thousands of times in this
        return wake_ups(sink.thread) - before

    eventually(wakes_up, lambda often: often <= most)  # it may still be on its way to sleep
    writer.close()


def test_a_failing_disk_is_logged_once_counted_and_survived(sink, troubles, caplog):
    writer = BackgroundWriter(sink, troubles)
    sink.failing = True
    write(writer, *range(50))
    eventually(lambda: troubles.counts.get("write") == 50)
    sink.failing = False
    writer.write(Item("after"))
    writer.close()
    assert sink.flushed == ["after"]
    assert len([r for r in caplog.records if "No space left" in r.message]) == 1


def test_a_full_queue_holds_up_the_caller_once_and_then_drops_and_counts(sink, troubles):
    writer = held_up(sink, troubles, 0, tasks=4, block_secs=1.0)
    write(writer, *range(1, 5))
    others = threading.Thread(target=write, args=(writer, *range(5, 100)))
    others.start()
    others.join(60)
    assert not others.is_alive()  # it has not waited for each of 95 records
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
    writer = BackgroundWriter(sink, troubles, Limits(tasks=2, nbytes=1000, block_secs=60))
    threading.Timer(0.1, sink.gate.set).start()
    for n in range(30):
        writer.write(Item(n, 10 if n % 3 else 990))  # it may need the room of both
    writer.close()
    assert sink.flushed == list(range(30))
    assert troubles.counts == {}


def test_the_queue_is_bounded_in_bytes_but_lets_one_giant_through(sink, troubles):
    writer = held_up(sink, troubles, "giant", 5000, nbytes=1000, block_secs=0.05)
    writer.write(Item("first in line", 10))
    writer.write(Item("over budget", 900))
    assert troubles.counts == {"record dropped": 1}
    finish(sink, writer)
    assert sink.flushed == ["giant", "first in line"]


def test_what_was_written_takes_no_room_any_more(sink, troubles):
    writer = BackgroundWriter(sink, troubles, Limits(nbytes=1000, block_secs=0))
    writer.write(Item("before", 990))
    assert writer.flush()
    sink.gate.clear()
    writer.write(Item("being written", 10))
    eventually(lambda: sink.held == 2)
    writer.write(Item("first in line", 10))
    writer.write(Item("as much as fits", 980))
    writer.write(Item("too much", 1))
    assert troubles.counts == {"record dropped": 1}
    finish(sink, writer)
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
def test_a_flush_is_not_tried_again_at_once(sink, troubles, flush_secs, retry_secs):
    writer = BackgroundWriter(sink, troubles, flush_secs=flush_secs, retry_secs=retry_secs)
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
    finish(sink, writer)
    assert sink.flushed == [1]


def _raise(error):
    raise error


def test_records_that_come_all_the_time_are_flushed(sink, troubles):
    writer = BackgroundWriter(sink, troubles, flush_secs=0.5)
    eventually(lambda: writer.write(Item(1)) or sink.flushed)
    writer.close()


def test_a_flush_that_waits_is_not_in_the_way_of_a_giant(sink, troubles):
    writer = held_up(sink, troubles, "first", 10, nbytes=1000, block_secs=0)
    assert not writer.flush(timeout=0)
    writer.write(Item("giant", 5000))
    assert troubles.counts == {}
    finish(sink, writer)
    assert sink.flushed == ["first", "giant"]


def test_a_record_after_close_is_counted_not_raised(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    writer.close()
    writer.write(Item(1))
    assert troubles.counts == {"record after close": 1}


def test_a_forked_child_writes_nothing_says_so_and_does_not_hang(sink, troubles):
    writer = BackgroundWriter(sink, troubles)

    def use_and_count():
        use(writer)
        assert troubles.counts == {"record after fork": 1, "count after fork": 1}

    assert exit_code(in_child(use_and_count)) == 0
    writer.write(Item("from the parent"))
    writer.close()
    assert sink.flushed == ["from the parent"]


def test_a_slow_disk_is_waited_for_as_long_as_it_moves(troubles):
    class Slow(SlowSink):
        def write(self, record):
            time.sleep(0.05)
            super().write(record)

    sink = Slow()
    writer = BackgroundWriter(sink, troubles, Limits(tasks=2, block_secs=2))
    for n in range(50):  # 2.5 seconds in all, longer than a disk may stand still
        writer.write(Item(n))
    writer.close()
    assert sink.flushed == list(range(50))
    assert troubles.counts == {}
    assert writer.records == 50
    assert writer.dropped == {}


def test_without_waiting_what_finds_no_room_is_dropped_and_counted(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles, Limits(tasks=4, block_secs=0))
    write(writer, *range(50))
    assert not sink.written  # the gate is closed: a wait would have been for ever
    assert writer.take_longest() == 4
    finish(sink, writer)
    assert writer.dropped == {"record": troubles.counts["record dropped"]}
    assert writer.records + writer.dropped["record"] == 50
    assert len(sink.flushed) == writer.records
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
    writer = held_up(sink, troubles, 1, tasks=1, block_secs=60)
    writer.write(Item(2))
    waiting = threading.Thread(target=writer.write, args=(Item(3),))
    waiting.start()
    writer.close(timeout=0)  # it begins to close
    sink.gate.set()
    waiting.join(PATIENCE_SECS)
    writer.close()
    assert sink.flushed == [1, 2]
    assert writer.records == 2
    assert troubles.counts == {"close": 1, "record after close": 1}
    assert writer.flush(timeout=30) is True


class AtDrop(Troubles):
    """Does something when a record is dropped: the queue's lock is held then."""

    def __init__(self, act):
        super().__init__()
        self._act = act

    def report(self, kind, error):
        super().report(kind, error)
        if kind == "record dropped":
            self._act()


def full_writer(sink, troubles):
    """Returns a writer that drops the next record."""
    writer = held_up(sink, troubles, 1, tasks=1, block_secs=0)
    writer.write(Item(2))
    return writer


def test_a_handler_that_closes_may_interrupt_a_write(sink):
    """It runs in the thread that holds the lock."""
    closed = []

    def close(*_):
        sink.gate.set()
        writer.close(timeout=PATIENCE_SECS)
        closed.append(sink.closed)

    troubles = AtDrop(lambda: signal.raise_signal(signal.SIGUSR1))
    writer = full_writer(sink, troubles)
    before = signal.signal(signal.SIGUSR1, close)
    try:
        writer.write(Item(3))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert closed == [1]  # within the handler
    assert sink.flushed == [1, 2]
    assert troubles.counts == {"record dropped": 1}


def test_a_child_that_is_forked_while_the_lock_is_held_can_ask_for_numbers(sink):
    held, done = threading.Event(), threading.Event()
    writer = full_writer(sink, AtDrop(lambda: held.set() or done.wait()))
    holder = threading.Thread(target=writer.write, args=(Item(3),))
    holder.start()
    held.wait()

    child = in_child(lambda: use(writer))
    done.set()
    holder.join()
    assert exit_code(child) == 0
    finish(sink, writer)


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
    assert added.thread is sink.thread is not threading.current_thread()
    assert troubles.counts == {"write": 1}
    assert writer.records == 4


@pytest.mark.parametrize("pause", [0.001, 1e6])
def test_the_thread_polls_also_while_there_is_nothing_to_write(sink, troubles, pause):
    threads = []

    def poll():
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise OSError("a failed poll")

    writer = BackgroundWriter(sink, troubles, poll=poll, poll_secs=pause)
    eventually(lambda: len(threads), until=lambda count: count > (pause < 1))
    for number in range(3):
        writer.write(Item(number))
        assert writer.flush()
    writer.close()
    assert len(threads) == 1 or pause < 1
    assert set(threads) == {sink.thread}
    assert troubles.counts == {"poll": 1}


def test_the_record_of_a_task_is_written_in_its_place(sink, troubles):
    writer = BackgroundWriter(sink, troubles)
    writer.write(Item(1))
    writer.put(task(lambda: Record(lambda: 2, 10)))
    writer.put(task(lambda: None))
    writer.write(Item(3))
    writer.put(task(lambda: Record(lambda: 4, 10)))
    assert writer.flush()
    assert sink.flushed == [1, 2, 3, 4]
    assert writer.records == 4
    writer.close()
    assert troubles.counts == {}


def test_a_queue_knows_how_much_memory_its_unfinished_tasks_take(sink, troubles):
    sink.gate.clear()
    writer = BackgroundWriter(sink, troubles)
    writer.write(Item(1))
    for _ in range(3):
        writer.put(task(lambda: None))
    assert writer.held_bytes == Item(1).nbytes + 3 * task(lambda: None).nbytes
    sink.gate.set()
    assert writer.flush()
    assert writer.held_bytes == 0
    writer.close()


def test_tasks_are_dropped_and_fail_under_their_own_name(troubles):
    gate, held, done = threading.Event(), threading.Event(), []
    queue = TaskQueue(troubles, Limits(tasks=2, block_secs=0))
    queue.put(task(lambda: held.set() or (gate.wait() and None)))
    held.wait()
    queue.put(task(lambda: _raise(ValueError("no number")), name="sum"))
    queue.put(task(lambda: done.append(2)))
    queue.put(task(lambda: done.append(3)))
    assert queue.dropped == {"count": 1}
    gate.set()
    assert queue.reach(lambda: done.append("reached"), PATIENCE_SECS)
    assert done == [2, "reached"]
    queue.close()
    queue.put(task(lambda: None))
    assert troubles.counts == {"count dropped": 1, "sum": 1, "count after close": 1}


def test_a_queue_gives_records_to_another(sink, troubles):
    """So a slow task is in the way of no record."""
    writer, gate = BackgroundWriter(sink, troubles), threading.Event()
    queue = TaskQueue(troubles, take=writer.write)
    queue.put(task(lambda: gate.wait() and Record(lambda: "slow", 10)))
    writer.write(Item("fast"))
    assert writer.flush()
    assert sink.flushed == ["fast"]
    gate.set()
    queue.close()
    writer.close()
    assert sink.flushed == ["fast", "slow"]
