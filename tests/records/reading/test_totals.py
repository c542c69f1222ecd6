"""The examples that were seen at a step."""

from __future__ import annotations

from typing import Any

from rec_summary.records.reading.totals import Totals
from tests.support.record_dirs import train


def totals(*stated: dict[str, Any]) -> Totals:
    found = Totals()
    for each in stated:
        message = train(**each)
        message.hyper_parameters.ClearField("batch_size")
        found.take(message)
    return found


def test_without_totals_each_step_has_a_batch() -> None:
    found = Totals()
    assert not found.known
    found.take(train())  # as MindSpore writes it
    assert found.known
    assert found.at([0, 1, 100]).tolist() == [0, 64, 6400]
    found.take(train(batch_size=10))  # of a stream, whose data set states another one
    assert found.at([1, 100]).tolist() == [10, 1000]


def test_recorded_totals_count_and_the_last_batch_size_behind_them() -> None:
    found = totals(
        {"step": 0, "batch_size": 10},
        {"step": 10, "samples": 100, "batch_size": 10},
        {"step": 20, "samples": 300, "batch_size": 20},
    )
    assert found.at([5, 10, 15, 20, 22]).tolist() == [50, 100, 200, 300, 340]
    assert int(found.at(15)) == 200


def test_totals_without_a_batch_size_go_on_as_before() -> None:
    found = totals({"step": 10, "samples": 48})
    assert found.known
    assert found.at([3, 20]).tolist() == [14, 96]  # 14.4
    assert found.at([1]).tolist() == [5]  # 4.8


def test_a_restart_replaces_later_totals() -> None:
    found = totals(
        {"step": 10, "samples": 100}, {"step": 30, "samples": 300}, {"step": 20, "samples": 120}
    )
    assert found.at([10, 20, 25]).tolist() == [100, 120, 150]
    again = totals({"step": 10, "samples": 50}, {"step": 10, "samples": 100})
    assert again.at([5, 10]).tolist() == [50, 100]


def test_what_a_later_lineage_does_not_state_stays() -> None:
    found = totals({"step": 5, "batch_size": 10}, {"step": 10, "samples": 200})
    assert found.at([5, 10, 12]).tolist() == [100, 200, 220]
    assert totals({"step": 10, "batch_size": 5}).at([10]).tolist() == [50]


def test_odd_totals_do_no_harm() -> None:
    found = totals({"step": -5, "samples": 7, "batch_size": -3}, {"step": 4, "samples": 8})
    assert found.at([-1, 0, 2, 4]).tolist() == [0, 0, 4, 8]
