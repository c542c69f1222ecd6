"""Drift of labels, predictions and features from a reference.

The reference is a set of distributions, given or built from the first examples. It is part of the
settings of the state: only states with the same reference can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.distribution import (
    SMOOTHING,
    Distribution,
    edges_of,
    jensen_shannon,
    psi,
    psi_by_chance,
)
from rec_summary.metrics.state import (
    Array,
    Arrays,
    State,
    check_int,
    check_same,
    nested,
    register,
    take,
    unnested,
)

if TYPE_CHECKING:
    from typing_extensions import Self

LABEL: Final = "label"
_BUCKETS: Final = 256
_BINS: Final = 10

Columns = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True)
class DriftReport:
    """The drift of one column.

    Attributes:
        count: The number of values in the window.
        psi: The population stability index, smoothed by one half.
        psi_by_chance: The mean index of samples of these sizes without any drift.
        jensen_shannon: The divergence in bits, 0 to 1.
        missing_share: The share of NaN in the window.
        rate: The share of positive labels in the window; NaN unless the column is the label.
        reference_rate: The same in the reference.
    """

    count: int
    psi: float
    psi_by_chance: float
    jensen_shannon: float
    missing_share: float
    rate: float
    reference_rate: float


@register
class Drift(State):
    """The distributions of columns in a window and in a reference; a mergeable state.

    The column named `LABEL` has a bin for negative labels (below 0.5) and one for positive ones.

    Attributes:
        reference: The distribution of each column to compare with; do not change it.
        window: The distribution of each column in the window.
    """

    def __init__(self, reference: Mapping[str, Distribution]) -> None:
        self.reference = dict(reference)
        self.window = {
            name: Distribution(bins.edges, bins.buckets) for name, bins in reference.items()
        }

    def add(self, columns: Columns) -> None:
        """Counts the values of a batch.

        Args:
            columns: Values of any shape by column. Columns may be missing; those that the
                reference does not have are skipped.

        Raises:
            TypeError: The type of a column does not fit its bins.
        """
        for name, distribution in self.window.items():
            if name in columns:
                distribution.add(columns[name])

    def report(self, smoothing: float = SMOOTHING) -> dict[str, DriftReport]:
        """Returns the drift of each column.

        Args:
            smoothing: See `distribution.psi`.
        """
        found = {}
        for name, window in self.window.items():
            then, now = self.reference[name].counts[:-1], window.counts[:-1]
            values, missing = int(now.sum()), int(window.counts[-1])
            found[name] = DriftReport(
                count=values,
                psi=psi(then, now, smoothing),
                psi_by_chance=psi_by_chance(then, now),
                jensen_shannon=jensen_shannon(then, now),
                missing_share=missing / (values + missing) if values + missing else math.nan,
                rate=_rate(now) if name == LABEL else math.nan,
                reference_rate=_rate(then) if name == LABEL else math.nan,
            )
        return found

    def check_mergeable(self, other: State) -> None:
        """Checks that `other` has the same reference.

        Raises:
            ValueError: It has not.
        """
        super().check_mergeable(other)
        assert isinstance(other, Drift)
        check_same("The columns", sorted(self.reference), sorted(other.reference))
        for name, mine in self.reference.items():
            theirs = other.reference[name]
            if not mine.equals(theirs):
                what = f"The reference of {name!r} of a state to merge"
                raise ValueError(three_part(what, theirs.counts, f"{mine.counts}"))

    def copy(self) -> Self:
        """Returns an independent copy; the reference is shared."""
        new = super().copy()
        new.window = {name: window.copy() for name, window in self.window.items()}
        return new

    def arrays(self) -> dict[str, Array]:
        """Returns the reference and the counts of the window."""
        found = reference_arrays(self.reference)
        for name, window in self.window.items():
            found[f"window.{name}"] = window.counts.copy()
        return found

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of these arrays.

        Raises:
            ValueError: The arrays do not describe such a state.
        """
        new = cls(reference_from_arrays(arrays))
        for name, bins in new.reference.items():
            counts = take(arrays, f"window.{name}", np.int64, bins.counts.shape)
            new.window[name] = Distribution.from_arrays({**bins.arrays(), "counts": counts})
        return new

    def _add(self, other: Self) -> None:
        for name, window in self.window.items():
            window._add(other.window[name])


def reference_arrays(reference: Mapping[str, Distribution]) -> dict[str, Array]:
    """Returns a reference as arrays to be stored."""
    found: dict[str, Array] = {"columns": np.array(list(reference), np.str_)}
    for number, distribution in enumerate(reference.values()):
        found.update(nested(f"reference.{number}", distribution.arrays()))
    return found


def reference_from_arrays(arrays: Arrays) -> dict[str, Distribution]:
    """Returns the reference of these arrays; other arrays are ignored.

    Raises:
        ValueError: The arrays do not describe a reference.
    """
    names = take(arrays, "columns", np.str_, (None,)).tolist()
    if len(set(names)) < len(names):
        raise ValueError(three_part("The array 'columns' of a state", names, "different names"))
    return {
        name: Distribution.from_arrays(unnested(f"reference.{number}", arrays))
        for number, name in enumerate(names)
    }


class ReferenceBuilder:
    """Builds the reference from the first examples.

    It keeps their values, because the edges of the bins depend on all of them.
    """

    def __init__(self, examples: int, bins: int = _BINS, buckets: int = _BUCKETS) -> None:
        """Starts empty.

        Args:
            examples: The number of examples.
            bins: The number of bins of equal frequency for numbers.
            buckets: The number of buckets for categories.

        Raises:
            TypeError, ValueError: An argument is not an int, or too small.
        """
        self._examples = check_int("examples", examples, 1)
        self._bins = check_int("bins", bins, 2)
        self._buckets = check_int("buckets", buckets, 2)
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}
        self._have = 0

    @property
    def complete(self) -> bool:
        """Whether there are enough examples."""
        return self._have >= self._examples

    def add(self, columns: Columns) -> int:
        """Takes examples of a batch until there are enough.

        Args:
            columns: Values by column; the first axis is that of the examples. Integers are
                categories (except in the label), floats are numbers.

        Returns:
            How many examples of the batch were taken. The window begins after them.

        Raises:
            ValueError: There is no column, the columns have different lengths, or the previous
                batch had other columns.
        """
        batch = {name: np.asarray(values) for name, values in columns.items()}
        sizes = {array.shape[0] if array.ndim else -1 for array in batch.values()}
        if len(sizes) != 1 or -1 in sizes:
            raise ValueError(three_part("columns", sizes, "columns of one length"))
        if self._columns and set(batch) != set(self._columns):
            raise ValueError(three_part("columns", sorted(batch), f"{sorted(self._columns)}"))
        taken = min(sizes.pop(), self._examples - self._have)
        for name, array in batch.items():
            # A copy: a view would keep the whole batch.
            self._columns.setdefault(name, []).append(array[:taken].ravel().copy())
        self._have += taken
        return taken

    def reference(self) -> dict[str, Distribution]:
        """Returns the reference of the examples taken so far.

        Raises:
            ValueError: There are none, or a column has no finite value.
        """
        if not self._have:
            raise ValueError(three_part("the reference", "no example", "one example or more"))
        found = {}
        for name, parts in self._columns.items():
            values = np.concatenate(parts)
            if name == LABEL:
                distribution = Distribution([0.5])
            elif values.dtype.kind in "iub":
                distribution = Distribution(buckets=self._buckets)
            else:
                distribution = Distribution(edges_of(values, self._bins))
            distribution.add(values)
            found[name] = distribution
        return found


def _rate(counts: npt.NDArray[np.int64]) -> float:
    """Returns the share of all bins except the first; NaN if all are empty."""
    total = int(counts.sum())
    return 1 - int(counts[0]) / total if total else math.nan
