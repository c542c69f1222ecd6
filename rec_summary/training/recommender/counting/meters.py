"""What one rank counts of a table, of a feature, of its steps, and of the drift of some columns.

A meter has its states by group. They are what a restarted run needs, and what a report is read
from. `end_interval` returns those of a report, and begins an interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import LARGEST
from rec_summary.metrics import tags
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.drift import Drift, ReferenceBuilder
from rec_summary.metrics.feature_health import FeatureCounts, as_ids
from rec_summary.metrics.hashing import without_objects
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.growth import IdTurnover, RowAges
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import RowNorms, sample_rows
from rec_summary.training.recommender.columns import Feature
from rec_summary.training.recommender.config import RecommenderMetrics

ROWS: Final = "rows"
_BUILDER: Final = "reference_builder"
_EXACT_ROWS: Final = 2**20  # two bytes of memory for each; larger tables are estimated
_PREDICTION: Final = "prediction"
_SETTLED: Final = 0.1  # the PSI of two parts of a training up to which predictions are alike
_PRECISION: Final = 12  # of the number of different values: 4 KB and 1.6 % for each feature


class TableMeter:
    """The ids and the sampled rows of a table.

    Attributes:
        states: The total and the sampled rows; with detail, also the interval, what was there
            before it, and the ages of rows if they are known.
    """

    def __init__(self, name: str, size: int | None, options: RecommenderMetrics) -> None:
        """Starts empty; the table has so many rows, or is open (None)."""
        frequency = FrequencyOptions(size, options.unknown_ids.get(name))
        if not options.detail:  # only what is invalid is counted
            frequency = replace(frequency, sample_one_in=LARGEST, exact_rows=0, width=16)
        elif frequency.exact:  # with a counter for each row, it is cheap to count all ids
            frequency = replace(frequency, sample_one_in=1)
        touched = TouchedOptions(size, _EXACT_ROWS)
        self._detail = options.detail
        self._hashed = name in options.hashed_ids and size is not None
        groups = (tags.TABLE, tags.TABLE_WINDOW) if self._detail else (tags.TABLE,)
        self.states: dict[str, Any] = {
            group: TableHealth(TouchedRows(touched), IdFrequency(frequency)) for group in groups
        }
        self.begin()
        if self._detail and size and touched.exact:
            self.states[tags.AGES] = RowAges(sample_rows(size))

    def begin(self) -> None:
        """Begins an interval with the rows of the total."""
        if self._detail or self._hashed:
            self.states[tags.TURNOVER] = IdTurnover(self.states[tags.TABLE].touched, self._hashed)

    def add(self, ids: Array, last: Array) -> None:
        """Counts the ids of many batches, the last of which has these."""
        if not self._detail:
            self.states[tags.TABLE].add(ids)
            return
        self.states[tags.TABLE_WINDOW].add(ids)
        # The last batch of many: to find different ids costs as much as all else.
        self.states[tags.TURNOVER].add_batch(last)

    def snapshot(self, rows: Array, values: Array) -> None:
        """Adds the current sampled rows: numbers (s,) and values (s, width)."""
        norms = self.states.get(ROWS)
        if norms is None or norms.rows.tolist() != rows.tolist():
            norms = self.states[ROWS] = RowNorms(rows, values.shape[1])
        norms.snapshot(values)

    def end_interval(self, examples: int) -> dict[str, Any]:
        """Returns the states of a report by group; the total changes with later updates.

        Args:
            examples: The number of examples of the rank so far.
        """
        states = {group: state for group, state in self.states.items() if group != ROWS}
        if not self._detail:
            return states
        total, window = self.states[tags.TABLE], self.states[tags.TABLE_WINDOW]
        total.merge(window)
        if tags.AGES in states:
            ages = self.states[tags.AGES]
            ages.touch(window.touched.touched(ages.rows), examples)
            states[tags.AGES] = ages.copy()
        self.states[tags.TABLE_WINDOW] = window.following()
        self.begin()
        return states


class FeatureMeter:
    """What is wrong with the values of a feature, and how many different ones there are."""

    def __init__(self, feature: Feature, *, detail: bool = False) -> None:
        """Starts empty; with detail, it counts different values."""
        self._feature = feature
        self.states: dict[str, Any] = {tags.FEATURE: FeatureCounts()}
        if detail:
            options = TouchedOptions(None, precision=_PRECISION)
            self.states[tags.CARDINALITY] = TouchedRows(options)

    def add(self, values: Array) -> None:
        """Counts values."""
        values = without_objects(values)
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        feature = self._feature
        self.states[tags.FEATURE].add(values, feature.default, feature.low, feature.high)
        if tags.CARDINALITY in self.states:
            self.states[tags.CARDINALITY].add(as_ids(values))

    def end_interval(self) -> dict[str, State]:
        """Returns the states of a report by group."""
        states = {group: state.copy() for group, state in self.states.items()}
        self.states[tags.FEATURE] = FeatureCounts()
        return states


class DriftMeter:
    """Builds the reference of some columns from the first examples, and measures their drift.

    The first predictions are those of an untrained network. So their reference is built again each
    time that the number of examples has doubled, until they do not differ from the one before.
    Until then they have no drift.

    Attributes:
        states: The builder of the reference; then the drift, and until predictions have settled
            the builder of their next reference.
        reference: The reference; None until it is complete.
    """

    def __init__(self, examples: int) -> None:
        """Starts empty; a reference has so many examples."""
        self._examples = examples
        self.reference: dict[str, Distribution] | None = None
        self.states: dict[str, Any] = {_BUILDER: ReferenceBuilder(examples)}

    def set_reference(self, reference: dict[str, Distribution]) -> None:
        """Sets the reference, and begins to measure drift."""
        self.reference = reference
        self.states = {tags.DRIFT: Drift(reference)}

    def add(self, columns: dict[str, Array], weights: Array | None) -> None:
        """Counts examples: columns of one length, and the weight of each example."""
        if not columns:
            return
        if self.reference is None:
            builder = self.states[_BUILDER]
            taken = builder.add(columns, weights)
            if not builder.complete:
                return
            self.set_reference(builder.reference())
            if _PREDICTION in columns:
                self.states[_BUILDER] = ReferenceBuilder(self._examples)
            columns = {name: column[taken:] for name, column in columns.items()}
            weights = None if weights is None else weights[taken:]
        self.states[tags.DRIFT].add(columns, weights)
        if _BUILDER in self.states and _PREDICTION in columns:
            self.states[_BUILDER].add({_PREDICTION: columns[_PREDICTION]}, weights)

    def end_interval(self) -> dict[str, State]:
        """Returns the drift of a report by group; nothing before the reference is complete."""
        ended = self.states.get(tags.DRIFT)
        if ended is None or self.reference is None:
            return {}
        if _BUILDER in self.states:
            self._warm_up(ended)
        self.states[tags.DRIFT] = Drift(self.reference)
        return {tags.DRIFT: ended}

    def _warm_up(self, ended: Drift) -> None:
        """Ends the warm-up if predictions have settled, or renews their reference."""
        if self.states[_BUILDER].complete:
            numbers = ended.report()
            distance = numbers[f"drift/psi/{_PREDICTION}"]
            if distance <= _SETTLED + numbers[f"drift/psi_by_chance/{_PREDICTION}"]:
                del self.states[_BUILDER]
                return
            builder = self.states[_BUILDER]
            self.reference = {**ended.reference, **builder.reference()}
            wait = 2 * builder.wait + self._examples
            self.states[_BUILDER] = ReferenceBuilder(self._examples, wait)
        ended.window[_PREDICTION] = ended.reference[_PREDICTION].empty()

    def restore(self, stored: Mapping[str, State]) -> None:
        """Continues from the `states` of an earlier process; of another reference, it does not.

        Raises:
            ValueError: The reference was to be built of another number of examples. Nothing is
                changed.
        """
        drift, builder = stored.get(tags.DRIFT), stored.get(_BUILDER)
        states: dict[str, Any] = {}
        if isinstance(builder, ReferenceBuilder) and self.reference is None:
            builder.check_mergeable(self.states[_BUILDER])
            states[_BUILDER] = builder
        if isinstance(drift, Drift) and (
            self.reference is None or _same_reference(self.reference, drift.reference)
        ):
            states[tags.DRIFT], self.reference = drift, drift.reference
        self.states = states or self.states


def _same_reference(one: Mapping[str, Distribution], other: Mapping[str, Distribution]) -> bool:
    return one.keys() == other.keys() and all(
        column.equals(other[name]) for name, column in one.items()
    )
