"""What a dataset is to online training: a stream without end, or a set with a size.

MindSpore knows one way to learn the size of a stream: run it to its end. `get_dataset_size()`
on an endless source therefore never returns, and eats the stream. So nobody may ask, neither
this package nor any callback, as long as `online_train` runs. The functions here look only at
how a pipeline is built; none of them takes a row from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mindspore.dataset import Dataset, GeneratorDataset

from rec_summary.training._mindspore import remembered_generator
from rec_summary.training.online.source import WakeableSource, attach, detach

INT32_MAX = 2**31 - 1
"""The largest number that MindSpore's lineage records and summary ranges can hold."""


def sources(dataset: Dataset) -> Iterator[Dataset]:
    """Yields the leaves of a pipeline: the datasets that rows come from."""
    if not dataset.children:
        yield dataset
    for child in dataset.children:
        yield from sources(child)


def is_unbounded(dataset: Dataset) -> bool:
    """Tells whether rows of `dataset` come, at least in part, from a source without known end.

    These are the generator functions, generators, iterables and iterators given to
    `GeneratorDataset`. A ``__len__`` makes no difference to an iterable: it is a guess of its
    author and not a bound. A source with ``__getitem__`` is read by its indices and has a size,
    and so do MindSpore's datasets over files.

    Args:
        dataset: The outermost dataset of a pipeline. Nothing is iterated.
    """
    return any(_is_sequential(source) for source in sources(dataset))


def _is_sequential(source: Dataset) -> bool:
    return isinstance(source, GeneratorDataset) and not (
        hasattr(source.source, "__getitem__") and source.sampler is not None
    )


def batches_in_pass(dataset: Dataset) -> int | None:
    """Returns the number of batches in one pass over `dataset`, or None for a stream.

    For a set this asks MindSpore, which may count the rows of files, as `Model.train` does.
    """
    if is_unbounded(dataset):
        return None
    return int(dataset.get_dataset_size()) or None


class OpenStream:
    """The sources of a pipeline that is being read."""

    def __init__(self, sources: list[WakeableSource]) -> None:
        self._sources = sources

    def wake(self) -> None:
        """Ends the pass for whoever waits for a batch; may be called from any thread."""
        for source in self._sources:
            source.wake()

    def was_woken(self) -> bool:
        """Whether `wake`, and not the data, has ended a pass; true once for each."""
        woken = [source.was_woken() for source in self._sources]
        return any(woken)

    def close(self) -> None:
        """Makes the pipeline come to its end, so that it can be freed without waiting."""
        for source in self._sources:
            source.close()


@contextlib.contextmanager
def opened(dataset: Dataset) -> Iterator[OpenStream]:
    """Prepares a pipeline for endless reading, and puts everything back afterwards.

    Does nothing to a set. For a stream:

    - `get_dataset_size()` of the outermost dataset answers at once. The number stands for "no
      end": the largest for which batches times batch size still fits an int32, because that
      product is what MindSpore's `SummaryCollector` writes into its lineage record. It is never
      1, which `DatasetHelper` would take for a dataset without dynamic shapes.
    - The sources are read in threads of their own, see `WakeableSource`.
    - A generator object is consumed instead of remembered. MindSpore keeps every row that a
      generator ever gave in order to repeat it, which fills the memory if there is no end.
      A second `online_train` goes on where the first one left the generator.

    Args:
        dataset: The outermost dataset of a pipeline.
    """
    with contextlib.ExitStack() as stack:
        wakeable = []
        if is_unbounded(dataset):
            stack.enter_context(_size_answered(dataset))
            wakeable = [
                stack.enter_context(_read_in_thread(source))
                for source in sources(dataset)
                if _is_sequential(source)
            ]
        yield OpenStream(wakeable)


@contextlib.contextmanager
def _size_answered(dataset: Dataset) -> Iterator[None]:
    def get_dataset_size() -> int:
        return max(2, INT32_MAX // max(1, dataset.get_batch_size()))

    # On the instance, not the class: other datasets must keep their own answer.
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
def _read_in_thread(dataset: GeneratorDataset) -> Iterator[WakeableSource]:
    before = rows = dataset.source
    if remembered_generator(before):
        rows = before.generator
        # As long as the wrapper holds a copy of the generator, `tee` keeps every row for that copy.
        before.generator = before.generator_new = iter(())
    source = attach(dataset, rows)
    try:
        yield source
    finally:
        detach(dataset, source)
        dataset.source = before
        if rows is not before:
            before.generator = before.generator_new = rows
