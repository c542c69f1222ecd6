import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.score_cells import keys_of
from rec_summary.metrics.quality.score_histogram import FINEST, ScoreHistogram, score_bins
from tests.support.click_streams import calibrated

BINS = pytest.mark.parametrize("bins", [64, 256, 1024, 4096])


@BINS
def test_a_bin_holds_its_lower_edge_and_all_below_the_next(bins):
    layout = score_bins(bins)
    assert layout.edges.shape == (bins + 1,)
    assert (layout.edges[0], layout.edges[-1]) == (0.0, 1.0)
    assert (np.diff(layout.edges) > 0).all()
    assert layout.index(keys_of(layout.edges[:-1])).tolist() == list(range(bins))
    assert layout.index(keys_of(np.nextafter(layout.edges[1:], 0))).tolist() == list(range(bins))
    assert layout.index(keys_of(np.array([0.0, 5e-324, 1.0]))).tolist() == [0, 0, bins - 1]


@given(st.lists(st.floats(0, 1), min_size=1))
def test_the_bin_of_any_score_is_where_the_edges_say(scores):
    layout = score_bins(1024)
    scores = np.array(scores)
    expected = np.minimum(np.searchsorted(layout.edges, scores, "right") - 1, 1023)
    assert layout.index(keys_of(scores)).tolist() == expected.tolist()


def test_bins_are_narrow_relative_to_the_rarer_outcome():
    edges = score_bins(1024).edges
    middle = 0.5 * (edges[1:] + edges[:-1])
    relative = np.diff(edges) / np.minimum(middle, 1 - middle)
    assert (relative[1:-1] > 0.0155).all()
    assert (relative[1:-1] < 0.0312).all()


@BINS
@given(st.floats(0, 1, width=32))
def test_float32_scores_are_multiples_of_the_unit_of_their_bin(bins, score):
    layout = score_bins(bins)
    unit = layout.units[layout.index(keys_of(np.array([score])))[0]]
    assert unit >= FINEST
    if score >= 2.0**-23:
        assert score / unit % 1 == 0


@pytest.mark.parametrize("bins", [0, 32, 1000, 1 << 17, 1024.0, True, "many"])
def test_other_numbers_of_bins_are_refused(bins):
    error = ValueError if type(bins) is int else TypeError
    with pytest.raises(error, match="bins is invalid"):
        score_bins(bins)


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
