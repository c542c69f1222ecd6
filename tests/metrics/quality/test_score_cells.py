"""The numbering of scores, and the cells around them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.score_cells import (
    MOST_CODE,
    ONE,
    around,
    highest_bits,
    joints_of,
    keys_of,
    keys_of_odds,
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
def test_keys_are_the_bits_of_scores_mirrored_above_one_half(scores):
    scores = np.minimum(scores, 0.5)
    np.testing.assert_array_equal(keys_of(scores), scores.view(np.uint64))
    highest, above = 2 * int(np.array(0.5).view(np.uint64)), 1.0 - scores
    np.testing.assert_array_equal(keys_of(above), np.uint64(highest) - keys_of(1.0 - above))
    assert keys_of(np.ones(1)).tolist() == [highest]
    assert 2 * highest + 1 == MOST_CODE


ODDS = st.lists(st.floats(width=32, allow_nan=False), min_size=2)


@given(ODDS)
def test_log_odds_have_keys_in_their_order_also_where_all_scores_are_0_or_1(odds):
    odds = np.sort(np.array(odds))
    keys = keys_of_odds(odds)
    assert (keys[1:] >= keys[:-1]).all()
    far = odds[1:] > odds[:-1] + 1e-15
    assert (keys[1:] > keys[:-1])[far].all()


@given(ODDS)
def test_the_key_of_log_odds_is_that_of_the_probability(odds):
    odds = np.minimum(np.array(odds), 0.0)
    scores = np.exp(-np.logaddexp(0.0, -odds))
    some = odds > -700
    np.testing.assert_array_equal(keys_of_odds(odds)[some], keys_of(scores)[some])
    np.testing.assert_array_equal(
        keys_of_odds(-odds), np.uint64(MOST_CODE // 2) - keys_of_odds(odds)
    )


def test_the_highest_bit_is_that_of_an_int():
    numbers = [(1 << bit) + more for bit in range(1, 64) for more in (-1, 0, 1)]
    found = highest_bits(np.array(numbers, np.uint64))
    assert found.tolist() == [number.bit_length() - 1 for number in numbers]


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
    users, codes = np.array([1, 1, 1, 2, 2, 3]), np.array([3, 3, 4, 4, 4, 5])
    assert starts_of(users).tolist() == [0, 3, 5]
    assert starts_of(users, codes).tolist() == [0, 2, 3, 5]
    assert starts_of(users[:0], codes[:0]).tolist() == []
