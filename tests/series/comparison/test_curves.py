"""Curves at the same places, and where two of them part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from rec_summary.series.comparison.curves import Curve, aligned, parting

STEPS = np.arange(0, 2000, 2)


def noisy(seed: int, steps: npt.NDArray[np.int64] = STEPS) -> npt.NDArray[np.float64]:
    """A loss that falls, with the noise of batches."""
    noise = np.random.default_rng(seed).normal(0, 0.05, len(steps))
    return np.asarray(0.5 + 0.2 * np.exp(-steps / 300) + noise)


def test_curves_are_interpolated_at_the_places_of_all_and_nowhere_else() -> None:
    one = Curve(np.array([1, 3, 5]), np.array([1.0, np.nan, 5.0]))
    other = Curve(np.array([3, 4, 6]), np.array([0.0, 2.0, 4.0]))
    places, values = aligned([one, other])
    assert places.tolist() == [1, 3, 4, 5, 6]
    nan = np.nan
    np.testing.assert_array_equal(values, [[1, 3, 4, 5, nan], [nan, 0, 2, 3, 4]])
    assert aligned([one, other], 3)[0].tolist() == [1, 4, 6]


def test_places_beyond_exact_floats_stay_apart() -> None:
    large = (1 << 60) + np.arange(3)
    places, values = aligned([Curve(large, np.arange(3.0)), Curve(large[1:], np.zeros(2))])
    assert places.tolist() == large.tolist()
    assert values[0].tolist() == [0, 1, 2]


def test_the_first_difference_of_equal_curves_parts_them() -> None:
    ours = noisy(1)
    theirs = ours.copy()
    assert parting(Curve(STEPS, ours), Curve(STEPS, theirs * (1 + 1e-7))).same  # type: ignore[union-attr]
    theirs[500:] += np.random.default_rng(2).normal(0, 0.001, 500)
    found = parting(Curve(STEPS, ours), Curve(STEPS, theirs))
    assert found is not None
    assert (found.differs_at, found.parts_at) == (1000, 1000)


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_part_curves(seed: int) -> None:
    found = parting(Curve(STEPS, noisy(2 * seed)), Curve(STEPS, noisy(2 * seed + 1)))
    assert found is not None
    assert (found.differs_at, found.parts_at) == (0, None)


@pytest.mark.parametrize("seed", range(5))
def test_a_shift_within_the_noise_of_single_values_parts_curves_where_it_begins(seed: int) -> None:
    theirs = noisy(2 * seed + 1)
    theirs[600:] += 0.08
    found = parting(Curve(STEPS, noisy(2 * seed)), Curve(STEPS, theirs))
    assert found is not None
    assert found.parts_at == 1200
    assert found.greatest == pytest.approx(0.08, abs=0.04)
    assert found.greatest_at >= 1200


def test_a_difference_that_grows_slowly_is_found() -> None:
    theirs = noisy(1) + np.where(STEPS > 800, (STEPS - 800) / 4000, 0)
    found = parting(Curve(STEPS, noisy(0)), Curve(STEPS, theirs))
    assert found is not None
    assert found.parts_at is not None
    assert 800 < found.parts_at < 1400


def test_curves_with_other_steps_are_compared_where_both_have_values() -> None:
    steps = np.arange(1001, 3001, 5)
    theirs = noisy(1, steps)
    theirs[steps > 1500] -= 0.3
    found = parting(Curve(STEPS, noisy(0)), Curve(steps, theirs))
    assert found is not None
    assert found.parts_at is not None
    assert 1480 <= found.parts_at <= 1540
    assert parting(Curve(STEPS, noisy(0)), Curve(steps + 2000, theirs)) is None


def test_a_value_that_is_not_finite_parts_curves() -> None:
    ours, theirs = noisy(0), noisy(1)
    theirs[700:] = np.nan
    found = parting(Curve(STEPS, ours), Curve(STEPS, theirs))
    assert found is not None
    assert found.parts_at == 1400
    nothing = np.full(len(STEPS), np.nan)
    found = parting(Curve(STEPS, ours), Curve(STEPS, nothing))
    assert found is not None
    assert (found.differs_at, found.parts_at) == (0, 0)


def test_curves_without_a_finite_value_do_not_differ() -> None:
    nothing = Curve(STEPS, np.full(len(STEPS), np.nan))
    found = parting(nothing, nothing)
    assert found is not None
    assert (found.same, found.parts_at) == (True, None)
    assert parting(nothing, Curve(STEPS + 1, nothing.values)) is None


@pytest.mark.parametrize("place", [100, 103])
def test_a_first_difference_in_the_last_steps_parts_curves(place: int) -> None:
    steps = np.arange(104)
    found = parting(Curve(steps, np.ones(104)), Curve(steps, 1.0 + (steps == place)))
    assert found is not None
    assert (found.differs_at, found.parts_at) == (place, place)


def test_one_common_step_is_enough_to_differ() -> None:
    found = parting(Curve(np.array([1]), np.array([1.0])), Curve(np.array([1]), np.array([2.0])))
    assert found is not None
    assert (found.differs_at, found.parts_at, found.greatest) == (1, 1, 1.0)
