"""What the page Recommender asks: the answers of the commands with `--json`, and curves."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from tensorboard.compat.proto import summary_pb2

from rec_summary.answers import sums
from rec_summary.answers.maps import Map, maps, shown_kind
from rec_summary.answers.reading import evidence_of
from rec_summary.answers.text import lines
from rec_summary.answers.why import Answer, Finding, compared
from rec_summary.arrays import Floats, Integers
from rec_summary.metrics.slices.sums import (
    CLICKS,
    ERROR_SQUARES,
    EXAMPLES,
    WEIGHT,
    WEIGHT_SQUARES,
    areas,
    entropy,
)
from rec_summary.metrics.tags import OF_TASK, PREFIX, named_tasks
from rec_summary.records.reading.runs import Run
from rec_summary.series.overview.rows import rows
from rec_summary.series.ranks.summary import LOSSES
from rec_summary.series.report import Report
from rec_summary.series.runs.slices import SliceHistory
from rec_summary.tables.formats import json_value
from rec_summary.tensorboard.provider.group_run import together
from rec_summary.tensorboard.provider.run_index import RunIndex, location
from rec_summary.tensorboard.provider.served_outputs import ServedRuns
from rec_summary.tensorboard.provider.served_run import ScalarSeries, ServedRun

METRICS: Final = ("auc", "normalised_entropy", "calibration", "rmse", "accuracy")
"""The metrics of a head, the first ones first."""

MOST_POINTS: Final = 500
"""Points of a curve; peaks are kept."""

_HEADLINE: Final = re.compile(
    rf"{PREFIX}(?P<task>{OF_TASK})(?P<metric>{'|'.join(METRICS)})/"
    r"(?P<window>(?P<kind>last|decayed|lifetime)(?:_(?P<size>\d+))?)"
)
_WINDOWS: Final = ("last", "decayed", "lifetime")
_MOST_KEPT: Final = 64  # runs of which what was read is kept
_PROBLEMS: Final = 3
_LAST_OF: Final = 3  # series that say how far a run is


class _Read(NamedTuple):
    """What was read of a run, and made of it.

    Attributes:
        files: The files of the run at that time, with their sizes.
        until: Until when it counts though there is more by now, by the monotonic clock.
        wholes: The sums of each task.
        marks: What was done to the run, for JSON.
        why: What moved, for JSON.
        maps: All maps, by key.
    """

    files: tuple[object, ...]
    until: float
    wholes: dict[str, SliceHistory]
    marks: list[Any]
    why: dict[str, Any]
    maps: dict[str, Map]


class PageAnswers:
    """Answers about the runs of an index; all answers are data for JSON.

    Curves are those of the index, and wait for nothing; their errors and marks come once something
    else has read the run. What has to be read from the files is kept until they change, and at
    least 20 times as long as that took, so that a page which is left open on a run costs 5 % of a
    processor at most. `is_current` says whether an answer has all that the files have. Only lineage
    is read whenever it is asked for after a change.
    """

    def __init__(self, index: RunIndex, rest: float = 20.0) -> None:
        """Prepares; nothing is read yet.

        Args:
            index: Has the runs; someone keeps it up to date.
            rest: How many times as long as reading took what was read is kept.
        """
        self._index = index
        self._rest = rest
        self._kept: dict[str, _Read] = {}  # by the path of a run, the last one asked for last
        self._rows: dict[str, tuple[object, list[dict[str, Any]]]] = {}  # of lineage, with files
        self._tasks: dict[str, tuple[int, list[str]]] = {}  # by run, with the number of its series
        self._lock = threading.RLock()  # of several requests, one reads: a training needs the rest
        self.of_run: Final[dict[str, Callable[[str], Any]]] = {
            "why": self.why,
            "maps": self.maps,
            "lineage": self.lineage,
            "quality": self.quality,
        }
        """What is answered about one run, by the name of the route; the last one reads nothing."""

    def runs(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Returns the runs, the one that was written to last first, and the groups of runs.

        Args:
            names: Only these, and no groups; None means all.
        """
        wanted = None if names is None else frozenset(names)
        found = [
            self._about(recorded)
            for recorded in self._index.recorded()
            if wanted is None or recorded.run.name in wanted
        ]
        found.sort(key=lambda about: (-(about["wall_time"] or 0.0), about["run"]))
        members = sorted(self._index.groups().items()) if names is None else ()
        groups = [{"group": group, "runs": len(runs)} for group, runs in members]
        return {"source": location(self._index.source), "runs": found, "groups": groups}

    def quality(self, name: str) -> dict[str, Any]:
        """Returns the loss, the metrics of each head by window, and marks.

        The standard errors are of sampling, from the sums by report: of the examples in the window.
        They and the marks are those of what was read last: none if nothing was.

        Raises:
            KeyError: There is no such run.
        """
        recorded = self._recorded(name)
        read = self._kept.get(recorded.run.path)
        wholes = {} if read is None else read.wholes
        curves = {tag: _curve(*found) for tag, found in _headlines(recorded).items()}
        for tag, curve in curves.items():
            match = _HEADLINE.fullmatch(tag)
            if match is None:
                continue
            curve["error"] = None
            if (whole := wholes.get(match["task"].rstrip("/"))) is not None and len(whole.steps):
                size = float(match["size"]) if match["size"] else math.inf
                curve["error"] = _errors(whole, match["metric"], size, curve["step"])
        return {
            "run": name,
            **_heads(curves),
            "marks": [] if read is None else read.marks,
            "is_current": read is not None and read.files == _files(recorded.run),
        }

    def group(self, name: str) -> dict[str, Any]:
        """Returns the curves of a group of runs, as `quality`: the mean, the least, the greatest.

        Raises:
            KeyError: There is no such group.
        """
        runs = sorted(self._index.groups()[name])
        members: dict[str, list[tuple[ServedRun, Any]]] = {}
        for run in runs:
            for tag, member in _headlines(self._recorded(run)).items():
                members.setdefault(tag, []).append(member)
        curves = {tag: _band(every) for tag, every in members.items()}
        return {"group": name, "runs": runs, **_heads(curves)}

    def why(self, name: str) -> dict[str, Any]:
        """Returns what `rec-summary why --json` prints, its text, and what could not be read.

        `rows` has the row of a map that each finding is about, with its values; None without one.

        Raises:
            KeyError: There is no such run.
        """
        read, is_current = self._read(name)
        return {"run": name, **read.why, "is_current": is_current}

    def maps(self, name: str) -> dict[str, Any]:
        """Returns which maps there are: of slices, features, tables and ranks; `map` has one.

        Raises:
            KeyError: There is no such run.
        """
        read, is_current = self._read(name)
        found = [{**_about(each), "rows": len(each.names)} for each in read.maps.values()]
        return {"run": name, "maps": found, "is_current": is_current}

    def map(self, name: str, key: str) -> dict[str, Any]:
        """Returns a map: how far each of its rows is from its own past.

        Args:
            name: The run.
            key: The key of the map, as `maps` says it.

        Raises:
            KeyError: There is no such run, or no such map.
        """
        found = self._read(name)[0].maps[key]
        return {**_about(found), **_content(found)}

    def lineage(self, name: str) -> list[dict[str, Any]]:
        """Returns the rows that `rec-summary lineage --json` prints.

        Raises:
            KeyError: There is no such run.
        """
        run = self._recorded(name).run
        files = _files(run)
        known = self._rows.get(run.path)
        if known is None or known[0] != files:
            known = self._rows[run.path] = files, json_value(list(rows([run], Report())))
        return known[1]

    def _recorded(self, name: str) -> ServedRuns:
        for recorded in self._index.recorded():
            if recorded.run.name == name:
                return recorded
        raise KeyError(name)

    def _read(self, name: str) -> tuple[_Read, bool]:
        """Returns what was read of a run, and whether that is all that there is."""
        with self._lock:
            run = self._recorded(name).run
            files = _files(run)
            known, now = self._kept.pop(run.path, None), time.monotonic()
            if known is None or (known.files != files and now >= known.until):
                read = _read(run)
                after = time.monotonic()
                known = _Read(files, after + self._rest * (after - now), *read)
            # Another thread looks at it without the lock.
            others = [*self._kept.items()][1 - _MOST_KEPT :]
            self._kept = {**dict(others), run.path: known}
            return known, known.files == files

    def _about(self, recorded: ServedRuns) -> dict[str, Any]:
        run = recorded.run
        every: list[tuple[str, Any]] = []
        last: list[int] = []
        started: list[float] = []
        for served in recorded.main():
            with served.lock:
                series = served.series("scalars", summary_pb2.DATA_CLASS_SCALAR)
                chosen = series[:_LAST_OF]
                last += [each[0] for _, one in chosen if (each := one.last()) is not None]
            every += series
            if served.started is not None:
                started.append(served.started)
        known, count = self._tasks.get(run.path, (-1, [])), len(every)
        if known[0] != count:
            tags = [tag for tag, _ in every]
            unnamed = [""] * any(
                match is not None and not match["task"] for match in map(_HEADLINE.match, tags)
            )
            known = self._tasks[run.path] = (count, [*unnamed, *named_tasks(tags)])
        return {
            "run": run.name,
            "step": max(last, default=None),
            "wall_time": recorded.changed if math.isfinite(recorded.changed) else None,
            "started": min(started, default=None),
            "tasks": known[1],
            "is_recommender": bool(known[1]),
        }


class _Curve(dict[str, Any]):
    """A curve: the arrays `step`, `wall_time` and `value`, perhaps `least` and `greatest`.

    A metric of a run has `error` too: what JSON has of it.
    """


def _headlines(recorded: ServedRuns) -> dict[str, tuple[ServedRun, Any]]:
    """Returns the loss and the metrics of each head, each of the first TensorBoard run with it."""
    every: dict[str, tuple[ServedRun, Any]] = {}
    for served in recorded.main():
        with served.lock:
            for tag, series in served.series("scalars", summary_pb2.DATA_CLASS_SCALAR):
                every.setdefault(tag, (served, series))
    loss = next((tag for each in LOSSES for tag in every if re.match(each, tag)), None)
    return {tag: found for tag, found in every.items() if tag == loss or _HEADLINE.fullmatch(tag)}


def _curve(served: ServedRun, series: Any) -> _Curve:
    with served.lock:
        points = series.points(MOST_POINTS)
    steps = served.shown(points["step"])
    return _Curve(step=steps, wall_time=points["wall_time"], value=points["value"])


def _band(members: Sequence[tuple[ServedRun, Any]]) -> _Curve:
    """Returns the mean of curves, between the least and the greatest value of any of them."""
    every = together(members)
    thin = ScalarSeries()
    thin.extend(every.places, every.wall_times, every.mean)
    points = thin.points(MOST_POINTS)
    at = np.searchsorted(every.places, points["step"])
    columns = {"step": every.places, "value": every.mean, "wall_time": every.wall_times}
    columns |= {"least": every.least, "greatest": every.greatest}
    return _Curve({name: each[at] for name, each in columns.items()})


def _heads(curves: Mapping[str, _Curve]) -> dict[str, Any]:
    """Returns the loss, and the metrics of each head by window."""
    tasks: dict[str, dict[str, list[dict[str, Any]]]] = {}
    loss = None
    for tag, curve in curves.items():
        match = _HEADLINE.fullmatch(tag)
        if match is None:
            loss = {"tag": tag, **_plain(curve)}
            continue
        window = {"window": match["window"], **_plain(curve)}
        of_task = tasks.setdefault(match["task"].rstrip("/"), {})
        of_task.setdefault(match["metric"], []).append(window)
    every = [
        {
            "task": task,
            "metrics": [
                {"metric": metric, "windows": sorted(found[metric], key=_window_order)}
                for metric in METRICS
                if metric in found
            ],
        }
        for task, found in sorted(tasks.items())
    ]
    return {"loss": loss, "tasks": every}


def _window_order(window: dict[str, Any]) -> tuple[int, float]:
    kind, _, size = window["window"].partition("_")
    return _WINDOWS.index(kind), float(size or 0)


def _errors(whole: SliceHistory, metric: str, size: float, steps: Integers) -> list[Any] | None:
    """Returns the standard error of a metric in a window that ends at each step; None of others.

    Args:
        whole: The sums of the task.
        metric: The metric.
        size: The examples in the window.
        steps: The steps of the curve.
    """
    totals = sums.totals_of(whole)[..., 0]
    ends = np.searchsorted(whole.steps, steps, "right")
    counts = totals[EXAMPLES]
    begins = np.searchsorted(counts, np.maximum(counts[ends] - size, 0), "right") - 1
    begins = np.minimum(begins, np.maximum(ends - 1, 0))
    if metric == "auc":
        return _area_errors(whole, begins, ends, totals)
    part = totals[:, ends] - totals[:, begins]
    with np.errstate(all="ignore"):
        if metric == "calibration":
            error = np.sqrt(part[ERROR_SQUARES]) / part[CLICKS]
        elif metric == "normalised_entropy":
            # That of the loss at the click rate that the examples have.
            _, spread = sums.loss_beyond_rate(part)
            numbers = part[WEIGHT] ** 2 / part[WEIGHT_SQUARES]
            error = np.sqrt(spread / numbers) / entropy(part[CLICKS] / part[WEIGHT])
        else:
            return None
    return _numbers(error)


def _area_errors(
    whole: SliceHistory, begins: Integers, ends: Integers, totals: Floats
) -> list[Any] | None:
    """Returns the standard errors of the AUC: those of the reports with orders, as of a window."""
    if not len(whole.order_steps):
        return None
    at = np.searchsorted(whole.steps, whole.order_steps, "right")
    weights = np.diff(totals[:, at], axis=1, prepend=0)
    own = areas(whole.orders[:, 0], weights).errors
    # The error of one interval falls with the root of how many of them a window has.
    place = np.minimum(np.searchsorted(at, ends), len(at) - 1)
    with np.errstate(all="ignore"):
        held = (totals[EXAMPLES][ends] - totals[EXAMPLES][begins]) / weights[EXAMPLES][place]
        return _numbers(own[place] / np.sqrt(held))


def _files(run: Run) -> tuple[object, ...]:
    return tuple((file.path, file.nbytes) for file in run.files)


def _read(run: Run) -> tuple[dict[str, SliceHistory], list[Any], dict[str, Any], dict[str, Map]]:
    """Reads a run; returns all of `_Read` but the first two."""
    report = Report()
    evidence = evidence_of(run, report)
    every = [*map(str, report.problems)]
    more = [f"and {len(every) - _PROBLEMS:,} more problems"] * (len(every) > _PROBLEMS)
    done = compared(evidence.slices, evidence.series)
    answer, found = done.answer(evidence.events), maps([*done.scanned, *done.click_rates()])
    said = {"lines": lines(answer), "problems": every[:_PROBLEMS] + more}
    return (
        {each.task: each for each in evidence.slices if not each.column},
        json_value(evidence.events),
        json_value({**answer.as_json(), **said, "rows": _rows(answer, found)}),
        {_about(each)["key"]: each for each in found},
    )


def _about(each: Map) -> dict[str, Any]:
    about = {name: getattr(each, name) for name in ("kind", "task", "column", "metric")}
    return {"key": json.dumps([*about.values()]), **about, "worse": each.worse}


def _rows(answer: Answer, found: Sequence[Map]) -> list[dict[str, Any] | None]:
    """Returns the row of a map for each finding, with its values; None without one."""
    places: dict[tuple[object, ...], tuple[Map, int]] = {}
    for each in found:
        start = f"{each.column}=" if each.column else ""
        for number, name in enumerate(each.names):
            places[each.kind, each.task, each.metric, start + name] = each, number

    def row_of(finding: Finding) -> dict[str, Any] | None:
        key = shown_kind(finding.kind), finding.task, finding.metric, finding.name
        if key not in places:
            return None
        shown, number = places[key]
        values = _numbers(shown.values[number])
        return {"map": _about(shown)["key"], "row": shown.names[number], "value": values}

    return [row_of(finding) for finding in answer.findings]


def _content(each: Map) -> dict[str, Any]:
    examples: Sequence[Any] = [None] * len(each.names)
    if each.examples is not None:
        examples = [[round(count) for count in row] for row in each.examples.tolist()]
    return {
        "step": each.steps.tolist(),
        "wall_time": each.wall_times.tolist(),
        "rows": [
            {
                "name": name,
                "z": [None if z is None else round(z, 1) for z in _numbers(each.z[row])],
                "value": _numbers(each.values[row]),
                "examples": examples[row],
            }
            for row, name in enumerate(each.names)
        ],
    }


def _plain(curve: _Curve) -> dict[str, Any]:
    times = {"wall_time": curve["wall_time"].tolist()}  # as exact as they are
    others = {name: each for name, each in curve.items() if name not in times}
    return times | {
        name: _numbers(each) if isinstance(each, np.ndarray) else each
        for name, each in others.items()
    }


def _numbers(values: Any) -> list[Any]:
    """Returns numbers for JSON, floats with six digits; None for those that are not finite."""
    if values.dtype.kind in "iu":
        integers: list[Any] = values.tolist()
        return integers
    return [float(f"{each:.6g}") if math.isfinite(each) else None for each in values.tolist()]
