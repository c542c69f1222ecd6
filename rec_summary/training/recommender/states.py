"""The states of a recommender's metrics on one rank: fed with batches, read at reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics import report as readings
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.drift import LABEL, Drift, ReferenceBuilder
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import RowNorms
from rec_summary.metrics.throughput import Throughput
from rec_summary.metrics.windows import Decayed, LastExamples, Lifetime, Window
from rec_summary.training.recommender import inputs as batches
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.inputs import Roles, Steps
from rec_summary.training.tensors import Array

_EXACT_ROWS: Final = 2**20  # two bytes of memory for each; larger tables are estimated
_ROWS: Final = "rows"
_USER_PANES: Final = 4  # each may be a whole sample of users


Trouble = Callable[[str, Exception], None]


class Metrics:
    """All states of one rank.

    Attributes:
        examples: How many examples were counted.
        reference: What drift is measured against; None as long as it is being gathered.
    """

    def __init__(
        self, options: RecommenderMetrics, sizes: Mapping[str, int | None], trouble: Trouble
    ) -> None:
        """Starts empty.

        Args:
            options: What is wanted.
            sizes: How many rows each table has; None where that is open.
            trouble: Told what could not be counted, and why; the rest is.
        """
        self._options = options
        self._roles = Roles(options)
        self._sizes = dict(sizes)
        self._trouble = trouble
        self.examples = 0
        self._quality: dict[str, Window[Any]] = {}
        self._users: dict[str, Window[Any]] = {}
        if options.predictions is not None:
            self._quality = _windows(_empty_quality(options), options, 16)
        if options.users is not None:
            # Cells of users cannot be scaled in panes without a copy of all; two windows will do.
            windows = _windows(UserScores(options.user_cells), options, _USER_PANES)
            self._users = {n: w for n, w in windows.items() if not isinstance(w, Decayed)}
        self._tables = {name: self._table(name) for name in sizes}
        self._table_windows = {name: self._table(name) for name in sizes}
        self._throughput = Throughput()
        self._rows: dict[str, RowNorms] = {}
        self.reference: dict[str, Distribution] | None = None
        self._builder = ReferenceBuilder(options.reference_examples)
        self._drift: Drift | None = None

    @property
    def settings(self) -> str:
        """A text that is the same for states that go together only."""
        options = self._options
        parts = {
            "task": options.task,
            "logits": options.logits,
            "last": options.last,
            "half_lives": options.half_lives,
            "bins": options.bins,
            "user_cells": options.user_cells if options.users is not None else 0,
            "quality": options.predictions is not None,
            "tables": self._sizes,
            "unknown_ids": options.unknown_ids,
            "features": sorted(options.features),
            "sampled_rows": options.sampled_rows,
        }
        return json.dumps(parts, sort_keys=True)

    @property
    def places(self) -> list[Any]:
        """Where the arrays are that `update` takes."""
        return self._roles.places

    def update(self, steps: Steps) -> None:
        """Counts steps, in the order in which they were trained."""
        arrays = steps.arrays
        self._attempt("quality", lambda: self._count_quality(arrays))
        for table in self._tables:
            self._attempt(f"table {table}", lambda table=table: self._count_ids(table, arrays))  # type: ignore[misc]
        if self._options.throughput:
            self._attempt("throughput", lambda: self._count_steps(steps))
        self._attempt("drift", lambda: self._count_drift(arrays))
        self.examples += sum(steps.samples)

    def set_reference(self, reference: dict[str, Distribution]) -> None:
        """Measures drift against this from now on."""
        self.reference = reference
        self._drift = Drift(reference)

    def snapshot_rows(self, table: str, rows: Array, values: Array) -> None:
        """Takes sampled rows of a table as they are now: numbers (s,) and values (s, width)."""
        norms = self._rows.get(table)
        if norms is None or norms.rows.tolist() != rows.tolist():
            norms = self._rows[table] = RowNorms(rows, values.shape[1])
        norms.snapshot(values)

    def end_interval(self) -> dict[str, State]:
        """Returns what is to be reported, by the keys of `readings.key`, and begins an interval.

        What is returned is not changed by later updates, but for the totals of tables.
        """
        found: dict[str, State] = {}
        for group, windows in ((readings.QUALITY, self._quality), (readings.USERS, self._users)):
            for name, window in windows.items():
                found[readings.key(group, name)] = window.total()
        for name, table in self._table_windows.items():
            self._tables[name].merge(table)
            found[readings.key(readings.TABLE, name)] = self._tables[name]
            found[readings.key(readings.TABLE_WINDOW, name)] = table
            self._table_windows[name] = self._table(name)
        if self._options.throughput:
            found[readings.THROUGHPUT] = self._throughput
            self._throughput = Throughput()
        if self._drift is not None:
            found[readings.DRIFT] = self._drift
            self._drift = Drift(self._drift.reference)
        return found

    def read_rows(self, into: readings.MetricValues) -> None:
        """Reads the sampled rows."""
        for table, norms in self._rows.items():
            total = self._tables.get(table)
            touched = None if total is None else total.touched.touched(norms.rows)
            readings.read_rows(into, table, norms, touched)

    def row_norms(self) -> Mapping[str, RowNorms]:
        """Returns the sampled rows by table."""
        return self._rows

    def states(self) -> dict[str, State]:
        """Returns all that a restarted run needs, by key."""
        found: dict[str, State] = {}
        for group, several in self._groups().items():
            found.update({readings.key(group, name): each for name, each in several.items()})
        found[readings.THROUGHPUT] = self._throughput
        if self._drift is not None:
            found[readings.DRIFT] = self._drift
        return found

    def restore(self, states: Mapping[str, State], examples: int) -> None:
        """Goes on from what `states` returned in a process with the same `settings`.

        Raises:
            ValueError: A state is missing, or is another than the one that was stored.
        """
        drift = states.get(readings.DRIFT)
        own = [(group, several) for group, several in self._groups().items() if group != _ROWS]
        for group, several in own:
            for name, mine in several.items():
                each = readings.key(group, name)
                stored: Any = states.get(each)
                if type(stored) is not type(mine):
                    raise ValueError(three_part("the stored states", sorted(states), each))
                mine.copy().merge(stored)  # refuses other settings
        for group, several in own:
            for name in several:
                several[name] = states[readings.key(group, name)]
        for each, state in states.items():
            group, _, name = each.partition("/")
            if group == _ROWS and isinstance(state, RowNorms):
                self._rows[name] = state
        throughput = states.get(readings.THROUGHPUT)
        if isinstance(throughput, Throughput):
            self._throughput = throughput
        if isinstance(drift, Drift) and (
            self._drift is None or _same_reference(self._drift.reference, drift.reference)
        ):
            self._drift, self.reference = drift, drift.reference
        self.examples = examples

    def _groups(self) -> dict[str, dict[str, Any]]:
        return {
            readings.QUALITY: self._quality,
            readings.USERS: self._users,
            readings.TABLE: self._tables,
            readings.TABLE_WINDOW: self._table_windows,
            _ROWS: self._rows,
        }

    def _table(self, name: str) -> TableHealth:
        size = self._sizes[name]
        frequency = FrequencyOptions(size, self._options.unknown_ids.get(name))
        if frequency.exact:  # where each row has a counter, to count all ids costs little
            frequency = replace(frequency, sample_one_in=1)
        return TableHealth(TouchedRows(TouchedOptions(size, _EXACT_ROWS)), IdFrequency(frequency))

    def _column(self, role: str, arrays: dict[Any, Array]) -> Array | None:
        return self._roles.column(role, arrays)

    def _count_quality(self, arrays: dict[Any, Array]) -> None:
        scores = self._scores(arrays)
        labels = self._column(batches.LABELS, arrays)
        if scores is None or labels is None:
            return
        weights = self._column(batches.WEIGHTS, arrays)
        heavy = None if weights is None else weights.reshape(-1)
        labels = labels.reshape(-1)
        users = self._column(batches.USERS, arrays)
        clicks = clean(scores, labels, heavy) if self._options.task == "clicks" else None
        if clicks is None or clicks.kept is not None or not len(scores):
            # Windows count what is refused as well: their parts are cut out of the whole batch.
            for window in self._quality.values():
                window.update(scores, labels, heavy)
            if users is not None:
                for window in self._users.values():
                    window.update(users.reshape(-1), scores, labels, heavy)
            return
        prepared = ClickQuality(self._options.bins).prepare(clicks)
        for window in self._quality.values():
            window.count(prepared)
        if users is not None:
            of_users = UserScores(self._options.user_cells).prepare(users.reshape(-1), clicks)
            for window in self._users.values():
                window.count(of_users)

    def _scores(self, arrays: dict[Any, Array]) -> Array | None:
        found = self._column(batches.PREDICTIONS, arrays)
        if found is None:
            return None
        found = found.reshape(-1)
        if self._options.logits:
            # exp(-log(1 + exp(-x))), exact in both tails.
            found = np.exp(-np.logaddexp(0.0, -found.astype(np.float64)))
        return found

    def _count_ids(self, table: str, arrays: dict[Any, Array]) -> None:
        ids = self._column(batches.IDS + table, arrays)
        if ids is not None:
            self._table_windows[table].add(ids)

    def _count_steps(self, steps: Steps) -> None:
        self._throughput.add_steps(steps.samples, steps.seconds, steps.waited)
        times = self._column(batches.EVENT_TIMES, steps.arrays)
        if times is not None:
            place, _ = self._roles.of[batches.EVENT_TIMES]
            ends = np.cumsum(steps.lengths[place])[:-1]
            for part, now in zip(np.split(times, ends), steps.now, strict=True):
                self._throughput.add_events(part, now)

    def _count_drift(self, arrays: dict[Any, Array]) -> None:
        columns: dict[str, Array] = {}
        scores, labels = self._scores(arrays), self._column(batches.LABELS, arrays)
        if scores is not None and labels is not None:
            columns["prediction"] = scores
            columns[LABEL if self._options.task == "clicks" else "rating"] = labels.reshape(-1)
        for name in self._options.features:
            feature = self._column(batches.FEATURES + name, arrays)
            if feature is not None:
                columns[name] = feature
        if not columns:
            return
        if self._drift is None:
            taken = self._builder.add(columns)
            if not self._builder.complete:
                return
            self.set_reference(self._builder.reference())
            columns = {name: column[taken:] for name, column in columns.items()}
        assert self._drift is not None
        self._drift.add(columns)

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  # one kind must not cost the others
            self._trouble(what, error)


def _empty_quality(options: RecommenderMetrics) -> ClickQuality | RatingErrors:
    return ClickQuality(options.bins) if options.task == "clicks" else RatingErrors()


def _windows(empty: Any, options: RecommenderMetrics, panes: int) -> dict[str, Window[Any]]:
    found: dict[str, Window[Any]] = {"lifetime": Lifetime(empty)}
    found.update({f"last_{size}": LastExamples(empty, size, panes) for size in options.last})
    found.update({f"decayed_{size}": Decayed(empty, size) for size in options.half_lives})
    return found


def _same_reference(one: Mapping[str, Distribution], other: Mapping[str, Distribution]) -> bool:
    return one.keys() == other.keys() and all(
        each.equals(other[name]) for name, each in one.items()
    )
