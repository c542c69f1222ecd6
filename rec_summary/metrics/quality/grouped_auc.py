"""AUC within each user, averaged over a sample of users that fits a fixed memory.

A click model ranks the items of one user against each other, so pairs across users say nothing
about it: GAUC is the mean of the users' AUC, weighted by their impressions or clicks (Zhu et al.
2017, "Optimized Cost per Click in Taobao Display Advertising"; Zhou et al. 2018, "Deep
Interest Network"). Users without both a click and a non-click have no AUC and are left out.

Users are sampled by a hash of their id, not examples, so that a sampled user is complete. Which
users are kept follows from the data alone: those with the lowest hashes, as many as fit
the memory. That makes merging exact, and it is adaptive threshold sampling (Ting 2022, "Adaptive
Threshold Sampling"; for a fixed number of users, bottom-k sampling of Cohen and Kaplan 2007): the
lowest hash that had to go is a threshold for which sums over the sample, divided by it, are
unbiased. GAUC is a ratio of two such sums, whose bias is bounded as in Hartley and Ross 1954.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.id_hash import mixed
from rec_summary.metrics.quality.clicks import (
    REASONS,
    Clicks,
    clean,
    column,
    on_weight_grid,
    take_refused,
)
from rec_summary.metrics.quality.gauc import GroupedAuc, mean_auc
from rec_summary.metrics.quality.score_bins import score_bins
from rec_summary.metrics.state import (
    Array,
    Floats,
    checked_factor,
    positive_int,
    register,
    same_settings,
    take,
    take_count,
    take_weights,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Keys = npt.NDArray[np.uint64]

_BIN_BITS = 10
_HASH_BITS = 64 - _BIN_BITS
_ALL = 1 << _HASH_BITS  # a limit above every hash
_BIN_MASK = np.uint64((1 << _BIN_BITS) - 1)
_SHIFT = np.uint64(_BIN_BITS)


class UserBatch(NamedTuple):
    """A batch for `UserScores.count`.

    Attributes:
        keys: Hash of the user and bin of the score, of shape [examples].
        weights: Of non-clicks and of clicks, of shape [2, examples].
    """

    keys: Keys
    weights: Floats

    @property
    def size(self) -> int:
        """How many examples there are."""
        return len(self.keys)

    def cut(self, at: slice) -> UserBatch:
        """Returns some of the examples."""
        return UserBatch(self.keys[at], self.weights[:, at])


@register
class UserScores:
    """For a sample of users, the weights of clicks and non-clicks by bin of the score.

    A cell is one bin of one user that was hit. Users are kept whole, lowest hash first, as long
    as their cells fit; one takes at most `bins` cells, however long the stream. Two
    users share a hash with probability 2**-54 and then count as one.

    Attributes:
        cells: How many cells are kept at most; 24 bytes each, and as much again between
            updates.
        bins: Bins of the score, see `score_bins`.
        seed: Of the hash. Merging needs the same, and so the same users, everywhere.
        refused: How many examples were refused, by reason in the order of `clicks.REASONS`.
    """

    def __init__(self, cells: int = 65_536, bins: int = 1024, seed: int = 0) -> None:
        """Starts empty.

        Args:
            cells: At least twice `bins`.
            bins: A power of two, 64 to 1,024.
            seed: At least 0, below 2**63.

        Raises:
            ValueError: An argument is anything else.
        """
        self._layout = score_bins(bins)
        self.bins = self._layout.bins
        if self.bins > 1 << _BIN_BITS:
            raise ValueError(three_part("bins", bins, f"at most {1 << _BIN_BITS}"))
        self.cells = positive_int("cells", cells, 2 * self.bins)
        self.seed = positive_int("seed", seed, 0)
        if self.seed >= 1 << 63:
            raise ValueError(three_part("seed", seed, "an int below 2**63"))
        self.refused = np.zeros(len(REASONS), np.int64)
        self._limit = _ALL  # users whose hash is not below it are not in the sample
        self._keys: Keys = np.zeros(0, np.uint64)  # hash and bin; sorted, each once
        self._weights: Floats = np.zeros((2, 0))  # of non-clicks and clicks
        self._pending: list[tuple[Keys, Floats]] = []
        self._waiting = 0

    def update(self, users: Any, scores: Any, labels: Any, weights: Any = None) -> None:
        """Counts a batch; see `clicks.clean` for what the others may be and what is refused.

        Args:
            users: Integers, one for each example.
            scores: Predicted click probabilities.
            labels: 0 or 1.
            weights: All 1 if None.

        Raises:
            TypeError: The users are not integers, or something does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights)
        self.count(self.prepare(users, batch))
        self.refused += batch.refused

    def prepare(self, users: Any, batch: Clicks) -> UserBatch:
        """Returns a batch for `count` of this state and of others with the same settings.

        Args:
            users: Integers, one for each example, refused ones included.
            batch: The examples.

        Raises:
            TypeError: The users are not integers.
            ValueError: There is another number of them.
        """
        size = len(batch.scores) if batch.kept is None else len(batch.kept)
        ids = column("users", users, size)
        if ids.dtype.kind not in "iu":
            raise TypeError(three_part("users", f"an array of {ids.dtype}", "integers"))
        ids = ids if batch.kept is None else ids[batch.kept]
        keys = mixed(ids, self.seed) & ~_BIN_MASK
        keys |= self._layout.index(batch.scores).astype(np.uint64)
        weights = np.zeros((2, len(keys)))
        weights[batch.labels.astype(np.intp), np.arange(len(keys))] = (
            1.0 if batch.weights is None else batch.weights
        )
        return UserBatch(keys, weights)

    def count(self, batch: UserBatch) -> None:
        """Counts a prepared batch; the arrays of it are kept."""
        keys, weights = batch
        if self._limit < _ALL:
            sampled = np.flatnonzero(keys < np.uint64(self._limit) << _SHIFT)
            keys, weights = keys[sampled], weights[:, sampled]
        self._put(keys, weights)

    def _put(self, keys: Keys, weights: Floats) -> None:
        self._pending.append((keys, weights))
        self._waiting += len(keys)
        if self._waiting >= self.cells:
            self._compact()

    def _compact(self) -> None:
        """Sorts what waits into the cells and lets go of the users that no longer fit.

        A user is let go only when the cells of the users up to it exceed the room; as cells only
        ever grow, it would not fit at the end of the data either, so that what stays does not
        depend on when this is called.
        """
        if not self._pending:
            return
        keys = np.concatenate([keys for keys, _ in self._pending])
        weights = np.concatenate([each for _, each in self._pending], axis=1)
        self._pending, self._waiting = [], 0
        order = np.argsort(keys)  # not stable: sums of weights are exact in any order
        if len(self._keys):
            # Two sorted runs, which numpy's stable sort merges: a tenth of the work of sorting all.
            keys = np.concatenate([self._keys, keys[order]])
            weights = np.concatenate([self._weights, weights[:, order]], axis=1)
            order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else order
        self._keys = keys[starts]
        if len(starts):
            # Row by row: along the second axis of a matrix it takes three times as long.
            self._weights = np.stack([np.add.reduceat(row[order], starts) for row in weights])
        self._forget()
        if len(self._keys) > self.cells:
            self._lower(int(self._keys[self.cells] >> _SHIFT))

    def _lower(self, limit: int) -> None:
        """Lets go of all users whose hash is not below `limit`."""
        if limit < self._limit:
            self._limit = limit
            self._forget()

    def _forget(self) -> None:
        """Lets go of the cells of users that are not in the sample; what waits is left alone."""
        kept = _users_below(self._limit, self._keys)
        if kept < len(self._keys):
            self._keys, self._weights = self._keys[:kept].copy(), self._weights[:, :kept].copy()

    def gauc(self, weigh_by: Literal["impressions", "clicks"] = "impressions") -> GroupedAuc:
        """Returns GAUC with the users' AUC weighted by what `weigh_by` says.

        Raises:
            ValueError: `weigh_by` is anything else.
        """
        if weigh_by not in ("impressions", "clicks"):
            raise ValueError(three_part("weigh_by", weigh_by, "'impressions' or 'clicks'"))
        self._compact()
        rate = self._limit / _ALL
        return mean_auc(self._keys >> _SHIFT, self._weights, rate, weigh_by == "clicks")

    def merge(self, other: Self) -> None:
        """Adds what `other` has counted.

        Raises:
            ValueError: It has other settings.
        """
        same_settings("cells, bins and seed", self._settings(), other._settings())
        other._compact()
        self.refused += other.refused
        self._lower(other._limit)
        kept = _users_below(self._limit, other._keys)
        self._put(other._keys[:kept], other._weights[:, :kept])

    def scale(self, factor: float) -> None:
        """Multiplies all weights by `factor`, rounded to what still adds exactly."""
        checked_factor(factor)
        self._compact()
        self._weights = on_weight_grid(self._weights * factor)

    def copy(self) -> Self:
        """Returns a state of its own with the same users."""
        other = type(self)(self.cells, self.bins, self.seed)
        other.refused += self.refused
        # Shared, for no array is ever changed.
        other._limit, other._keys, other._weights = self._limit, self._keys, self._weights
        other._pending, other._waiting = list(self._pending), self._waiting
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``limit``, ``refused``, and keys and weights of the cells."""
        self._compact()
        names = ("cells", "bins", "seed")
        settings = zip(names, self._settings(), strict=True)
        return {
            **{name: np.array(value, np.int64) for name, value in settings},
            "limit": np.array(self._limit, np.int64),
            "refused": self.refused.copy(),
            "keys": self._keys.copy(),
            "negatives": self._weights[0].copy(),
            "positives": self._weights[1].copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the state that `arrays` describes.

        Raises:
            ValueError: They describe none.
        """
        state = cls(*(take_count(arrays, name) for name in ("cells", "bins", "seed")))
        state.refused = take_refused(arrays)
        state._limit = take_count(arrays, "limit")
        keys = take(arrays, "keys", np.uint64, (None,))
        bins = keys & _BIN_MASK
        sound = state._limit <= _ALL and len(keys) <= state.cells
        sound = sound and bool((keys[1:] > keys[:-1]).all() and (bins < state.bins).all())
        if not sound or (len(keys) and int(keys[-1] >> _SHIFT) >= state._limit):
            raise ValueError(
                three_part("keys", keys, f"at most {state.cells} rising ones below the limit")
            )
        state._keys = keys
        state._weights = np.stack(
            [take_weights(arrays, name, keys.shape) for name in ("negatives", "positives")]
        )
        return state

    def _settings(self) -> tuple[int, int, int]:
        return self.cells, self.bins, self.seed


def _users_below(limit: int, keys: Keys) -> int:
    """Returns how many of sorted `keys` are of users with a hash below `limit`."""
    return len(keys) if limit == _ALL else int(np.searchsorted(keys, np.uint64(limit) << _SHIFT))
