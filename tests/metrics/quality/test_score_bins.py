import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.score_bins import FINEST, score_bins

BINS = pytest.mark.parametrize("bins", [64, 256, 1024, 4096])


@BINS
def test_a_bin_holds_its_lower_edge_and_all_below_the_next(bins):
    layout = score_bins(bins)
    assert layout.edges.shape == (bins + 1,)
    assert (layout.edges[0], layout.edges[-1]) == (0.0, 1.0)
    assert (np.diff(layout.edges) > 0).all()
    assert layout.index(layout.edges[:-1]).tolist() == list(range(bins))
    assert layout.index(np.nextafter(layout.edges[1:], 0)).tolist() == list(range(bins))
    assert layout.index(np.array([0.0, 5e-324, 1.0])).tolist() == [0, 0, bins - 1]


@given(st.lists(st.floats(0, 1), min_size=1))
def test_the_bin_of_any_score_is_where_the_edges_say(scores):
    layout = score_bins(1024)
    scores = np.array(scores)
    expected = np.minimum(np.searchsorted(layout.edges, scores, "right") - 1, 1023)
    assert layout.index(scores).tolist() == expected.tolist()


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
    unit = layout.units[layout.index(np.array([score]))[0]]
    assert unit >= FINEST
    if score >= 2.0**-23:
        assert score / unit % 1 == 0


@pytest.mark.parametrize("bins", [0, 32, 1000, 1 << 17, 1024.0, True, "many"])
def test_other_numbers_of_bins_are_refused(bins):
    with pytest.raises(ValueError, match="bins is invalid"):
        score_bins(bins)
