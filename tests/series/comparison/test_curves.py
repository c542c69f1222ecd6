"""Curves at the same places, and where two of them part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from rec_summary.series.comparison.curves import Curve, aligned, parting

STEPS = np.arange(0, 2000, 2)


def noisy(
    seed: int, steps: npt.NDArray[np.int64] = STEPS, sigma: npt.ArrayLike = 0.05
) -> npt.NDArray[np.float64]:
    """A loss that falls, with the noise of batches."""
    noise = np.random.default_rng(seed).normal(0, 1, len(steps)) * sigma
    return np.asarray(0.5 + 0.2 * np.exp(-steps / 300) + noise)


def test_curves_are_interpolated_at_the_places_of_all_and_nowhere_else() -> None:
    one = Curve(np.array([1, 3, 5]), np.array([1.0, np.nan, 5.0]))
    other = Curve(np.array([3, 4, 6]), np.array([0.0, 2.0, 4.0]))
    places, values = aligned([one, other])
    assert places.tolist() == [1, 3, 4, 5, 6]
    nan = np.nan
    np.testing.assert_array_equal(values, [[1, 3, 4, 5, nan], [nan, 0, 2, 3, 4]])
    assert aligned([one, other], 3)[0].tolist() == [1, 4, 6]
    infinite = Curve(one.places, np.array([1.0, -np.inf, 5.0]))
    assert aligned([infinite])[1].tolist() == [[1, 3, 5]]


def test_places_beyond_exact_floats_stay_apart() -> None:
    large = (1 << 60) + np.arange(3)
    places, values = aligned([Curve(large, np.arange(3.0)), Curve(large[1:], np.zeros(2))])
    assert places.tolist() == large.tolist()
    assert values[0].tolist() == [0, 1, 2]


def test_the_first_difference_of_equal_curves_parts_them() -> None:
    ours = noisy(1) - 0.6  # of either sign
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
    assert (found.differs_at, found.parts_at, found.same) == (0, None, False)


@pytest.mark.parametrize("seed", [3, 5])  # two that part by less than the noise explains
def test_noise_that_grows_does_not_part_curves(seed: int) -> None:
    sigma = np.linspace(0.01, 0.08, len(STEPS))
    found = parting(*(Curve(STEPS, noisy(2 * seed + n, sigma=sigma)) for n in range(2)))
    assert found is not None
    assert found.parts_at is None


def test_the_noise_of_later_steps_hides_no_shift_at_the_beginning() -> None:
    sigma = np.linspace(0.01, 0.08, len(STEPS))
    shifted = Curve(STEPS, noisy(1, sigma=sigma) + 0.03)
    found = parting(Curve(STEPS, noisy(0, sigma=sigma)), shifted)
    assert found is not None
    assert found.parts_at == 0


def test_of_few_steps_five_are_averaged() -> None:
    steps = np.arange(60)
    theirs = noisy(1, steps) + np.where(steps >= 30, 0.12, 0)
    found = parting(Curve(steps, noisy(0, steps)), Curve(steps, theirs))
    assert found is not None
    assert found.parts_at == 30


def test_of_ten_steps_two_are_averaged() -> None:
    steps = np.arange(10)
    found = parting(Curve(steps, np.ones(10)), Curve(steps, 1.0 - 0.5 * (steps >= 8)))
    assert found is not None
    assert (found.parts_at, found.greatest, found.greatest_at) == (8, -0.5, 8)


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
    for begun, width in ((800, 4000), (200, 20_000)):
        theirs = noisy(1) + np.where(begun < STEPS, (STEPS - begun) / width, 0)
        found = parting(Curve(STEPS, noisy(0)), Curve(STEPS, theirs))
        assert found is not None
        assert found.parts_at is not None
        assert begun < found.parts_at < 1400


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
    for curves in ((ours, theirs), (theirs, ours)):
        found = parting(*(Curve(STEPS, values) for values in curves))
        assert found is not None
        assert found.parts_at == 1400
    theirs[600:700] += 0.5
    found = parting(Curve(STEPS, ours), Curve(STEPS, theirs))
    assert found is not None
    assert found.parts_at is not None
    assert found.parts_at < 1300
    equal = np.where(STEPS > 1000, 2.0, 1.0)
    equal[300] = np.nan
    found = parting(Curve(STEPS, np.ones(len(STEPS))), Curve(STEPS, equal))
    assert found is not None
    assert (found.differs_at, found.parts_at) == (600, 600)
    nothing = np.full(len(STEPS), np.nan)
    found = parting(Curve(STEPS, ours), Curve(STEPS, nothing))
    assert found is not None
    assert (found.differs_at, found.parts_at) == (0, 0)
    steps, nan = np.arange(2), np.nan
    found = parting(Curve(steps, np.array([nan, 1])), Curve(steps, np.array([nan, nan])))
    assert found is not None
    assert (found.parts_at, found.greatest_at) == (1, 1)


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
    assert (found.greatest, found.greatest_at) == (1 / 9, 95)  # of nine steps, with the remainder


def test_one_common_step_is_enough_to_differ() -> None:
    found = parting(Curve(np.array([1]), np.array([1.0])), Curve(np.array([1]), np.array([2.0])))
    assert found is not None
    assert (found.differs_at, found.parts_at, found.greatest) == (1, 1, 1.0)
