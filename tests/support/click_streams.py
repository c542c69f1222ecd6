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


def close_together(rng):
    """The scores of a model at the beginning of a slow training."""
    logits = rng.normal(0.0, 1.0, 200_000)
    labels = (rng.random(200_000) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return np.interp(logits, [-4, 4], [0.4997, 0.5023]).astype(np.float32), labels


def noise_of(scale, middle=0.5):
    """Scores that are constant but for noise, which tells something of the labels."""

    def stream(rng):
        labels = (rng.random(200_000) < 0.3).astype(np.float32)
        noise = rng.normal(0.0, 1.0, 200_000) + 0.7 * labels
        return middle + scale * noise, labels

    return stream


def at_rate(rate):
    """Calibrated scores with the click rate `rate`, in float64 as a log-odds layer gives them."""

    def stream(rng):
        size = 1_000_000 if min(rate, 1 - rate) < 1e-3 else 100_000
        scores = 1 / (1 + np.exp(-rng.normal(np.log(rate / (1 - rate)), 1.0, size)))
        return scores, (rng.random(size) < scores).astype(np.float32)

    return stream


def first_close_then_wide(rng):
    one, other = close_together(rng), calibrated(rng, 200_000, -2, 2)
    return tuple(np.concatenate(pair) for pair in zip(one, other, strict=True))


def of_rate_1e_4(rng):
    labels = (rng.random(500_000) < 1e-4).astype(np.float32)
    return np.clip(rng.beta(1, 1e4, 500_000) * (1 + 5 * labels), 0, 1), labels


def below_a_tenth(rng):
    labels = (rng.random(200_000) < 0.02).astype(np.float32)
    return rng.random(200_000) ** 8 * 0.1 * (0.5 + 0.5 * labels), labels


def overconfident(rng):
    labels = (rng.random(200_000) < 0.5).astype(np.float32)
    return 1 / (1 + np.exp(-(labels * 2 - 1) * 6 - rng.normal(0, 4, 200_000))), labels


STREAMS = {
    "calibrated, half": lambda rng: calibrated(rng, 200_000, 0),
    "calibrated, half, nearly constant": lambda rng: calibrated(rng, 200_000, 0, 0.1),
    "calibrated, 3 %": lambda rng: calibrated(rng, 200_000, -3.5),
    "calibrated, 3 %, narrow": lambda rng: calibrated(rng, 200_000, -3.5, 0.3),
    "calibrated, 1e-4": lambda rng: calibrated(rng, 2_000_000, -9.2),
    "calibrated, 1e-4, wide": lambda rng: calibrated(rng, 2_000_000, -9.2, 2),
    "rate 1e-4": of_rate_1e_4,
    "below a tenth": below_a_tenth,
    "overconfident": overconfident,
    "close together": close_together,
    "noise of 1e-6": noise_of(1e-6),
    "noise of 1e-6 near 1": noise_of(1e-6, 0.999),
    "noise of 1e-12": noise_of(1e-12),
    "scores of 1e-8": lambda rng: calibrated(rng, 200_000, 0) * np.array([[1e-8], [1]]),
    "float16": lambda rng: tuple(each.astype(np.float16) for each in calibrated(rng, 99_999, -2)),
    "first close, then wide": first_close_then_wide,
    **{f"rate {rate}": at_rate(rate) for rate in (1e-5, 1e-3, 0.5, 0.999, 0.9999, 0.99999)},
}
