"""A sample of groups, such as users or lists, that fits a fixed memory.

A group is chosen by a hash of its id, so that all rows of a sampled group are kept. The sample has
the groups with the lowest hashes, as many as fit. It depends on the data alone, so merging is
exact. This is adaptive threshold sampling (Ting 2022, "Adaptive Threshold Sampling"; for a fixed
number of groups, bottom-k sampling of Cohen and Kaplan 2007): the lowest hash that was dropped is a
threshold, and sums over the sample divided by it are unbiased.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rec_summary.arrays import Flags, Floats
from rec_summary.metrics.hashing import Hashes
from rec_summary.metrics.state import State


def error_of_mean(values: Floats, weights: Floats, rate: float = 0.0) -> float:
    """Returns the standard error of the mean of the groups' values, by the jackknife.

    Each group is left out once (Efron and Stein 1981, "The Jackknife Estimate of Variance"): where
    one has most of the weight, the usual formula is far too low.

    Args:
        values: A value of each group, (groups,).
        weights: The weights of the groups, above 0.
        rate: The share of all groups that is sampled, for the error as the mean of all of them: 0
            if every one is. With 0, all groups are themselves a sample of those that might be.

    Returns:
        The error; NaN of fewer than two groups, unless these are all.
    """
    if rate == 1.0:
        return 0.0
    shares = weights / weights.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = shares * (values - values @ shares) / (1.0 - shares)
    return math.sqrt(1.0 - rate) * float(np.linalg.norm(changes))


class HashSample(State, is_base=True):
    """A sample of rows; a subclass brings them together in `_compact`.

    Rows are a `Batch`, the first column of which has the hash of the group of each row.
    """

    def _begin(self, most: int, above: int, rows: Any) -> None:
        """Starts a sample.

        Args:
            most: The number of waiting rows from which on they are brought together.
            above: A number above every hash.
            rows: No rows.
        """
        self._most, self._above = most, above
        self._limit = above  # the sample has the groups whose hash is below it
        self._sample = rows
        self._pending: list[Any] = []
        self._waiting = 0

    @property
    def _rate(self) -> float:
        """The share of the space of ids that is sampled; 1 if every group is."""
        return self._limit / self._above

    def takes(self, groups: Hashes) -> Flags:
        """Returns whether groups are in the sample, as of now."""
        is_limited = self._limit < self._above
        return groups < np.uint64(self._limit) if is_limited else np.ones(len(groups), np.bool_)

    def count(self, batch: Any) -> None:
        """Counts prepared rows and keeps their arrays."""
        if self._limit < self._above:
            groups, *_ = batch
            batch = batch.cut(np.flatnonzero(self.takes(groups)))
        self._pending.append(batch)
        self._waiting += batch.size
        if self._waiting >= self._most:
            self._compact()

    def _compact(self) -> None:
        """Sorts the waiting rows into the sample, and drops the groups that do not fit."""
        raise NotImplementedError

    def _taken(self) -> Any:
        """Returns the rows of the sample, and behind them those that wait, which wait no longer."""
        columns = zip(self._sample, *self._pending, strict=True)
        self._pending, self._waiting = [], 0
        return type(self._sample)(*map(np.concatenate, columns))

    def _lower(self, limit: int) -> None:
        """Drops all groups whose hash is not below `limit`; waiting rows stay."""
        self._limit = min(limit, self._limit)
        groups, *_ = self._sample
        size = self._below(groups)
        if size < len(groups):
            self._sample = self._sample.cut(slice(size)).copy()

    def _below(self, hashes: Hashes) -> int:
        """Returns how many of the sorted hashes are below the limit."""
        if self._limit == self._above:
            return len(hashes)
        return int(np.searchsorted(hashes, np.uint64(self._limit)))

    def _add(self, other: HashSample) -> None:
        super()._add(other)
        other._compact()
        self._lower(other._limit)
        self.count(other._sample)
