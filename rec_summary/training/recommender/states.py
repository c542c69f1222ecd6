"""The states of a recommender's metrics on one rank: updated with steps, read for reports."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics import report
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.drift import LABEL, Drift, ReferenceBuilder
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import REASONS, clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import RowNorms
from rec_summary.metrics.throughput import Throughput
from rec_summary.metrics.windows import Decayed, LastExamples, Lifetime, Window
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender import inputs
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.inputs import Roles, Steps
from rec_summary.training.tensors import Array

_EXACT_ROWS: Final = 2**20  # two bytes of memory for each; larger tables are estimated
_ROWS: Final = "rows"
_BUILDER: Final = "reference_builder"
_MOST_REFUSED: Final = 0.01  # the share of examples from which on it is reported
_LEAST_WEIGHT: Final = 2.0**-13  # rounded by less than 1 %
_REMEDIES: Final = {
    "score outside [0, 1]": "if your predictions are log-odds, set logits=True",
    "weight not usable": "weights are numbers of 0 to 2**20: divide them all by one number",
    "label outside [0, 1]": "if your labels are ratings, set task='ratings'",
}
_USER_BUCKETS: Final = 4  # each can be a whole sample of users


class RankMetrics:
    """All metric states of one rank.

    Attributes:
        examples: The number of examples so far.
        reference: The reference for drift; None until it is complete.
    """

    def __init__(
        self, options: RecommenderMetrics, sizes: Mapping[str, int | None], troubles: Troubles
    ) -> None:
        """Starts empty.

        Args:
            options: The metrics.
            sizes: The number of rows of each table; None if it is open.
            troubles: Receives each failure. One metric's failure does not affect the others.
        """
        self._options = options
        self._roles = Roles(options)
        self._sizes = dict(sizes)
        self._troubles = troubles
        self.examples = 0
        self._quality: dict[str, Window[Any]] = {}
        self._users: dict[str, Window[Any]] = {}
        self._predicts_nan = False  # in the last batch
        if options.predictions is not None:
            is_clicks, rate = options.task == "clicks", options.negative_rate
            empty = ClickQuality(options.bins, rate) if is_clicks else RatingErrors()
            self._quality = _windows(empty, options)
        if options.users is not None:
            # To scale the cells of users in a decaying window would copy all of them.
            windows = _windows(UserScores(options.user_cells), options)
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
        """The settings of the states as text. States merge only if it is equal."""
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
        if options.negative_rate < 1:
            parts["negative_rate"] = options.negative_rate
        return json.dumps(parts, sort_keys=True)

    @property
    def places(self) -> list[Any]:
        """The places of the arrays for `update`."""
        return self._roles.places

    def update(self, steps: Steps) -> None:
        """Counts steps, in the order of training."""
        with self._troubles.attempt("recommender metrics: quality"):
            self._count_quality(steps)
        for name, table in self._table_windows.items():
            with self._troubles.attempt(f"recommender metrics: table {name}"):
                ids = self._roles.column(inputs.IDS + name, steps.arrays)
                if ids is not None:
                    table.add(ids)
        if self._options.throughput:
            with self._troubles.attempt("recommender metrics: throughput"):
                self._count_steps(steps)
        with self._troubles.attempt("recommender metrics: drift"):
            self._count_drift(steps.arrays)
        self.examples += sum(steps.samples)

    def set_reference(self, reference: dict[str, Distribution]) -> None:
        """Sets the reference for drift, and begins to measure drift."""
        self.reference = reference
        self._drift = Drift(reference)

    def snapshot_rows(self, table: str, rows: Array, values: Array) -> None:
        """Adds the current sampled rows of a table: numbers (s,) and values (s, width)."""
        norms = self._rows.get(table)
        if norms is None or norms.rows.tolist() != rows.tolist():
            norms = self._rows[table] = RowNorms(rows, values.shape[1])
        norms.snapshot(values)

    def end_interval(self) -> dict[str, State]:
        """Returns the states of a report, by the keys of `report.key`, and begins an interval.

        Later updates do not change the returned states, except the totals of tables.
        """
        found: dict[str, State] = {}
        for group, windows in ((report.QUALITY, self._quality), (report.USERS, self._users)):
            for name, window in windows.items():
                found[report.key(group, name)] = window.total()
        for name, table in self._table_windows.items():
            self._tables[name].merge(table)
            found[report.key(report.TABLE, name)] = self._tables[name]
            found[report.key(report.TABLE_WINDOW, name)] = table
            self._table_windows[name] = table.following()
        if self._options.throughput:
            found[report.THROUGHPUT] = self._throughput
            self._throughput = Throughput()
        if self._drift is not None:
            found[report.DRIFT] = self._drift
            self._drift = Drift(self._drift.reference)
        return found

    def read_rows(self, into: report.MetricValues) -> None:
        """Adds the values of the sampled rows."""
        for table, norms in self._rows.items():
            total = self._tables.get(table)
            touched = None if total is None else total.touched.touched(norms.rows)
            report.read_rows(into, table, norms, touched)

    def mark_lost(self, into: report.MetricValues) -> None:
        """Replaces the quality by NaN if the network has begun to predict nothing but NaN.

        Invalid examples are not counted, so the windows only have the time before that.
        """
        if self._predicts_nan:
            names = report.JUDGING[self._options.task]
            tags = [f"{name}/{window}" for name in names for window in self._quality]
            tags += [f"gauc/{window}" for window in self._users]
            into.scalars.update({report.PREFIX + tag: math.nan for tag in tags})

    def states(self) -> dict[str, State]:
        """Returns all states that a restarted run needs, by key."""
        found: dict[str, State] = {
            report.key(group, name): state
            for group, states in {**self._groups(), _ROWS: self._rows}.items()
            for name, state in states.items()
        }
        found[report.THROUGHPUT] = self._throughput
        if self._drift is not None:
            found[report.DRIFT] = self._drift
        else:
            found[_BUILDER] = self._builder
        return found

    def restore(self, stored: Mapping[str, State], examples: int) -> None:
        """Continues from the `states` of a process with the same `settings`.

        Raises:
            ValueError: A state is missing, or has another kind or other settings.
        """
        groups = self._groups()
        for group, states in groups.items():
            for name, mine in states.items():
                key = report.key(group, name)
                found = stored.get(key)
                if found is None or type(found) is not type(mine):
                    raise ValueError(three_part("the stored states", sorted(stored), key))
                if isinstance(mine, LastExamples) and isinstance(found, LastExamples):
                    stored = {**stored, key: mine.taken_over(found)}
                else:
                    mine.check_mergeable(found)
        for group, states in groups.items():
            states.update({name: stored[report.key(group, name)] for name in states})
        for key, state in stored.items():
            group, _, name = key.partition("/")
            if group == _ROWS and isinstance(state, RowNorms):
                self._rows[name] = state
        throughput, drift = stored.get(report.THROUGHPUT), stored.get(report.DRIFT)
        if isinstance(throughput, Throughput):
            self._throughput = throughput
        if isinstance(drift, Drift) and (
            self._drift is None or _same_reference(self._drift.reference, drift.reference)
        ):
            self._drift, self.reference = drift, drift.reference
        builder = stored.get(_BUILDER)
        if isinstance(builder, ReferenceBuilder) and self._drift is None:
            builder.check_mergeable(self._builder)
            self._builder = builder
        self.examples = examples

    def _groups(self) -> dict[str, dict[str, Any]]:
        """Returns the states that every process with the same settings has."""
        return {
            report.QUALITY: self._quality,
            report.USERS: self._users,
            report.TABLE: self._tables,
            report.TABLE_WINDOW: self._table_windows,
        }

    def _table(self, name: str) -> TableHealth:
        size = self._sizes[name]
        frequency = FrequencyOptions(size, self._options.unknown_ids.get(name))
        if frequency.exact:  # with a counter for each row, it is cheap to count all ids
            frequency = replace(frequency, sample_one_in=1)
        return TableHealth(TouchedRows(TouchedOptions(size, _EXACT_ROWS)), IdFrequency(frequency))

    def _flat(self, role: str, arrays: dict[Any, Array]) -> Array | None:
        found = self._roles.column(role, arrays)
        return None if found is None else found.reshape(-1)

    def _count_quality(self, steps: Steps) -> None:
        arrays = steps.arrays
        scores, labels = self._scores(arrays), self._flat(inputs.LABELS, arrays)
        if scores is None or labels is None:
            return
        self._predicts_nan = self._is_nan(inputs.PREDICTIONS, steps)
        weights, users = (self._flat(role, arrays) for role in (inputs.WEIGHTS, inputs.USERS))
        self._check_weights(weights)
        clicks = clean(scores, labels, weights) if self._options.task == "clicks" else None
        if clicks is None or clicks.kept is not None or not len(scores):
            if clicks is not None:
                refused = dict(zip(REASONS, clicks.refused.tolist(), strict=True))
            else:
                errors = RatingErrors()
                errors.update(scores, labels, weights)
                refused = {"number not usable": errors.refused}
            self._check_refused(refused, len(scores))
            # Windows also count invalid examples, so they need the whole batch.
            for window in self._quality.values():
                window.update(scores, labels, weights)
            if users is not None:
                for window in self._users.values():
                    window.update(users, scores, labels, weights)
            return
        prepared = ClickQuality(self._options.bins).prepare(clicks)
        for window in self._quality.values():
            window.count(prepared)
        if users is not None:
            of_users = UserScores(self._options.user_cells).prepare(users, clicks)
            for window in self._users.values():
                window.count(of_users)

    def _is_nan(self, role: str, steps: Steps) -> bool:
        """Whether all values of the last step are NaN."""
        values, (place, _) = self._roles.column(role, steps.arrays), self._roles.of[role]
        last = None if values is None else values[-steps.lengths[place][-1] :]
        return last is not None and last.size > 0 and bool(np.isnan(last).all())

    def _check_refused(self, refused: Mapping[str, int], examples: int) -> None:
        """Reports examples that no metric of the quality counts, if there are many."""
        count = sum(refused.values())
        if count > _MOST_REFUSED * examples:
            reason = max(refused, key=lambda each: refused[each])
            remedy = _REMEDIES.get(reason)
            text = f"{count:,} of {examples:,} examples are refused: {reason}"
            text += f" ({remedy})" if remedy else ""
            self._troubles.report("recommender metrics: refused examples", text)

    def _scores(self, arrays: dict[Any, Array]) -> Array | None:
        found = self._flat(inputs.PREDICTIONS, arrays)
        if found is not None and self._options.logits:
            # exp(-log(1 + exp(-x))), exact in both tails. NaN is refused later, with a word.
            with np.errstate(invalid="ignore"):
                return np.exp(-np.logaddexp(0.0, -found.astype(np.float64)))
        return found

    def _check_weights(self, weights: Array | None) -> None:
        """Reports weights that are so small that they are counted with a visible error."""
        if weights is None or self._options.task != "clicks":
            return
        small = (weights > 0) & (weights < _LEAST_WEIGHT)
        if np.count_nonzero(small) > _MOST_REFUSED * len(weights):
            text = f"many are below {_LEAST_WEIGHT}, and are rounded to multiples of 2**-20; "
            text += "multiply them all by one number"
            self._troubles.report("recommender metrics: small weights", text)

    def _count_steps(self, steps: Steps) -> None:
        # The time of a first step, which compiles the network, is not known (NaN).
        timed = [index for index, seconds in enumerate(steps.seconds) if not math.isnan(seconds)]
        self._throughput.add_steps(
            [steps.samples[index] for index in timed],
            [steps.seconds[index] for index in timed],
            [steps.waited[index] for index in timed],
        )
        times = self._roles.column(inputs.EVENT_TIMES, steps.arrays)
        if times is not None:
            if times.dtype.kind == "f" and times.dtype.itemsize < 8:
                text = f"{times.dtype} holds seconds since 1970 with an error of up to 64 s; "
                text += "make the column float64 or int64"
                self._troubles.report("recommender metrics: event times", text)
            place, _ = self._roles.of[inputs.EVENT_TIMES]
            ends = np.cumsum(steps.lengths[place])[:-1]
            for part, now in zip(np.split(times, ends), steps.now, strict=True):
                self._throughput.add_events(part, now)

    def _count_drift(self, arrays: dict[Any, Array]) -> None:
        columns: dict[str, Array] = {}
        scores, labels = self._scores(arrays), self._flat(inputs.LABELS, arrays)
        if scores is not None and labels is not None:
            columns["prediction"] = scores
            columns[LABEL if self._options.task == "clicks" else "rating"] = labels
        for name in self._options.features:
            feature = self._roles.column(inputs.FEATURES + name, arrays)
            if feature is not None:
                columns[name] = feature
        if not columns:
            return
        weights = self._flat(inputs.WEIGHTS, arrays)
        if self._drift is None:
            taken = self._builder.add(columns, weights)
            if not self._builder.complete:
                return
            self.set_reference(self._builder.reference())
            columns = {name: column[taken:] for name, column in columns.items()}
            weights = None if weights is None else weights[taken:]
        assert self._drift is not None
        self._drift.add(columns, weights)


def _windows(empty: Any, options: RecommenderMetrics) -> dict[str, Window[Any]]:
    found: dict[str, Window[Any]] = {"lifetime": Lifetime(empty)}
    found.update({f"last_{size}": LastExamples(empty, size) for size in options.last})
    found.update({f"decayed_{size}": Decayed(empty, size) for size in options.half_lives})
    return found


def _same_reference(one: Mapping[str, Distribution], other: Mapping[str, Distribution]) -> bool:
    return one.keys() == other.keys() and all(
        each.equals(other[name]) for name, each in one.items()
    )
