"""What every state promises: any split, any order, storing between: the same to the last bit."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.metrics.exact_sum import ExactSum
from rec_summary.metrics.lists.choices import ChoiceQuality
from rec_summary.metrics.lists.ranked_lists import RankedLists
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.state import Scalable, State, kind_of, restore
from rec_summary.metrics.windows import Decayed, LastExamples, Lifetime
from tests.support.click_streams import calibrated
from tests.support.laws import assert_equal_states, assert_independent, merged, updated


def clicks(rng, size):
    return calibrated(rng, size, -2, 2)


def weighted(rng, size):
    return *clicks(rng, size), rng.random(size) * 3 + 0.01


def of_users(rng, size):
    return rng.zipf(1.3, size) % 500, *clicks(rng, size)


def of_lists(rng, size):
    scores, labels = clicks(rng, size)
    return rng.zipf(1.5, size) % 100, np.round(scores, 1), labels


def choices(rng, size):
    scores = rng.random((size, 6)).astype(np.float32)
    return scores, rng.integers(0, 6, size), rng.random(size) * 3


def ratings(rng, size):
    return np.ldexp(rng.normal(size=size), rng.integers(-60, 60, size)), rng.integers(1, 6, size)


class Summed(ExactSum):
    """An exact sum that is updated like the others."""

    def update(self, numbers):
        self.add(numbers)


CASES = {
    "sum": (Summed, lambda rng, size: ratings(rng, size)[:1]),
    "order": (ScoreOrder, clicks),
    "weighted order": (ScoreOrder, weighted),
    "log loss": (LogLoss, clicks),
    "weighted log loss": (LogLoss, weighted),
    "ratings": (RatingErrors, ratings),
    "all users": (functools.partial(UserScores, 65_536, 64), of_users),
    "all lists": (functools.partial(RankedLists, 4096, 600, (5,)), of_lists),
    "few lists": (functools.partial(RankedLists, 64, 8), of_lists),
    "choices": (functools.partial(ChoiceQuality, 0, (1, 3)), choices),
    "few users": (functools.partial(UserScores, 128, 16), of_users),
}

SPLITS = st.lists(st.integers(0, 600), min_size=0, max_size=6)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


def drawn(case, seed):
    """What makes a state, columns, and the state of them."""
    make, draw = case
    columns = draw(np.random.default_rng(seed), 600)
    return make, columns, updated(make(), *columns)


def in_parts(make, columns, borders):
    """One state for each part of the columns, cut at `borders`."""
    ends = itertools.pairwise([0, *borders, len(columns[0])])
    return [updated(make(), *(each[start:end] for each in columns)) for start, end in ends]


@settings(max_examples=40)
@given(borders=SPLITS.map(sorted), seed=st.integers(0, 2**32), data=st.data())
def test_any_split_and_order_gives_the_same(case, borders, seed, data):
    make, columns, whole = drawn(case, seed)
    parts = in_parts(make, columns, borders)
    # Merge two states picked at random until one is left: every order and every tree.
    while len(parts) > 1:
        into = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        which = data.draw(st.integers(0, len(parts) - 1))
        before = parts[which].arrays()
        into.merge(parts[which])
        after = parts[which].arrays()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        parts[which] = into
    assert_equal_states(parts[0], whole)


@settings(max_examples=40)
@given(border=st.integers(0, 600), seed=st.integers(0, 2**32))
def test_a_restored_state_goes_on(case, border, seed):
    make, columns, whole = drawn(case, seed)
    first = updated(make(), *(column[:border] for column in columns))
    again = type(first).from_arrays(first.arrays())
    assert_equal_states(first, again)
    again.update(*(column[border:] for column in columns))
    assert_equal_states(again, whole)


def test_a_copy_is_its_own(case):
    _, columns, state = drawn(case, 0)
    copy, before = state.copy(), state.copy()
    assert_equal_states(state, copy)
    assert_independent(copy, lambda it: it.update(*columns))
    assert_equal_states(state, before)


def test_scaling_by_a_half_undoes_seeing_twice(case):
    _, columns, once = drawn(case, 0)
    if not isinstance(once, Scalable):
        assert isinstance(once, RankedLists | UserScores)
        return
    twice = updated(once.copy(), *columns)
    twice.scale(0.5)
    before, after = once.arrays(), twice.arrays()
    # A number of examples, whatever their weights; and squares, whose weights are scaled twice.
    for name in before.keys() - {"seen", "squares.units", "click_squares.units"}:
        np.testing.assert_array_equal(before[name], after[name])


def test_states_keep_to_the_protocol(case):
    state = case[0]()
    assert isinstance(state, State)
    if not isinstance(state, Summed):
        assert_equal_states(restore(kind_of(state), state.arrays()), state)


WINDOWS = {
    "lifetime": Lifetime,
    "last": lambda empty: LastExamples(empty, 300, 5),
    "decayed": lambda empty: Decayed(empty, 640),
}


INNER = ["weighted log loss", "weighted order", "log loss", "ratings", "few users"]
WINDOWED = [
    (window, inner)
    for window in WINDOWS
    for inner in INNER
    if (window, inner) != ("decayed", "few users")  # which cannot be scaled
]


@pytest.fixture(scope="module", params=WINDOWED, ids="-".join)
def windowed(request):
    window, inner = request.param
    return WINDOWS[window], *CASES[inner]


def ranks(windowed, seed, sizes):
    window, make, draw = windowed
    rng = np.random.default_rng(seed)
    return [updated(window(make()), *draw(rng, size)) for size in sizes]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 900), min_size=3, max_size=3))
def test_windows_of_ranks_merge_in_any_order(windowed, seed, sizes):
    one, two, three = ranks(windowed, seed, sizes)
    left, right = merged(one, two, three), merged(three, merged(two, one))
    assert_equal_states(left, right)
    assert_equal_states(left.total(), right.total())


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), borders=SPLITS.map(sorted))
def test_windows_do_not_depend_on_batches_nor_on_restarts(windowed, seed, borders):
    window, make, draw = windowed
    columns = draw(np.random.default_rng(seed), 600)
    whole = updated(window(make()), *columns)
    state = window(make())
    for start, end in zip([0, *borders], [*borders, 600], strict=True):
        state.update(*(column[start:end] for column in columns))
        state = type(state).from_arrays(state.arrays())
    assert_equal_states(state, whole)
