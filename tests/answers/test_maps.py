"""Maps: how far each part is from its own past over time."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.answers.maps import Map, maps
from rec_summary.answers.scalars import Scalars
from rec_summary.answers.why import compared
from tests.support.broken_streams import BREAK, by_chance, nothing, stream
from tests.support.slice_streams import Batch


def found(broken: object, columns: int = 120, scalars: tuple[Scalars, ...] = ()) -> list[Map]:
    done = compared(stream(broken), scalars)
    return maps([*done.scanned, *done.click_rates()], columns)


def of(every: list[Map], metric: str, column: str = "country", task: str = "ctr") -> Map:
    [one] = [m for m in every if (m.metric, m.column, m.task) == (metric, column, task)]
    return one


def test_a_broken_slice_stands_out_from_its_onset_on() -> None:
    quality = of(found(by_chance), "ne")
    row = quality.names.index("DE")
    before, after = quality.z[:, quality.steps <= BREAK], quality.z[:, quality.steps > BREAK]
    assert np.nanmax(np.abs(before)) < 5
    assert after[row, 0] > 6
    assert np.nanargmax(np.nanmax(after, axis=1)) == row


def lost(step: int, batch: Batch, random: np.random.Generator) -> None:
    """DE has no clicks any more."""
    batch["ctr"][(batch["country"] == 1) & (step > BREAK)] = 0


def test_the_click_rate_of_a_slice_is_shown() -> None:
    [whole] = [each for each in stream(lost) if (each.task, each.column) == ("ctr", "country")]
    rate = of(found(lost, columns=len(whole.steps)), "click_rate")
    assert pytest.approx(whole.sums[..., 2] / whole.sums[..., 1]) == rate.values.T
    assert (rate.kind, rate.worse) == ("slice", "")
    row, after = rate.names.index("DE"), rate.steps > BREAK
    assert rate.z[row, after][0] < -6
    assert np.nanmax(np.abs(rate.z[:, ~after])) < 5


def test_where_nothing_breaks_no_slice_is_far_from_its_past() -> None:
    assert np.nanmax(np.abs(of(found(nothing), "ne").z)) < 5


@pytest.mark.parametrize("columns", [4, 7, 120])
def test_reports_are_taken_together_and_none_is_lost(columns: int) -> None:
    [whole] = [each for each in stream(nothing) if (each.task, each.column) == ("ctr", "")]
    every = found(nothing, columns)
    calibration = of(every, "calibration", "")
    assert len(calibration.steps) <= columns
    assert calibration.steps[-1] == whole.steps[-1]
    assert calibration.examples is not None
    assert calibration.examples.sum() == whole.sums[..., 0].sum()
    for each in every:
        shape = len(each.names), len(each.steps)
        assert (each.z.shape, each.values.shape, each.wall_times.shape) == (
            *(shape, shape),
            shape[1:],
        )


def test_values_are_those_of_the_column_alone() -> None:
    [whole] = [each for each in stream(by_chance) if (each.task, each.column) == ("ctr", "country")]
    calibration = of(found(by_chance, columns=len(whole.steps)), "calibration")
    assert pytest.approx(whole.sums[..., 3] / whole.sums[..., 2]) == calibration.values.T
    traffic = of(found(by_chance), "traffic")
    assert traffic.values.sum(axis=0) == pytest.approx(1)


def test_scalars_of_a_metric_are_rows_of_one_map() -> None:
    steps = np.arange(25, 1001, 25)
    broken = np.where(steps > BREAK, 0.5, 0.01)
    scalars = tuple(
        Scalars(f"recommender/drift/missing_share/{name}", 0, steps, steps * 1.0, values)
        for name, values in (("age", broken), ("hour", np.full(len(steps), 0.01)))
    )
    one = of(found(nothing, scalars=scalars), "missing_share", "", None)  # type: ignore[arg-type]
    assert (one.kind, one.names) == ("feature", ("age", "hour"))
    assert np.nanmax(one.z[0]) > 6
    assert np.nanmax(np.abs(one.z[1])) < 3


def test_scalars_at_different_steps_are_rows_of_one_map() -> None:
    importances = tuple(
        Scalars(f"recommender/importance/{name}", 0, steps, steps * 2.0, np.full(len(steps), value))
        for name, steps, value in (
            ("age", np.arange(50, 1001, 50), 0.1),
            ("hour", np.arange(75, 1001, 100), 0.2),
        )
    )
    one = of(found(nothing, scalars=importances), "importance", "", None)  # type: ignore[arg-type]
    assert one.names == ("age", "hour")
    assert one.steps[-1] == 1000
    assert (one.wall_times == one.steps * 2).all()
    for row, value in enumerate((0.1, 0.2)):
        values = one.values[row]
        assert values[np.isfinite(values)] == pytest.approx(value)
        assert np.isfinite(values).sum() >= 10
    assert np.isnan(one.z[~np.isfinite(one.values)]).all()
