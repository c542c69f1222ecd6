import warnings

import numpy as np
import pytest

from rec_summary.metrics.quality.clicks import REASONS, clean


def test_a_sound_batch_is_kept_whole():
    batch = clean(np.float32([[0.0], [0.25], [1.0]]), [[0], [1], [1]])
    assert batch.scores.tolist() == [0.0, 0.25, 1.0]
    assert batch.labels.tolist() == [False, True, True]
    assert batch.weights is None
    assert batch.kept is None
    assert not batch.refused.any()


def test_what_cannot_be_counted_is_refused_by_reason():
    scores = [0.5, np.nan, -0.1, 1.5, 1e300, 0.5, 0.5, 0.5, 0.5, 0.5, np.nan]
    labels = [1.0, 1, 0, 1, 1, 0.5, np.nan, 0, 1, 1, 7]
    weights = [1.0, 1, 1, 1, 1, 1, 1, 0, np.inf, np.nan, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = clean(scores, labels, weights)
    assert dict(zip(REASONS, batch.refused.tolist(), strict=True)) == {
        "score is NaN": 2,
        "score outside [0, 1]": 3,
        "label not 0 or 1": 2,
        "weight not usable": 3,
    }
    assert batch.scores.tolist() == [0.5]
    assert np.flatnonzero(batch.kept).tolist() == [0]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float64])
def test_labels_of_any_real_dtype(dtype):
    assert clean([0.1, 0.2], np.array([1, 0], dtype)).labels.tolist() == [True, False]


def test_weights_are_rounded_to_what_adds_exactly():
    weights = clean([0.5, 0.5], [0, 1], [0.1, 2.0**-20]).weights
    assert np.abs(weights - [0.1, 2.0**-20]).max() <= 2.0**-21
    assert ((weights * 2**20) % 1 == 0).all()


def test_an_empty_batch_is_one():
    assert len(clean([], []).scores) == 0


def test_columns_of_another_size_or_kind_are_mistakes():
    with pytest.raises(ValueError, match=r"labels is invalid.*3 values.*2, one for each"):
        clean([0.1, 0.2], [1, 0, 1])
    with pytest.raises(ValueError, match="weights is invalid"):
        clean([0.1, 0.2], [1, 0], [1])
    with pytest.raises(TypeError, match="scores is invalid"):
        clean(["a"], [1])
