"""What is read from the states of a recommender's metrics, and under which names.

The names of series are decided here, once: the training and the export of merged ranks read the
same states with the same functions. A number that there is nothing to tell of is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.metrics.drift import LABEL, Drift
from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_histogram import ScoreHistogram
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import QUANTILES, RowNorms
from rec_summary.metrics.throughput import QUANTILES as TIME_QUANTILES
from rec_summary.metrics.throughput import Throughput

PREFIX: Final = "recommender/"

QUALITY: Final = "quality"
USERS: Final = "users"
TABLE: Final = "table"
TABLE_WINDOW: Final = "table_window"
THROUGHPUT: Final = "throughput"
DRIFT: Final = "drift"

_MOST_BUCKETS: Final = 64

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass
class Readings:
    """Values by tag.

    Attributes:
        scalars: Numbers, all finite.
        histograms: Edges, (n + 1,), and counts, (n,).
        pr_curves: Curves by evenly spaced thresholds, (6, thresholds): true and false positives,
            true and false negatives, precision, recall.
        reliabilities: Predicted and observed click rates and weights of groups, each (groups,).
        tops: The most frequent ids, their counts, and the bounds of these, each (k,).
    """

    scalars: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    pr_curves: dict[str, Floats] = field(default_factory=dict)
    reliabilities: dict[str, tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    tops: dict[str, tuple[Ids, Floats, Floats, Floats]] = field(default_factory=dict)

    def put(self, name: str, number: float) -> None:
        """Takes a number unless it is not finite."""
        if math.isfinite(number):
            self.scalars[PREFIX + name] = float(number)


@dataclass(frozen=True)
class Detail:
    """How much is read.

    Attributes:
        curves: Whether curves, histograms and the most frequent ids are wanted as well.
        thresholds: Of a PR curve.
        top: How many of the most frequent ids.
    """

    curves: bool = True
    thresholds: int = score_quality.DEFAULT_THRESHOLDS
    top: int = 20


def key(group: str, name: str = "") -> str:
    """Returns the key of a state: its group, and its window or table."""
    return f"{group}/{name}" if name else group


def read(states: Mapping[str, State], detail: Detail, into: Readings | None = None) -> Readings:
    """Returns what states tell, by the keys that `key` makes; unknown ones are passed over."""
    readings = into or Readings()
    for each, state in states.items():
        group, _, name = each.partition("/")
        reader = _READERS.get(group)
        if reader is not None:
            reader(readings, name, state, detail)
    return readings


def read_rows(
    readings: Readings, table: str, norms: RowNorms, touched: npt.NDArray[np.bool_] | None
) -> None:
    """Reads what sampled rows of a table tell.

    Args:
        readings: Where it goes.
        table: The table's name.
        norms: The rows.
        touched: Which of them were ever looked up; None when that is not known.
    """
    start, report = f"table/{table}/", norms.report(touched)
    for share, norm in zip(QUANTILES, report.norms, strict=True):
        readings.put(f"{start}row_norm/p{round(100 * share)}", norm)
    readings.put(f"{start}dead_share", report.dead_share)
    readings.put(f"{start}zero_share", report.zero_share)
    if report.not_finite_share:
        readings.put(f"{start}not_finite_share", report.not_finite_share)
    readings.put(f"{start}relative_change", report.relative_change)
    readings.put(f"{start}cosine", report.cosine)


def _read_quality(readings: Readings, window: str, state: State, detail: Detail) -> None:
    if isinstance(state, RatingErrors):
        for name in ("rmse", "mae", "bias"):
            readings.put(f"{name}/{window}", getattr(state, name)())
        readings.put(f"examples/{window}", state.weight)
        if state.refused:
            readings.put(f"refused/{window}", state.refused)
        return
    assert isinstance(state, ClickQuality)
    scores, loss = state.scores, state.loss
    readings.put(f"auc/{window}", score_quality.auc(scores))
    readings.put(f"log_loss/{window}", loss.log_loss())
    readings.put(f"normalised_entropy/{window}", loss.normalised_entropy())
    readings.put(f"calibration/{window}", score_quality.calibration(scores))
    error = score_quality.expected_calibration_error(scores)
    readings.put(f"calibration_error/{window}", error)
    readings.put(f"click_rate/{window}", loss.click_rate)
    readings.put(f"examples/{window}", loss.weight)
    if scores.refused.any():
        readings.put(f"refused/{window}", int(scores.refused.sum()))
    if detail.curves and loss.weight:
        curve = score_quality.pr_curve(scores, detail.thresholds)
        readings.pr_curves[f"{PREFIX}pr_curve/{window}"] = curve.as_array()
        found = score_quality.reliability(scores)
        parts = (found.predicted, found.observed, found.weights)
        readings.reliabilities[f"{PREFIX}reliability/{window}"] = parts
        readings.histograms[f"{PREFIX}scores/{window}"] = _score_buckets(scores)


def _score_buckets(scores: ScoreHistogram) -> tuple[Floats, Floats]:
    """Returns the scores in groups of neighbouring bins, between the least and the greatest."""
    weights = scores.positives + scores.negatives
    used = np.flatnonzero(weights)
    low, high = int(used[0]), int(used[-1]) + 1
    step = -(-(high - low) // _MOST_BUCKETS)
    starts = np.arange(low, high, step)
    edges = np.append(scores.edges[starts], scores.edges[high])
    return edges, np.add.reduceat(weights[:high], starts)


def _read_users(readings: Readings, window: str, state: State, detail: Detail) -> None:
    assert isinstance(state, UserScores)
    found = state.gauc()
    readings.put(f"gauc/{window}", found.value)
    readings.put(f"grouped_users/{window}", found.users)


def _read_table(readings: Readings, table: str, state: State, detail: Detail) -> None:
    assert isinstance(state, TableHealth)
    start, frequency = f"table/{table}/", state.frequency
    _read_touched(readings, start, state)
    if not frequency.seen or not detail.curves:  # to sort all counters takes its time
        return
    skew = frequency.skew()
    readings.put(f"{start}top_100_share", skew.top_share)
    readings.put(f"{start}zipf_exponent", skew.zipf_exponent)
    top = frequency.top(detail.top)
    if top.ids.size:
        readings.tops[f"{PREFIX}{start}top_ids"] = (top.ids, top.counts, top.low, top.high)


def _read_table_window(readings: Readings, table: str, state: State, detail: Detail) -> None:
    assert isinstance(state, TableHealth)
    if state.frequency.seen:
        _read_touched(readings, f"table/{table}/window/", state)


def _read_touched(readings: Readings, start: str, state: TableHealth) -> None:
    touched, frequency = state.touched.count(), state.frequency
    readings.put(f"{start}touched_rows", touched)
    size = state.touched.options.size
    if size:
        readings.put(f"{start}touched_share", touched / size)
    readings.put(f"{start}ids", frequency.seen)
    if frequency.seen:
        readings.put(f"{start}out_of_range_share", frequency.out_of_range / frequency.seen)
        if frequency.options.unknown_id is not None:
            readings.put(f"{start}unknown_share", frequency.unknown / frequency.seen)


def _read_throughput(readings: Readings, _name: str, state: State, detail: Detail) -> None:
    assert isinstance(state, Throughput)
    report = state.report(TIME_QUANTILES)
    readings.put("throughput/steps_per_second", report.steps_per_second)
    readings.put("throughput/samples_per_second", report.samples_per_second)
    readings.put("throughput/input_stall_share", report.stall_share)
    for share, seconds, lag in zip(
        TIME_QUANTILES, report.step_seconds, report.lag_seconds, strict=True
    ):
        readings.put(f"throughput/step_seconds/p{round(100 * share)}", seconds)
        readings.put(f"freshness/lag_seconds/p{round(100 * share)}", lag)
    readings.put("freshness/watermark", report.watermark)
    readings.put("freshness/future_share", report.future_share)
    if report.undated:
        readings.put("freshness/undated", report.undated)


def _read_drift(readings: Readings, _name: str, state: State, detail: Detail) -> None:
    assert isinstance(state, Drift)
    for column, report in state.report().items():
        readings.put(f"drift/psi/{column}", report.psi)
        readings.put(f"drift/psi_by_chance/{column}", report.psi_by_chance)
        readings.put(f"drift/js/{column}", report.jensen_shannon)
        if report.missing_share:
            readings.put(f"drift/missing_share/{column}", report.missing_share)
        if column == LABEL:
            readings.put("drift/label_rate", report.rate)
            readings.put("drift/reference_label_rate", report.reference_rate)


_READERS: Final[Mapping[str, Callable[[Readings, str, Any, Detail], None]]] = {
    QUALITY: _read_quality,
    USERS: _read_users,
    TABLE: _read_table,
    TABLE_WINDOW: _read_table_window,
    THROUGHPUT: _read_throughput,
    DRIFT: _read_drift,
}
