"""How far each part of a run is from its own past over time: what `why` compares, as rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rec_summary.answers import orders, sums
from rec_summary.answers.scan import LEAST_PAST
from rec_summary.answers.why import MIX, RATE, SLICE, TASK, Scanned
from rec_summary.arrays import Floats, Integers
from rec_summary.metrics.slices.sums import (
    EXAMPLES,
    WEIGHT,
    calibration_of,
    normalised_entropy_of,
)
from rec_summary.series.runs.slices import SliceHistory

COLUMNS: Final = 120
"""Columns of a map at most: a column of a page then has five pixels or more."""

_WORSE: Final = {"auc": "fall", "ne": "rise"}  # a calibration can leave 1 for either side
_PAST: Final = 8  # reports of the past at least, as long as there are so many
_PART: Final = 4  # the past is at least this part of the run, so that a fault shows while it lasts


@dataclass(frozen=True)
class Map:
    """Rows over time.

    Attributes:
        kind: `slice`, `task`, `feature`, `table`, `rank`, or another kind of finding of `why`.
        task: The task; None for what is of none.
        column: The column of slices; empty for all else.
        metric: What of the rows is compared.
        worse: Which direction is the worse one, `rise` or `fall`; empty if neither is, or both are.
        names: The names of the rows: values of the column, features, tables, ranks.
        steps: The last step of each column, (t,).
        wall_times: Its time in seconds since the epoch, (t,).
        z: The deviation from the row's own past in standard errors, (rows, t); NaN where there are
            too few examples, and in the warm-up.
        values: The metric in the reports of the column alone, (rows, t).
        examples: The examples, (rows, t); None if they are not known.
    """

    kind: str
    task: str | None
    column: str
    metric: str
    worse: str
    names: tuple[str, ...]
    steps: Integers
    wall_times: Floats
    z: Floats
    values: Floats
    examples: Floats | None


def maps(scanned: Iterable[Scanned], columns: int = COLUMNS) -> list[Map]:
    """Returns what was compared as maps; scalars of the same kind and metric are rows of one map.

    Args:
        scanned: What `why` has compared.
        columns: How many columns a map has at most; reports are taken together.
    """
    groups: dict[tuple[object, ...], list[Scanned]] = {}
    for each in scanned:
        if len(each.steps):
            own = (id(each),) if each.history is not None else ()
            groups.setdefault((each.kind, each.metric, *own), []).append(each)
    return [_map(group, columns) for group in groups.values()]


def shown_kind(kind: str) -> str:
    """Returns the kind of the map that has the row of a kind of finding."""
    return {MIX: SLICE, RATE: TASK}.get(kind, kind)


class _Columns(NamedTuple):
    """The columns of a map.

    Attributes:
        steps: The last step of each, (t,).
        wall_times: Its time, (t,).
    """

    steps: Integers
    wall_times: Floats

    def edges(self, steps: Integers) -> Integers:
        """Returns where the columns begin and end in reports at these steps, (t + 1,)."""
        edges: Integers = np.append(0, np.searchsorted(steps, self.steps, "right"))
        return edges


def _columns(group: Sequence[Scanned], most: int) -> _Columns:
    """Returns columns of about the same number of reports, for rows that may have other steps."""
    steps, first = np.unique(np.concatenate([each.steps for each in group]), return_index=True)
    times = np.concatenate([_times(each) for each in group])[first]
    count = min(most, max(len(each.steps) for each in group))
    last = np.minimum(np.arange(1, count + 1) * -(-len(steps) // count), len(steps)) - 1
    last = np.unique(last)
    return _Columns(steps[last], times[last])


def _times(scanned: Scanned) -> Floats:
    if scanned.watched is not None:
        return scanned.watched.wall_times
    assert scanned.history is not None
    # Of the AUC, only some of the reports count: those with orders.
    at = np.searchsorted(scanned.history.steps, scanned.steps, "right") - 1
    times: Floats = scanned.history.wall_times[np.maximum(at, 0)]
    return times


def _map(group: Sequence[Scanned], columns: int) -> Map:
    """Returns the map of a column of slices, or of scalars of one kind and metric."""
    first, shown = group[0], _columns(group, columns)
    z = np.concatenate([_deviations(each, shown.edges(each.steps)).T for each in group])
    history = first.history
    kind = shown_kind(first.kind)
    if history is None:
        every = [each.watched for each in group if each.watched is not None]
        values = np.stack([_means(each.values, shown.edges(each.steps)) for each in every])
        names = tuple(each.name for each in every)
        looks_at = every[0].kind
        worse = {(True, False): "rise", (False, True): "fall"}
        direction = worse.get((looks_at.rises, looks_at.falls), "")
        return Map(kind, None, "", first.metric, direction, names, *shown, z, values, None)
    edges = shown.edges(history.steps)
    parts = np.diff(sums.totals_of(history)[:, edges], axis=1)
    values = _values(first, history, parts, shown).T
    about = kind, history.task, history.column, first.metric, _WORSE.get(first.metric, "")
    return Map(*about, tuple(history.values), *shown, z, values, parts[EXAMPLES].T)


def _means(values: Floats, edges: Integers) -> Floats:
    """Returns the mean of the finite values of each column; NaN where there is none."""
    known = np.isfinite(values)
    totals, counts = (
        np.diff(np.append(0, np.cumsum(each))[edges])
        for each in (np.where(known, values, 0), known)
    )
    with np.errstate(all="ignore"):
        means: Floats = totals / counts
    return means


def _values(scanned: Scanned, history: SliceHistory, parts: Floats, shown: _Columns) -> Floats:
    """Returns the metric of each column, (t, values)."""
    if scanned.metric == "auc":
        bounds = itertools.pairwise(shown.edges(history.order_steps))
        cells = (history.orders[begin:end].sum(0) for begin, end in bounds)
        return np.array([[orders.area_of(row) for row in each] for each in cells])
    with np.errstate(all="ignore"):
        if scanned.metric == "traffic":
            assert scanned.whole is not None
            edges = shown.edges(history.steps)
            share: Floats = parts[WEIGHT] / np.diff(
                sums.totals_of(scanned.whole)[WEIGHT][edges], axis=0
            )
            return share
        of = {"calibration": calibration_of, "click_rate": sums.click_rate_of}
        return of.get(scanned.metric, normalised_entropy_of)(parts)


def _deviations(scanned: Scanned, edges: Integers) -> Floats:
    """Returns z of each column against the reports before, (t, rows)."""
    rows = 1 if scanned.history is None else len(scanned.history.values)
    z = np.full((len(edges) - 1, rows), np.nan)
    if not scanned.scan.places:
        return z  # too few reports
    _, middle, _, factors, _ = scanned.scan.places[0]
    warm = int(middle[0]) - LEAST_PAST
    starts, ends = edges[:-1], edges[1:]
    past = max(_PAST, 2 * int((ends - starts).max()), len(scanned.steps) // _PART)
    known = (starts - warm >= LEAST_PAST) & (ends > starts)
    if known.any():
        own = starts[known]
        change = scanned.scan.compare(np.maximum(own - past, warm), own, own, ends[known])
        with np.errstate(all="ignore"):
            z[known] = change.delta / np.sqrt(change.variance) / factors
    return np.where(np.isfinite(z), z, np.nan)
