"""Drift of labels, predictions and features from a reference.

The reference is a set of distributions, given or built from the first examples. It is part of the
settings of the state: only states with the same reference can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Arrays
from rec_summary.checks import check_int, plain_array
from rec_summary.errors import three_part
from rec_summary.metrics.distribution import (
    Distribution,
    categories_of,
    edges_of,
    jensen_shannon,
    psi,
    psi_by_chance,
)
from rec_summary.metrics.hashing import hashed
from rec_summary.metrics.state import State, Stored, check_same, nested

LABEL: Final = "label"
_BINS: Final = 10  # of equal frequency, for numbers
_BUCKETS: Final = 256  # for the rest of the categories, and values up to which each has a bin


class Drift(State):
    """The distributions of columns in a window and in a reference; a mergeable state.

    The column named `LABEL` has a bin for negative labels (below 0.5) and one for positive ones.

    Attributes:
        reference: The distribution of each column to compare with; do not change it.
        window: The distribution of each column in the window.
    """

    def __init__(self, reference: Mapping[str, Distribution]) -> None:
        self.reference = dict(reference)
        self.window = {name: bins.empty() for name, bins in reference.items()}

    def add(self, columns: Mapping[str, npt.ArrayLike], weights: Array | None = None) -> None:
        """Counts the values of a batch.

        Args:
            columns: Values of any shape by column. Columns may be missing; those that the
                reference does not have are skipped.
            weights: The weight of each example; see `Distribution.add`.

        Raises:
            TypeError: The type of a column does not fit its bins.
        """
        for name, distribution in self.window.items():
            if name in columns:
                distribution.add(columns[name], weights)

    def report(self) -> dict[str, float]:
        """Returns the drift of each column by tag.

        A number without data is NaN, and a share of missing values that is 0. The rates are the
        shares of positive labels. See the functions of `distribution` for the distances.
        """
        numbers = {}
        for name, window in self.window.items():
            then, now = self.reference[name].sample(), window.sample()
            values, missing = float(window.counts[:-1].sum()), float(window.counts[-1])
            numbers[f"drift/psi/{name}"] = psi(then, now)
            numbers[f"drift/psi_by_chance/{name}"] = psi_by_chance(then, now)
            numbers[f"drift/js/{name}"] = jensen_shannon(then, now)
            share = missing / (values + missing) if missing else math.nan
            numbers[f"drift/missing_share/{name}"] = share
            if name == LABEL:
                numbers["drift/label_rate"] = _rate(now)
                numbers["drift/reference_label_rate"] = _rate(then)
        return numbers

    def check_mergeable(self, other: State) -> None:
        """Checks that `other` has the same reference.

        Raises:
            ValueError: The references differ.
        """
        super().check_mergeable(other)
        assert isinstance(other, Drift)
        check_same("The columns", sorted(self.reference), sorted(other.reference))
        for name, mine in self.reference.items():
            theirs = other.reference[name]
            if not mine.equals(theirs):
                what = f"The reference of {name!r} of a state to merge"
                raise ValueError(three_part(what, theirs.counts, f"{mine.counts}"))

    def arrays(self) -> dict[str, Array]:
        """Returns the reference and the counts of the window."""
        arrays = reference_arrays(self.reference)
        for name, window in self.window.items():
            arrays[f"window.{name}"] = np.append(window.counts, window.squares)
        return arrays

    @classmethod
    def _restored(cls, arrays: Stored) -> Drift:
        new = cls(reference_from_arrays(arrays))
        for name, bins in new.reference.items():
            sums = arrays.sums(f"window.{name}", np.float64, (bins.counts.size + 1,))
            new.window[name].counts, new.window[name].squares = sums[:-1], sums[-1:]
        return new

    def _add(self, other: Drift) -> None:
        for name, window in self.window.items():
            window._add(other.window[name])


def reference_arrays(reference: Mapping[str, Distribution]) -> dict[str, Array]:
    """Returns a reference as arrays to be stored."""
    arrays: dict[str, Array] = {"columns": np.array(list(reference), np.str_)}
    for number, distribution in enumerate(reference.values()):
        arrays.update(nested(f"reference.{number}", distribution.arrays()))
    return arrays


def reference_from_arrays(arrays: Arrays) -> dict[str, Distribution]:
    """Returns the reference of these arrays; other arrays are ignored.

    Raises:
        ValueError: The arrays do not describe a reference.
    """
    stored = Stored(arrays)
    names = stored.take("columns", np.str_, (None,)).tolist()
    if len(set(names)) < len(names):
        raise ValueError(three_part("The array 'columns' of a state", names, "different names"))
    return {
        name: Distribution.from_arrays(stored.part(f"reference.{number}"))
        for number, name in enumerate(names)
    }


class ReferenceBuilder(State):
    """Builds the reference from the first examples; a state, so that a restarted run goes on.

    It keeps their values, because the edges of the bins depend on all of them.
    """

    _settings = ("_examples",)

    def __init__(self, examples: int) -> None:
        """Starts empty.

        Args:
            examples: The number of examples.

        Raises:
            TypeError, ValueError: It is not an int of at least 1.
        """
        self._examples = check_int("examples", examples, 1)
        self._columns: dict[str, list[Array]] = {}
        self._weights: list[Array] = []
        self._have = 0

    @property
    def complete(self) -> bool:
        """Whether there are enough examples."""
        return self._have >= self._examples

    def add(self, columns: Mapping[str, npt.ArrayLike], weights: Array | None = None) -> int:
        """Takes examples of a batch until there are enough.

        If a batch has more columns than those before, the sample starts over with it: they lacked
        a column by mistake.

        Args:
            columns: Values by column; the first axis is that of the examples. Integers and strings
                are categories (except in the label), floats are numbers.
            weights: The weight of each example; see `Distribution.add`.

        Returns:
            How many examples of the batch were taken. The window begins after them.

        Raises:
            TypeError: A column has objects that are not strings.
            ValueError: There is no column, the columns have different lengths, or they lack one
                of those before. Nothing is taken.
        """
        batch = {name: plain_array(values) for name, values in columns.items()}
        sizes = {array.shape[0] if array.ndim else -1 for array in batch.values()}
        if len(sizes) != 1 or -1 in sizes:
            raise ValueError(three_part("columns", sizes, "columns of one length"))
        if not batch.keys() >= self._columns.keys():
            raise ValueError(three_part("columns", sorted(batch), f"{sorted(self._columns)}"))
        have = self._have if batch.keys() == self._columns.keys() else 0
        taken = min(sizes.pop(), self._examples - have)
        # Copies: a view would keep the whole batch.
        parts = {name: hashed(array[:taken]).ravel().copy() for name, array in batch.items()}
        if not have:
            self._have, self._columns, self._weights = 0, {name: [] for name in parts}, []
        for name, part in parts.items():
            self._columns[name].append(part)
        if weights is not None:
            self._weights.append(weights[:taken].astype(np.float64))
        self._have += taken
        return taken

    def reference(self) -> dict[str, Distribution]:
        """Returns the reference of the examples taken so far, at least one."""
        reference = {}
        weights = np.concatenate(self._weights) if self._weights else None
        for name, parts in self._columns.items():
            values = np.concatenate(parts)
            if name == LABEL:
                distribution = Distribution([0.5])
            elif values.dtype.kind in "iub":
                distribution = categories_of(values, _BUCKETS)
            elif np.isfinite(values).any():
                distribution = Distribution(edges_of(values, _BINS))
            else:  # the other columns have a reference all the same
                distribution = Distribution([0.0])
            distribution.add(values, weights)
            reference[name] = distribution
        return reference

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, the names of the columns, their values, and the weights."""
        arrays: dict[str, Array] = {
            "settings": np.array([self._examples, self._have], np.int64),
            "columns": np.array(list(self._columns), np.str_),
            "weights": np.concatenate([np.zeros(0), *self._weights]),
        }
        for number, parts in enumerate(self._columns.values()):
            arrays[f"values.{number}"] = np.concatenate(parts)
        return arrays

    @classmethod
    def _restored(cls, arrays: Stored) -> ReferenceBuilder:
        examples, have = arrays.sums("settings", np.int64, (2,)).tolist()
        new = cls(examples)
        new._have = have
        weights = arrays.take("weights", np.float64, (None,), finite=False)
        new._weights = [weights] if weights.size else []
        for number, name in enumerate(arrays.take("columns", np.str_, (None,)).tolist()):
            key = f"values.{number}"
            values = arrays.get(key)
            if values is None or values.ndim != 1 or values.dtype.kind not in "iubf":
                raise ValueError(three_part(f"The array {key!r} of a state", values, "numbers"))
            new._columns[name] = [values]
        return new


def _rate(counts: Array) -> float:
    """Returns the share of all bins except the first; NaN if all are empty."""
    total = float(counts.sum())
    return 1 - float(counts[0]) / total if total else math.nan
