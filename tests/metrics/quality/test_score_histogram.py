import numpy as np
import pytest

from rec_summary.metrics.quality.score_histogram import ScoreHistogram
from tests.support.click_streams import calibrated


def test_counts_and_sums_are_those_of_the_batch():
    scores, labels = calibrated(np.random.default_rng(0), 5000, -3)
    histogram = ScoreHistogram()
    histogram.update(scores, labels)
    seen = np.histogram(scores[labels == 1], histogram.edges)[0]
    assert histogram.positives.tolist() == seen.tolist()
    seen = np.histogram(scores[labels == 0], histogram.edges)[0]
    assert histogram.negatives.tolist() == seen.tolist()
    # float32 scores in float64: nothing is rounded
    assert histogram.score_sums.sum() == scores.astype(np.float64).sum()


def test_weights_weigh_counts_and_sums():
    histogram = ScoreHistogram()
    histogram.update([0.25, 0.25, 0.75], [1, 0, 1], [0.5, 2, 4])
    assert histogram.positives.sum() == 4.5
    assert histogram.negatives.sum() == 2
    assert histogram.score_sums.sum() == 0.25 * 2.5 + 0.75 * 4


def test_a_weight_of_two_is_seeing_it_twice():
    scores, labels = calibrated(np.random.default_rng(0), 500, -3)
    weighted, twice = ScoreHistogram(), ScoreHistogram()
    weighted.update(scores, labels, np.full(500, 2))
    twice.update(scores, labels)
    twice.update(scores, labels)
    for name, array in twice.arrays().items():
        np.testing.assert_array_equal(weighted.arrays()[name], array)


def test_refused_examples_are_counted_and_nothing_else_of_them():
    histogram = ScoreHistogram()
    histogram.update([np.nan, 2.0, 0.5, 0.5], [0, 0, 3, 1])
    assert histogram.refused.tolist() == [1, 1, 1, 0]
    assert histogram.positives.sum() + histogram.negatives.sum() == 1


def test_other_bins_do_not_merge():
    with pytest.raises(ValueError, match=r"bins of a state to merge is invalid\. Received: 64"):
        ScoreHistogram(128).merge(ScoreHistogram(64))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bins", np.array(100, np.int64)),
        ("bins", np.array(128, np.int64)),
        ("positives", np.full(64, -1.0)),
        ("negatives", np.full(64, np.nan)),
        ("score_sums", np.zeros(64, np.float32)),
        ("refused", np.array([0, 0, -1, 0])),
        ("refused", np.array([0, 0])),
    ],
)
def test_nonsense_is_refused(name, value):
    arrays = ScoreHistogram(64).arrays()
    with pytest.raises(ValueError, match=r"is invalid\. Received"):
        ScoreHistogram.from_arrays({**arrays, name: value})
    del arrays[name]
    with pytest.raises(ValueError, match=name):
        ScoreHistogram.from_arrays(arrays)
