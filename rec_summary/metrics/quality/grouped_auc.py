"""AUC within each user, averaged over a sample of users that fits a fixed memory.

A click model ranks the items of one user against each other; pairs across users do not matter.
GAUC is the mean of the users' AUC, weighted by their impressions or clicks (Zhu et al. 2017,
"Optimized Cost per Click in Taobao Display Advertising"; Zhou et al. 2018, "Deep Interest
Network"). Users without both a click and a non-click have no AUC and are left out.

The sample consists of users, chosen by a hash of their id, so that all examples of a sampled user
are counted. It depends on the data alone: the users with the lowest hashes, as many as fit the
memory. Merging is therefore exact. This is adaptive threshold sampling (Ting 2022, "Adaptive
Threshold Sampling"; for a fixed number of users, bottom-k sampling of Cohen and Kaplan 2007): the
lowest hash that was dropped is a threshold, and sums over the sample divided by it are unbiased.
GAUC is a ratio of two such sums, whose bias is bounded as in Hartley and Ross 1954.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.hashing import Hashes, hash_strings, mix_ids
from rec_summary.metrics.quality.clicks import REASONS, Clicks, clean, column, on_weight_grid
from rec_summary.metrics.quality.score_histogram import score_bins
from rec_summary.metrics.state import (
    LARGEST,
    Array,
    Arrays,
    Floats,
    Scalable,
    check_factor,
    check_int,
    register,
    take,
    take_int,
    take_sums,
    to_array,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_BIN_BITS = 10
_HASH_BITS = 64 - _BIN_BITS
_ALL = 1 << _HASH_BITS  # a limit above every hash
_BIN_MASK = np.uint64((1 << _BIN_BITS) - 1)
_SHIFT = np.uint64(_BIN_BITS)


@dataclass(frozen=True)
class GroupedAuc:
    """GAUC of a sample of users, and its errors as an estimate of the GAUC of all users.

    Attributes:
        value: The weighted mean of the users' AUC; NaN if no user has one.
        users: The number of users of the sample that have an AUC.
        sampled: The number of users in the sample.
        rate: The share of the id space that is sampled; 1 if every user is.
        standard_error: The standard error of the value, by the delta method for independent
            inclusion; 0 if every user is sampled.
        bias_bound: The bias of a ratio of unbiased sums is at most its standard error times the
            coefficient of variation of its denominator; both are estimated from the sample.
        bin_error_bound: An upper bound of the difference from the value of the same users with
            exact scores: half of the share of pairs within one bin.
    """

    value: float
    users: int
    sampled: int
    rate: float
    standard_error: float
    bias_bound: float
    bin_error_bound: float


class UserBatch(NamedTuple):
    """A batch for `UserScores.count`.

    Attributes:
        keys: The hash of the user and the bin of the score, shape (examples,).
        weights: The weights of non-clicks and of clicks, shape (2, examples).
    """

    keys: Hashes
    weights: Floats

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.keys)

    def cut(self, at: slice) -> UserBatch:
        """Returns some of the examples."""
        return UserBatch(self.keys[at], self.weights[:, at])


@register
class UserScores(Scalable):
    """The weights of clicks and non-clicks by user and bin of the score, for a sample of users.

    A cell is one bin of one user that is not empty. All cells of a user are kept or none; users
    with the lowest hashes come first. A user takes at most `bins` cells. Two users share a hash
    with probability 2**-54 and then count as one.

    Attributes:
        cells: The maximum number of cells, of 24 bytes each; twice that between updates.
        bins: The number of bins of the score; see `score_bins`.
        seed: The seed of the hash. States to be merged have the same seed, hence the same users.
        refused: The number of refused examples by reason, in the order of `clicks.REASONS`.
    """

    _settings = ("cells", "bins", "seed")
    _sums = ("refused",)

    def __init__(self, cells: int = 65_536, bins: int = 1024, seed: int = 0) -> None:
        """Starts empty.

        Args:
            cells: At least twice `bins`.
            bins: A power of two, 64 to 1,024.
            seed: At least 0, below 2**63.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        self._layout = score_bins(bins)
        self.bins = check_int("bins", bins, 1, 1 << _BIN_BITS)
        self.cells = check_int("cells", cells, 2 * self.bins)
        self.seed = check_int("seed", seed, 0, LARGEST)
        self.refused = np.zeros(len(REASONS), np.int64)
        self._limit = _ALL  # the sample has the users whose hash is below it
        self._keys: Hashes = np.zeros(0, np.uint64)  # hash and bin; sorted, without duplicates
        self._weights: Floats = np.zeros((2, 0))  # of non-clicks and clicks
        self._pending: list[tuple[Hashes, Floats]] = []
        self._waiting = 0

    def update(self, users: Any, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; `clicks.clean` describes the other arguments.

        Args:
            users: Integers or strings, one for each example.
            scores: Predicted click probabilities.
            labels: 0 or 1.
            weights: All 1 if None.

        Raises:
            TypeError: The users are anything else, or an argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights)
        self.count(self.prepare(users, batch))
        self.refused += batch.refused

    def prepare(self, users: Any, batch: Clicks) -> UserBatch:
        """Returns a batch for `count` of this state and of others with the same settings.

        Args:
            users: Integers or strings, one for each example, refused ones included.
            batch: The examples.

        Raises:
            TypeError: The users are anything else.
            ValueError: Their number differs from that of the examples.
        """
        ids = np.asarray(users)
        ids = column("users", hash_strings(ids) if ids.dtype.kind in "USO" else ids, batch.size)
        if ids.dtype.kind not in "iu":
            raise TypeError(three_part("users", f"an array of {ids.dtype}", "integers or strings"))
        ids = ids if batch.kept is None else ids[batch.kept]
        keys = mix_ids(ids, self.seed) & ~_BIN_MASK
        keys |= self._layout.index(batch.scores).astype(np.uint64)
        weights = np.zeros((2, len(keys)))
        weights[batch.labels.astype(np.intp), np.arange(len(keys))] = (
            1.0 if batch.weights is None else batch.weights
        )
        return UserBatch(keys, weights)

    def count(self, batch: UserBatch) -> None:
        """Counts a prepared batch and keeps its arrays."""
        keys, weights = batch
        if self._limit < _ALL:
            sampled = np.flatnonzero(keys < np.uint64(self._limit) << _SHIFT)
            keys, weights = keys[sampled], weights[:, sampled]
        self._put(keys, weights)

    def _put(self, keys: Hashes, weights: Floats) -> None:
        self._pending.append((keys, weights))
        self._waiting += len(keys)
        if self._waiting >= self.cells:
            self._compact()

    def _compact(self) -> None:
        """Sorts the pending examples into the cells and drops the users that do not fit.

        A user is dropped if the cells of the users up to it exceed the maximum. The number of cells
        never shrinks, so the user would not fit at the end of the data either. The sample therefore
        does not depend on when this method is called.
        """
        if not self._pending:
            return
        keys = np.concatenate([keys for keys, _ in self._pending])
        weights = np.concatenate([each for _, each in self._pending], axis=1)
        self._pending, self._waiting = [], 0
        order = np.argsort(keys)  # need not be stable: sums are exact in any order
        if len(self._keys):
            # numpy's stable sort merges two sorted runs in a tenth of the time of sorting all.
            keys = np.concatenate([self._keys, keys[order]])
            weights = np.concatenate([self._weights, weights[:, order]], axis=1)
            order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else order
        self._keys = keys[starts]
        if len(starts):
            # Row by row: reduceat along the second axis of a matrix takes three times as long.
            self._weights = np.stack([np.add.reduceat(row[order], starts) for row in weights])
        self._forget()
        if len(self._keys) > self.cells:
            self._lower(int(self._keys[self.cells] >> _SHIFT))

    def _lower(self, limit: int) -> None:
        """Drops all users whose hash is not below `limit`."""
        if limit < self._limit:
            self._limit = limit
            self._forget()

    def _forget(self) -> None:
        """Drops the cells of users that are not in the sample; pending examples stay."""
        kept = _users_below(self._limit, self._keys)
        if kept < len(self._keys):
            self._keys, self._weights = self._keys[:kept].copy(), self._weights[:, :kept].copy()

    def gauc(self, weigh_by: Literal["impressions", "clicks"] = "impressions") -> GroupedAuc:
        """Returns GAUC, with users weighted by their impressions or clicks.

        Raises:
            ValueError: `weigh_by` is anything else.
        """
        if weigh_by not in ("impressions", "clicks"):
            raise ValueError(three_part("weigh_by", weigh_by, "'impressions' or 'clicks'"))
        self._compact()
        rate = self._limit / _ALL
        return _mean_auc(self._keys >> _SHIFT, self._weights, rate, weigh_by == "clicks")

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`, rounded so that sums stay exact."""
        check_factor(factor)
        self._compact()
        self._weights = on_weight_grid(self._weights * factor)

    def copy(self) -> Self:
        """Returns an independent copy."""
        other = super().copy()  # shares keys and weights: these arrays are never changed
        other._pending = list(self._pending)
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``limit``, ``refused``, and keys and weights of the cells."""
        self._compact()
        return {
            **{name: to_array(getattr(self, name)) for name in self._settings},
            "limit": to_array(self._limit),
            "refused": self.refused.copy(),
            "keys": self._keys.copy(),
            "negatives": self._weights[0].copy(),
            "positives": self._weights[1].copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of these arrays.

        Raises:
            ValueError: The arrays do not describe such a state.
        """
        state = cls(*(take_int(arrays, name) for name in cls._settings))
        state._take_contents(arrays)
        state._limit = take_int(arrays, "limit", 0, _ALL)
        keys = take(arrays, "keys", np.uint64, (None,))
        sound = bool((keys[1:] > keys[:-1]).all() and (keys & _BIN_MASK < state.bins).all())
        if not sound or len(keys) > state.cells or _users_below(state._limit, keys) < len(keys):
            raise ValueError(
                three_part("keys", keys, f"at most {state.cells} rising ones below the limit")
            )
        state._keys = keys
        state._weights = np.stack(
            [take_sums(arrays, name, np.float64, keys.shape) for name in ("negatives", "positives")]
        )
        return state

    def _add(self, other: Self) -> None:
        super()._add(other)
        other._compact()
        self._lower(other._limit)
        kept = _users_below(self._limit, other._keys)
        self._put(other._keys[:kept], other._weights[:, :kept])


def _users_below(limit: int, keys: Hashes) -> int:
    """Returns how many of the sorted `keys` belong to users with a hash below `limit`."""
    return len(keys) if limit == _ALL else int(np.searchsorted(keys, np.uint64(limit) << _SHIFT))


def _mean_auc(users: Hashes, weights: Floats, rate: float, by_clicks: bool) -> GroupedAuc:
    """Returns the mean of the users' AUC.

    Args:
        users: The user of each cell, shape (cells,). The cells of a user are adjacent, by rising
            score.
        weights: The weights of non-clicks and clicks, shape (2, cells).
        rate: The share of the id space that is sampled.
        by_clicks: Whether the weight of a user is its clicks instead of its impressions.
    """
    starts = np.flatnonzero(np.append(True, users[1:] != users[:-1])[: len(users)])
    nothing = GroupedAuc(math.nan, 0, len(starts), rate, math.nan, math.nan, math.nan)
    if not len(starts):
        return nothing
    negatives, positives = weights
    clicks = np.add.reduceat(positives, starts)
    others = np.add.reduceat(negatives, starts)
    cells = np.diff(np.append(starts, len(users)))
    below = np.cumsum(negatives) - 0.5 * negatives
    below -= np.repeat(np.append(0.0, np.cumsum(others)[:-1]), cells)
    both = np.flatnonzero((clicks > 0) & (others > 0))
    if not len(both):
        return nothing
    pairs = (clicks * others)[both]
    aucs = np.add.reduceat(positives * below, starts)[both] / pairs
    bounds = 0.5 * np.add.reduceat(positives * negatives, starts)[both] / pairs
    heavy = clicks[both] if by_clicks else (clicks + others)[both]
    total = float(heavy.sum())
    value = float(aucs @ heavy) / total
    chance = math.sqrt(1.0 - rate)
    error = chance * float(np.linalg.norm(heavy * (aucs - value))) / total
    variation = chance * float(np.linalg.norm(heavy)) / total
    return GroupedAuc(
        value=value,
        users=len(both),
        sampled=len(starts),
        rate=rate,
        standard_error=error,
        bias_bound=error * variation,
        bin_error_bound=float(bounds @ heavy) / total,
    )
