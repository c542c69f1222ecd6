import math
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.score_cells import MOST_CODE
from tests.support.click_streams import STREAMS, calibrated, exact_auc
from tests.support.laws import assert_equal_states, refused, updated


def stream(rng, users, examples=40):
    """Users of different activity, click rate and predictability."""
    active = rng.geometric(1 / examples, users)
    ids = np.repeat(rng.permutation(10 * users)[:users], active)
    base = np.repeat(rng.normal(-1, 1, users), active)
    signal = np.repeat(rng.gamma(1, 1, users), active)
    taste = rng.normal(size=len(ids))
    labels = rng.random(len(ids)) < 1 / (1 + np.exp(-base - signal * taste))
    scores = 1 / (1 + np.exp(-base - taste))
    order = rng.permutation(len(ids))
    return ids[order], scores[order], labels[order]


def exact_gauc(ids, scores, labels, by_user=False):
    total = heavy = 0.0
    order = np.argsort(ids, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(ids[order])) + 1):
        clicks = labels[part].sum()
        if 0 < clicks < len(part):
            weight = 1 if by_user else len(part)
            total += weight * exact_auc(scores[part], labels[part])
            heavy += weight
    return total / heavy


@pytest.mark.parametrize("by_user", [False, True])
def test_with_room_for_all_users_and_scores_it_is_exact(by_user):
    data = stream(np.random.default_rng(0), 500)
    state = updated(UserScores(cells=1 << 16, per_user=1024), *data)
    result = state.gauc(by_user=by_user)
    assert result.rate == 1
    assert (result.standard_error, result.bias_bound, result.cell_error_bound) == (0, 0, 0)
    assert result.sampled == 500
    assert result.value == pytest.approx(exact_gauc(*data, by_user), abs=1e-12)


@pytest.mark.parametrize("name", STREAMS)
def test_users_with_more_scores_than_cells_have_small_errors(name):
    rng = np.random.default_rng(1)
    scores, labels = (each[-200_000:] for each in STREAMS[name](rng))
    users = np.minimum(rng.geometric(0.05, len(scores)), 40)
    state = updated(UserScores(cells=1 << 16), users, scores, labels)
    result = state.gauc()
    error = abs(result.value - exact_gauc(users, scores, labels))
    assert error <= min(result.cell_error_bound + 1e-12, 0.002)
    assert result.cell_error_bound < 0.02


def test_scores_far_closer_than_others_of_a_user_are_within_the_bound():
    """All cells of a user have one level, so that the sample does not depend on the order."""
    rng = np.random.default_rng(1)
    scores, labels = STREAMS["first close, then wide"](rng)
    users = np.minimum(rng.geometric(0.05, len(scores)), 40)
    state = updated(UserScores(cells=1 << 16), users, scores, labels)
    result = state.gauc()
    error = abs(result.value - exact_gauc(users, scores, labels))
    assert 0.01 < error <= result.cell_error_bound


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 6))
def test_users_with_larger_cells_do_not_depend_on_the_order(seed, parts):
    rng = np.random.default_rng(seed)
    ids, scores, labels = stream(rng, 60, 60)
    scores = np.where(ids % 3, scores, 0.5 + scores * 1e-9)
    whole, merged = UserScores(512, 32), UserScores(512, 32)
    whole.update(ids, scores, labels)
    order = rng.permutation(len(ids))
    for part in np.array_split(order, parts):
        state = UserScores(512, 32)
        for batch in np.array_split(part, 3):
            state.update(ids[batch], scores[batch], labels[batch])
        merged.merge(UserScores.from_arrays(state.arrays()))
    assert_equal_states(whole, merged)
    assert len(whole.arrays()["codes"]) <= 512


def test_exact_scores_of_a_user_with_larger_cells_get_larger_cells():
    users, scores, labels = np.zeros(19, int), 0.5 + np.arange(19) / 4096, np.arange(19) % 3 == 0
    merged = UserScores(64, 16)
    for start, end in ((0, 17), (17, 18), (18, 19)):  # more than a user may have, then a few
        state, whole = UserScores(64, 16), UserScores(64, 16)
        state.update(users[start:end], scores[start:end], labels[start:end])
        merged.merge(state)
        whole.update(users[:end], scores[:end], labels[:end])
        assert_equal_states(merged, whole)


def test_examples_that_wait_leave_the_sample_with_their_users():
    few, many = UserScores(64, 16), UserScores(64, 16)
    few.update(np.arange(4), np.full(4, 0.5), np.ones(4))
    many.update(np.arange(100, 300) // 10, np.arange(200) / 200, np.ones(200))
    assert many.gauc().sampled == 6  # and there is room for users of one score
    turned = many.copy()
    turned.merge(few.copy())  # which takes them into its sample
    few.merge(many)
    assert_equal_states(few, turned)


def test_a_state_with_a_wide_cell_at_the_score_1_is_stored_and_restored():
    """Its middle is above 1."""
    scores = np.append(np.random.default_rng(3).random(500), 1.0)
    state = updated(UserScores(16384), np.zeros(501, int), scores, scores < 0.5)
    assert_equal_states(UserScores.from_arrays(state.arrays()), state)


def test_sampled_users_are_complete_and_memory_is_bounded():
    ids, scores, labels = stream(np.random.default_rng(2), 2000)
    state = UserScores(cells=4096)
    for start in range(0, len(ids), 1000):
        part = slice(start, start + 1000)
        state.update(ids[part], scores[part], labels[part])
        assert len(pickle.dumps(state)) < 32 * (2 * 4096 + 1000)
    assert state.gauc().rate < 0.3
    assert len(state.arrays()["users"]) <= 4096
    # The same users, fed alone to a state with room for all: the same cells.
    all_users = updated(UserScores(cells=1 << 20), ids, scores, labels)
    everything, sample = all_users.arrays(), state.arrays()
    inside = everything["users"] < sample["limit"]
    for name in ("users", "codes", "negatives", "positives"):
        np.testing.assert_array_equal(everything[name][inside], sample[name])
    # and no user more would fit
    beyond = everything["users"] == sample["limit"]
    assert len(sample["users"]) + beyond.sum() > 4096


def samples(data, seeds, cells):
    users, *columns = data
    empty = UserScores(cells=cells, per_user=64)
    others = (users + (seed << 32) for seed in range(seeds))  # which are sampled instead
    return [updated(empty.copy(), each, *columns).gauc() for each in others]


def test_sampling_is_unbiased_within_its_bound():
    data = stream(np.random.default_rng(3), 3000, 10)
    truth = updated(UserScores(cells=1 << 20, per_user=64), *data).gauc()
    results = samples(data, 300, 2000)
    rates = np.array([each.rate for each in results])
    assert rates.max() < 0.2

    def off(estimates, true, allowed=0.0):
        """How many standard errors the mean of the estimates is off, beyond what is allowed."""
        noise = estimates.std(ddof=1) / math.sqrt(len(estimates))
        return max(0, abs(estimates.mean() - true) - allowed) / noise

    # Sums over the sample, divided by its rate, are unbiased: here the number of users.
    assert off(np.array([each.sampled for each in results]) / rates, truth.sampled) < 4
    assert off(np.array([each.users for each in results]) / rates, truth.users) < 4
    # Their ratio is biased by no more than the bound.
    values = np.array([each.value for each in results])
    bound = np.mean([each.bias_bound for each in results])
    assert bound < 0.0025
    assert off(values, truth.value, bound) < 4
    # The standard error that each sample reports is the spread that samples have.
    errors = np.sqrt(np.mean([each.standard_error**2 for each in results]))
    assert errors == pytest.approx(values.std(ddof=1), rel=0.2)


def test_the_standard_error_holds_where_few_users_have_most_examples():
    random = np.random.default_rng(0)
    distances = []
    for _ in range(8):
        sizes = np.ceil(5 * (1 + random.pareto(1.2, 3000))).astype(int).clip(max=20_000)
        users = np.repeat(np.arange(3000), sizes)
        labels = random.random(len(users)) < 0.2
        signal = np.repeat(1 + 0.5 * random.normal(size=3000), sizes)
        scores = 1 / (1 + np.exp(-random.normal(signal * labels)))
        whole = updated(UserScores(cells=1 << 20, per_user=64), users, scores, labels)
        truth = whole.gauc().value
        found = samples((users, scores, labels), 25, 2000)
        distances += [(each.value - truth) / each.standard_error for each in found]
    # About 2 without leaving out each user once.
    assert np.sqrt(np.mean(np.square(distances))) < 1.4


def test_the_error_by_chance_is_that_of_leaving_out_each_user_once():
    users, scores, labels = stream(np.random.default_rng(6), 12, 10)

    def gauc(kept):
        state = updated(UserScores(), users[kept], scores[kept], labels[kept])
        return state.gauc()

    found = gauc(users >= 0)
    changes = [gauc(users != user).value - found.value for user in np.unique(users)]
    assert found.chance_error == pytest.approx(np.linalg.norm(changes))
    assert found.standard_error == 0


def test_the_sample_does_not_depend_on_how_ids_are_given():
    data = stream(np.random.default_rng(4), 300)
    first = updated(UserScores(cells=2048), *data)
    second = updated(UserScores(cells=2048), data[0].astype(np.int32), *data[1:])
    assert_equal_states(first, second)


def test_users_without_both_kinds_of_labels_have_no_auc():
    state = UserScores()
    assert math.isnan(state.gauc().value)
    state.update([1, 1, 2, 2], [0.1, 0.2, 0.3, 1.5], [1, 1, 0, 1])
    result = state.gauc()
    assert math.isnan(result.value)
    assert (result.users, result.sampled) == (0, 2)
    state.update([2, 3, 3], [0.5, 0.1, np.nan], [1, 0, 1])
    result = state.gauc()
    assert (result.value, result.users, result.sampled) == (1.0, 1, 3)
    assert state.refused.tolist() == [1, 1, 0, 0]


def test_mistakes_are_reported():
    refused(TypeError, "users is invalid", UserScores().update, [1.0], [0.5], [1])
    refused(ValueError, "users is invalid", UserScores().update, [1, 2], [0.5], [1])
    refused(ValueError, "cells is invalid", UserScores, cells=500)
    refused(ValueError, "per_user is invalid", UserScores, per_user=8)
    with pytest.raises(ValueError, match="per_user of a state to merge"):
        UserScores(per_user=16).merge(UserScores(per_user=32))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("users", lambda users: users[::-1].copy()),
        ("users", lambda users: np.append(users[:-1], np.uint64(2**64 - 1))),
        ("codes", lambda codes: codes[::-1].copy()),
        ("codes", lambda codes: np.append(codes[:-1], np.uint64(2**64 - 1))),
        ("codes", lambda codes: np.append(codes[:-1], np.uint64(0))),
        ("codes", lambda codes: codes[1:]),
        ("negatives", lambda weights: weights[1:]),
        ("limit", lambda limit: limit // 2),
        ("limit", lambda limit: np.array(2**55)),
        ("cells", lambda cells: np.array(5)),
    ],
)
def test_nonsense_is_refused(name, change):
    state = updated(UserScores(cells=2048), *stream(np.random.default_rng(5), 300))
    arrays = state.arrays()
    arrays[name] = change(arrays[name])
    refused(ValueError, r"is invalid\. Received", UserScores.from_arrays, arrays)


def test_without_weights_each_example_has_the_weight_1():
    users, scores, labels = stream(np.random.default_rng(6), 50)
    state = updated(UserScores(), users, scores, labels)
    weighted = updated(UserScores(), users, scores, labels, np.ones(len(users)))
    assert_equal_states(state, weighted)


def test_users_may_be_strings():
    rng = np.random.default_rng(5)
    scores, labels = calibrated(rng, 3000, -1)
    users = rng.integers(0, 100, 3000)
    named = updated(UserScores(), np.array([f"user {each}" for each in users]), scores, labels)
    numbered = updated(UserScores(), users, scores, labels)
    assert named.gauc().users == numbered.gauc().users
    assert named.gauc().value == pytest.approx(numbered.gauc().value, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("middle", [-4, 0, 3])
def test_gauc_is_the_mean_of_the_aucs_of_scikit_learn(middle, weighted):
    rng = np.random.default_rng(7)
    scores, labels = calibrated(rng, 20_000, middle)
    scores = np.round(scores, 2)  # clicks and non-clicks have equal scores
    users = rng.integers(0, 300, 20_000)
    weights = rng.integers(1, 9, 20_000) / 4 if weighted else np.ones(20_000)
    aucs, sizes = [], []
    for user in range(300):
        mine = users == user
        if 0 < labels[mine].sum() < mine.sum():
            aucs.append(roc_auc_score(labels[mine], scores[mine], sample_weight=weights[mine]))
            sizes.append(weights[mine].sum())
    state = updated(UserScores(), users, scores, labels, weights if weighted else None)
    found = state.gauc()
    assert found.value == pytest.approx(np.average(aucs, weights=sizes), abs=1e-12)
    assert found.cell_error_bound == 0.0
    assert (found.users, found.standard_error) == (len(aucs), 0.0)


def test_users_with_as_many_scores_as_fit_stay_exact():
    state = UserScores(32, 16)
    scores = np.arange(32) / 32
    state.update(np.arange(32) % 2, scores, scores > 0.4)
    found = state.gauc()
    assert (found.sampled, found.rate, found.cell_error_bound) == (2, 1, 0)
    state.update([0], [0.99], [0])  # one more than a user may have
    assert state.gauc().sampled == 2
    assert state.gauc().cell_error_bound > 0
    state.update([2], [0.5], [1])
    assert state.gauc().sampled < 3


@pytest.mark.parametrize("codes", [(0, 5), (5, 5), (5, int(MOST_CODE) + 2)])
def test_codes_that_no_cells_have_are_refused(codes):
    state = updated(UserScores(), [1, 1], [0.5, 0.2], [1, 0])
    with pytest.raises(ValueError, match="rising codes of cells"):
        UserScores.from_arrays({**state.arrays(), "codes": np.array(codes, np.uint64)})
