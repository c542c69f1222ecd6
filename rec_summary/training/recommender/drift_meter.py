"""Drift of some columns on one rank: the reference is built, or given, and then drift measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rec_summary.metrics import tags
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.drift import Drift, ReferenceBuilder
from rec_summary.metrics.state import State
from rec_summary.training.tensors import Array

BUILDER: Final = "reference_builder"


class DriftMeter:
    """Builds the reference of some columns from the first examples, and measures their drift.

    Attributes:
        reference: The reference; None until it is complete.
    """

    def __init__(self, examples: int) -> None:
        """Starts empty.

        Args:
            examples: The number of examples of a reference.
        """
        self.reference: dict[str, Distribution] | None = None
        self._builder = ReferenceBuilder(examples)
        self._drift: Drift | None = None

    def set_reference(self, reference: dict[str, Distribution]) -> None:
        """Sets the reference, and begins to measure drift."""
        self.reference = reference
        self._drift = Drift(reference)

    def add(self, columns: dict[str, Array], weights: Array | None) -> None:
        """Counts examples: columns of one length, and the weight of each example."""
        if not columns:
            return
        if self._drift is None:
            taken = self._builder.add(columns, weights)
            if not self._builder.complete:
                return
            self.set_reference(self._builder.reference())
            columns = {name: column[taken:] for name, column in columns.items()}
            weights = None if weights is None else weights[taken:]
        assert self._drift is not None
        self._drift.add(columns, weights)

    def end_interval(self) -> Drift | None:
        """Returns the drift of a report, and begins an interval; None before the first one."""
        ended = self._drift
        if ended is not None:
            self._drift = Drift(ended.reference)
        return ended

    def states(self) -> dict[str, State]:
        """Returns what a restarted run needs, by group."""
        if self._drift is not None:
            return {tags.DRIFT: self._drift}
        return {BUILDER: self._builder}

    def restore(self, drift: State | None, builder: State | None) -> None:
        """Continues from the `states` of an earlier process; of another reference, it does not.

        Raises:
            ValueError: The reference was to be built of another number of examples. Nothing is
                changed.
        """
        if isinstance(drift, Drift) and (
            self._drift is None or _same_reference(self._drift.reference, drift.reference)
        ):
            self._drift, self.reference = drift, drift.reference
        if isinstance(builder, ReferenceBuilder) and self._drift is None:
            builder.check_mergeable(self._builder)
            self._builder = builder


def _same_reference(one: Mapping[str, Distribution], other: Mapping[str, Distribution]) -> bool:
    return one.keys() == other.keys() and all(
        each.equals(other[name]) for name, each in one.items()
    )
