"""Which recorded values count, and under which names they are to be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.damage import cut_off
from tests.support.record_dirs import (
    START,
    event,
    histo,
    lineage,
    losses,
    scalar,
    train,
    write_segment,
)
from tools.checks.acceptance import expected, recorded


def points(tmp_path: Path) -> dict[tuple[str, str, int], float]:
    """Returns the numbers of all scalars that are expected."""
    return {key: number for key, (_, number) in shown(tmp_path).items()}


def shown(tmp_path: Path) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Returns the wall times and numbers of all scalars that are expected."""
    return dict(expected.expected(recorded.read(tmp_path))["scalars"])


def test_the_last_value_of_a_step_counts(tmp_path: Path) -> None:
    write_segment(
        tmp_path / "run",
        event(1, scalar("a", 1), scalar("b", 1)),
        event(1, scalar("a", 2), at=START + 5),
    )
    expected = {("run", "a", 1): (START + 5, 2.0), ("run", "b", 1): (START + 0.25, 1.0)}
    assert shown(tmp_path) == expected


def test_a_restart_supersedes_what_was_recorded_for_later_steps(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *(event(s, scalar("a", s), scalar("b", s)) for s in (1, 2, 3)))
    write_segment(tmp_path / "run", event(2, scalar("a", -2)))
    expected = {("run", "a", 1): 1, ("run", "a", 2): -2, ("run", "b", 1): 1}
    assert points(tmp_path) == expected


def test_ranks_are_runs_of_their_own(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_segment(tmp_path / "run", event(1, scalar("a", rank)), rank=rank)
    assert points(tmp_path) == {("run/rank_0", "a", 1): 0, ("run/rank_1", "a", 1): 1}


def test_a_lone_rank_of_several_is_a_run_of_its_own(tmp_path: Path) -> None:
    state = train(rank=0, rank_size=2)
    write_segment(tmp_path / "run", event(1, scalar("a", 5)), lineage(train_lineage=state))
    assert points(tmp_path) == {("run/rank_0", "a", 1): 5}


def test_counts_are_expected_from_the_first_one_on(tmp_path: Path) -> None:
    histograms = [histo("w", values) for values in ([1.0], [1.0, float("nan")], [1.0])]
    write_segment(tmp_path / "run", *(event(step, w) for step, w in enumerate(histograms, 1)))
    assert points(tmp_path) == {("run", "w/nan_count", 2): 1, ("run", "w/nan_count", 3): 0}


def test_a_tag_belongs_to_the_first_kind_of_value(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("w", 1)), event(2, histo("w", [1.0])))
    tags = [point.tag for point in expected.points(recorded.read(tmp_path))]
    assert tags == ["w", "w/histograms"]


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *losses((1, 2), tag="a"))
    cut_off(path, 3)
    assert points(tmp_path) == {("run", "a", 1): 1}


@pytest.mark.parametrize("wall_time", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_that_of_the_record_before(
    tmp_path: Path, wall_time: float
) -> None:
    odd = event(2, scalar("a", 2), at=wall_time)
    write_segment(tmp_path / "run", event(1, scalar("a", 1)), odd)
    assert shown(tmp_path)["run", "a", 2] == (START + 0.25, 2.0)
