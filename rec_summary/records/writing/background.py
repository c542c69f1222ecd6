"""Writing records in a thread, so that the caller does not wait for a disk."""

from __future__ import annotations

import collections
import functools
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Final, Generic

from rec_summary.records.failures import Troubles
from rec_summary.records.writing.record import Item, Sink

DEFAULT_FLUSH_SECS: Final = 0.1  # a flush takes about 30 us
_CAPACITY: Final = 256
_CAPACITY_BYTES: Final = 256 << 20
BLOCK_SECS: Final = 5.0
CLOSE_SECS: Final = 60.0
_RETRY_SECS: Final = 1.0
_POLL_SECS: Final = 1.0


class _Flush:
    """A request to flush, in its place among the records."""

    succeeded: bool | None = None  # None until it was tried


class BackgroundWriter(Generic[Item]):
    """A `Sink` that passes records to another sink through a bounded queue.

    A thread takes them from the queue, writes them, and flushes every `flush_secs` while there is
    something to flush; otherwise it sleeps. It also calls `poll` once a second.

    The queue is bounded by number and by bytes. When it is full, the caller waits while records
    are written. When nothing is written for `block_secs`, the record is dropped and counted; so
    are the next ones, without a wait, until there is room again.

    No method raises because of a failure of the other sink: failures go to `troubles`.

    After a fork, the copy in the child does nothing: the thread exists in the parent only.

    Attributes:
        accepted: How many records were taken into the queue.
        dropped: How many records were refused because the queue stayed full.
    """

    def __init__(
        self,
        sink: Sink[Item],
        troubles: Troubles,
        *,
        flush_secs: float = DEFAULT_FLUSH_SECS,
        capacity: int = _CAPACITY,
        capacity_bytes: int = _CAPACITY_BYTES,
        block_secs: float = BLOCK_SECS,
        poll: Callable[[], object] | None = None,
    ) -> None:
        """Starts the thread.

        Args:
            sink: Takes the records; from now on, only the thread uses it.
            troubles: Gets every failure.
            flush_secs: The longest time from a record to the next flush, in seconds.
            capacity: The most records that may wait.
            capacity_bytes: The most bytes that they may take; an empty queue takes any record.
            block_secs: How long the caller waits, in seconds, while nothing is written; 0 for
                no wait.
            poll: Called by the thread, at most once a second; it must be fast.
        """
        self._sink = sink
        self._troubles = troubles
        self._flush_secs = flush_secs
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._block_secs = block_secs
        self._waiting: collections.deque[Item | _Flush] = collections.deque()
        self._held_bytes = 0  # of the waiting records and of the one being written
        self.accepted = 0
        self._done = 0  # written, or failed
        self._is_flushed = False  # the last flush has succeeded
        self._flush_due = math.inf  # the monotonic time of the next regular flush
        self._poll = poll
        self._poll_due = math.inf if poll is None else time.monotonic()
        self._overflowing = False
        self.dropped = 0
        self._longest = 0  # the longest queue since `take_longest`
        self._closing = False
        self._ended = False  # the thread has ended
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rec_summary-writer", daemon=True)
        self._thread.start()

    def write(self, record: Item) -> None:
        """Queues a record; drops and counts it if the queue stays full."""
        if os.getpid() != self._pid:
            return
        nbytes = record.nbytes
        with self._changed:
            if not (self._closing or self._overflowing or self._has_room(nbytes)):
                self._wait_for_room(nbytes)
            if self._closing:  # before, or by another thread meanwhile
                self._troubles.report("record after close", "a record came too late and is lost")
                return
            self._overflowing = not self._has_room(nbytes)
            if self._overflowing:
                self.dropped += 1
                self._troubles.report(
                    "record dropped", f"the queue of {self._capacity} records stayed full"
                )
                return
            self._waiting.append(record)
            self._held_bytes += nbytes
            self.accepted += 1
            self._longest = max(self._longest, len(self._waiting))
            self._changed.notify_all()

    def _wait_for_room(self, nbytes: int) -> None:
        """Waits while records are written, at most `block_secs` for each."""
        while not self._has_room(nbytes):
            has_moved = functools.partial(self._moved, self._done)
            if not self._changed.wait_for(has_moved, self._block_secs):
                return

    def _moved(self, done: int) -> bool:
        return self._done > done

    def flush(self, timeout: float = CLOSE_SECS) -> bool:
        """Waits until everything queued so far is with the operating system.

        Returns:
            Whether that was reached, within `timeout` seconds.
        """
        if os.getpid() != self._pid:
            return False
        request = _Flush()
        with self._changed:
            self._waiting.append(request)
            self._changed.notify_all()
            self._changed.wait_for(lambda: request.succeeded is not None or self._ended, timeout)
            if request.succeeded is None and self._ended:
                return self._is_flushed
            return bool(request.succeeded)

    def close(self, timeout: float = CLOSE_SECS) -> None:
        """Writes what is queued, closes the sink and ends the thread; twice is allowed."""
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
        """Returns the greatest length of the queue since the last call."""
        if os.getpid() != self._pid:  # another thread of the parent may have held the lock
            return self._longest
        with self._changed:
            longest, self._longest = self._longest, len(self._waiting)
        return longest

    def _has_room(self, nbytes: int) -> bool:
        if all(isinstance(item, _Flush) for item in self._waiting):
            return True  # no record waits
        fits = self._held_bytes + nbytes <= self._capacity_bytes
        return fits and len(self._waiting) < self._capacity

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _serve(self) -> None:
        while (action := self._next()) is not None:
            action()
            del action  # with the record, which may be large
        self._flush(self._sink.close)

    def _next(self) -> Callable[[], object] | None:
        """Waits for the next action and returns it; None at the end."""
        with self._changed:
            while True:
                now = time.monotonic()
                if now >= self._flush_due:
                    return functools.partial(self._flush, self._sink.flush)
                if now >= self._poll_due:
                    return self._run_poll
                if self._waiting:
                    item = self._waiting.popleft()
                    if isinstance(item, _Flush):
                        return functools.partial(self._flush, self._sink.flush, item)
                    return functools.partial(self._write, item)
                if self._closing:
                    return None
                due = min(self._flush_due, self._poll_due)
                self._changed.wait(None if due == math.inf else due - now)

    def _write(self, item: Item) -> None:
        with self._troubles.attempt("write"):
            self._sink.write(item)
        with self._changed:
            self._done += 1
            self._held_bytes -= item.nbytes
            if self._flush_due == math.inf:
                self._flush_due = time.monotonic() + self._flush_secs
            self._changed.notify_all()

    def _flush(self, flush: Callable[[], object], request: _Flush | None = None) -> None:
        succeeded = False
        with self._troubles.attempt("flush"):
            flush()
            succeeded = True
        with self._changed:
            self._is_flushed = succeeded
            if request is not None:
                request.succeeded = succeeded
            # After a failure it is tried again, no more often than this.
            again = time.monotonic() + max(self._flush_secs, _RETRY_SECS)
            self._flush_due = math.inf if succeeded else again
            self._changed.notify_all()

    def _run_poll(self) -> None:
        assert self._poll is not None
        with self._troubles.attempt("poll"):
            self._poll()
        self._poll_due = time.monotonic() + _POLL_SECS
