"""The lineage of runs: status, hyper-parameters, custom data and metrics.

Lineage is written several times while a run goes on; the last record counts. `Lineage` merges the
records of one rank.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import shlex
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary._pb.lineage_pb2 import (
    EvaluationLineage,
    LineageEvent,
    RunState,
    TrainLineage,
    UserDefinedInfo,
)
from rec_summary.errors import three_part
from rec_summary.metrics.directions import DIRECTIONS, MOST, stated_direction
from rec_summary.records.format.limits import (
    LONGEST_METRICS,
    LONGEST_TAG,
    LONGEST_TEXT,
    MOST_ENTRIES,
)
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import Columns, Record
from rec_summary.series.best_values import BestSeries
from rec_summary.series.event_reader import read_batches
from rec_summary.series.report import Report
from rec_summary.series.text import reason, shown, valid

Plain = str | bool | int | float

EVALUATION: Final = "evaluation_lineage"

NOTE: Final = "note"
"""The kind of a person's own words; other notes say what was done."""

MOST_NOTES: Final = 100
"""The notes of a rank that are shown."""

_LONGEST_NOTE: Final = 2000  # characters

# Our own maps come last: for readers that do not know them, MindSpore's hold a stand-in.
_CUSTOM_MAPS: Final = ("map_double", "map_int32", "map_str", "map_bool", "map_int64")


class Metric(NamedTuple):
    """The last value of an evaluation metric, and the best one, each with its step."""

    step: int
    value: str
    best: float | None = None
    best_step: int | None = None


class Note(NamedTuple):
    """What was said about a run, or done to it from outside.

    Attributes:
        step: The step it belongs to.
        wall_time: When it was recorded, in seconds since the epoch.
        text: What was said or done.
        author: Who said it, or asked for it; empty if nobody did.
        kind: `control` for what was done, `incident` for batches that were written, `alert` for
            one that has fired, `note` for a person's own words.
        request: The identity of the request; empty if there was none.
    """

    step: int
    wall_time: float
    text: str
    author: str
    kind: str
    request: str


@dataclass
class Lineage:
    """The lineage of one rank of a run, as far as it has been read.

    Attributes:
        train: The last training lineage, if there was one.
        train_time: When it was written, in seconds since the epoch.
        last_time: When the last lineage of any kind was written.
        custom: The user's own data; nested names are joined with dots.
        evaluations: How many evaluations there were.
        valid_dataset: The path and size in samples of the last evaluation's data.
        metrics: The last value of each metric, numeric or not, by name.
        notes: The last notes, at most `MOST_NOTES`.
        best: The best values of each metric so far. An evaluation supersedes those of its step and
            of later ones: training was restarted.
        directions: Which values of metrics are better, by their names, as it was said last.
    """

    train: TrainLineage | None = None
    train_time: float = 0.0
    last_time: float = 0.0
    custom: dict[str, Plain] = field(default_factory=dict)
    evaluations: int = 0
    valid_dataset: tuple[str, int] | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    best: dict[str, BestSeries] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)

    @property
    def describes_training(self) -> bool:
        """Whether there is a training lineage or custom data."""
        return self.train is not None or bool(self.custom)

    @property
    def empty(self) -> bool:
        """Whether no lineage has been read."""
        return not self.describes_training and not self.evaluations

    @property
    def state(self) -> RunState:
        """How the training is going, as it states it; without any field if it states nothing."""
        return RunState() if self.train is None else self.train.run_state

    @property
    def status(self) -> int:
        """How the run ended, as a `RunState.Status`.

        MindSpore writes its lineage when training has ended, and states nothing else.
        """
        if self.train is None:
            return RunState.UNKNOWN
        if not self.train.HasField("run_state"):
            return RunState.FINISHED
        return self.train.run_state.status

    def take_train(self, event: LineageEvent, wall_time: float) -> None:
        """Replaces the training lineage.

        Raises:
            ValueError: A name is not valid Unicode.
        """
        train = event.train_lineage
        # Protobuf decodes the names of a map when they are iterated over; protobuf 4, on look-up.
        state = train.run_state
        for names in (state.troubles, state.settings, state.packages):
            [names[name] for name in names]
        self._take_directions(train.run_state.directions)
        self.train = train
        self.train_time = self.last_time = wall_time

    def take_custom(self, event: LineageEvent, wall_time: float) -> None:
        """Adds the user's own data; a name that comes again has its new value, with None none.

        Raises:
            ValueError: A name is not valid Unicode, or there is more than can be shown.
        """
        entries: dict[str, Plain | None] = {}
        for name, value in flattened(event.user_defined_info):
            _add(entries, name, value)  # `a.b` may be a key, and `b` one in `a`
            if len(entries) > MOST_ENTRIES:
                break
        count = len(self.custom.keys() | entries.keys())
        if count > MOST_ENTRIES:
            expected = f"at most {MOST_ENTRIES:,}"
            raise ValueError(three_part("the number of entries of custom data", count, expected))
        every = {**self.custom, **entries}
        self.custom = {name: value for name, value in every.items() if value is not None}
        self.last_time = wall_time

    def take_note(self, event: LineageEvent, wall_time: float) -> None:
        """Adds a note; of many, the first are dropped."""
        note = event.note
        texts = (note.text, note.author, note.kind, note.request)
        step = event.step if event.HasField("step") else 0
        self.notes.append(Note(step, wall_time, *(valid(text)[:_LONGEST_NOTE] for text in texts)))
        del self.notes[:-MOST_NOTES]
        self.last_time = wall_time

    @property
    def own_words(self) -> list[Note]:
        """The notes that people have written."""
        return [note for note in self.notes if note.kind == NOTE]

    def take_evaluation(self, evaluation: EvaluationLineage, step: int, wall_time: float) -> None:
        """Adds an evaluation made at `step`.

        The step is 0 if it is not known: MindSpore does not record it, and a process that trained
        nothing may not know it. Such evaluations count in their order, as long as none has a step.
        Behind others they supersede none.
        """
        metrics = {name: (numeric(value), _shown(value)) for name, value in metrics_of(evaluation)}
        self._take_directions(evaluation.directions)
        self.last_time = wall_time
        self.evaluations += 1
        data = evaluation.valid_dataset
        size = max(evaluation.valid_dataset_size64, data.valid_dataset_size)
        if data.valid_dataset_path or size:
            self.valid_dataset = (valid(data.valid_dataset_path), size)
        for name, (number, text) in metrics.items():
            if name not in self.metrics and len(self.metrics) >= MOST_ENTRIES:
                continue
            known = self.metrics.get(name)
            if known is None or known.best_step is None:
                if step:
                    self.best[name] = BestSeries()
            elif not step:
                self.metrics[name] = known._replace(value=text)
                continue
            place = np.array([step or self.evaluations])
            values = np.array([math.nan if number is None else number])
            series = self.best.setdefault(name, BestSeries())
            columns = Columns((name,), np.zeros(1, np.int64), place, np.zeros(1), values)
            series.extend(name, columns, stated_direction(name, self.directions))
            self.metrics[name] = Metric(step, text)
            for at, _, best in series.points[-1:]:
                self.metrics[name] = Metric(step, text, best, at if step else None)

    def _take_directions(self, said: Mapping[str, str]) -> None:
        with contextlib.suppress(ValueError):  # a name is not valid Unicode
            for name in itertools.islice(said, MOST):
                is_new = name not in self.directions
                if said[name] in DIRECTIONS and len(self.directions) < MOST + (not is_new):
                    self.directions[name[:LONGEST_TAG]] = said[name]


def metrics_of(evaluation: EvaluationLineage) -> Iterator[tuple[str, Any]]:
    """Yields an evaluation's metrics: names and what JSON made of their values.

    Text that is not a JSON object, or one with too much in it, yields one metric, called
    `metric`, with the beginning of that text.
    """
    text = valid(evaluation.metric)
    try:
        metrics = json.loads(text) if 0 < len(text) <= LONGEST_METRICS else text or {}
    except (ValueError, RecursionError):
        metrics = text
    if not isinstance(metrics, dict) or len(metrics) > MOST_ENTRIES:
        metrics = {"metric": text[:LONGEST_TEXT]}
    for name, value in metrics.items():
        yield valid(name)[:LONGEST_TAG], value


def numeric(value: object) -> float | None:
    """Returns a metric's value as a float, or None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _shown(value: object) -> str:
    if isinstance(value, str):
        return valid(value)[:LONGEST_TEXT]
    try:
        return valid(json.dumps(value, ensure_ascii=False))[:LONGEST_TEXT]
    except RecursionError:
        return "(nested too deeply to be shown)"


def flattened(info: UserDefinedInfo, prefix: str = "") -> Iterator[tuple[str, Plain | None]]:
    """Yields the entries of custom data in the order of the message, nested names dotted.

    Raises:
        ValueError: A name is not valid Unicode, or too long.
    """
    # Each name below would repeat it: a few megabytes could become any number of them.
    _check_length(len(prefix))
    for part in info.user_info:
        yield from flattened(part, prefix)
    filled = {field.name for field, _ in info.ListFields()}
    own: dict[str, Plain | None] = {}
    for name in filter(filled.__contains__, _CUSTOM_MAPS):
        for key, value in sorted(getattr(info, name).items()):
            _check_length(len(prefix) + len(key))
            text = isinstance(value, str | bytes)
            own[key] = valid(value)[:LONGEST_TEXT] if text else value
    own.update((key, None) for key in info.none if key in own)
    for key, value in own.items():
        yield prefix + key, value
    # Looked up before they are compared: a name that is not valid Unicode raises ValueError.
    for key, below in sorted(info.map_dict.items(), key=lambda entry: entry[0]):
        yield from flattened(below, f"{prefix}{key}.")


def _check_length(length: int) -> None:
    if length > LONGEST_TAG:
        expected = f"at most {LONGEST_TAG:,} characters"
        raise ValueError(three_part("the length of a name in custom data", length, expected))


def _add(columns: dict[str, Any], name: str, value: object) -> None:
    """Adds a value under a name; if it is taken, with the prefix `custom.`."""
    while name in columns:
        name = f"custom.{name}"
        _check_length(len(name))
    columns[name] = value


def with_custom(columns: dict[str, Any], custom: Mapping[str, Plain]) -> dict[str, Any]:
    """Returns columns and custom data; an entry whose name is taken gets the prefix `custom.`."""
    every = dict(columns)
    for name, value in sorted(custom.items(), key=lambda entry: entry[0] in columns):
        _add(every, name, value)
    return every


def provenance(state: RunState) -> dict[str, str]:
    """Returns the `commit`, the `command` and the `packages` of a run, if they are recorded."""
    packages = sorted((name, valid(version)) for name, version in state.packages.items())
    facts = {
        "commit": valid(state.git_commit) + ("-dirty" if state.git_dirty else ""),
        "command": shlex.join(map(valid, state.command)),
        "packages": ", ".join(map(" ".join, packages)),
    }
    return {name: shown(text) for name, text in facts.items() if text}


def hyper_parameters(lineage: Lineage) -> dict[str, Plain]:
    """Returns a run's hyper-parameters: MindSpore's by their names in the record, and custom data.

    Custom data under a name that is taken gets the prefix `custom.`.
    """
    return with_custom(recorded_parameters(lineage), lineage.custom)


def recorded_parameters(lineage: Lineage) -> dict[str, Plain]:
    """Returns the hyper-parameters that MindSpore's training lineage has fields for."""
    return dict(_recorded(lineage))


def _recorded(lineage: Lineage) -> Iterator[tuple[str, Plain]]:
    train = lineage.train
    if train is None:
        return
    hyper, data, state = train.hyper_parameters, train.train_dataset, train.run_state
    if train.algorithm.network:
        yield "network", shown(train.algorithm.network)
    for name in ("optimizer", "loss_function", "parallel_mode"):
        text = getattr(hyper, name)
        if text:
            yield name, shown(text)
    if hyper.HasField("learning_rate"):
        yield "learning_rate", shortest(hyper.learning_rate)
    for name in ("epoch", "device_num"):
        if hyper.HasField(name):
            yield name, getattr(hyper, name)
    # Ours may be there as well, in 64 bits.
    if state.batch_size or hyper.HasField("batch_size"):
        yield "batch_size", state.batch_size or hyper.batch_size
    if data.train_dataset_path:
        yield "train_dataset_path", shown(data.train_dataset_path)
    if state.dataset_size or data.HasField("train_dataset_size"):
        yield "train_dataset_size", state.dataset_size or data.train_dataset_size


def shortest(number: float) -> float:
    """Returns the float64 that reads best of those that round to the float32 `number`.

    A learning rate of 0.001 was recorded in 32 bits, and would otherwise read
    0.0010000000474974513.
    """
    if not math.isfinite(number):
        return number
    for digits in range(6, 9):
        candidate = float(f"{number:.{digits}g}")
        if struct.pack("<f", candidate) == struct.pack("<f", number):
            return candidate
    return number


def lineage_of(run: Run, report: Report) -> Lineage:
    """Returns the lineage of the lowest rank that has one of training; else of any rank."""
    lineages = []
    for rank in run.ranks:
        lineage = Lineage()
        for decoded in lineage_events(run, rank, report):
            take(lineage, decoded, report)
        lineages.append(lineage)
    describing = [lineage for lineage in lineages if lineage.describes_training]
    return (describing or [lineage for lineage in lineages if not lineage.empty] or [Lineage()])[0]


def parameters_of(runs: Iterable[Run], report: Report) -> dict[str, dict[str, Plain]]:
    """Returns the hyper-parameters of each run, by its name."""
    return {valid(run.name): hyper_parameters(lineage_of(run, report)) for run in runs}


def lineage_events(run: Run, rank: int, report: Report) -> Iterator[Record]:
    """Yields the events of a rank's lineage files."""
    for file in run.files_of(Kind.LINEAGE, rank):
        for batch in read_batches(file, report):
            yield from batch.records()


LINEAGE: Final = {
    "train_lineage": Lineage.take_train,
    "user_defined_info": Lineage.take_custom,
    "note": Lineage.take_note,
}
"""How each kind of lineage record but an evaluation is taken."""


def take(lineage: Lineage, decoded: Record, report: Report) -> bool:
    """Adds an event to a lineage; returns whether it could.

    An event that is not one of lineage is skipped. One that holds invalid text is reported and
    skipped.
    """
    event = decoded.event
    kind = event.WhichOneof("what")
    try:
        if kind == EVALUATION:
            evaluation = event.evaluation_lineage
            lineage.take_evaluation(evaluation, evaluation.train_step, decoded.wall_time)
            return True
        if kind in LINEAGE:
            LINEAGE[kind](lineage, event, decoded.wall_time)
            return True
    except ValueError as error:
        what = f"this {kind} cannot be read: {reason(error)}; skipped"
        report.problem(decoded.path, decoded.offset, what)
    return False


def evaluations(run: Run, report: Report) -> Iterator[dict[str, Any]]:
    """Yields a row for each metric of all evaluations of a run.

    The step is None if it is not recorded, and the value if it is not a number.
    """
    for rank in run.ranks:
        for decoded in lineage_events(run, rank, report):
            event: Any = decoded.event
            if event.WhichOneof("what") != EVALUATION:
                continue
            evaluation = event.evaluation_lineage
            step = evaluation.train_step if evaluation.HasField("train_step") else None
            place = {"run": valid(run.name), "rank": rank, "step": step}
            place["wall_time"] = decoded.wall_time
            for metric, value in metrics_of(evaluation):
                yield {**place, "metric": metric, "value": numeric(value)}
