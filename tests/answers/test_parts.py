"""Parts of a change of a metric: they sum to it, and name the slice that moved it."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.answers.parts import auc_parts, common, entropy_parts
from rec_summary.metrics.slices.sums import (
    CLICKS,
    EXAMPLES,
    FIELDS,
    LOSS,
    WEIGHT,
    delong,
    normalised_entropy_of,
)


def sums(seed: int, values: int = 9) -> np.ndarray:
    random = np.random.default_rng(seed)
    found = np.zeros((len(FIELDS), values))
    found[EXAMPLES] = found[WEIGHT] = random.integers(10, 10_000, values)
    found[CLICKS] = found[WEIGHT] * random.uniform(0.01, 0.6, values)
    found[LOSS] = found[WEIGHT] * random.uniform(0.1, 0.9, values)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_of_the_entropy_sum_to_its_change(seed: int) -> None:
    before, after = sums(seed), sums(seed + 100)
    change = normalised_entropy_of(after.sum(1)) - normalised_entropy_of(before.sum(1))
    parts = entropy_parts(before, after)
    assert sum(part.sum() for part in parts) == pytest.approx(change, abs=1e-12)


def test_equal_rates_have_no_slope() -> None:
    before = sums(1)
    parts = entropy_parts(before, 2 * before)
    assert [float(np.abs(part).max()) for part in parts] == [0, 0, 0]


def test_more_traffic_of_a_slice_is_mix_alone() -> None:
    before = sums(2)
    after = before.copy()
    after[:, 3] *= 5
    parts = entropy_parts(before, after)
    assert np.abs(parts.mix).max() > 1e-3
    assert np.abs(parts.rate).max() < 1e-12
    assert np.abs(parts.quality).max() < 1e-12


def test_a_worse_loss_of_a_slice_is_its_quality() -> None:
    before = sums(3)
    after = before.copy()
    after[LOSS, 4] *= 1.5
    quality = entropy_parts(before, after).quality
    assert quality.argmax() == 4
    assert quality[4] == pytest.approx(quality.sum(), abs=1e-12)


def test_lost_clicks_of_a_slice_are_a_loss_of_quality() -> None:
    before = np.zeros((len(FIELDS), 2))
    before[WEIGHT] = 1000
    before[CLICKS] = 100
    before[LOSS] = 300
    after = before.copy()
    after[CLICKS, 1], after[LOSS, 1] = 50, 180  # half of the clicks, and the loss falls
    assert normalised_entropy_of(after.sum(1)) < normalised_entropy_of(before.sum(1))
    quality = entropy_parts(before, after).quality
    assert quality[1] > 0
    assert quality[0] == pytest.approx(0, abs=1e-12)


def test_values_that_are_there_once_are_not_common() -> None:
    before, after = sums(4, 3), sums(5, 3)
    before[:, 0] = 0
    after[:, 2] = 0
    assert common(before, after).tolist() == [False, True, False]


def test_the_parts_of_the_auc_sum_to_its_change() -> None:
    random = np.random.default_rng(6)
    orders = [random.integers(0, 50, (4, 2, 30)).astype(float) for _ in range(2)]
    before, after = (part.sum(0)[None] for part in orders)
    one = np.ones((1, 2))
    change = delong(after, one)[0][0] - delong(before, one)[0][0]
    parts = auc_parts(*orders)
    assert sum(part.sum() for part in parts) == pytest.approx(change, abs=1e-12)
