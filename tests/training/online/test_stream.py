"""Streams are known by how they are built, and nobody gets to count them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore.dataset import Dataset, GeneratorDataset, NumpySlicesDataset, TextFileDataset
from mindspore.dataset import zip as zip_datasets

from rec_summary.training.online.stream import INT32_MAX, batches_in_pass, is_unbounded, opened

pytestmark = pytest.mark.mindspore


class Untouchable:
    """An iterable that must not be iterated, with a length that is no bound."""

    def __iter__(self) -> Iterator[Any]:
        return forbidden()  # `GeneratorDataset` asks for an iterator when it is made

    def __len__(self) -> int:
        return 10**9


class Indexed:
    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        return np.float32([index])

    def __len__(self) -> int:
        return 10


def forbidden() -> Iterator[np.ndarray[Any, Any]]:
    raise AssertionError("the source was iterated")
    yield np.float32([0])


def source(rows: Any) -> Dataset:
    return GeneratorDataset(rows, ["x"])


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(lambda: source(forbidden), id="generator function"),
        pytest.param(lambda: source(forbidden()), id="generator"),
        pytest.param(lambda: source(Untouchable()), id="iterable with a length"),
        pytest.param(lambda: source(iter([np.float32([0])])), id="iterator"),
        pytest.param(
            lambda: (
                source(forbidden).batch(2).map(np.negative, ["x"]).shuffle(4).project(["x"]).take(9)
            ),
            id="behind operations",
        ),
        pytest.param(
            lambda: zip_datasets((source(Indexed()), source(forbidden).rename(["x"], ["y"]))),
            id="zipped with a set",
        ),
    ],
)
def test_a_source_without_indices_is_a_stream_and_is_not_iterated_to_learn_it(dataset: Any) -> None:
    made = dataset()

    assert is_unbounded(made)
    assert batches_in_pass(made) is None


@pytest.mark.parametrize(
    ("dataset", "batches"),
    [
        pytest.param(lambda: source(Indexed()).batch(3), 4, id="random access"),
        pytest.param(lambda: source([np.float32([1])] * 6), 6, id="list"),
        pytest.param(lambda: NumpySlicesDataset(np.zeros(7), ["x"]).batch(2), 4, id="arrays"),
        pytest.param(
            lambda: GeneratorDataset(Indexed(), ["x"], batch_sampler=[[1, 2], [3]]), 2, id="sampler"
        ),
    ],
)
def test_a_set_knows_its_size(dataset: Any, batches: int) -> None:
    made = dataset()

    assert not is_unbounded(made)
    assert batches_in_pass(made) == batches
    with opened(made):
        assert made.get_dataset_size() == batches


def test_a_set_of_files_knows_its_size(tmp_path: Any) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\nc\n")
    dataset = TextFileDataset(str(file))

    assert not is_unbounded(dataset)
    assert batches_in_pass(dataset) == 3


@pytest.mark.parametrize("batch_size", [1, 64, 1_000_000])
def test_the_size_of_an_open_stream_is_answered_at_once_and_fits_lineage(batch_size: int) -> None:
    dataset = source(forbidden)
    if batch_size > 1:
        dataset = dataset.batch(batch_size)
    other = source(Indexed())

    with opened(dataset):
        size = dataset.get_dataset_size()
        assert len(dataset) == size
        assert other.get_dataset_size() == 10

    assert size > 1
    assert INT32_MAX - batch_size < size * batch_size <= INT32_MAX


def test_the_size_is_asked_of_the_dataset_again_afterwards_and_after_an_error() -> None:
    dataset = source(forbidden)
    with pytest.raises(KeyError), opened(dataset):
        raise KeyError

    assert "get_dataset_size" not in vars(dataset)

    dataset.get_dataset_size = lambda: 17  # the workaround that users of the original know
    with opened(dataset):
        assert dataset.get_dataset_size() > 17
    assert dataset.get_dataset_size() == 17


def test_an_open_generator_is_consumed_and_goes_on_where_it_was_left() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Row(np.ndarray[Any, Any]):
        """An array that can be counted."""

    def rows() -> Iterator[Row]:
        number = 0
        while True:
            row = np.full(1, number, np.float32).view(Row)
            alive.add(CountedBy(row))
            yield row
            number += 1

    class CountedBy:
        """Lives as long as the row that it is attached to."""

        def __init__(self, row: Row) -> None:
            row.counter = self  # type: ignore[attr-defined]

    dataset = source(rows())
    with opened(dataset):
        batches = dataset.create_tuple_iterator(num_epochs=-1)
        first = [float(next(batches)[0].asnumpy()[0]) for _ in range(500)]
        gc.collect()
        assert len(alive) < 100
        batches.stop()
    with opened(dataset):
        batches = dataset.create_tuple_iterator(num_epochs=-1)
        later = float(next(batches)[0].asnumpy()[0])
        batches.stop()

    assert first == list(range(500))
    assert later >= 500
