"""A table of runs: lineage, the last and best values of metrics, and signs of life."""

from __future__ import annotations

import collections
import functools
import math
import os
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.arrays import Floats
from rec_summary.engines.engine import HERE, Engine
from rec_summary.metrics.directions import NAMED, stated_direction, tags_of
from rec_summary.metrics.tags import EVALUATION, JUDGED, OF_TASK, PREFIX
from rec_summary.records.format.names import Kind
from rec_summary.records.liveness import writer_is_alive
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR, Columns, by_tag, gathered
from rec_summary.series.best_values import BestSeries
from rec_summary.series.event_reader import scanned_ahead
from rec_summary.series.lineage import (
    Lineage,
    Plain,
    lineage_of,
    provenance,
    recorded_parameters,
    shortest,
    with_custom,
)
from rec_summary.series.options import ExportOptions, Moment, Selection, tags_named
from rec_summary.series.overview.each_run import each_run
from rec_summary.series.report import Report
from rec_summary.series.runs.history import History
from rec_summary.series.runs.values import finished
from rec_summary.series.text import valid


class Row(dict[str, Plain]):
    """A row of the table: values by the names of columns.

    Attributes:
        directions: Which values are better, as the run states it, by the columns of metrics; empty
            where it does not.
    """

    directions: Mapping[str, str] = {}


_Best = tuple[float | None, int | None]

TIMES: Final = ("start_time", "last_update", "last_record", "silent_since")
"""Columns in seconds since the epoch."""

DETAILS: Final = (
    *("start_time", "last_update", "silent_since"),
    *("reason", "host", "commit", "command", "packages", "train_dataset_path"),
)
"""Columns that an overview of runs leaves out."""

LAST_RECORD: Final = "last_record"
"""The column that says when the last record came."""

OF_ANY_RUN: Final = (
    *("run", "status", "loss", "step", "samples", "host", "reason", "notes"),
    *("commit", "command", "packages"),
    *("start_time", "last_update", LAST_RECORD, "silent_since"),
)
"""Columns that a run may have whatever it records."""

BEST: Final = "best/"
"""What is before the name of a metric in that of the column of its best value."""

BEST_STEP: Final = "best_step/"
"""The same for the column of the step of that value."""

METRICS: Final = rf"\A{PREFIX}{OF_TASK}(?:{JUDGED})/|\A{EVALUATION}|{NAMED}"
"""A regular expression of the tags of metrics, which have a best value; others can be stated."""


_JUDGE: Final = re.compile(
    rf"{PREFIX}({OF_TASK})(?:auc|rmse|accuracy|in_batch_recall_at_\d+)/((last_)?.+)"
)

_LOSS: Final = Selection(ExportOptions(tags=tags_named("loss")))
_WINDOW: Final = 100  # losses, of which the mean is shown; of few losses, a tenth
_NOTES: Final = 5  # the last ones
_STATED: Final = ("step", "samples", "start_time")  # in the lineage
_SILENT_SECS: Final = 600.0  # without a record, as the built-in rule `stall`


def rows(
    runs: Sequence[Run], report: Report, since: Moment = None, engine: Engine = HERE
) -> list[Row]:
    """Returns a row for each run, and for each further writer; unknown values are left out.

    The names are `run`, `status`, the hyper-parameters as TensorBoard shows them, `loss` (the mean
    of the last tenth of the recorded losses, at most 100), `step`, `samples`, `start_time`,
    `last_update` (of the lineage) and `last_record` in seconds since the epoch, `silent_since`
    (the last record of a run that should be running and gives no sign of life), `host`, `commit`,
    `command`, `packages`, `notes` (the last five, with their steps), then metrics and custom data
    by their own names. A metric is the last value; its best one has the same name with `best/`
    before it, and the step of that one `best_step/`. If a name is taken, a metric has the prefix
    `eval/`, as in its tag, and custom data the prefix `custom.`; a `commit`, `command` or
    `packages` in custom data replaces ours.

    Args:
        runs: The runs.
        report: Counts what is read, and takes problems.
        since: Losses and metrics are of values from here on only, as in `ExportOptions`.
        engine: What reads the runs.
    """
    since = ExportOptions(since=since).since  # an age counts from one time for all runs
    selection, work = _selection(since), functools.partial(rows_of, since=since)
    runs = [selection.narrowed(run, newest=True) for run in runs]  # nothing else is read ahead
    results = each_run(work, runs, engine, report, ahead=scanned_ahead)
    return [row for _, row in results]


def rows_of(run: Run, report: Report, since: Moment = None) -> Iterator[Row]:
    """Yields the row of a run, and one for each further writer (see `rows`)."""
    selection = _selection(since)
    for part, history in History(selection.narrowed(run, newest=True)).writers():
        first = min((rank for rank, _ in history.last_steps), default=math.inf)
        last = max((writer.last for writer, _ in history.files), default=0.0)
        step = history.last_steps[min(history.last_steps)] if history.last_steps else None
        # Files of lower ranks have no values: they are read for their problems.
        history.files = [file for file in history.files if file[0].rank <= first]
        lineage = lineage_of(part, of_lineage := Report())
        results = _Results(lineage.directions)
        selected = _selection(since, lineage.directions)
        batches = finished(part, (SCALAR,), selected, report, history)
        for columns in gathered(batch.scalars() for _, batch in batches):
            for tag, values in by_tag(columns):
                results.take(tag, values)
        report.add(of_lineage)
        yield _row(part, lineage, results, last, step)


def _selection(since: Moment, directions: Iterable[str] = ()) -> Selection:
    tags = (METRICS, tags_named("loss"), *map(tags_of, filter(None, [directions])))
    return Selection(ExportOptions(tags="|".join(tags), since=since))


def stated_row(run: Run, report: Report) -> Row:
    """Returns the row of a run from its lineage alone; its values are not read."""
    return _row(run, lineage_of(run, report), _Results({}))


class _Results:
    """The last and the best values of the metrics, and the last losses."""

    def __init__(self, directions: Mapping[str, str]) -> None:
        self._directions = directions
        self.last: dict[str, float] = {}
        self._best: dict[str, BestSeries] = {}
        self._losses: dict[str, Floats] = {}
        self._counts: collections.Counter[str] = collections.Counter()

    def take(self, tag: str, columns: Columns) -> None:
        """Adds values, of which there is at least one."""
        values, direction = columns.values, stated_direction(tag, self._directions)
        if _LOSS.tag(tag) and not tag.startswith(EVALUATION):
            known = self._losses.get(tag, values[:0])
            self._losses[tag] = np.concatenate([known, values[-_WINDOW:]])[-_WINDOW:]
            self._counts[tag] += len(values)
            if not direction:
                return
        self.last[tag] = float(values[-1])
        self._best.setdefault(tag, BestSeries()).extend(tag, columns, direction)

    def best(self, tag: str) -> _Best:
        """Returns the best value of a metric, and its step."""
        for step, _, value in self._best[tag].points[-1:]:
            return value, step
        return None, None

    @property
    def loss(self) -> float | None:
        """The mean of the last losses; NaN if one of them is, or with both infinities."""
        if not self._losses:
            return None
        tag = min(self._losses, key=lambda tag: (tag.count("/"), tag))
        window = min(_WINDOW, max(1, self._counts[tag] // 10))
        with np.errstate(invalid="ignore"):
            return float(self._losses[tag][-window:].mean())


def _row(
    run: Run,
    lineage: Lineage,
    results: _Results,
    last_value: float = 0.0,
    last_step: int | None = None,
) -> Row:
    row = Row({"run": valid(run.name), "status": RunState.Status.Name(lineage.status)})
    row.update(recorded_parameters(lineage))
    state = lineage.state
    loss = results.loss
    if loss is None and lineage.train is not None and lineage.train.algorithm.HasField("loss"):
        loss = shortest(lineage.train.algorithm.loss)
    if loss is not None:
        row["loss"] = loss
    stated = {name: getattr(state, name) for name in _STATED if state.HasField(name)}
    # The one that was written later knows more. Samples belong to the step beside them.
    if last_step is not None and ("step" not in stated or last_value > lineage.train_time):
        if stated.get("step") != last_step:
            stated.pop("samples", None)
        stated["step"] = last_step
    row.update({name: stated[name] for name in _STATED if name in stated})
    if lineage.train is not None:
        row["last_update"] = lineage.train_time
    last = max(last_value, lineage.last_time)
    if last:
        row["last_record"] = last
        if not shows_life(run, state, last):
            row["silent_since"] = last
    words = {name: getattr(state, name) for name in ("host", "reason")}
    row.update((name, valid(text)) for name, text in words.items() if text)
    # Who records these as custom data, as before they were ours, keeps the columns.
    row.update(
        (name, text) for name, text in provenance(state).items() if name not in lineage.custom
    )
    if lineage.own_words:
        notes = lineage.own_words[-_NOTES:]
        row["notes"] = "; ".join(f"step {note.step:,}: {note.text}" for note in notes)
    directions = {}
    for name, (value, (best, step)) in _metrics(lineage, results).items():
        free = name
        while free in row:  # a metric may be called `eval/loss` itself
            free = EVALUATION + free
        row[free] = value
        directions[free] = stated_direction(name, lineage.directions)
        found = {BEST + free: best, BEST_STEP + free: step}
        row.update((name, number) for name, number in found.items() if number is not None)
    row = Row(with_custom(row, lineage.custom))
    row.directions = directions
    return row


def _metrics(lineage: Lineage, results: _Results) -> Mapping[str, tuple[Any, _Best]]:
    """Returns the last and the best value of each metric by name."""
    metrics: dict[str, tuple[Any, _Best]] = {
        # MindSpore does not record the step of an evaluation.
        name: (_number(metric.value), (metric.best, metric.best_step or None))
        for name, metric in lineage.metrics.items()
    }
    for tag, last in results.last.items():
        # An evaluation is in the lineage and, of our collector, among the scalars as well.
        if tag.removeprefix(EVALUATION) not in lineage.metrics:
            metrics[tag] = (last, results.best(tag))
    return metrics


def shows_life(run: Run, state: RunState, last: float) -> bool:
    """Returns whether a run that should be running has a process, as far as can be known.

    Where nothing is known of the process, the run must have recorded in the last ten minutes.

    Args:
        run: The run, or that of one of its writers.
        state: What the run states.
        last: When its last record came, in seconds since the epoch.
    """
    if state.status != RunState.RUNNING:
        return True
    names = {os.path.basename(file.path) for file in run.files if file.name.kind is Kind.LINEAGE}
    alive = writer_is_alive(run.path, state, names)
    return time.time() - last < _SILENT_SECS if alive is None else alive


def is_metric(name: str, known: Container[str]) -> bool:
    """Whether a column is a metric, or the best value of one, or its step."""
    return name.startswith((BEST, BEST_STEP)) or BEST + name in known


def judging_columns(table: Iterable[Iterable[str]]) -> list[str]:
    """Returns a column for each task of recommenders: its AUC, or the first metric of its kind.

    They are of one window: of those that most rows have, the one of the most last examples.

    Args:
        table: The rows.
    """
    found = [match for row in table for name in row if (match := _JUDGE.fullmatch(name))]
    counts = collections.Counter((match[2], bool(match[3])) for match in found)
    order = sorted(counts, key=lambda each: (counts[each], each[1], len(each[0]), each))
    columns: dict[str, str] = {}
    for match in found:
        if match[2] == order[-1][0]:
            columns.setdefault(match[1], match[0])
    return list(columns.values())


def column_names(table: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the names in any of the rows, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in table for name in row))


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
