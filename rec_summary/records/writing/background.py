"""Writing records in a thread, so that the caller does not wait for a disk."""

from __future__ import annotations

import collections
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rec_summary.records.failures import Troubles
from rec_summary.records.writing.record import Record, Sink, Task

DEFAULT_FLUSH_SECS: Final = 0.1  # a flush takes about 30 us
BLOCK_SECS: Final = 5.0
CLOSE_SECS: Final = 60.0
_RECORD: Final = "record"


@dataclass(frozen=True)
class Limits:
    """How much may wait in a queue, and how long a caller waits for room.

    Attributes:
        tasks: The most tasks that may wait.
        nbytes: The most bytes that they may take; an empty queue takes any task.
        block_secs: How long the caller waits, in seconds, while no task is done; 0 for no wait.
    """

    tasks: int = 256
    nbytes: int = 256 << 20
    block_secs: float = BLOCK_SECS


@dataclass(eq=False)
class Timer:
    """Something that a queue's thread does beside the tasks.

    Attributes:
        run: Does it. It sets the next time, and raises nothing.
        due: The monotonic time at which it is due, in seconds; only the thread changes it.
    """

    run: Callable[[], object]
    due: float = math.inf


@dataclass(eq=False)
class _Request:
    """Something to do in its place among the tasks, which takes no room."""

    run: Callable[[], object]
    is_done: bool = False


class TaskQueue:
    """Runs tasks in a thread of its own, one after another.

    The queue is bounded by number and by bytes. When it is full, the caller waits while tasks are
    done. When none is done for `block_secs`, the task is dropped and counted; so are the next ones,
    without a wait, until there is room again.

    No method raises because of a failure of a task: failures go to `troubles`.

    After a fork, the copy in the child refuses tasks: the thread exists in the parent only.

    Attributes:
        dropped: How many tasks were refused because the queue stayed full, by name.
        held_bytes: How much memory the tasks take that wait or are being done.
    """

    def __init__(
        self,
        troubles: Troubles,
        limits: Limits | None = None,
        *,
        take: Callable[[Record], object] | None = None,
        timers: Sequence[Timer] = (),
        at_end: Callable[[], object] | None = None,
    ) -> None:
        """Starts the thread.

        Args:
            troubles: Gets every failure.
            limits: How much may wait; None for the defaults.
            take: Called by the thread with each record that a task returns; None if none does.
            timers: What the thread also does, when it is due.
            at_end: Called by the thread after the last task; it raises nothing.
        """
        self._troubles = troubles
        self._limits = limits or Limits()
        self._take = take
        self._timers = timers
        self._at_end = at_end
        self._queue: collections.deque[Task | _Request] = collections.deque()
        self._waiting = 0  # tasks in the queue
        self.held_bytes = 0
        self._done = 0  # tasks, also those that failed
        self.dropped: collections.Counter[str] = collections.Counter()
        self._overflowing = False
        self._longest = 0  # the longest queue since `take_longest`
        self._closing = False
        self._ended = False  # the thread has ended
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rec_summary-writer", daemon=True)
        self._thread.start()

    def put(self, task: Task) -> None:
        """Queues a task; drops and counts it if the queue stays full."""
        name, nbytes = task.name, task.nbytes
        if os.getpid() != self._pid:
            text = f"process {self._pid} began to record, and only it has the thread that writes"
            self._troubles.report(f"{name} after fork", text)
            return
        with self._changed:
            if not (self._closing or self._overflowing or self._has_room(nbytes)):
                self._wait_for_room(nbytes)
            if self._closing:  # before, or by another thread meanwhile
                self._troubles.report(f"{name} after close", "it came too late and is lost")
                return
            self._overflowing = not self._has_room(nbytes)
            if self._overflowing:
                self.dropped[name] += 1
                text = f"the queue of {self._limits.tasks} stayed full"
                self._troubles.report(f"{name} dropped", text)
                return
            self._queue.append(task)
            self._waiting += 1
            self.held_bytes += nbytes
            self._longest = max(self._longest, self._waiting)
            self._changed.notify_all()

    def reach(self, run: Callable[[], object], timeout: float) -> bool:
        """Does something after all tasks so far, however many wait; it raises nothing.

        Returns:
            Whether it was done, or the thread has ended, within `timeout` seconds.
        """
        if os.getpid() != self._pid:
            return False
        request = _Request(run)
        with self._changed:
            self._queue.append(request)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: request.is_done or self._ended, timeout)

    def close(self, timeout: float = CLOSE_SECS) -> None:
        """Does what is queued and ends the thread; twice is allowed."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            # Not a join: a signal handler that closes may have interrupted the lock's holder.
            ended = self._changed.wait_for(lambda: self._ended, timeout)
        if ended:
            self._thread.join()
        else:
            self._troubles.report("close", f"the writer is still busy after {timeout} s")

    def take_longest(self) -> int:
        """Returns the greatest number of waiting tasks since the last call."""
        if os.getpid() != self._pid:  # another thread of the parent may have held the lock
            return self._longest
        with self._changed:
            longest, self._longest = self._longest, self._waiting
        return longest

    def _has_room(self, nbytes: int) -> bool:
        limits, waiting = self._limits, self._waiting
        fits = waiting < limits.tasks and self.held_bytes + nbytes <= limits.nbytes
        return fits or not waiting

    def _wait_for_room(self, nbytes: int) -> None:
        """Waits while tasks are done, at most `block_secs` for each."""
        while not self._has_room(nbytes):
            if not self._wait_for_progress():
                return

    def _wait_for_progress(self) -> bool:
        done = self._done
        return self._changed.wait_for(lambda: self._done > done, self._limits.block_secs)

    def _run(self) -> None:
        try:
            while (action := self._next()) is not None:
                action()
                del action  # with the task, which may be large
            if self._at_end is not None:
                self._at_end()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _next(self) -> Callable[[], object] | None:
        """Waits for the next action and returns it; None at the end."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = math.inf
                for timer in self._timers:
                    if now >= timer.due:
                        return timer.run
                    due = min(due, timer.due)
                if self._queue:
                    item = self._queue.popleft()
                    if isinstance(item, _Request):
                        return functools.partial(self._answer, item)
                    self._waiting -= 1
                    return functools.partial(self._do, item)
                if self._closing:
                    return None
                self._changed.wait(None if due == math.inf else due - now)

    def _answer(self, request: _Request) -> None:
        request.run()
        with self._changed:
            request.is_done = True
            self._changed.notify_all()

    def _do(self, task: Task) -> None:
        with self._troubles.attempt(task.name):
            record = task.run()
            if record is not None and self._take is not None:
                self._take(record)
        with self._changed:
            self._done += 1
            self.held_bytes -= task.nbytes
            self._changed.notify_all()


class BackgroundWriter(TaskQueue):
    """A queue of records, and of tasks that take their place among them.

    The thread passes the records to a sink. It flushes every `flush_secs` while there is something
    to flush; otherwise it sleeps. It also calls `poll` from time to time.

    Attributes:
        records: How many records the sink has been given.
    """

    def __init__(
        self,
        sink: Sink,
        troubles: Troubles,
        limits: Limits | None = None,
        *,
        flush_secs: float = DEFAULT_FLUSH_SECS,
        retry_secs: float = 1.0,
        poll: Callable[[], object] | None = None,
        poll_secs: float = 1.0,
    ) -> None:
        """Starts the thread.

        Args:
            sink: Takes the records; from now on, only the thread uses it.
            troubles: Gets every failure.
            limits: How much may wait; None for the defaults.
            flush_secs: The longest time from a record to the next flush, in seconds.
            retry_secs: The shortest time from a flush that failed to the next, in seconds.
            poll: Called by the thread; it must be fast.
            poll_secs: The time between two polls, in seconds.
        """
        self._sink = sink
        self._flush_secs = flush_secs
        self._retry_secs = max(flush_secs, retry_secs)
        self._poll_secs = poll_secs
        self._is_flushed = False  # the last flush has succeeded
        self.records = 0
        self._flushes = Timer(functools.partial(self._flush, sink.flush))
        timers = [self._flushes]
        if poll is not None:
            self._polls = Timer(functools.partial(self._poll, poll), time.monotonic())
            timers.append(self._polls)
        close = functools.partial(self._flush, sink.close)
        super().__init__(troubles, limits, take=self._write, timers=timers, at_end=close)

    def write(self, record: Record) -> None:
        """Queues a record; drops and counts it if the queue stays full."""
        self.put(Task("record", lambda: record, record.nbytes))

    def flush(self, timeout: float = CLOSE_SECS) -> bool:
        """Waits until everything queued so far is with the operating system.

        Returns:
            Whether that was reached, within `timeout` seconds.
        """
        return self.reach(self._flushes.run, timeout) and self._is_flushed

    def _write(self, record: Record) -> None:
        self.records += 1
        if self._flushes.due == math.inf:
            self._flushes.due = time.monotonic() + self._flush_secs
        with self._troubles.attempt("write"):
            self._sink.write(record)

    def _flush(self, flush: Callable[[], object]) -> None:
        is_flushed = False
        with self._troubles.attempt("flush"):
            flush()
            is_flushed = True
        self._is_flushed = is_flushed
        # After a failure it is tried again, no more often than this.
        self._flushes.due = math.inf if is_flushed else time.monotonic() + self._retry_secs

    def _poll(self, poll: Callable[[], object]) -> None:
        with self._troubles.attempt("poll"):
            poll()
        self._polls.due = time.monotonic() + self._poll_secs
