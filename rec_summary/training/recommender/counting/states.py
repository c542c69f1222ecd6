"""The states of a recommender's metrics on one rank: updated with steps, read for reports."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.errors import three_part
from rec_summary.metrics import report, tags
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.log_histogram import LogHistogram
from rec_summary.metrics.slices.states import Slicing
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.row_norms import RowNorms
from rec_summary.metrics.tables.seen import SeenCounts
from rec_summary.metrics.throughput import LAG_BOUNDS, Throughput
from rec_summary.records.failures import Attempt, Troubles
from rec_summary.training.recommender import config, inputs
from rec_summary.training.recommender.columns import Feature, columns_of
from rec_summary.training.recommender.counting.importance import ImportanceMeter
from rec_summary.training.recommender.counting.meters import (
    ROWS,
    DriftMeter,
    FeatureMeter,
    TableMeter,
)
from rec_summary.training.recommender.counting.mistakes import auc_mistakes, time_mistakes
from rec_summary.training.recommender.counting.task_metrics import Examples, TaskMetrics
from rec_summary.training.recommender.inputs import Roles, Steps
from rec_summary.training.recommender.slices import Slice, slicing
from rec_summary.training.recommender.task import Task
from rec_summary.values.slice_sums import SlicedSums

_SEEN: Final = "seen"
_SUMS: Final = "sums"
_OPTIONAL: Final = frozenset(
    (_SUMS, tags.TURNOVER, tags.THROUGHPUT, tags.LABEL_DELAY, tags.PAIRS, tags.IMPORTANCE)
)
"""The groups of states that may be missing in a stored run with the same `settings`.

Options outside the settings switch them on and off, and earlier versions have another kind; a
missing one begins empty.
"""

_PLACES: Final = (*inputs.OF_TASK, "model_age", "column")
"""The options of a task and of a slice that are places, which may be functions."""

_Slot = tuple[str, dict[str, Any], str]
"""A key, and where its state is: in this dict under this name."""
_MISTAKEN: Final = 0.05  # the share of new ids counted as known above which it is reported


class RankMetrics:
    """All metric states of one rank.

    Attributes:
        examples: The number of examples so far.
    """

    def __init__(
        self,
        options: config.RecommenderMetrics,
        sizes: Mapping[str, int | None],
        troubles: Troubles,
        rank: int = 0,
    ) -> None:
        """Starts empty.

        Args:
            options: The metrics.
            sizes: The number of rows of each table; None if it is open.
            troubles: Receives each failure. One metric's failure does not affect the others.
            rank: The rank of this process.
        """
        self._options = options
        self._roles = Roles(options)
        self._sizes = dict(sizes)
        self._troubles = troubles
        self.examples = 0
        self._tasks = {
            name: TaskMetrics(name, task, options, self._roles, troubles, rank)
            for name, task in config.tasks_of(options).items()
        }
        self._slices = config.slices_of(options)
        self._seen = {name: SeenCounts() for name, slice_ in self._slices.items() if slice_.new}
        # Features have a drift of their own; that of the unnamed task has them as well.
        names = dict.fromkeys(["", *self._tasks])
        self._drifts = {name: DriftMeter(options.advanced.reference_examples) for name in names}
        self._tables = {name: TableMeter(name, size, options) for name, size in sizes.items()}
        features = columns_of("features", options.features, Feature)
        self._features = {
            name: FeatureMeter(feature, detail=options.detail) for name, feature in features.items()
        }
        self._importances: dict[str, ImportanceMeter] = {}
        if options.importance is not None:
            self._importances = {
                name: ImportanceMeter(name, task, self._roles)
                for name, task in config.tasks_of(options).items()
                if task.kind != "retrieval"
            }
        self._steps = self._begin_steps()

    @property
    def settings(self) -> str:
        """The settings of the states as text. States merge only if it is equal."""
        options, advanced = self._options, self._options.advanced
        tasks = config.tasks_of(options)
        has_users = any(task.users is not None for task in tasks.values())
        has_places = any(t.lists is not None or t.kind in tags.AT_K for t in tasks.values())
        return json.dumps(
            {
                "last": options.last,
                "half_lives": options.half_lives,
                "detail": options.detail,
                "bins": advanced.bins,
                "precisions": advanced.precisions,
                "user_cells": advanced.user_cells if has_users or has_places else 0,
                "k": options.k if has_places else (),
                "tables": self._sizes,
                "unknown_ids": options.unknown_ids,
                "features": sorted(options.features),
                "tasks": {
                    name: _settings_of(task, ("mask", "users", "lists"))
                    | ({"served": True} if task.served is not None else {})  # a later option
                    for name, task in tasks.items()
                },
                "slices": {name: _settings_of(slice_) for name, slice_ in self._slices.items()},
            },
            sort_keys=True,
        )

    @property
    def places(self) -> list[Any]:
        """The places of the arrays for `update`."""
        return self._roles.places

    def update(self, steps: Steps) -> None:
        """Counts steps, in the order of training."""
        chosen: dict[str, Examples] = {}
        slicings = self._slicings(steps)
        for name, task in self._tasks.items():
            what = inputs.role_of(name, "quality")
            with self._troubles.attempt(f"recommender metrics: {what}"):
                examples = task.select(steps, slicings)
                if examples is not None:
                    chosen[name] = examples
                    task.count(examples)
        for name, table in self._tables.items():
            with self._troubles.attempt(f"recommender metrics: table {name}"):
                ids = self._roles.column(inputs.IDS + name, steps.arrays)
                if ids is not None:
                    last = self._roles.lengths(inputs.IDS + name, steps)[-1]
                    table.add(ids, ids[-last:])
        if self._options.throughput:
            with self._troubles.attempt("recommender metrics: throughput"):
                self._count_steps(steps)
        with self._troubles.attempt("recommender metrics: label times"):
            self._count_delays(steps)
        for name, meter in self._importances.items():
            with self._troubles.attempt(
                f"recommender metrics: {inputs.role_of(name, 'importance')}"
            ):
                meter.add(batch.visit for batch in steps.batches)
        for name in self._drifts:
            what = inputs.role_of(name, "drift")
            with self._troubles.attempt(f"recommender metrics: {what}"):
                self._count_drift(name, chosen.get(name), steps.arrays)
        self.examples += sum(batch.samples for batch in steps.batches)

    @property
    def reference(self) -> dict[str, Distribution]:
        """The complete references of drift; the keys of a named task begin with its name."""
        return {
            (f"{task}/{name}" if task else name): column
            for task, drift in self._drifts.items()
            for name, column in (drift.reference or {}).items()
        }

    def set_reference(self, reference: Mapping[str, Distribution]) -> None:
        """Takes the `reference` of an earlier run and begins to measure drift."""
        rest = dict(reference)
        for task, drift in reversed(self._drifts.items()):  # the unnamed one takes the rest
            names = dict(zip(rest, rest, strict=True))
            if task:
                names = {f"{task}/{name}": name for name in config.OWN_COLUMNS}
            drift.set_reference({own: rest.pop(n) for n, own in names.items() if n in rest})

    def snapshot_rows(self, table: str, rows: Array, values: Array) -> None:
        """Adds the current sampled rows of a table: numbers (s,) and values (s, width)."""
        self._tables[table].snapshot(rows, values)

    def end_interval(self) -> dict[str, State]:
        """Returns the states of a report, by the keys of `tags.key`, and begins an interval.

        Later updates do not change the returned states, except the totals of tables.
        """
        states: dict[str, State] = {}
        for name, task in self._tasks.items():
            with self.attempt_report(name):
                states.update(task.end_interval())
        for name, table in self._tables.items():
            states.update(_named(name, table.end_interval(self.examples)))
        for name, feature in self._features.items():
            states.update(_named(name, feature.end_interval()))
        states.update(self._steps)
        self._steps = self._begin_steps()
        for name, seen in self._seen.items():
            mistaken = seen.mistaken(self._slices[name].new)
            if mistaken > _MISTAKEN:
                text = f"{mistaken:.0%} of new ids are counted as known: there are too many ids"
                self._troubles.report(f"recommender metrics: slice {name}", text)
        for name, meter in self._drifts.items():
            for group, state in meter.end_interval().items():
                states[tags.group_of(name, group)] = state
        for name, importance in self._importances.items():
            states[tags.group_of(name, tags.IMPORTANCE)] = importance.end_interval()
        return states

    def end_sums(self, *, detailed: bool) -> list[SlicedSums]:
        """Returns the sums by slice since the last report; `end_interval` does not end them."""
        sums: list[SlicedSums] = []
        for name, task in self._tasks.items():
            with self.attempt_report(name):
                sums += task.end_sums(detailed=detailed)
        return sums

    def attempt_report(self, task: str) -> Attempt:
        """Returns a context in which a failure costs a part of this task's report."""
        return self._troubles.attempt(f"recommender metrics: {inputs.role_of(task, 'report')}")

    def detail(self, *, curves: bool) -> report.Detail:
        """Returns the detail of a report, with or without curves."""
        sampled = {name for name, table in self._tables.items() if ROWS in table.states}
        return report.Detail(curves, self._options.detail, sampled=sampled)

    def read_rows(self, into: report.MetricValues, detail: report.Detail) -> dict[str, float]:
        """Adds the values of the sampled rows; returns some that have no curve, by tag."""
        quiet: dict[str, float] = {}
        for name, table in self._tables.items():
            norms = table.states.get(ROWS)
            if norms is not None:
                touched = table.states[tags.TABLE].touched.touched(norms.rows)
                quiet |= report.read_rows(into, name, norms, touched, detail)
        return quiet

    def check_values(self, values: report.MetricValues) -> None:
        """Reports the tasks whose AUC may have a large error."""
        for name in self._tasks:
            mistakes = auc_mistakes(name, values.scalars, self._options.advanced.bins)
            self._report(inputs.role_of(name, "AUC"), mistakes)

    def mark_lost(self, into: report.MetricValues) -> None:
        """Sets the quality of each task that predicts only NaN to NaN."""
        for task in self._tasks.values():
            task.mark_lost(into)

    def states(self) -> dict[str, State]:
        """Returns all states that a restarted run needs, by key."""
        states = {key: holder[entry] for slots in self._slots() for key, holder, entry in slots}
        for name, meter in self._drifts.items():
            for group, state in meter.states.items():
                states[tags.group_of(name, group)] = state
        return states

    def restore(self, stored: Mapping[str, State], examples: int) -> None:
        """Continues from the `states` of a process with the same `settings`.

        Raises:
            ValueError: A state is missing, or has another kind or other settings.
        """
        needed, others = self._slots()
        restored = [_restored(key, holder[entry], stored) for key, holder, entry in needed]
        for (_, holder, entry), state in zip(needed, restored, strict=True):
            holder[entry] = state
        for name, table in self._tables.items():
            table.begin()
            norms = stored.get(tags.key(ROWS, name))
            if isinstance(norms, RowNorms):
                table.states[ROWS] = norms
        for key, holder, entry in others:
            with contextlib.suppress(ValueError):
                holder[entry] = _restored(key, holder[entry], stored)
        for name, meter in self._drifts.items():
            start = tags.group_of(name, "")
            own = {key[len(start) :]: stored[key] for key in stored if key.startswith(start)}
            with self._troubles.attempt("recommender metrics: the drift of an earlier run"):
                meter.restore(own)
        self.examples = examples

    def _slots(self) -> tuple[list[_Slot], list[_Slot]]:
        """Returns the slots that every process with these settings has, and the optional ones."""
        slots: list[_Slot] = [
            (tags.key(group, name), windows, name)
            for task in self._tasks.values()
            for group, windows in task.groups.items()
            for name in windows
        ]
        meters: list[tuple[str, Any]] = [*self._tables.items(), *self._features.items()]
        slots += [
            (tags.key(group, name), meter.states, group)
            for name, meter in meters
            for group in meter.states
        ]
        slots += [(tags.key(_SEEN, name), self._seen, name) for name in self._seen]
        slots += [
            (tags.key(tags.group_of(name, _SUMS), column), task.sums, column)
            for name, task in self._tasks.items()
            for column in task.sums
        ]
        slots += [
            (tags.group_of(name, tags.IMPORTANCE), meter.states, tags.IMPORTANCE)
            for name, meter in self._importances.items()
        ]
        slots += [(key, self._steps, key) for key in self._steps]
        groups = {key: tags.split_key(key)[1].partition("/")[0] for key, *_ in slots}
        return (
            [slot for slot in slots if groups[slot[0]] not in _OPTIONAL],
            [slot for slot in slots if groups[slot[0]] in _OPTIONAL],
        )

    def _begin_steps(self) -> dict[str, Any]:
        """Returns the empty states of steps, which begin with each interval."""
        states: dict[str, Any] = {}
        if self._options.throughput:
            states[tags.THROUGHPUT] = Throughput()
        if self._options.label_times is not None:
            states[tags.LABEL_DELAY] = LogHistogram(*LAG_BOUNDS)
        return states

    def _slicings(self, steps: Steps) -> dict[str, Slicing]:
        """Returns the slices of all examples, by the name of the column."""
        slicings = {}
        for name, options in self._slices.items():
            with self._troubles.attempt(f"recommender metrics: slice {name}"):
                values = self._roles.column(inputs.SLICES + name, steps.arrays)
                if values is not None and name == config.LABEL_AGE:
                    lengths = self._roles.lengths(inputs.LABEL_TIMES, steps)
                    now = np.repeat([batch.now for batch in steps.batches], lengths)
                    values = now - values.astype(np.float64).reshape(-1)
                if values is not None:
                    slicings[name] = slicing(options, values, self._seen.get(name))
        return slicings

    def _count_steps(self, steps: Steps) -> None:
        # The time of a first step, which compiles the network, is not known (NaN).
        timed = [batch for batch in steps.batches if not math.isnan(batch.seconds)]
        self._steps[tags.THROUGHPUT].add_steps(
            [
                batch.samples if batch.trained is None else batch.trained / batch.steps
                for batch in timed
            ],
            [batch.seconds / batch.steps for batch in timed],
            [batch.waited / batch.steps for batch in timed],
            [batch.steps for batch in timed],
        )
        times = self._times(inputs.EVENT_TIMES, steps)
        if times is not None:
            ends = np.cumsum(self._roles.lengths(inputs.EVENT_TIMES, steps))[:-1]
            for part, batch in zip(np.split(times, ends), steps.batches, strict=True):
                self._steps[tags.THROUGHPUT].add_events(part, batch.now)

    def _count_delays(self, steps: Steps) -> None:
        if inputs.LABEL_TIMES not in self._roles.of:
            return  # event times have been read, and reported, for their age
        events, labels = (
            self._times(role, steps) for role in (inputs.EVENT_TIMES, inputs.LABEL_TIMES)
        )
        if events is not None and labels is not None:
            delays = labels.astype(np.float64).reshape(-1) - events.reshape(-1)
            self._steps[tags.LABEL_DELAY].add_all(delays[np.isfinite(delays)])

    def _times(self, role: str, steps: Steps) -> Array | None:
        """Returns times, and reports implausible ones."""
        times = self._roles.column(role, steps.arrays)
        if times is not None:
            self._report(role.replace("_", " "), time_mistakes(times))
        return times

    def _report(self, what: str, mistakes: Iterable[str]) -> None:
        for mistake in mistakes:
            self._troubles.report(f"recommender metrics: {what}", mistake)

    def _count_drift(self, name: str, examples: Examples | None, arrays: dict[Any, Array]) -> None:
        columns: dict[str, Array] = {}
        if examples is not None:
            columns.update(self._tasks[name].columns(examples))
        if not name:
            for feature in self._options.features:
                values = self._roles.column(inputs.FEATURES + feature, arrays)
                if values is not None:
                    with self._troubles.attempt(f"recommender metrics: feature {feature}"):
                        self._features[feature].add(values)
                        columns[feature] = values
        self._drifts[name].add(columns, None if examples is None else examples.weights)


def _settings_of(options: Task | Slice, places: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the options that are no places, and which of these places are given."""
    settings = {name: value for name, value in vars(options).items() if name not in _PLACES}
    return settings | {name: getattr(options, name) is not None for name in places}


def _named(name: str, states: Mapping[str, State]) -> dict[str, State]:
    """Returns states by key, from those by group."""
    return {tags.key(group, name): state for group, state in states.items()}


def _restored(key: str, mine: Any, stored: Mapping[str, Any]) -> Any:
    """Returns the stored state of a key.

    Raises:
        ValueError: There is none, or it has another kind or other settings.
    """
    state = stored.get(key)
    if state is None or type(state) is not type(mine):
        raise ValueError(three_part("the stored states", sorted(stored), key))
    mine.check_mergeable(state)
    return state
