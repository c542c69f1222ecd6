"""Scores and labels of simulated click models, and exact results."""

import numpy as np


def calibrated(rng, examples, middle, spread=1.0):
    """Returns scores with logits around `middle`, and labels with these probabilities."""
    scores = 1 / (1 + np.exp(-rng.normal(middle, spread, examples)))
    return scores.astype(np.float32), (rng.random(examples) < scores).astype(np.float32)


def exact_auc(scores, labels, weights=None):
    """Returns the share of ordered pairs; equal scores count half."""
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, float)
    labels = np.asarray(labels) == 1
    _, tied = np.unique(np.asarray(scores), return_inverse=True)
    positive = np.bincount(tied, weights * labels)
    negative = np.bincount(tied, weights * ~labels)
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below / (positive.sum() * negative.sum()))


def states_equal(one, other):
    """Returns whether two states have the same arrays, bit for bit."""
    mine, theirs = one.arrays(), other.arrays()
    return mine.keys() == theirs.keys() and all(
        mine[name].dtype == theirs[name].dtype and np.array_equal(mine[name], theirs[name])
        for name in mine
    )
