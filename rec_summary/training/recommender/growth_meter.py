"""How the tables of one rank grow, and what is wrong with its features."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rec_summary.metrics import tags
from rec_summary.metrics.feature_health import FeatureCounts, as_ids
from rec_summary.metrics.state import State
from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.growth import IdTurnover, RowAges
from rec_summary.metrics.tables.health import TableHealth
from rec_summary.metrics.tables.row_norms import sample_rows
from rec_summary.training.recommender.columns import Feature, check_features
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.tensors import Array

_PRECISION = 12  # of the number of different values: 4 KB and 1.6 % for each feature


class GrowthMeter:
    """States beside the health of tables, and those of features."""

    def __init__(self, options: RecommenderMetrics, tables: Mapping[str, TableHealth]) -> None:
        """Starts with the empty totals of the tables."""
        self._hashed = options.hashed_ids
        self._features: dict[str, Feature] = check_features(options.features)
        self._turnovers: dict[str, IdTurnover] = {}
        self._ages: dict[str, RowAges] = {}
        for name, table in tables.items():
            self._begin(name, table)
            size = table.touched.options.size
            if size and table.touched.options.exact:
                self._ages[name] = RowAges(sample_rows(size, options.sampled_rows))
        self._counts = {name: FeatureCounts() for name in self._features}
        self._values = {
            name: TouchedRows(TouchedOptions(None, precision=_PRECISION)) for name in self._features
        }

    def add_batch(self, table: str, ids: Array) -> None:
        """Counts the ids of one batch of many."""
        self._turnovers[table].add_batch(ids)

    def add_feature(self, name: str, values: Array) -> None:
        """Counts values of a feature."""
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        feature = self._features[name]
        self._counts[name].add(values, feature.default, feature.low, feature.high)
        self._values[name].add(as_ids(values))

    def end_interval(
        self, tables: Mapping[str, TableHealth], windows: Mapping[str, TableHealth], examples: int
    ) -> dict[str, State]:
        """Returns the states of a report by key, and begins an interval.

        Args:
            tables: The totals, with the windows.
            windows: The tables in the interval that ends.
            examples: The number of examples of the rank so far.
        """
        for name, ages in self._ages.items():
            touched = windows[name].touched.touched(ages.rows)
            assert touched is not None
            ages.touch(touched, examples)
        found = {key: state.copy() for key, state in self.states().items()}
        for name, table in tables.items():
            self._begin(name, table)
        self._counts = {name: FeatureCounts() for name in self._counts}
        return found

    def states(self) -> dict[str, State]:
        """Returns the states that a restarted run needs, by key."""
        return {
            tags.key(group, name): state
            for group, states in self._groups().items()
            for name, state in states.items()
        }

    def restore(self, stored: Mapping[str, State], tables: Mapping[str, TableHealth]) -> None:
        """Continues from `states`; those that are missing or do not merge begin now.

        An earlier version did not have them, and `hashed_ids` may be others.

        Args:
            stored: The states by key.
            tables: The restored totals.
        """
        for name, table in tables.items():
            self._begin(name, table)
        for group, states in self._groups().items():
            for name, mine in states.items():
                found = stored.get(tags.key(group, name))
                if found is not None:
                    with contextlib.suppress(ValueError):
                        mine.check_mergeable(found)
                        states[name] = found

    def _begin(self, name: str, table: TableHealth) -> None:
        """Begins an interval of a table."""
        hashed = name in self._hashed and table.touched.options.size is not None
        self._turnovers[name] = IdTurnover(table.touched, hashed)

    def _groups(self) -> dict[str, dict[str, Any]]:
        return {
            tags.TURNOVER: self._turnovers,
            tags.AGES: self._ages,
            tags.FEATURE: self._counts,
            tags.CARDINALITY: self._values,
        }
