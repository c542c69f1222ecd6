"""The table of the ranks that differ."""

import numpy as np
import pytest

from rec_summary.series.ranks.restarts import Reached
from rec_summary.series.ranks.summary import RankHistory
from rec_summary.tensorboard.dashboards.ranks import overview


@pytest.mark.parametrize("measure", ["loss", "input_stall"])
def test_a_rank_without_recent_values_is_not_among_the_highest(measure):
    values, missing = np.tile(np.arange(4.0)[:, None], 96), np.zeros((4, 96), np.bool_)
    values[3, 40:], missing[3, 40:] = np.nan, True
    history = RankHistory(measure, np.arange(4) * 2, np.arange(96), 1e9, values, missing)
    text = str(overview([history], {2 * rank: Reached(95, 1e9) for rank in range(4)}))
    assert "| 0 | 1 | 2 | 4: 2, 2: 1, 0: 0 |" in text
    assert "nan" not in text
    values[1, 95] = np.nan  # recorded
    assert "2: nan, 4: 2, 0: 0 |" in str(overview([history], {0: Reached(95, 1e9)}))
