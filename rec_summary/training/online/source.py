"""A user's source, read in a thread of its own, so that nothing else has to wait for it.

When a stream goes quiet, three parties are stuck: the user's code that waits for the world, the
C++ thread of MindSpore that runs the user's code, and the main thread that waits in C++ for a
batch, where Python cannot run a signal handler. Worse, MindSpore cannot free a pipeline whose
thread is inside the user's code, nor can the process end.

With the source in a Python thread, MindSpore's thread waits in Python instead, where it can be
sent away. The pipeline then sees the end of a pass, which it passes on to the main thread, and it
can be freed at any time. Only a daemon thread stays with the user's code.

The price, measured on two cores with the smallest of models: 40 µs for a step whose batch is one
row of the source, and 6 µs for each row where a batch is made of many.

Why not put the main thread's wait into a Python thread? It was tried: when a pipeline fails or is
freed, MindSpore 2.10 interrupts whoever waits for it, and outside of the main thread, or a thread
of its own, that interrupt is a segmentation fault.
"""

from __future__ import annotations

import enum
import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mindspore.dataset import GeneratorDataset

# Rows that are read before they are asked for. They spare most rows the change of threads;
# MindSpore itself reads 16 ahead.
_READ_AHEAD = 8


class _Mark(enum.Enum):
    END = enum.auto()
    WAKE = enum.auto()


@dataclass(frozen=True)
class _Failure:
    error: BaseException


class _Reader:
    """Reads rows in a daemon thread, a few ahead."""

    def __init__(self, rows: Any) -> None:
        # SimpleQueue: it is made in C, and the cheapest there is for one row at a time.
        self._places: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(_READ_AHEAD):
            self._places.put(True)
        threading.Thread(
            target=_read,
            args=(rows, self._places, self._answers),
            name="rec_summary-source",
            daemon=True,
        ).start()

    def take(self) -> Any:
        answer = self._answers.get()
        if not isinstance(answer, _Mark):
            self._places.put(True)
        return answer

    def wake(self) -> None:
        self._answers.put(_Mark.WAKE)

    def __del__(self) -> None:
        # Lets the thread end, as soon as the user's code comes back.
        self._places.put(False)


def _read(rows: Any, places: queue.SimpleQueue[bool], answers: queue.SimpleQueue[Any]) -> None:
    # Not a method: a thread that holds its reader would keep it from being deleted.
    try:
        iterator = iter(rows if hasattr(rows, "__iter__") else rows())
        while places.get():
            try:
                row = next(iterator)
            except StopIteration:
                answers.put(_Mark.END)
                return
            answers.put(row)
    except BaseException as error:  # noqa: BLE001 - raised again by the taker
        answers.put(_Failure(error))


class WakeableSource:
    """What a `GeneratorDataset` reads in place of the user's source; may be iterated repeatedly.

    Args:
        rows: The user's source: a generator function, an iterable or an iterator.
        reader: A reader of the same source that an earlier run has left unfinished.
    """

    def __init__(self, rows: Any, reader: _Reader | None = None) -> None:
        self.rows = rows
        # An iterator has one place where it is, and two threads must not move it. So it keeps its
        # reader, while a function or an iterable is opened anew for each pass.
        self._keeps_place = hasattr(rows, "__next__")
        self._reader = reader
        self._wake_wanted = False
        self._passes_ended: deque[None] = deque()  # by `wake`; each is seen once by `was_woken`
        self._closed = False

    def __iter__(self) -> Iterator[Any]:
        while not self._is_pass_ended():
            if self._reader is None:
                self._reader = _Reader(self.rows)
                continue  # to look again: `wake` may have come before there was a reader
            answer = self._reader.take()
            if answer is _Mark.WAKE:
                continue
            if answer is _Mark.END:
                self._reader = None
                return
            if isinstance(answer, _Failure):
                self._reader = None
                raise answer.error
            try:
                yield answer
            except GeneratorExit:
                # The pipeline wants no more of this pass, for example because of `num_samples`.
                if not self._keeps_place:
                    self._reader = None
                raise

    def _is_pass_ended(self) -> bool:
        if self._wake_wanted:
            self._wake_wanted = False
            self._passes_ended.append(None)
            return True
        return self._closed

    def wake(self) -> None:
        """Ends the pass for whoever waits for a row. The row comes in the next pass."""
        self._wake_wanted = True
        reader = self._reader
        if reader is not None:
            reader.wake()

    def was_woken(self) -> bool:
        """Whether `wake` has ended a pass; true once for each."""
        if self._passes_ended:
            self._passes_ended.pop()
            return True
        return False

    def close(self) -> _Reader | None:
        """Ends this pass and makes all later ones empty.

        Returns:
            The reader, if it has to go on with the same iterator in a later run.
        """
        self._closed = True
        self.wake()
        return self._reader if self._keeps_place else None


# The readers of iterators, and the iterators, between two runs over the same dataset.
_unfinished: weakref.WeakKeyDictionary[GeneratorDataset, tuple[Any, _Reader]] = (
    weakref.WeakKeyDictionary()
)


def attach(dataset: GeneratorDataset, rows: Any) -> WakeableSource:
    """Makes `dataset` read `rows` through a `WakeableSource`."""
    known, reader = _unfinished.pop(dataset, (None, None))
    source = WakeableSource(rows, reader if known is rows else None)
    dataset.source = source
    return source


def detach(dataset: GeneratorDataset, source: WakeableSource) -> None:
    """Closes `source`, and keeps its reader if a later run has to go on with it.

    The caller gives `dataset` its own source back.
    """
    reader = source.close()
    if reader is not None:
        _unfinished[dataset] = source.rows, reader
