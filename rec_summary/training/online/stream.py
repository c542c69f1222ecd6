"""The data of online training: unbounded streams, and sets with a size.

MindSpore can only learn the size of a stream by reading it to its end. `get_dataset_size()` of an
unbounded source therefore never returns, and consumes the stream. So neither this package nor a
callback may call it while `online_train` runs. The functions here inspect only the structure of a
pipeline; none of them takes a row from it.

A stream is read in a thread of its own. When a stream has no new rows, three threads wait: the
user's code, the C++ thread of MindSpore that runs the user's code, and the main thread, which waits
in C++ for a batch and cannot run a signal handler. In addition, MindSpore cannot free a pipeline
whose thread is inside the user's code, and the process cannot end.

With the source in a Python thread, MindSpore's thread waits in Python, where the wait can be ended.
The pipeline then reports the end of a pass to the main thread, and it can be freed at any time.
Only a daemon thread stays in the user's code.

The cost, measured on two cores with a minimal model: 40 µs for a step whose batch is one row of the
source, and 6 µs for each row where a batch has many.

A Python thread for the wait of the main thread does not work: when a pipeline fails or is freed,
MindSpore 2.10 interrupts the waiting thread. Outside the main thread, this interrupt is a
segmentation fault.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mindspore.dataset import Dataset, GeneratorDataset

from rec_summary.training._mindspore import is_remembered_generator

INT32_MAX = 2**31 - 1
"""The largest number in MindSpore's lineage records and summary ranges."""

# Rows that are read before MindSpore requests them. For most rows this saves the change of
# threads. MindSpore itself reads 16 ahead.
_READ_AHEAD = 8


def sources(dataset: Dataset) -> Iterator[Dataset]:
    """Yields the leaves of a pipeline: the datasets that produce rows."""
    if not dataset.children:
        yield dataset
    for child in dataset.children:
        yield from sources(child)


def is_unbounded(dataset: Dataset) -> bool:
    """Returns whether some rows of `dataset` come from a source without a known end.

    Such sources are the generator functions, generators, iterables and iterators of a
    `GeneratorDataset`. A ``__len__`` does not bound an iterable: it is only its author's estimate.
    A source with ``__getitem__`` is read by its indices and has a size, and so have MindSpore's
    datasets over files.

    Args:
        dataset: The outermost dataset of a pipeline. It is not iterated.
    """
    return any(_is_sequential(source) for source in sources(dataset))


def _is_sequential(source: Dataset) -> bool:
    return isinstance(source, GeneratorDataset) and not (
        hasattr(source.source, "__getitem__") and source.sampler is not None
    )


def batches_in_pass(dataset: Dataset) -> int | None:
    """Returns the number of batches in one pass over `dataset`, or None for a stream.

    For a set it calls MindSpore, which may count the rows of files, as `Model.train` does.
    """
    if is_unbounded(dataset):
        return None
    return int(dataset.get_dataset_size()) or None


@dataclass(frozen=True)
class OpenStream:
    """The sources of a pipeline during training; none for a set."""

    sources: list[WakeableSource]

    def wake(self) -> None:
        """Ends the current pass, also while a thread waits for a batch. Thread-safe."""
        for source in self.sources:
            source.wake()

    def was_woken(self) -> bool:
        """Whether `wake`, and not the data, has ended a pass; true once for each."""
        woken = [source.was_woken() for source in self.sources]
        return any(woken)

    def close(self) -> None:
        """Ends the data of the pipeline, so that it can be freed without a wait."""
        for source in self.sources:
            source.close()


@contextlib.contextmanager
def opened(dataset: Dataset) -> Iterator[OpenStream]:
    """Prepares a pipeline for unbounded reading, and restores it afterwards.

    It does nothing to a set. For a stream:

    - `get_dataset_size()` of the outermost dataset returns at once. The number means "no end": it
      is the largest for which batches times batch size fits an int32, because MindSpore's
      `SummaryCollector` writes this product into its lineage record. It is never 1, which
      `DatasetHelper` takes for a dataset without dynamic shapes.
    - Threads of their own read the sources, see `WakeableSource`.
    - A generator object is consumed. MindSpore stores every row of a generator to repeat it, which
      exhausts the memory if there is no end. A second `online_train` continues the generator where
      the first one stopped.

    Args:
        dataset: The outermost dataset of a pipeline.
    """
    with contextlib.ExitStack() as stack:
        wakeable = []
        if is_unbounded(dataset):
            stack.enter_context(_size_answered(dataset))
            wakeable = [
                stack.enter_context(read_in_thread(source))
                for source in sources(dataset)
                if _is_sequential(source)
            ]
        yield OpenStream(wakeable)


@contextlib.contextmanager
def _size_answered(dataset: Dataset) -> Iterator[None]:
    def get_dataset_size() -> int:
        return max(2, INT32_MAX // max(1, dataset.get_batch_size()))

    # On the instance, not the class: other datasets keep their own method.
    attributes = vars(dataset)
    before = attributes.get("get_dataset_size")
    dataset.get_dataset_size = get_dataset_size
    try:
        yield
    finally:
        if before is None:
            attributes.pop("get_dataset_size", None)
        else:
            dataset.get_dataset_size = before


@contextlib.contextmanager
def read_in_thread(dataset: GeneratorDataset) -> Iterator[WakeableSource]:
    """Lets `dataset` read its source through a `WakeableSource`, and restores it afterwards."""
    before = rows = dataset.source
    if is_remembered_generator(before):
        rows = before.generator
        # While the wrapper has a copy of the generator, `tee` stores every row for that copy.
        before.generator = before.generator_new = iter(())
    known, reader = _unfinished.pop(dataset, (None, None))
    source = dataset.source = WakeableSource(rows, reader if known is rows else None)
    # MindSpore fails at the end of a pass with fewer rows than ``__len__``. In the background, it
    # even fails another training of the process.
    length, dataset.source_len = dataset.source_len, -1  # not known
    try:
        yield source
    finally:
        reader = source.close()
        if reader is not None:
            _unfinished[dataset] = rows, reader
        dataset.source, dataset.source_len = before, length
        if rows is not before:
            before.generator = before.generator_new = rows


_WAKE: Final = object()
_END: Final = object()


@dataclass(frozen=True)
class _Failure:
    """An error of the user's code; also a StopIteration, unless it is the end of the rows."""

    error: BaseException


class _Reader:
    """Reads rows in a daemon thread, a few ahead."""

    def __init__(self, rows: Any) -> None:
        # SimpleQueue is written in C, and the fastest queue for one row at a time.
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(_READ_AHEAD):
            self._requests.put(True)
        threading.Thread(
            target=_read,
            args=(rows, self._requests, self._answers),
            name="rec_summary-source",
            daemon=True,
        ).start()

    def take(self) -> Any:
        answer = self._answers.get()
        if answer is not _WAKE:
            self._requests.put(True)
        return answer

    def wake(self) -> None:
        self._answers.put(_WAKE)

    def __del__(self) -> None:
        # The thread ends as soon as the user's code returns.
        self._requests.put(False)


def _read(rows: Any, requests: queue.SimpleQueue[bool], answers: queue.SimpleQueue[Any]) -> None:
    # Not a method: a reference from the thread would keep the reader alive.
    try:
        iterator = iter(rows if hasattr(rows, "__iter__") else rows())
        while requests.get():
            row = next(iterator, _END)
            answers.put(row)
            if row is _END:
                return
    except BaseException as error:  # noqa: BLE001 - `WakeableSource` raises it again
        answers.put(_Failure(error))


# The iterators and their readers between two runs over the same dataset.
_unfinished: weakref.WeakKeyDictionary[GeneratorDataset, tuple[Any, _Reader]] = (
    weakref.WeakKeyDictionary()
)


class WakeableSource:
    """The source that a `GeneratorDataset` reads in place of the user's. Can be iterated again.

    Args:
        rows: The user's source: a generator function, an iterable or an iterator.
        reader: A reader of the same source from an earlier run.
    """

    def __init__(self, rows: Any, reader: _Reader | None = None) -> None:
        self._rows = rows
        # An iterator has one position, which two threads must not move. So it keeps its reader. A
        # function or an iterable is opened again for each pass.
        self._is_iterator = hasattr(rows, "__next__")
        self._reader = reader
        self._wake_wanted = False
        self._passes_ended: deque[None] = deque()  # by `wake`; `was_woken` counts each once
        self._closed = False

    def __iter__(self) -> Iterator[Any]:
        while not self._is_pass_ended():
            if self._reader is None:
                self._reader = _Reader(self._rows)
                continue  # check again: `wake` may have been called before there was a reader
            answer = self._reader.take()
            if answer is _WAKE:
                continue
            if answer is _END:
                self._reader = None
                return
            if isinstance(answer, _Failure):
                self._reader = None
                raise answer.error
            try:
                yield answer
            except GeneratorExit:
                # The pipeline ends this pass early, for example because of `num_samples`.
                if not self._is_iterator:
                    self._reader = None
                raise

    def _is_pass_ended(self) -> bool:
        if self._wake_wanted:
            self._wake_wanted = False
            self._passes_ended.append(None)
            return True
        return self._closed

    def wake(self) -> None:
        """Ends the pass, also while a thread waits for a row. The next pass has that row."""
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
        """Ends this pass; all later passes are empty.

        Returns:
            The reader, if a later run has to continue the same iterator.
        """
        self._closed = True
        self.wake()
        return self._reader if self._is_iterator else None
