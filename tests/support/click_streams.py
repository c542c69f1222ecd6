"""Scores and labels of imagined click models, and exact answers to compare with."""

import numpy as np


def calibrated(rng, examples, middle, spread=1.0):
    """Logits around `middle`; clicks happen just as often as the scores say."""
    scores = 1 / (1 + np.exp(-rng.normal(middle, spread, examples)))
    return scores.astype(np.float32), (rng.random(examples) < scores).astype(np.float32)


def exact_auc(scores, labels, weights=None):
    """The share of pairs in order, equal scores counting half, by ranking all scores."""
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, float)
    labels = np.asarray(labels) == 1
    _, tied = np.unique(np.asarray(scores), return_inverse=True)
    positive = np.bincount(tied, weights * labels)
    negative = np.bincount(tied, weights * ~labels)
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below / (positive.sum() * negative.sum()))


def states_equal(one, other):
    """Whether two states hold the same, to the last bit."""
    mine, theirs = one.arrays(), other.arrays()
    return mine.keys() == theirs.keys() and all(
        mine[name].dtype == theirs[name].dtype and np.array_equal(mine[name], theirs[name])
        for name in mine
    )
