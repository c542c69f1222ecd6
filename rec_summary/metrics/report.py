"""The values of a recommender's metrics by tag, read from their states.

This module alone decides the tags: the training and the export of merged ranks read the same states
with the same functions. Numbers without data are left out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Flags, Floats, Integers
from rec_summary.metrics import tags
from rec_summary.metrics.drift import Drift
from rec_summary.metrics.feature_health import FeatureCounts
from rec_summary.metrics.lists import list_quality
from rec_summary.metrics.lists.choices import ChoiceQuality
from rec_summary.metrics.lists.ranked_lists import RankedLists, SampledExamples
from rec_summary.metrics.log_histogram import LogHistogram
from rec_summary.metrics.quality import score_quality
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.importance import Estimate, FeatureImportance
from rec_summary.metrics.quality.labels import LabelCounts
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.quality.served import ServedQuality, odds_edges
from rec_summary.metrics.slices import report as slice_report
from rec_summary.metrics.slices.states import Slices, SliceState
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.cardinality import TouchedRows
from rec_summary.metrics.tables.growth import IdTurnover, RowAges, hashed_ids
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import QUANTILES, RowNorms
from rec_summary.metrics.throughput import Throughput

_MOST_BUCKETS: Final = 64
_TOP: Final = 20  # of the most frequent ids

_IMPORTANCE: Final = (
    *("feature", "AUC lost (last day)", "loss gained (last day)"),
    *("a week ago", "change in a week", "passes"),
)

LARGEST_BOUND: Final = 0.01
"""The largest bound of the error of an AUC that is as it should be: it is about 0.001."""


@dataclass
class MetricValues:
    """Values by tag.

    Attributes:
        scalars: Numbers, all finite.
        histograms: Edges, (n + 1,), and counts, (n,).
        pr_curves: Curves with points even in recall, (6, points): true and false positives,
            true and false negatives, precision, recall.
        reliabilities: Predicted and observed click rates and weights of groups, each (groups,).
        tops: The most frequent ids, their counts, and lower and upper bounds of these, each (k,).
        tables: Rows of texts, the first one the header.
    """

    scalars: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    pr_curves: dict[str, Floats] = field(default_factory=dict)
    reliabilities: dict[str, tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    tops: dict[str, tuple[Integers, Floats, Floats, Floats]] = field(default_factory=dict)
    tables: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def put(self, name: str, number: float) -> None:
        """Adds a number if it is finite."""
        if math.isfinite(number):
            self.scalars[tags.PREFIX + name] = float(number)

    def put_some(self, name: str, number: float) -> None:
        """Adds a number if it is finite and not 0."""
        self.put(name, number or math.nan)

    def put_all(self, numbers: Mapping[str, float], detail: Detail) -> None:
        """Adds the finite ones of some numbers of no task, by their tags after the prefix."""
        for name, number in numbers.items():
            if detail.full or not tags.is_detail(name):
                self.put(name, number)

    def add(self, task: str, values: MetricValues) -> None:
        """Adds the values of a task; the tags of a named one have its name."""
        start = f"{tags.PREFIX}{task}/" if task else tags.PREFIX
        for name, entries in vars(values).items():
            own = {start + tag.removeprefix(tags.PREFIX): value for tag, value in entries.items()}
            getattr(self, name).update(own)


@dataclass(frozen=True)
class Detail:
    """The detail of a report.

    Attributes:
        curves: Whether curves, histograms and the most frequent ids are included.
        full: Whether it has what is recorded with `RecommenderMetrics(detail=True)` only.
        only: The names of the only metrics of a task that are included; None for all.
        sampled: The tables whose rows are read: they have the share of dead rows by default.
    """

    curves: bool = True
    full: bool = True
    only: Container[str] | None = None
    sampled: Container[str] = ()

    def has(self, metric: str) -> bool:
        """Whether a metric of a task is included."""
        if self.only is not None:
            return metric in self.only
        return self.full or metric not in tags.DETAILED


def read(
    states: Mapping[str, State],
    detail: Detail,
    attempt: Callable[[str], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> MetricValues:
    """Returns the values of states by the keys of `tags.key`.

    Unknown keys are skipped, and states that are not of the class that their key says.

    Args:
        states: The states.
        detail: The detail of the report.
        attempt: Returns a context in which a state of a task is read. If it takes an error, only
            the values of this state are missing.
    """
    values = MetricValues()
    for key, state in states.items():
        task, own = tags.split_key(key)
        group, _, name = own.partition("/")
        of_task = MetricValues()
        # Sums of scores near 0 underflow, also where a training looks for NaN with np.seterr.
        with attempt(task), np.errstate(all="ignore"):
            _read_state(of_task, group, name, state, detail)
            values.add(task, of_task)
            if group == tags.TURNOVER:
                _read_turnover(values, name, state, states, detail)
    return values


def _read_state(values: MetricValues, group: str, name: str, state: State, detail: Detail) -> None:
    reader = _READERS.get((group, type(state)))
    if reader is not None:
        reader(values, name, state, detail)


def read_rows(
    values: MetricValues, table: str, norms: RowNorms, touched: Flags | None, detail: Detail
) -> dict[str, float]:
    """Adds the values of the sampled rows of a table; returns some that have no curve, by tag.

    Args:
        values: The values to add to.
        table: The name of the table.
        norms: The state of the sampled rows.
        touched: Which of the rows were ever looked up; None if that is not known.
        detail: The detail of the report.
    """
    found = norms.report(touched)
    for name, number in found.items():
        if detail.full or name == "dead_share":
            values.put(f"table/{table}/{name}", number)
    change = found.get("relative_change", math.nan)
    known = not detail.full and math.isfinite(change)
    return {f"{tags.PREFIX}table/{table}/relative_change": change} if known else {}


def _read_ratings(values: MetricValues, window: str, state: RatingErrors, detail: Detail) -> None:
    for name in ("rmse", "mae", "bias"):
        values.put(f"{name}/{window}", getattr(state, name)())
    values.put(f"examples/{window}", state.weight)
    values.put_some(f"refused/{window}", state.refused)


def _read_clicks(values: MetricValues, window: str, state: ClickQuality, detail: Detail) -> None:
    loss, order = state.loss, state.order
    area = order.auc()
    values.put(f"auc/{window}", area.value)
    if detail.has("roc_error_bound") or area.error_bound > LARGEST_BOUND:
        values.put(f"roc_error_bound/{window}", area.error_bound)
    values.put(f"click_rate/{window}", loss.click_rate)
    values.put(f"examples/{window}", loss.weight)
    numbers: dict[str, Callable[[], float]] = {
        "average_precision": lambda: score_quality.average_precision(order),
        "log_loss": loss.log_loss,
        "normalised_entropy": loss.normalised_entropy,
        "calibration": loss.calibration,
        "calibration_error": lambda: score_quality.expected_calibration_error(state).value,
        "calibration_error_bound": lambda: score_quality.expected_calibration_error(state).bound,
        "calibration_free_entropy": loss.calibration_free_entropy,
        "recalibrated_entropy": lambda: score_quality.entropies(state).recalibrated,
        "entropy_of_clicks": lambda: score_quality.entropies(state).of_clicks,
        "clicks": lambda: loss.clicks,
    }
    for name, number in numbers.items():
        if detail.has(name):
            values.put(f"{name}/{window}", number())
    if detail.only is None:
        _read_chosen(values, window, state)
        values.put_some(f"refused/{window}", int(loss.refused.sum()))
    if detail.curves and loss.weight and len(order.positives):
        values.pr_curves[f"{tags.PREFIX}pr_curve/{window}"] = score_quality.pr_curve(
            order
        ).as_array()
        diagram = score_quality.reliability(state)
        values.reliabilities[f"{tags.PREFIX}reliability/{window}"] = diagram
        values.histograms[f"{tags.PREFIX}scores/{window}"] = _score_buckets(order)


def _read_chosen(values: MetricValues, window: str, state: ClickQuality) -> None:
    """Adds what an option asks for."""
    if state.negative_rate < 1:
        original = score_quality.original_calibration(state)
        values.put(f"original_calibration/{window}", original)
    for precision in state.precisions:
        name = f"{100 * precision:.12g}"
        threshold = score_quality.threshold_at(state.order, precision)
        values.put(f"threshold_at_precision_{name}/{window}", threshold.score)
        values.put(f"recall_at_precision_{name}/{window}", threshold.recall)


def _read_choices(values: MetricValues, window: str, state: ChoiceQuality, detail: Detail) -> None:
    if state.is_classes:
        values.put(f"accuracy/{window}", state.top(1).recall)
        values.put(f"log_loss/{window}", state.log_loss())
        values.put(f"examples/{window}", state.weight)
    else:
        for k in state.at.tolist():
            top = state.top(k)
            for start, value in zip(tags.AT_K["retrieval"], top, strict=True):
                values.put(f"{start}{k}/{window}", value)
        if detail.has("in_batch_candidates"):
            values.put(f"in_batch_candidates/{window}", state.candidates())
        if detail.has("in_batch_examples"):
            values.put(f"in_batch_examples/{window}", state.weight)
    values.put_some(f"refused/{window}", state.refused)


def _score_buckets(order: ScoreOrder) -> tuple[Floats, Floats]:
    """Returns edges and weights of groups of cells, from the lowest to the highest score."""
    lower, others, clicks = order.cuts()
    starts = np.flatnonzero(np.diff(lower, prepend=-1.0) > 0)
    starts = starts[:: -(-len(starts) // _MOST_BUCKETS)]
    end = 2 * float(order.scored().middle[-1]) - float(lower[-1])
    highest = max(end, math.nextafter(float(lower[starts[-1]]), 2))
    weights = -np.diff((others + clicks)[starts], append=0.0)
    return np.append(lower[starts], highest), weights


def _read_users(values: MetricValues, window: str, state: UserScores, detail: Detail) -> None:
    auc = state.gauc()
    by_user = state.gauc(by_user=True) if detail.has("gauc_by_user") else None
    values.put(f"gauc/{window}", auc.value)
    if by_user is not None:
        values.put(f"gauc_by_user/{window}", by_user.value)
        errors = by_user.standard_error, by_user.chance_error
        _put_errors(values, "gauc_by_user", window, detail, *errors)
    if detail.only is not None:
        values.scalars[f"{tags.PREFIX}gauc{tags.CHANCE_ERROR}/{window}"] = auc.chance_error
    if detail.has("grouped_users"):
        values.put(f"grouped_users/{window}", auc.users)
        values.put(f"grouped_standard_error/{window}", auc.standard_error)
        bound = auc.cell_error_bound + auc.bias_bound
        values.put(f"grouped_error_bound/{window}", bound)


def _put_errors(
    values: MetricValues, name: str, window: str, detail: Detail, standard: float, chance: float
) -> None:
    """Adds the error of a metric from a sample."""
    if detail.only is not None:
        # Also NaN: a metric whose error is not known is not compared.
        values.scalars[f"{tags.PREFIX}{name}{tags.CHANCE_ERROR}/{window}"] = chance
    elif detail.full:
        values.put(f"{name}{tags.STANDARD_ERROR}/{window}", standard)


def _read_slices(values: MetricValues, name: str, state: Slices, detail: Detail) -> None:
    column, _, window = name.partition("/")

    is_quality_only = not isinstance(state.other, SliceState)
    metrics = tags.OF_SLICES if is_quality_only else state.other.metrics
    needed = {*slice_report.COLUMNS, *metrics, "roc_error_bound", "in_batch_examples"}
    of_slices = Detail(curves=False, only=needed)

    def metrics_of(part: Any) -> dict[str, float]:
        of_part = MetricValues()
        states = {tags.QUALITY: part} if is_quality_only else part.states
        for group, counted in states.items():
            _read_state(of_part, group, "", counted, of_slices)
        return {tag[len(tags.PREFIX) : -1]: number for tag, number in of_part.scalars.items()}

    is_brief = is_quality_only and not detail.full
    of_each = tags.OF_EACH_SLICE if is_brief else metrics
    scalars, table = slice_report.values_of(column, state, metrics, of_each, metrics_of)
    for tag, number in scalars.items():
        if detail.full or not tag.endswith("/auc_error_bound"):
            values.put(f"{tag}/{window}", number)
    if detail.curves and table:
        values.tables[f"{tags.PREFIX}slice/{column}/table/{window}"] = table


def _read_lists(values: MetricValues, window: str, state: RankedLists, detail: Detail) -> None:
    sample = state.sampled()
    if detail.has("pair_accuracy"):
        pairs = list_quality.pairs_in_lists(sample)
        values.put(f"pair_accuracy/{window}", pairs.share)
        _put_errors(values, "pair_accuracy", window, detail, *pairs[1:])
    tops = {k: list_quality.top_of_lists(sample, k) for k in state.at.tolist()}
    for k, top in tops.items():
        errors = top.standard_errors, top.chance_errors
        for start, value, *own in zip(tags.AT_K["lists"], top.means, *errors, strict=True):
            values.put(f"{start}{k}/{window}", value)
            _put_errors(values, f"{start}{k}", window, detail, *own)
    if not detail.has("lists_counted"):
        return
    for top in list(tops.values())[:1]:
        values.put(f"lists_counted/{window}", top.lists)
        values.put(f"lists_standard_error/{window}", top.standard_errors[0])
        if top.lists:
            share = top.without / (top.lists + top.without)
            values.put(f"lists_without_hit_share/{window}", share)
    lists = len(sample.starts) + sample.too_long
    if lists:
        values.put(f"lists_sampled_share/{window}", sample.rate)
        values.put(f"lists_too_long_share/{window}", sample.too_long / lists)


def _read_served(values: MetricValues, window: str, state: ServedQuality, detail: Detail) -> None:
    for name, (value, error) in (
        ("served_ne_change", state.loss_change()),
        ("served_auc_gain", state.auc_gain()),
    ):
        if not detail.has(name):
            continue
        values.put(f"{name}/{window}", value)
        if detail.only is not None:
            values.scalars[f"{tags.PREFIX}{name}{tags.CHANCE_ERROR}/{window}"] = error
        else:
            values.put(f"{name}{tags.STANDARD_ERROR}/{window}", error)
    if detail.only is not None:
        return
    values.put(f"served_calibration/{window}", state.served.loss.calibration())
    values.put(f"served_skewed_share/{window}", state.skewed_share())
    values.put_some(f"served_missing/{window}", state.missing_share())
    if detail.full:
        values.put(f"served_score_difference/{window}", state.score_difference())
    if detail.curves and state.odds_differences.any():
        histogram = odds_edges(), state.odds_differences
        values.histograms[f"{tags.PREFIX}served_odds_differences/{window}"] = histogram


def _read_pairs(values: MetricValues, window: str, state: RankedLists, detail: Detail) -> None:
    sample = state.sampled()
    values.put(f"xauc/{window}", list_quality.pairs_of_all(sample))
    if detail.has("xauc_sampled_share") and sample.rows.size:
        values.put(f"xauc_sampled_share/{window}", sample.rate)


def _read_labels(values: MetricValues, window: str, state: LabelCounts, detail: Detail) -> None:
    values.put_some(f"masked/{window}", state.masked)
    values.put_some(f"missing_labels/{window}", state.missing)


def _read_table(values: MetricValues, table: str, state: TableHealth, detail: Detail) -> None:
    start, frequency = f"table/{table}/", state.frequency
    _read_touched(values, start, state, detail, is_sampled=table in detail.sampled)
    # Sorting all counters is slow.
    if not (detail.full and detail.curves and frequency.seen):
        return
    values.put(f"{start}top_100_share", frequency.top_share(100))
    top = frequency.top(_TOP)
    if top.ids.size:
        values.tops[f"{tags.PREFIX}{start}top_ids"] = (top.ids, top.counts, top.low, top.high)


def _read_window(values: MetricValues, table: str, state: TableHealth, detail: Detail) -> None:
    if state.frequency.seen:
        _read_touched(values, f"table/{table}/window/", state, detail)


def _read_touched(
    values: MetricValues, start: str, state: TableHealth, detail: Detail, is_sampled: bool = False
) -> None:
    frequency, size = state.frequency, state.touched.options.size
    touched = state.touched.count() if detail.full or not is_sampled else math.nan
    if detail.full or not size:
        values.put(f"{start}touched_rows", touched)
    if size:
        values.put(f"{start}touched_share", touched / size)
    if detail.full:
        values.put(f"{start}ids", frequency.seen)
    if frequency.seen:
        put = values.put if detail.full else values.put_some
        put(f"{start}out_of_range_share", frequency.out_of_range / frequency.seen)
        if frequency.options.unknown_id is not None:
            values.put(f"{start}unknown_share", frequency.unknown / frequency.seen)


def _read_turnover(
    values: MetricValues,
    table: str,
    state: State,
    states: Mapping[str, State],
    detail: Detail,
) -> None:
    total, window = (states.get(tags.key(kind, table)) for kind in (tags.TABLE, tags.TABLE_WINDOW))
    if not isinstance(state, IdTurnover) or not isinstance(total, TableHealth):
        return
    start = f"table/{table}/"
    if detail.full and isinstance(window, TableHealth):
        ids = window.frequency.seen
        if ids:
            new = max(total.touched.count() - state.before.count(), 0.0)
            values.put(f"{start}window/new_rows", new)
            values.put(f"{start}window/new_share", new / ids)
        if state.batch_ids:
            values.put(f"{start}window/different_share", state.different / state.batch_ids)
    if state.hashed:
        hashed, share = hashed_ids(total.touched)
        values.put(f"{start}hashed_ids", hashed)
        values.put(f"{start}colliding_share", share)


def _read_ages(values: MetricValues, table: str, state: RowAges, detail: Detail) -> None:
    ages = tags.quantile_tags("row_age", QUANTILES, state.quantiles(QUANTILES))
    for name, age in ages.items():
        values.put(f"table/{table}/{name}", age)


def _read_feature(values: MetricValues, name: str, state: FeatureCounts, detail: Detail) -> None:
    if state.values:
        put = values.put if detail.full else values.put_some
        for kind in ("missing", "default", "out_of_range"):
            put(f"feature/{name}/{kind}_share", getattr(state, kind) / state.values)


def _read_cardinality(values: MetricValues, name: str, state: TouchedRows, detail: Detail) -> None:
    values.put(f"feature/{name}/different_values", state.count())


def _read_importance(
    values: MetricValues, _name: str, state: FeatureImportance, detail: Detail
) -> None:
    for feature, importance in state.fresh().items():
        values.put(f"importance/{feature}", importance.main.value)
        if detail.full:
            error = importance.main.standard_error
            values.put(f"importance{tags.STANDARD_ERROR}/{feature}", error)
    now, before = state.now(), state.a_week_ago()
    if detail.curves and now:
        rows = []
        for name in sorted(now, key=lambda name: -np.nan_to_num(now[name].main.value)):
            area, loss = now[name]
            main, past = now[name].main, before[name].main
            if not main.passes and not past.passes:
                continue  # it is no feature any more
            shown = map(_text, (area, loss, past, main.minus(past)))
            rows.append((name, *shown, f"{main.passes:,}"))
        values.tables[f"{tags.PREFIX}importance/table"] = [_IMPORTANCE, *rows]


def _text(estimate: Estimate) -> str:
    if not estimate.passes:
        return "-"
    error = estimate.standard_error
    return f"{estimate.value:.4f}" + (f" ± {error:.4f}" if math.isfinite(error) else "")


def _read_all(values: MetricValues, _name: str, state: Throughput | Drift, detail: Detail) -> None:
    values.put_all(state.report(), detail)


def _read_delay(values: MetricValues, _name: str, state: LogHistogram, detail: Detail) -> None:
    values.put_all(state.report("label_delay/seconds"), detail)


_READERS: Final[
    Mapping[tuple[str, type[State]], Callable[[MetricValues, str, Any, Detail], None]]
] = {
    (tags.QUALITY, ClickQuality): _read_clicks,
    (tags.QUALITY, RatingErrors): _read_ratings,
    (tags.QUALITY, ChoiceQuality): _read_choices,
    (tags.USERS, UserScores): _read_users,
    (tags.LABELS, LabelCounts): _read_labels,
    (tags.SLICE, Slices): _read_slices,
    (tags.LISTS, RankedLists): _read_lists,
    (tags.SERVED, ServedQuality): _read_served,
    (tags.PAIRS, RankedLists): _read_pairs,  # of earlier versions
    (tags.PAIRS, SampledExamples): _read_pairs,
    (tags.AGES, RowAges): _read_ages,
    (tags.FEATURE, FeatureCounts): _read_feature,
    (tags.CARDINALITY, TouchedRows): _read_cardinality,
    (tags.TABLE, TableHealth): _read_table,
    (tags.TABLE_WINDOW, TableHealth): _read_window,
    (tags.THROUGHPUT, Throughput): _read_all,
    (tags.LABEL_DELAY, LogHistogram): _read_delay,
    (tags.DRIFT, Drift): _read_all,
    (tags.IMPORTANCE, FeatureImportance): _read_importance,
}
