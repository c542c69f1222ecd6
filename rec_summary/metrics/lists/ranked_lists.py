"""Scored and judged examples of a sample of lists: the sessions or requests that a model ranks.

A list is known by an id. Its examples may come in any order, in several batches and on several
ranks; they meet here, in a sample of lists (`hash_sample`). A list with more different examples
than a list may have, as one user's over a year, leaves the sample's metrics as a whole.

The metrics of these lists are in `list_quality`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import Hashes, mix
from rec_summary.metrics.lists.choices import check_places
from rec_summary.metrics.quality.clicks import column, integer_ids
from rec_summary.metrics.quality.hash_sample import HashSample
from rec_summary.metrics.quality.score_cells import ONE, highest_bits, starts_of
from rec_summary.metrics.state import Batch, Stored

_ALL = 1 << 64  # a limit above every hash
LARGEST_SCORE = 1e150
"""The largest score, and the largest label."""
_TOO_LONG = 1e300  # the score of the one row of a list that is too long
_COLUMNS = ("scores", "labels")


@dataclass(frozen=True)
class ListRows(Batch):
    """Examples of lists.

    Attributes:
        lists: The hash of the list's id.
        scores: The score.
        labels: The label.
        counts: How many examples of this score and label the list has; 0 for one that is refused.
    """

    lists: Hashes
    scores: Floats
    labels: Floats
    counts: Floats


class SampledLists(NamedTuple):
    """The lists of a sample.

    Attributes:
        rows: Their examples, by list, falling score and falling label.
        starts: Where each list begins, shape (lists,).
        rate: The share of the space of ids that is sampled; 1 if every list is.
        too_long: The number of lists of the sample that are left out, with their rows.
    """

    rows: ListRows
    starts: Array
    rate: float
    too_long: int


class RankedLists(HashSample):
    """The scores and labels of the lists of a sample; a mergeable state.

    Two lists share a hash with probability 2**-64 and then count as one.

    Attributes:
        rows: The maximum number of rows, of 32 bytes each; twice that between updates. Examples
            of a list with equal scores and labels are one row.
        per_list: The maximum number of rows of a list. A list with more of them is left out, and
            counts as one row more than this.
        at: The numbers k of examples at the top of a list that its metrics are of.
        refused: The number of examples whose score or label is NaN, or above 1e150 in size.
    """

    _settings = ("rows", "per_list", "at")
    _sums = ("refused",)

    def __init__(
        self,
        rows: int = 16_384,
        per_list: int = 1024,
        at: Sequence[int] = (),
    ) -> None:
        """Starts empty.

        Args:
            rows: At least twice `per_list`.
            per_list: At least 1.
            at: As the attribute; up to `MOST_PLACES`, each from 1 to `MOST_K`.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        self.per_list = check_int("per_list", per_list)
        self.rows = check_int("rows", rows, 2 * self.per_list)
        self.at = check_places(at)
        self.refused = 0
        none = np.zeros(0)
        # By rising list, and falling score and label, which are all different.
        empty = ListRows(np.zeros(0, np.uint64), none, none, none)
        self._begin(self.rows, _ALL, empty)

    def update(self, lists: Any, scores: Any, labels: Any) -> None:
        """Counts examples.

        Args:
            lists: Integers or strings, one for each example.
            scores: Real numbers; a higher one is nearer to the top of the list.
            labels: Real numbers; what the example is worth at the top, such as 1 for a click.

        Raises:
            TypeError: The lists are anything else, or an argument does not hold real numbers.
            ValueError: The sizes differ.
        """
        self.count(self.prepare(lists, scores, labels))

    def prepare(self, lists: Any, scores: Any, labels: Any) -> ListRows:
        """Returns examples, as `update` describes them, for `count`."""
        scored = column("scores", scores).astype(np.float64)
        judged = column("labels", labels, scored.size).astype(np.float64)
        hashes = mix(integer_ids("lists", lists, scored.size))
        usable = (np.abs(scored) <= LARGEST_SCORE) & (np.abs(judged) <= LARGEST_SCORE)
        # + 0.0 turns -0.0 into 0.0, which is equal.
        return ListRows(hashes, scored + 0.0, judged + 0.0, usable.astype(np.float64))

    def count(self, batch: ListRows) -> None:
        """Counts prepared rows and keeps their arrays."""
        refused = batch.size - np.count_nonzero(batch.counts)
        if refused:
            self.refused += refused
            batch = batch.cut(np.flatnonzero(batch.counts))
        super().count(batch)

    def sampled(self) -> SampledLists:
        """Returns the lists of the sample, without those that are too long."""
        self._compact()
        rows = self._sample
        starts = starts_of(rows.lists)
        fits = rows.scores < _TOO_LONG
        left_out = rows.size - int(np.count_nonzero(fits))
        if left_out:
            rows = rows.cut(np.flatnonzero(fits))
            starts = starts_of(rows.lists)
        return SampledLists(rows, starts, self._rate, left_out)

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``limit`` (0 if it is above all), ``refused``, and the rows."""
        self._compact()
        return {
            **super().arrays(),
            "limit": np.array(self._limit % _ALL, np.uint64),
            **vars(self._sample.copy()),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> RankedLists:
        state = super()._restored(arrays)
        state._limit = int(arrays.take("limit", np.uint64)) or _ALL
        lists = arrays.take("lists", np.uint64, (None,))
        scores, labels = (arrays.take(name, np.float64, lists.shape) for name in _COLUMNS)
        counts = arrays.sums("counts", np.float64, lists.shape)
        if state._below(lists) < len(lists) or (lists[1:] < lists[:-1]).any():
            raise ValueError(three_part("lists", lists, "rising hashes below the limit"))
        state._pending = [ListRows(lists, scores, labels, counts)]
        return state

    def _compact(self) -> None:
        """Sorts the pending rows into the sample and drops the lists that do not fit.

        The number of rows that a list takes never shrinks, up to the first that is too many for
        it. So a list that does not fit would not fit at the end of the data either, and the sample
        does not depend on when this method is called.
        """
        if not self._pending:
            return
        rows = self._taken()
        rows = rows.cut(np.lexsort((-rows.labels, -rows.scores, rows.lists)))
        starts = starts_of(rows.lists, rows.scores, rows.labels)
        rows = replace(rows.cut(starts), counts=np.add.reduceat(rows.counts, starts))
        first = starts_of(rows.lists)
        sizes = np.diff(np.append(first, rows.size))
        long = (sizes > self.per_list) | (rows.scores[first] == _TOO_LONG)
        if long.any():
            totals = np.add.reduceat(rows.counts, first)
            kept = np.repeat(~long, sizes)
            kept[first] = True
            rows.counts[first[long]] = totals[long]
            rows.scores[first[long]], rows.labels[first[long]] = _TOO_LONG, 0.0
            rows = rows.cut(np.flatnonzero(kept))
            sizes[long] = 1
            first = np.cumsum(sizes) - sizes
        self._sample = rows
        beyond = np.flatnonzero(np.cumsum(np.where(long, self.per_list + 1, sizes)) > self.rows)
        self._lower(int(rows.lists[first[beyond[0]]]) if len(beyond) else self._limit)


class SampledExamples(RankedLists):
    """A sample of examples of whichever list, with equal examples in few rows.

    Each example is sampled by a hash of its own, however many are equal to it. Only the highest bit
    of this hash counts, and the others are of the content: so n equal examples are in about log2(n)
    lists, of one row each. The limit is a power of two: a list is in or out as a whole.
    """

    def prepare(self, lists: Any, scores: Any, labels: Any) -> ListRows:
        """Returns examples for `count`; `lists` has a number that no equal example has."""
        rows = super().prepare(lists, scores, labels)
        contents = mix(mix(rows.scores.view(np.uint64)) ^ rows.labels.view(np.uint64))
        highest = ONE << highest_bits(mix(contents ^ rows.lists) | ONE).astype(np.uint64)
        return replace(rows, lists=contents & (highest - ONE) | highest)

    def _lower(self, limit: int) -> None:
        super()._lower(1 << limit.bit_length() - 1)
