"""How far labels, predictions and features have moved from a reference.

The reference is a set of distributions, given or taken from the first examples. It is part of
the settings of the state: only states with one reference can be merged.
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
from rec_summary.metrics.state import register
from rec_summary.metrics.state_io import Arrays, check_int, check_same, of_prefix, with_prefix

if TYPE_CHECKING:
    from typing_extensions import Self

LABEL: Final = "label"
_BUCKETS: Final = 256
_BINS: Final = 10

Columns = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True)
class DriftReport:
    """How far one column has moved.

    Attributes:
        count: How many values the window has.
        psi: The population stability index, smoothed by one half.
        psi_by_chance: What it would be on average without any drift.
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
class Drift:
    """Distributions of the columns of a window, beside their reference; a mergeable state.

    The column named `LABEL` has a bin for negative labels (below 0.5) and one for positive ones.

    Attributes:
        reference: The distributions to compare with; not to be changed.
        window: Those of the window.
    """

    def __init__(self, reference: Mapping[str, Distribution]) -> None:
        self.reference = dict(reference)
        self.window = {
            name: Distribution(bins.edges, bins.buckets) for name, bins in reference.items()
        }

    def add(self, columns: Columns) -> None:
        """Counts the values of a batch.

        Args:
            columns: Values of any shape by column; columns that the reference does not have are
                passed over, and any may be missing.

        Raises:
            TypeError: A column is of a type that its bins are not made for.
        """
        for name, distribution in self.window.items():
            if name in columns:
                distribution.add(columns[name])

    def report(self, smoothing: float = SMOOTHING) -> dict[str, DriftReport]:
        """Returns how far each column has moved.

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

    def merge(self, other: Self) -> None:
        """Adds the window of another state.

        Raises:
            ValueError: It has another reference.
        """
        check_same("the columns", sorted(self.reference), sorted(other.reference))
        for name, ours in self.reference.items():
            theirs = other.reference[name]
            if not ours.same_bins(theirs) or not np.array_equal(ours.counts, theirs.counts):
                raise ValueError(
                    three_part(f"the reference of {name!r}", theirs.counts, f"{ours.counts}")
                )
        for name, window in self.window.items():
            window.merge(other.window[name])

    def copy(self) -> Self:
        """Returns an independent copy; the reference is shared."""
        new = type(self)(self.reference)
        new.merge(self)
        return new

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns reference and window as arrays to be stored."""
        found = reference_arrays(self.reference)
        for name, window in self.window.items():
            found[f"window.{name}"] = window.counts.copy()
        return found

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of which these are the arrays.

        Raises:
            ValueError: They are none of such a state.
        """
        new = cls(reference_from_arrays(arrays))
        for name, bins in new.reference.items():
            if f"window.{name}" not in arrays:
                raise ValueError(
                    three_part("the stored window", sorted(arrays), f"column {name!r}")
                )
            stored = {**bins.arrays(), "counts": arrays[f"window.{name}"]}
            new.window[name] = Distribution.from_arrays(stored)
        return new


def reference_arrays(reference: Mapping[str, Distribution]) -> dict[str, npt.NDArray[Any]]:
    """Returns a reference as arrays to be stored."""
    found: dict[str, npt.NDArray[Any]] = {"columns": np.array(list(reference), np.str_)}
    for number, distribution in enumerate(reference.values()):
        found.update(with_prefix(f"reference.{number}", distribution.arrays()))
    return found


def reference_from_arrays(arrays: Arrays) -> dict[str, Distribution]:
    """Returns the reference of which these are the arrays; other arrays are passed over.

    Raises:
        ValueError: They are none of a reference.
    """
    columns = np.asarray(arrays.get("columns", 0))
    names = columns.tolist() if columns.ndim == 1 else []
    if columns.ndim != 1 or (names and columns.dtype.kind != "U") or len(set(names)) < len(names):
        raise ValueError(three_part("the stored array 'columns'", columns, "different names"))
    return {
        name: Distribution.from_arrays(of_prefix(f"reference.{number}", arrays))
        for number, name in enumerate(names)
    }


class ReferenceBuilder:
    """Takes the reference from the first examples.

    It keeps their values, because where the bins should lie is seen only then.
    """

    def __init__(self, examples: int, bins: int = _BINS, buckets: int = _BUCKETS) -> None:
        """Starts empty.

        Args:
            examples: How many.
            bins: Into how many bins of equal frequency numbers fall.
            buckets: Into how many buckets categories fall.

        Raises:
            TypeError, ValueError: A number is no int, or too small.
        """
        self._examples = check_int("examples", examples, 1)
        self._bins = check_int("bins", bins, 2)
        self._buckets = check_int("buckets", buckets, 2)
        self._columns: dict[str, list[npt.NDArray[Any]]] = {}
        self._have = 0

    @property
    def complete(self) -> bool:
        """Whether all examples are there."""
        return self._have >= self._examples

    def add(self, columns: Columns) -> int:
        """Takes examples of a batch until there are enough.

        Args:
            columns: Values by column, the first axis being the examples. Integers are
                categories (but for the label), other numbers are numbers.

        Returns:
            How many examples of the batch were taken: the window begins behind them.

        Raises:
            ValueError: There is no column, they have different lengths, or are not those of
                the batch before.
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
        """Returns the reference, from the examples that are there.

        Raises:
            ValueError: There is none, or a column has no finite value.
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
    """Returns the share of the bins but the first, NaN of nothing."""
    total = int(counts.sum())
    return 1 - int(counts[0]) / total if total else math.nan
