"""How far each part of a run is from its own past over time: what `why` compares, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

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
"""Columns of a map at most: more are hardly told apart on a page."""

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
    names: tuple[str, ...]
    steps: Integers
    wall_times: Floats
    z: Floats
    values: Floats
    examples: Floats | None


def maps(scanned: Iterable[Scanned], columns: int = COLUMNS) -> list[Map]:
    """Returns what was compared as maps; scalars of the same kind and metric are one map.

    Args:
        scanned: What `why.compared` returns.
        columns: How many columns a map has at most; reports are taken together.
    """
    found: list[Map] = []
    rows: dict[tuple[object, ...], list[Map]] = {}
    for each in scanned:
        if not len(each.steps):
            continue
        part = _map(each, columns)
        if each.history is not None:
            found.append(part)
        else:
            rows.setdefault((part.kind, part.metric, part.steps.tobytes()), []).append(part)
    return [*found, *_joined(rows.values())]


def _joined(groups: Iterable[list[Map]]) -> Iterator[Map]:
    for group in groups:
        first = group[0]
        names = tuple(name for each in group for name in each.names)
        z, values = (
            np.concatenate([getattr(each, name) for each in group]) for name in ("z", "values")
        )
        yield Map(
            *(first.kind, None, "", first.metric, names),
            *(first.steps, first.wall_times, z, values, None),
        )


def _map(scanned: Scanned, columns: int) -> Map:
    reports = len(scanned.steps)
    width = -(-reports // columns)
    starts = np.arange(0, reports, width)
    ends = np.minimum(starts + width, reports)
    z = _deviations(scanned, starts, ends)
    last = scanned.steps[ends - 1]
    history, watched = scanned.history, scanned.watched
    if history is None:
        assert watched is not None
        with np.errstate(all="ignore"):
            counts = np.add.reduceat(np.isfinite(watched.values), starts)
            values = np.add.reduceat(np.nan_to_num(watched.values), starts) / counts
        times = watched.wall_times[ends - 1]
        return Map(
            *(scanned.kind, None, "", scanned.metric, (watched.name,)),
            *(last, times, z.T, values[None], None),
        )
    # Of the AUC, only some of the reports count: those with orders.
    edges = np.searchsorted(history.steps, np.append(scanned.steps[starts], last[-1] + 1))
    if scanned.metric == "auc":
        edges = np.append(0, np.searchsorted(history.steps, last, "right"))
    totals = sums.totals_of(history)
    parts = np.diff(totals[:, edges], axis=1)
    kind = {MIX: SLICE, RATE: TASK}.get(scanned.kind, scanned.kind)
    return Map(
        *(kind, history.task, history.column, scanned.metric, tuple(history.values)),
        *(last, history.wall_times[np.maximum(edges[1:] - 1, 0)], z.T),
        _values(scanned, history, parts, edges, starts).T,
        parts[EXAMPLES].T,
    )


def _values(
    scanned: Scanned, history: SliceHistory, parts: Floats, edges: Integers, starts: Integers
) -> Floats:
    """Returns the metric of each column, (t, values)."""
    with np.errstate(all="ignore"):
        if scanned.metric == "auc":
            cells = np.add.reduceat(history.orders, starts, axis=0)
            return np.array([[orders.area_of(row) for row in each] for each in cells])
        if scanned.metric == "traffic":
            assert scanned.whole is not None
            every = np.diff(sums.totals_of(scanned.whole)[WEIGHT][edges], axis=0)
            share: Floats = parts[WEIGHT] / every
            return share
        of = {"calibration": calibration_of, "click_rate": sums.click_rate_of}
        return of.get(scanned.metric, normalised_entropy_of)(parts)


def _deviations(scanned: Scanned, starts: Integers, ends: Integers) -> Floats:
    """Returns z of each column against the reports before, (t, rows)."""
    rows = 1 if scanned.history is None else len(scanned.history.values)
    z = np.full((len(starts), rows), np.nan)
    if not scanned.scan.places:
        return z  # too few reports
    _, middle, _, factors, _ = scanned.scan.places[0]
    warm = int(middle[0]) - LEAST_PAST
    reports = len(scanned.steps)
    past = max(_PAST, 2 * int(ends[0] - starts[0]), reports // _PART)
    known = starts - warm >= LEAST_PAST
    if known.any():
        own = starts[known]
        change = scanned.scan.compare(np.maximum(own - past, warm), own, own, ends[known])
        with np.errstate(all="ignore"):
            z[known] = change.delta / np.sqrt(change.variance) / factors
    return np.where(np.isfinite(z), z, np.nan)
