"""A source that is read in a thread, and whose takers can be sent away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore.dataset import GeneratorDataset

from rec_summary.training.online.source import WakeableSource, attach, detach

pytestmark = pytest.mark.mindspore


def counter(first: int = 0) -> Iterator[int]:
    while True:
        yield first
        first += 1


def take(rows: Iterator[int], number: int) -> list[int]:
    return [next(rows) for _ in range(number)]


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


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
    taker.join(60)

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


def test_a_pass_that_is_left_early_begins_anew_for_a_function_only() -> None:
    function, iterator = WakeableSource(counter), WakeableSource(counter())
    for source in (function, iterator):
        rows = iter(source)
        assert take(rows, 3) == [0, 1, 2]
        rows.close()  # type: ignore[attr-defined]

    assert take(iter(function), 2) == [0, 1]
    assert take(iter(iterator), 2) == [3, 4]


def test_an_iterator_goes_on_in_the_next_run_without_losing_what_was_read_ahead() -> None:
    dataset = GeneratorDataset(lambda: iter([np.zeros(1)]), ["x"])
    rows = counter()
    before = source_threads()

    source = attach(dataset, rows)
    assert dataset.source is source
    assert take(iter(source), 5) == [0, 1, 2, 3, 4]
    (reading,) = source_threads() - before
    detach(dataset, source)
    source = attach(dataset, rows)
    assert take(iter(source), 5) == [5, 6, 7, 8, 9]
    detach(dataset, source)

    assert reading.is_alive()
    del source, dataset
    assert eventually(lambda: not reading.is_alive())
