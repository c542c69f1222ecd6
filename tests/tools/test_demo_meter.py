"""The loss in the demo's progress line."""

from __future__ import annotations

import pytest

pytest.importorskip("mindspore")

from tools.click_demo.training import Meter

pytestmark = pytest.mark.mindspore


def fed(losses: list[float]) -> tuple[Meter, list[tuple[str, int, int]]]:
    shown: list[tuple[str, int, int]] = []
    meter = Meter(5000, lambda *line: shown.append(line))
    for loss in losses:
        meter.count(loss)
    return meter, shown


def test_the_loss_is_at_first_a_plain_mean() -> None:
    meter, shown = fed([])
    assert (meter.steps, meter.loss, shown) == (0, None, [])
    meter, shown = fed([1.0, 0.0, 0.5])
    assert meter.loss == pytest.approx(0.5)
    assert (meter.steps, meter.window) == (3, 3)
    means = ("1.0000", "0.5000", "0.5000")
    assert shown == [(f"loss {mean}", step, 5000) for step, mean in enumerate(means, 1)]


def test_the_loss_forgets_old_steps() -> None:
    meter, _ = fed([9.0] * 200 + [0.5] * 3000)
    assert meter.loss == pytest.approx(0.5, abs=1e-4)
    assert meter.window == 200
