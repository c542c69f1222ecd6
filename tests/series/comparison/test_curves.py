"""Curves at the same places."""

from __future__ import annotations

import numpy as np

from rec_summary.series.comparison.curves import Curve, aligned


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
