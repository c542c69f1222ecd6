"""The numbering of scores, and the cells around them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.score_cells import (
    ONE,
    around,
    joints_of,
    keys_of,
    levels_of,
    scores_of,
    starts_of,
)

SCORES = st.lists(st.floats(0, 1), min_size=2)


@given(SCORES)
def test_keys_have_the_order_of_scores(scores):
    scores = np.sort(np.array(scores))
    keys = keys_of(scores)
    assert (keys[1:] >= keys[:-1]).all()
    # 1 - score rounds scores above one half that are no multiples of 2**-53; there are none.
    assert ((keys[1:] > keys[:-1]) == (scores[1:] > scores[:-1])).all()


@given(SCORES)
def test_a_key_is_the_key_of_its_score(scores):
    scores = np.array(scores)
    again = scores_of(keys_of(scores))
    np.testing.assert_array_equal(keys_of(again), keys_of(scores))
    np.testing.assert_array_equal(again, scores)


@given(SCORES)
def test_the_smallest_cell_around_two_neighbours_has_both(scores):
    codes = np.unique(keys_of(np.array(scores))) << ONE | ONE
    joints = joints_of(codes)
    assert (joints > 0).all()  # they are different
    for level, same in ((joints, True), (joints - 1, False)):
        one, other = around(codes[:-1], level), around(codes[1:], level)
        assert ((one == other) == same).all()
        np.testing.assert_array_equal(levels_of(one), level)


def test_starts_of_one_and_of_several_columns():
    users, codes = np.array([1, 1, 1, 2, 2]), np.array([3, 3, 4, 4, 4])
    assert starts_of(users).tolist() == [0, 3]
    assert starts_of(users, codes).tolist() == [0, 2, 3]
    assert starts_of(users[:0], codes[:0]).tolist() == []
