"""States work where a training looks for NaN with ``np.seterr(all="raise")``."""

import numpy as np
import pytest

from rec_summary.metrics.lists.choices import ChoiceQuality
from rec_summary.metrics.lists.ranked_lists import RankedLists, SampledExamples
from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.report import Detail, read
from rec_summary.metrics.state import kind_of, restore
from rec_summary.metrics.windows import Decayed, LastExamples

SIZE = 3000
RANDOM = np.random.default_rng(0)
EDGES = [0, 1, 5e-324, 1e-310, 1e-45, 1e-40, 1 - 1e-16, np.nan, np.inf, -np.inf, 2, -1]
SCORES = np.append(EDGES, RANDOM.random(SIZE) ** 9)
ODDS = np.append([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-320], RANDOM.normal(0, 300, SIZE + 6))
LABELS = RANDOM.random(SIZE + 12) < 0.3
IDS = RANDOM.integers(0, 50, SIZE + 12)
WEIGHTS = np.exp(RANDOM.normal(0, 3, SIZE + 12))
SOFT = np.where(RANDOM.random(SIZE + 12) < 0.1, 0.25, LABELS)


def clicks():
    return ClickQuality(64, 0.01, (0.1, 0.9))


CASES = {
    "clicks": ("quality", clicks, (SCORES, LABELS)),
    "weights": ("quality", clicks, (SCORES, SOFT, WEIGHTS)),
    "log-odds": ("quality", clicks, (SCORES, LABELS, None, ODDS)),
    "last": ("quality", lambda: LastExamples(clicks(), 1600), (SCORES, LABELS)),
    "decayed": ("quality", lambda: Decayed(clicks(), 640), (SCORES, LABELS, WEIGHTS)),
    "users": ("users", lambda: UserScores(512, 16), (IDS, SCORES, LABELS, None, ODDS)),
    "lists": ("lists", lambda: RankedLists(512, 64, (1, 5)), (IDS, SCORES, LABELS)),
    "pairs": ("pairs", lambda: SampledExamples(512, 64), (np.arange(SIZE + 12), ODDS, SCORES)),
    "ratings": ("quality", RatingErrors, (SCORES, SCORES[::-1], WEIGHTS)),
    "classes": ("quality", ChoiceQuality, (np.stack([SCORES, 1 - SCORES], 1), LABELS * 1)),
    "float16": (
        "quality",
        lambda: ChoiceQuality(0, (1,)),
        (np.float16(np.clip(np.stack([ODDS, -ODDS], 1), -6e4, 6e4)), LABELS * 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_state_works_where_numpy_raises(name):
    group, make, columns = CASES[name]
    with np.errstate(all="raise"):
        state, other = make(), make()
        state.update(*columns)
        other.update(*columns)
        state.merge(restore(kind_of(other), other.arrays()))
        if hasattr(state, "total"):
            state = state.total()
        state.shorten()
        found = read({f"{group}/x": state}, Detail())
    assert found.scalars


def test_the_quality_of_scores_of_0_and_1_is_read_where_numpy_raises():
    quality = clicks()
    quality.update(SCORES, LABELS)
    quality.seal()
    with np.errstate(all="raise"):
        assert 0 < score_quality.average_precision(quality.order) < 1
        assert score_quality.pr_curve(quality.order).recall[0] == 1
        assert score_quality.threshold_at(quality.order, 0.2).recall == 1
        assert score_quality.original_calibration(quality) > 0
        assert score_quality.expected_calibration_error(quality).bound < 0.1
        assert score_quality.entropies(quality).recalibrated > 0
