"""The numbers of the demo's progress line."""

from __future__ import annotations

import pytest

from tools.click_demo.meter import Meter


def fed(losses: list[float], seconds: list[float], batch_size: int = 8) -> Meter:
    clock = iter(seconds)
    meter = Meter(batch_size, clock=lambda: next(clock))
    for loss in losses:
        meter.count(loss)
    return meter


def test_before_the_first_step_there_is_nothing_to_show() -> None:
    meter = Meter(8)
    assert (meter.steps, meter.samples, meter.loss, meter.samples_per_second) == (0, 0, None, 0.0)


def test_the_loss_is_at_first_a_plain_mean() -> None:
    meter = fed([1.0, 0.0, 0.5], [0, 1, 2])
    assert meter.loss == pytest.approx(0.5)
    assert (meter.steps, meter.samples, meter.window) == (3, 24, 3)


def test_the_loss_forgets_what_is_long_past() -> None:
    meter = fed([9.0] * 200 + [0.5] * 3000, list(range(3200)))
    assert meter.loss == pytest.approx(0.5, abs=1e-4)
    assert meter.window == 200


def test_the_pace_leaves_out_the_first_step_which_compiles() -> None:
    # The clock is read at the end of a step, so the time before the first end never counts.
    assert fed([1.0] * 3, [100.0, 100.5, 101.0]).samples_per_second == pytest.approx(16)


def test_the_pace_is_that_of_the_last_steps() -> None:
    slow, fast = [float(second) for second in range(300)], [300 + step / 100 for step in range(400)]
    assert fed([1.0] * 700, slow + fast).samples_per_second == pytest.approx(800)


def test_no_time_between_steps_is_no_division_by_zero() -> None:
    assert fed([1.0, 1.0], [5.0, 5.0]).samples_per_second == 0.0
