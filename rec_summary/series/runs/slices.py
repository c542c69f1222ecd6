"""The sums of a run by slice: what its ranks recorded at a step, or in some steps, together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Floats, Integers
from rec_summary.metrics.slices.states import OTHER
from rec_summary.metrics.slices.sums import (
    CELLS,
    FIELDS,
    SERVED_EXAMPLES,
    areas,
    calibration_of,
    normalised_entropy_of,
    served_calibrations_of,
    served_change_of,
)
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.values import recorded_values
from rec_summary.series.text import valid
from rec_summary.values.slice_sums import (
    KIND,
    SlicedSums,
    added,
    decode_numbers,
    decode_sums,
    dense_orders,
    joined,
)

Key = tuple[str, str]
"""A task and a column."""

SLICE_COLUMNS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("run", "task", "column", "value"), "string"),
    "step": "int64",
    **dict.fromkeys(("wall_time", *FIELDS[:5]), "float64"),
    **dict.fromkeys(("normalised_entropy", "calibration", "auc", "auc_error"), "float64"),
    **dict.fromkeys(("served_examples", "ne_change", "ne_change_error"), "float64"),
    **dict.fromkeys(("served_calibration", "compared_calibration"), "float64"),
}
"""The columns of a table of slices and their types. Examples, weight, clicks, predicted clicks and
loss are sums over the examples since the report before. The last five are of examples with a served
score: 0, and NaN, without."""

_MOST_NUMBERS: Final = 1 << 25  # of the sums of a history, and of its orders
_AT_ONCE: Final = 64  # reports whose sums are added up together
_MOST_ORDERS: Final = 64  # intervals with orders in a history: each has an array for each column


class Interval(NamedTuple):
    """What a run has counted from one report to a later one.

    Attributes:
        step: The step of the last report.
        wall_time: When it was recorded, in seconds since the epoch.
        columns: The sums by task and column.
    """

    step: int
    wall_time: float
    columns: Mapping[Key, SlicedSums]


@dataclass(frozen=True)
class SliceHistory:
    """The sums of one column of a task; each is over the examples since the report before.

    Attributes:
        task: The name of the task; empty for the unnamed one.
        column: The column of slices; empty for the task as a whole, which has the value "".
        is_partition: Whether each example has one value.
        steps: The steps of the reports, ascending, (t,).
        wall_times: When they were recorded, in seconds since the epoch, (t,).
        values: The values; `other` has all that are not counted on their own, and the rarest ones
            of a column with many over time; `missing` the examples without a value.
        sums: The sums of `metrics.slices.sums.FIELDS`, 0 where a value has no example,
            (t, v, fields).
        order_steps: The steps of reports with orders, (d,).
        orders: The weights of non-clicks and of clicks by cell of the score, rising, since the
            report with orders before, (d, v, 2, cells).
    """

    task: str
    column: str
    is_partition: bool
    steps: Integers
    wall_times: Floats
    values: list[str]
    sums: Floats
    order_steps: Integers
    orders: Floats


def intervals(
    run: Run,
    selection: Selection,
    report: Report,
    most: int | None = None,
    *,
    total: bool = False,
) -> dict[str, list[Interval]]:
    """Returns the intervals of a run, of all ranks together, by the name of the run.

    It has several names if several processes recorded into it as the same rank.

    Args:
        run: The run.
        selection: Which steps.
        report: Takes what cannot be read.
        most: The number of intervals; if there are more, neighbours are added up, at most twice as
            many as there have to be. None for one at each step.
        total: Whether all are added up to one.
    """
    found: dict[str, _Intervals] = {}
    for name, part in _recorded(run, selection, report):
        found.setdefault(name, _Intervals(most, 1 << 62 if total else 1)).add(part)
    return {name: own.ordered() for name, own in found.items()}


def _recorded(run: Run, selection: Selection, report: Report) -> Iterator[tuple[str, Interval]]:
    """Yields what was recorded, and the name of the run, writer after writer."""
    for value in recorded_values(run, [KIND], selection, report):
        recorded = value.recorded
        try:
            columns = decode_sums(recorded.value.slice_sums)
        except ValueError as error:
            what = f"{recorded.kind} {recorded.tag!r} cannot be read: {error}"
            report.problem(recorded.origin.path, recorded.origin.offset, what)
            continue
        by_key = {(each.task, each.column): each for each in columns}
        yield value.run, Interval(value.step, recorded.origin.wall_time, by_key)


def _by_step(run: Run, selection: Selection, report: Report) -> Iterator[tuple[str, Interval]]:
    """Yields the intervals of a run of one rank, which need not be held."""
    parts = _recorded(run, selection, report)
    for (name, _), group in itertools.groupby(parts, key=lambda each: (each[0], each[1].step)):
        own = _Intervals(None, 1)
        for _, part in group:
            own.add(part)
        yield from ((name, part) for part in own.ordered())


def numbers_without_curve(
    run: Run, selection: Selection, report: Report
) -> dict[tuple[str, int], list[tuple[int, float, float]]]:
    """Returns numbers that are recorded beside sums, by tag and rank.

    Those of a number are steps, ascending, times in seconds since the epoch, and values. Of several
    processes that have recorded as the same rank at the same time, the first counts.

    Args:
        run: The run.
        selection: Which steps.
        report: Takes what cannot be read.
    """
    found: dict[tuple[str, int], list[tuple[int, float, float]]] = {}
    name = valid(run.name)
    for value in recorded_values(run, [KIND], selection, report):
        if value.run == name:
            for tag, number in decode_numbers(value.recorded.value.slice_sums).items():
                place = value.step, value.recorded.origin.wall_time
                found.setdefault((tag, value.rank), []).append((*place, number))
    return {key: sorted(points, key=lambda point: point[0]) for key, points in found.items()}


class _Intervals:
    """Intervals by their place: steps of the same place, which is some steps wide, are added up."""

    def __init__(self, most: int | None, width: int) -> None:
        self._most, self._width = most, width
        self._places: dict[int, Interval] = {}
        self._waiting: list[Interval] = []  # of one place: to add one by one takes long

    def add(self, part: Interval) -> None:
        waiting, place = self._waiting, part.step // self._width
        if waiting and (waiting[0].step // self._width != place or len(waiting) >= _AT_ONCE):
            self._add_waiting()
        self._waiting.append(part)

    def ordered(self) -> list[Interval]:
        self._add_waiting()
        return [self._places[place] for place in sorted(self._places)]

    def _add_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._join(waiting)
        while self._most is not None and len(self._places) > 2 * self._most:
            parts, self._places = self._places, {}
            self._width *= 2
            for part in parts.values():
                self._join([part])

    def _join(self, parts: Sequence[Interval]) -> None:
        """Adds intervals of one place to what is there."""
        if not parts:
            return
        place = parts[0].step // self._width
        if place in self._places:
            parts = [self._places[place], *parts]
        columns = joined(each for part in parts for each in part.columns.values())
        by_key = {(each.task, each.column): each for each in columns}
        self._places[place] = Interval(*max(part[:2] for part in parts), by_key)


def histories(
    run: Run, selection: Selection, report: Report, most: int = 1024
) -> dict[str, list[SliceHistory]]:
    """Returns the histories of a run by its name, the task as a whole before its columns.

    Args:
        run: The run.
        selection: Which steps.
        report: Takes what cannot be read.
        most: As of `intervals`.
    """
    return {
        name: [_history(parts, key) for key in _keys(parts)]
        for name, parts in intervals(run, selection, report, most).items()
    }


def slice_table(
    run: Run, selection: Selection, report: Report, *, total: bool = False
) -> Iterator[dict[str, Any]]:
    """Yields columns of a table of slices, part by part: those of `SLICE_COLUMNS`.

    An AUC is of the examples since the report with orders before; NaN in reports without.

    Args:
        run: The run.
        selection: Which steps.
        report: Takes what cannot be read.
        total: Whether the examples of all steps are added up.
    """
    parts = _by_step(run, selection, report)
    if total or len(run.ranks) > 1:
        of_all = intervals(run, selection, report, total=total)
        parts = ((name, part) for name, own in of_all.items() for part in own)
    since: dict[tuple[str, Key], SlicedSums] = {}  # the last report with orders
    for name, (step, wall_time, columns) in parts:
        for key, part in columns.items():
            place = name, key
            since[place] = added([since[place], part]) if place in since else part
            area = error = np.full(len(part.values), np.nan)
            if part.cells is not None:
                area, error = _areas(since.pop(place), part)
            ratios = normalised_entropy_of(part.sums.T), calibration_of(part.sums.T)
            places = (np.full(len(part.values), at) for at in (step, wall_time))
            texts = ([text] * len(part.values) for text in (name, *key))
            of_served = (
                part.sums[:, SERVED_EXAMPLES],
                *served_change_of(part.sums.T),
                *served_calibrations_of(part.sums.T),
            )
            numbers = (*places, *part.sums.T[:5], *ratios, area, error, *of_served)
            columns_of = (*texts, part.values, *numbers)
            yield dict(zip(SLICE_COLUMNS, columns_of, strict=True))


def _keys(parts: Sequence[Interval]) -> list[Key]:
    """Returns the tasks and columns of intervals, in order, the whole of a task first."""
    return sorted(set().union(*(part.columns for part in parts)))


def _history(parts: Sequence[Interval], key: Key) -> SliceHistory:
    chosen = [(part, part.columns[key]) for part in parts if key in part.columns]
    with_orders = [(part.step, each) for part, each in chosen if each.cells is not None]
    group = -(-len(with_orders) // _MOST_ORDERS) or 1
    # The last one of a group is the end of its interval.
    groups = [with_orders[at : at + group] for at in range(0, len(with_orders), group)]
    of_value = max(len(chosen) * len(FIELDS), len(groups) * 2 * CELLS)
    values = _most_frequent([sums for _, sums in chosen], max(_MOST_NUMBERS // of_value, 2))
    row_of = {value: row for row, value in enumerate(values)}

    def rows(each: SlicedSums) -> Integers:
        own = [row_of[value if value in row_of else OTHER] for value in each.values]
        return np.array(own, np.int64)

    sums = np.zeros((len(chosen), len(values), len(FIELDS)))
    for number, (_, each) in enumerate(chosen):
        np.add.at(sums[number], rows(each), each.sums)
    orders = np.zeros((len(groups), len(values), 2, CELLS))
    for number, of_group in enumerate(groups):
        for _, each in of_group:
            np.add.at(orders[number], rows(each), dense_orders(each))
    return SliceHistory(
        *key,
        not any(each.several for _, each in chosen),
        np.array([part.step for part, _ in chosen], np.int64),
        np.array([part.wall_time for part, _ in chosen]),
        values,
        sums,
        np.array([of_group[-1][0] for of_group in groups], np.int64),
        orders,
    )


def _most_frequent(parts: Sequence[SlicedSums], most: int) -> list[str]:
    """Returns the values of sums, in order; if there are more than `most`, `other` for the rest."""
    examples: Counter[str] = Counter()
    for each in parts:
        for value, count in zip(each.values, each.sums[:, 0].tolist(), strict=True):
            examples[value] += count
    if len(examples) > most:
        del examples[OTHER]
        return sorted([*(value for value, _ in examples.most_common(most - 1)), OTHER])
    return sorted(examples)


def _areas(since: SlicedSums, part: SlicedSums) -> tuple[Floats, Floats]:
    """Returns the AUCs of the values of a part, of which `since` has all sums, and errors."""
    row_of = {value: row for row, value in enumerate(since.values)}
    rows = [row_of[value] for value in part.values]
    return areas(dense_orders(since)[rows], since.sums[rows].T)[:2]
