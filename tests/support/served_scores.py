"""Examples that two models have scored, and what they add to the sums of slices."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rec_summary import RecommenderMetrics, Slice, SummaryRecord
from rec_summary.metrics.slices.sums import FIELDS


def draw(
    random: np.random.Generator, size: int, worse: float = 0.0, noise: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the scores of a new and of the served model, and labels, of 6 % clicks.

    Both are as far from the truth, but for `worse`: how much larger the new one's errors are.
    """
    odds = random.normal(-3, 1, size)
    new, served = (odds + random.normal(0, each, size) for each in (noise + worse, noise))
    labels = (random.random(size) < _sigmoid(odds)).astype(np.float64)
    return _sigmoid(new), _sigmoid(served), labels


def compared_sums(
    new: np.ndarray, served: np.ndarray, labels: np.ndarray, weights: np.ndarray | float = 1.0
) -> np.ndarray:
    """Returns what each example adds to the sums, (examples, fields)."""
    ones = np.ones(len(labels))
    weight = weights * ones
    losses = [-np.where(labels > 0, np.log(each), np.log1p(-each)) for each in (new, served)]
    loss, difference = weight * losses[0], weight * (losses[0] - losses[1])
    found = {
        "examples": ones,
        "weight": weight,
        "clicks": weight * labels,
        "predicted": weight * new,
        "loss": loss,
        "weight_squares": weight**2,
        "click_squares": weight**2 * labels,
        "squared_loss_weights": weight * loss,
        "loss_squares": loss**2,
        "click_losses": weight * loss * labels,
        "error_squares": (weight * (new - labels)) ** 2,
        "served_examples": ones,
        "served_weight": weight,
        "served_clicks": weight * labels,
        "compared_loss": loss,
        "served_loss": weight * losses[1],
        "served_weight_squares": weight**2,
        "loss_differences": weight * difference,
        "loss_difference_squares": difference**2,
        "compared_predicted": weight * new,
        "served_predicted": weight * served,
        "score_difference_squares": (weight * (new - served)) ** 2,
    }
    return np.stack([found[name] for name in FIELDS], axis=1)


def _sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-odds))


def columns(
    random: np.random.Generator, size: int = 1000, worse: float = 0.0
) -> dict[str, np.ndarray]:
    """Returns the columns of a batch: new and served score, click, and country."""
    new, served, click = draw(random, size, worse)
    country = random.integers(0, 3, size)
    found = {"score": new, "served": served, "click": click}
    return {name: each.astype(np.float32) for name, each in found.items()} | {"country": country}


def record_served(directory: Path, worse: float, steps: int, *, served: bool = True) -> None:
    """Records a run of 1,000 examples a step, with a report at each tenth step."""
    names = {0: "TR", 1: "DE", 2: "FR"}
    metrics = RecommenderMetrics(
        predictions="score",
        labels="click",
        served="served" if served else None,
        slices={"country": Slice("country", names=names)},
        report_steps=10,
        host=False,
    )
    random = np.random.default_rng(1)
    with SummaryRecord(directory, recommender=metrics) as writer:
        for step in range(1, steps + 1):
            batch = columns(random, worse=worse)
            if not served:
                del batch["served"]
            writer.observe(**batch)
            writer.record(step)
