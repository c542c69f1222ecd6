"""AUC within each user, averaged over a sample of users that fits a fixed memory.

A click model ranks the items of one user against each other; pairs across users do not matter.
GAUC is the mean of the users' AUC, weighted by their impressions (Zhu et al. 2017,
"Optimized Cost per Click in Taobao Display Advertising"; Zhou et al. 2018, "Deep Interest
Network"). Users without both a click and a non-click have no AUC and are left out.

The users are a sample (`hash_sample`), over which sums divided by the threshold are unbiased. GAUC
is a ratio of two such sums, whose bias is bounded as in Hartley and Ross 1954.

A user's scores are exact until there are more different ones than a user may have. Then they are
in cells of the lowest level at which the user has few enough. This level, too, depends on the data
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import Hashes, mix_ids
from rec_summary.metrics.quality.clicks import REASONS, Clicks, clean, integer_ids
from rec_summary.metrics.quality.hash_sample import HashSample, error_of_mean
from rec_summary.metrics.quality.score_cells import (
    MOST_CODE,
    ONE,
    Codes,
    around,
    joints_of,
    levels_of,
    starts_of,
    widths_of,
)
from rec_summary.metrics.state import Batch, Stored, to_array

_SHIFT = np.uint64(10)  # of a hash
_ALL = 1 << 54  # a limit above every hash
_WEIGHTS = ("negatives", "positives")


@dataclass(frozen=True)
class GroupedAuc:
    """GAUC of a sample of users, and its errors as an estimate of the GAUC of all users.

    Attributes:
        value: The weighted mean of the users' AUC; NaN if no user has one.
        users: The number of users of the sample that have an AUC.
        sampled: The number of users in the sample.
        rate: The share of the id space that is sampled; 1 if every user is.
        standard_error: The standard error of the value, for independent inclusion; 0 if every user
            is sampled.
        chance_error: The standard error if also all users are a sample of those that might come.
        bias_bound: The bias of a ratio of unbiased sums is at most its standard error times the
            coefficient of variation of its denominator; both are estimated from the sample.
        cell_error_bound: An upper bound of the difference from the value of the same users with
            exact scores: half of the share of pairs within one cell of several scores.
    """

    value: float
    users: int
    sampled: int
    rate: float
    standard_error: float
    chance_error: float
    bias_bound: float
    cell_error_bound: float


@dataclass(frozen=True)
class UserBatch(Batch):
    """A batch for `UserScores.count`; also cells of users.

    Attributes:
        users: The hash of the user.
        codes: The cell of the score.
        negatives: The weight of non-clicks.
        positives: The weight of clicks.
    """

    users: Hashes
    codes: Codes
    negatives: Floats
    positives: Floats

    def merged(self) -> UserBatch:
        """Returns sorted cells, of which equal ones become one."""
        starts = starts_of(self.users, self.codes)
        sums = (np.add.reduceat(row, starts) for row in (self.negatives, self.positives))
        return UserBatch(self.users[starts], self.codes[starts], *sums)


class UserScores(HashSample):
    """The weights of clicks and non-clicks by user and cell of the score, for a sample of users.

    All cells of a user are kept or none; users with the lowest hashes come first. Two users share a
    hash with probability 2**-54 and then count as one.

    Attributes:
        cells: The maximum number of cells, of 32 bytes each; twice that between updates.
        per_user: The maximum number of cells of a user, each one score. Beyond that a user's cells
            are larger ones, and count as so many.
        refused: The number of refused examples by reason, in the order of `clicks.REASONS`.
    """

    _settings = ("cells", "per_user")
    _sums = ("refused",)

    def __init__(self, cells: int = 65_536, per_user: int = 256) -> None:
        """Starts empty.

        Args:
            cells: At least twice `per_user`.
            per_user: At least 16.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        self.per_user = check_int("per_user", per_user, 16)
        self.cells = check_int("cells", cells, 2 * self.per_user)
        self.refused = np.zeros(len(REASONS), np.int64)
        # By rising user and code, which are all different.
        none = UserBatch(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0), np.zeros(0))
        self._begin(self.cells, _ALL, none)

    def update(
        self, users: Any, scores: Any, labels: Any, weights: Any = None, odds: Any = None
    ) -> None:
        """Counts a batch; `clicks.clean` describes the other arguments.

        Args:
            users: Integers or strings, one for each example.
            scores: Predicted click probabilities.
            labels: 0 or 1.
            weights: All 1 if None.
            odds: The log-odds of the scores, if these give the order.

        Raises:
            TypeError: The users are anything else, or an argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        batch = clean(scores, labels, weights, odds)
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
        ids = integer_ids("users", users, batch.size)
        ids = ids if batch.kept is None else ids[batch.kept]
        weights = np.ones(len(ids)) if batch.weights is None else batch.weights
        clicks = weights * batch.labels
        codes = batch.keys << ONE | ONE
        return UserBatch(mix_ids(ids) >> _SHIFT, codes, weights - clicks, clicks)

    def _compact(self) -> None:
        """Sorts the pending examples into the cells and drops the users that do not fit.

        A user is dropped if the cells of the users up to it exceed the maximum. The number of cells
        that a user counts as never shrinks, so the user would not fit at the end of the data
        either. The sample therefore does not depend on when this method is called.
        """
        if not self._pending:
            return
        rows = self._taken()
        # As np.lexsort, in a third of the time: equal cells may come in any order.
        order = np.argsort(rows.codes)
        rows = rows.cut(order[np.argsort(rows.users[order], kind="stable")])
        levels = levels_of(rows.codes)
        if levels.any():
            # Cells that were merged may have other levels than the user's.
            first = starts_of(rows.users)
            highest = np.maximum.reduceat(levels, first)
            levels = np.repeat(highest, np.diff(first, append=rows.size))
            rows = replace(rows, codes=around(rows.codes, levels))
        self._sample = rows.merged()
        self._lower(self._limit)
        self._enlarge()

    def _enlarge(self) -> None:
        """Gives larger cells to users with too many, and drops users if all cells are too many."""
        users, codes, *_ = self._sample
        first = starts_of(users)
        sizes = np.diff(first, append=len(users))
        crowded = np.flatnonzero(sizes > self.per_user)
        for start, size in zip(first[crowded].tolist(), sizes[crowded].tolist(), strict=True):
            own = slice(start, start + size)
            # So many cells are left as there are joints above the level, and one.
            joints = joints_of(codes[own])
            level = np.partition(joints, size - 1 - self.per_user)[size - 1 - self.per_user]
            codes[own] = around(codes[own], np.full(size, level))
        if len(crowded):
            self._sample = self._sample.merged()
            users, codes, *_ = self._sample
            first = starts_of(users)
        sizes[levels_of(codes[first]) > 0] = self.per_user
        beyond = np.flatnonzero(np.cumsum(sizes) > self.cells)
        if len(beyond):
            self._lower(int(users[first[beyond[0]]]))

    def gauc(self, *, by_user: bool = False) -> GroupedAuc:
        """Returns GAUC, with users weighted by their impressions, or all equally (`by_user`)."""
        self._compact()
        return _mean_auc(self._sample, self._rate, by_user=by_user)

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``limit``, ``refused``, and users, codes and weights of cells."""
        self._compact()
        return {
            **super().arrays(),
            "limit": to_array(self._limit),
            **vars(self._sample.copy()),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> UserScores:
        state = super()._restored(arrays)
        state._limit = arrays.integer("limit", 0, _ALL)
        users = arrays.take("users", np.uint64, (None,))
        codes = arrays.take("codes", np.uint64, users.shape)
        same = users[1:] == users[:-1]
        rising = (users[1:] > users[:-1]) | (same & (codes[1:] > codes[:-1]))
        known = (codes > 0) & (codes - widths_of(codes) < MOST_CODE)  # a cell may end above 1
        if not (rising.all() and known.all()) or state._below(users) < len(users):
            expected = "rising users below the limit, each with rising codes of cells"
            raise ValueError(three_part("users", users, expected))
        weights = (arrays.sums(name, np.float64, users.shape) for name in _WEIGHTS)
        state._pending = [UserBatch(users, codes, *weights)]
        return state


def _mean_auc(sample: UserBatch, rate: float, *, by_user: bool) -> GroupedAuc:
    """Returns the mean of the users' AUC.

    Args:
        sample: The cells, by rising user and code.
        rate: The share of the id space that is sampled.
        by_user: As in `UserScores.gauc`.
    """
    users, codes, negatives, positives = sample
    starts = starts_of(users)
    nothing = GroupedAuc(math.nan, 0, len(starts), rate, *[math.nan] * 4)
    if not len(starts):
        return nothing
    clicks = np.add.reduceat(positives, starts)
    others = np.add.reduceat(negatives, starts)
    below = np.cumsum(negatives) - 0.5 * negatives
    below -= np.repeat(np.append(0.0, np.cumsum(others)[:-1]), np.diff(starts, append=len(users)))
    mixed = np.flatnonzero((clicks > 0) & (others > 0))  # the users that have an AUC
    if not len(mixed):
        return nothing
    pairs = (clicks * others)[mixed]
    aucs = np.add.reduceat(positives * below, starts)[mixed] / pairs
    unknown = np.where(levels_of(codes) > 0, positives * negatives, 0.0)
    bounds = 0.5 * np.add.reduceat(unknown, starts)[mixed] / pairs
    user_weights = np.ones(len(mixed)) if by_user else (clicks + others)[mixed]
    total = float(user_weights.sum())
    value = float(aucs @ user_weights) / total
    error = error_of_mean(aucs, user_weights, rate)
    variation = math.sqrt(1.0 - rate) * float(np.linalg.norm(user_weights)) / total
    return GroupedAuc(
        value=value,
        users=len(mixed),
        sampled=len(starts),
        rate=rate,
        standard_error=error,
        chance_error=error_of_mean(aucs, user_weights),
        bias_bound=error * variation,
        cell_error_bound=float(bounds @ user_weights) / total,
    )
