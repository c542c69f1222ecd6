import warnings

import numpy as np
import pytest

from rec_summary.metrics.hashing import hash_strings
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import REASONS, clean, integer_ids
from rec_summary.metrics.quality.score_cells import scores_of
from tests.support.laws import refused, updated


def test_a_sound_batch_is_kept_whole():
    batch = clean(np.float32([[0.0], [0.25], [1.0]]), [[0], [1], [1]])
    assert batch.scores.tolist() == scores_of(batch.keys).tolist() == [0.0, 0.25, 1.0]
    assert batch.labels.tolist() == [False, True, True]
    assert batch.weights is None
    assert batch.kept is None
    assert not batch.refused.any()


def test_what_cannot_be_counted_is_refused_by_reason():
    scores = [0.1, np.nan, -0.1, 1.5, 1e300, 0.5, 0.5, 0.5, 0.5, 0.5, np.nan, 0.5]
    labels = [1.0, 1, 0, 1, 1, 1.5, np.nan, 0, 1, 1, 7, -0.5]
    weights = [1.0, 1, 1, 1, 1, 1, 1, -1, np.inf, np.nan, 1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = clean(scores, labels, weights)
    assert dict(zip(REASONS, batch.refused.tolist(), strict=True)) == {
        "score is NaN": 2,
        "score outside [0, 1]": 3,
        "label outside [0, 1]": 3,
        "weight not usable": 3,
    }
    assert (batch.scores.tolist(), scores_of(batch.keys).tolist()) == ([np.float32(0.1)], [0.1])
    assert (batch.kept.tolist(), batch.labels.tolist()) == ([0], [True])
    assert clean([np.nan], [1]).refused.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64])
def test_labels_of_any_real_dtype(dtype):
    assert clean([0.1, 0.2], np.array([1, 0], dtype)).labels.tolist() == [True, False]


def test_weights_are_rounded_to_what_adds_exactly():
    weights = clean([0.5, 0.5], [0, 1], [0.1, 2.0**-20]).weights
    assert np.abs(weights - [0.1, 2.0**-20]).max() <= 2.0**-21
    assert ((weights * 2**20) % 1 == 0).all()
    assert clean([0.5], [1], [2**20]).weights.tolist() == [2**20]


def test_scores_are_rounded_to_single_precision_and_kept():
    batch = clean([0.1, 0.2], [1, 0])
    assert (batch.scores.tolist(), scores_of(batch.keys).tolist()) == (
        np.float32([0.1, 0.2]).tolist(),
        [0.1, 0.2],
    )


def test_ids_are_integers_or_hashed_strings():
    names = np.array([["a"], ["b"]])
    assert integer_ids("users", names, 2).tolist() == hash_strings(names).ravel().tolist()
    assert integer_ids("users", [[3, 4]], 2).tolist() == [3, 4]
    refused(TypeError, r"users is invalid.*integers or strings", integer_ids, "users", [0.5], 1)
    with pytest.raises(ValueError, match=r"users is invalid.*2 values.*3, one for each"):
        integer_ids("users", [1, 2], 3)


def test_an_empty_batch_is_one():
    assert len(clean([], []).scores) == 0


def test_columns_of_another_size_or_kind_are_mistakes():
    with pytest.raises(ValueError, match=r"labels is invalid.*3 values.*2, one for each"):
        clean([0.1, 0.2], [1, 0, 1])
    refused(ValueError, "weights is invalid", clean, [0.1, 0.2], [1, 0], [1])
    refused(TypeError, "scores is invalid", clean, ["a"], [1])


def test_a_label_between_0_and_1_is_a_part_of_a_click():
    batch = clean([0.5, 0.25, np.nan, 0.75], [0.25, 1, 0.5, 0], [2.0, 1, 1, 0])
    assert batch.kept.tolist() == [0, 1, 3, 0, 1, 3]
    assert batch.labels.tolist() == [False] * 3 + [True] * 3
    assert batch.weights.tolist() == [1.5, 0, 0, 0.5, 1, 0]


@pytest.mark.parametrize("weighted", [False, True])
def test_quality_of_soft_labels_is_that_of_its_definition(weighted):
    rng = np.random.default_rng(0)
    scores, labels = rng.uniform(0.01, 0.99, 2000), rng.integers(0, 1025, 2000) / 1024
    weights = rng.integers(0, 9, 2000) / 4 if weighted else np.ones(2000)
    state = updated(ClickQuality(), scores, labels, weights if weighted else None)
    scores = scores.astype(np.float32).astype(np.float64)
    rate = np.average(labels, weights=weights)
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    losses = -(labels * np.log(scores) + (1 - labels) * np.log(1 - scores))
    loss = np.average(losses, weights=weights)
    assert state.loss.log_loss() == pytest.approx(loss, rel=1e-9)
    assert state.loss.normalised_entropy() == pytest.approx(loss / entropy, rel=1e-9)
    expected = np.average(scores, weights=weights) / rate
    assert state.loss.calibration() == pytest.approx(expected, rel=1e-6)
    assert state.loss.weight == weights.sum()
    assert not state.loss.refused.any()


def test_examples_of_weight_0_count_for_nothing():
    scores, labels = np.array([0.1, 0.9, 0.4]), np.array([0, 1, 1])
    state = updated(ClickQuality(), scores, labels, [1.0, 2, 0])
    without = updated(ClickQuality(), scores[:2], labels[:2], [1.0, 2])
    assert state.loss.log_loss() == without.loss.log_loss()
    assert state.order.auc() == without.order.auc()
    assert not state.loss.refused.any()


def test_a_masked_element_is_not_a_number() -> None:
    batch = clean([0.5, 0.5], np.ma.array([1, 1], mask=[True, False]))
    assert (batch.kept.tolist(), batch.refused.tolist()) == ([1], [0, 0, 1, 0])
    with pytest.raises(TypeError, match="integers or strings"):
        integer_ids("users", np.ma.array([1, 2], mask=[True, False]), 2)
