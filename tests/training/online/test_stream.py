"""Streams are known by how they are built, and nobody gets to count them."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore.dataset import Dataset, GeneratorDataset, NumpySlicesDataset, TextFileDataset
from mindspore.dataset import zip as zip_datasets

from rec_summary.training.online.stream import (
    INT32_MAX,
    WakeableSource,
    batches_in_pass,
    is_unbounded,
    opened,
    read_in_thread,
)
from tests.support.waiting import PATIENCE_SECS, eventually

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


# Sources in threads


def counter(first: int = 0) -> Iterator[int]:
    while True:
        yield first
        first += 1


def take(rows: Iterator[int], number: int) -> list[int]:
    return [next(rows) for _ in range(number)]


def source_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "rec_summary-source"}


@pytest.mark.parametrize("rows", [lambda: iter("abc"), "abc", ["a", "b", "c"]])
def test_a_source_that_can_be_opened_again_is_repeated(rows: object) -> None:
    source = WakeableSource(rows)

    assert [list(source) for _ in range(3)] == [["a", "b", "c"]] * 3


def test_an_iterator_runs_dry() -> None:
    source = WakeableSource(iter("abc"))

    assert [list(source) for _ in range(3)] == [["a", "b", "c"], [], []]


def test_an_error_of_the_source_reaches_the_taker_in_its_place() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("no such topic")

    rows = iter(WakeableSource(broken))

    assert next(rows) == 1
    with pytest.raises(KeyError, match="no such topic"):
        next(rows)


def test_an_error_when_the_source_is_opened_reaches_the_taker() -> None:
    def broken() -> Iterator[int]:
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError, match="refused"):
        next(iter(WakeableSource(broken)))


def test_a_stop_iteration_when_the_source_is_opened_is_an_error_and_not_the_end() -> None:
    def broken() -> Iterator[int]:
        return iter([next(iter(()))])

    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iter(WakeableSource(broken)))


def test_waking_ends_the_pass_of_a_waiting_taker_and_loses_no_row() -> None:
    more = threading.Event()

    def quiet() -> Iterator[str]:
        yield "first"
        more.wait()
        yield "second"

    source = WakeableSource(quiet)
    got: list[str] = []

    def take_all() -> None:
        for row in source:
            got.append(row)

    taker = threading.Thread(target=take_all)
    taker.start()
    assert eventually(lambda: got == ["first"])

    source.wake()
    taker.join(PATIENCE_SECS)

    assert not taker.is_alive()
    assert got == ["first"]
    assert source.was_woken()
    assert not source.was_woken()
    more.set()
    assert list(source) == ["second"]
    assert not source.was_woken()


def test_waking_too_early_ends_the_next_pass_and_a_spare_wake_ends_none() -> None:
    source = WakeableSource(lambda: iter("ab"))
    source.wake()
    assert list(source) == []
    assert source.was_woken()

    rows = iter(source)
    assert next(rows) == "a"
    source.wake()
    source.wake()
    assert list(rows) == []
    assert list(source) == ["b"]
    assert [source.was_woken(), source.was_woken()] == [True, False]


def test_a_closed_source_is_empty_and_its_thread_ends() -> None:
    before = source_threads()
    source = WakeableSource(counter)
    rows = iter(source)
    assert take(rows, 20) == list(range(20))
    (reading,) = source_threads() - before

    source.close()

    assert list(rows) == []
    assert list(source) == []
    del source, rows
    assert eventually(lambda: not reading.is_alive())


def test_a_pass_that_is_left_early_begins_again_for_a_function_only() -> None:
    function, iterator = WakeableSource(counter), WakeableSource(counter())
    for source in (function, iterator):
        rows = iter(source)
        assert take(rows, 3) == [0, 1, 2]
        rows.close()  # type: ignore[attr-defined]

    assert take(iter(function), 2) == [0, 1]
    assert take(iter(iterator), 2) == [3, 4]


def test_an_iterator_goes_on_in_the_next_run_without_losing_what_was_read_ahead() -> None:
    dataset = GeneratorDataset(counter(), ["x"])
    before = source_threads()

    with read_in_thread(dataset) as source:
        assert dataset.source is source
        assert take(iter(source), 5) == [0, 1, 2, 3, 4]
        (reading,) = source_threads() - before
    with read_in_thread(dataset) as source:
        assert take(iter(source), 5) == [5, 6, 7, 8, 9]

    assert reading.is_alive()
    del source, dataset
    assert eventually(lambda: not reading.is_alive())
