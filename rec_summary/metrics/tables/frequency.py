"""The most frequent ids of an embedding table, their skew, and the numbers of invalid ids.

Tables of up to `exact_rows` rows have a counter for each row. Larger tables, and tables of open
size, have a `count_min` sketch. Both count a random sample of the ids, one of sixteen by default:
counting all costs the training thread more than twice as much. The numbers of all ids, of unknown
ids and of ids out of range are always exact.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Floats, Integers
from rec_summary.checks import LARGEST, check_int
from rec_summary.errors import three_part
from rec_summary.metrics.hashing import mix
from rec_summary.metrics.state import State, Stored, optional_array
from rec_summary.metrics.tables import count_min
from rec_summary.metrics.tables.ids import TableIds, classify

_BUFFER: Final = 8192  # ids that are sorted at once; larger batches cost less per id
_BEAM: Final = 2048
_Z: Final = 3.0  # standard errors of the bounds: 99.7 %

# 32 bits each; drawn once, because drawing costs as much as all other counting.
_DRAW_MASK: Final = 2**32 - 1


def _draws(start: int, number: int) -> Integers:
    """Returns some of an endless row of draws."""
    draws: Integers = (mix(np.arange(start, start + number)) >> np.uint64(32)).astype(np.int64)
    return draws


_DRAWS: Final = _draws(0, 2**16)

_LEAST_MEAN_COUNT: Final = 100.0  # of the most frequent ids in a sample
_MOST_DOUBTFUL: Final = 0.1  # of a share: that of ids whose counts may be those of others
_FALSE: Final = 0.02  # of the ids that are found: those whose lower bound is too high


@dataclass(frozen=True)
class FrequencyOptions:
    """Options of `IdFrequency`.

    Attributes:
        size: The number of rows of the table; None if it is open.
        unknown_id: The id of everything unknown, which is counted separately; None if there is
            none.
        sample_one_in: One of this many ids is counted; 1 counts all.
        exact_rows: The largest table with a counter (8 bytes) for each row.
        width: The number of counters in a row of the sketch of larger tables, a power of two, 16
            to 2**16. The sketch takes 32 times as many bytes for each four bits of the ids.

    Raises:
        TypeError, ValueError: An option is anything else.
    """

    size: int | None
    unknown_id: int | None = None
    sample_one_in: int = 16
    exact_rows: int = 2**17
    width: int = 4096

    def __post_init__(self) -> None:
        if self.size is not None:
            check_int("size", self.size, 1)
        if self.unknown_id is not None:
            check_int("unknown_id", self.unknown_id, -(2**63))
        check_int("sample_one_in", self.sample_one_in, 1)
        check_int("exact_rows", self.exact_rows, 0)
        check_int("width", self.width, 16, 2**16)
        if self.width & (self.width - 1):
            raise ValueError(three_part("width", self.width, "a power of two"))

    @property
    def exact(self) -> bool:
        """Whether each row has its own counter."""
        return self.size is not None and self.size <= self.exact_rows


@dataclass(frozen=True)
class TopIds:
    """The most frequent ids by falling count; of equal counts, the smaller id comes first.

    Attributes:
        ids: The ids, (k,) int64; fewer than requested if fewer were seen.
        counts: The number of lookups of each, (k,) float64, scaled up from the sample. Exact if all
            ids are counted and each has its own counter; else without the mean of collisions.
        low: Lower bounds of the true counts, (k,), each with a probability of 99.7 % for the
            sample and 98 % for the sketch.
        high: Upper bounds of the true counts, (k,), each with a probability of 99.7 %.
        doubtful: An upper bound of the lookups of ids that are left out, as half of the count that
            the sketch has of them, or more, may be that of others.
    """

    ids: Integers
    counts: Floats
    low: Floats
    high: Floats
    doubtful: float


class IdFrequency(State):
    """Counts of ids; a mergeable state.

    The sample depends on how the stream is cut into batches and states; merging is exact. Its ids
    are drawn at random, with replacement, the same ones in each run: every n-th id of a flattened
    batch may belong to the same feature.

    Attributes:
        options: The options.
        seen: The number of all ids.
        unknown: The number of unknown ids.
        out_of_range: The number of ids that are not rows of the table, without the unknown id.
    """

    _settings = ("options",)
    _sums = ("seen", "unknown", "out_of_range", "_sampled", "_counters")

    def __init__(self, options: FrequencyOptions) -> None:
        self.options = options
        self.seen = 0
        self.unknown = 0
        self.out_of_range = 0
        self._counters = np.zeros(_shape(options), np.int64)
        self._sampled = 0
        # Ids that the sketch has not counted yet; they are sorted together.
        self._buffer = np.empty(0 if options.exact else _BUFFER, np.int64)
        self._filled = 0
        self._owed = 0  # ids of earlier batches that did not suffice for another draw
        self._drawn = 0  # draws

    def add(self, ids: npt.ArrayLike) -> None:
        """Counts the ids of a batch, integers of any shape.

        Raises:
            TypeError: The ids are not integers.
        """
        self.add_classified(classify(ids, self.options.size, self.options.unknown_id))

    def add_classified(self, ids: TableIds) -> None:
        """Counts ids that were classified with the options of this state."""
        self.seen += ids.count
        self.unknown += ids.unknown
        self.out_of_range += ids.out_of_range
        rows = self._sample(ids.rows)
        if self.options.exact:
            self._count_exactly(rows)
            return
        if self._filled + rows.size > _BUFFER:
            self._count_buffer()
        if rows.size > _BUFFER:
            self._count(rows)
        else:
            self._buffer[self._filled : self._filled + rows.size] = rows
            self._filled += rows.size

    def top(self, count: int = 100) -> TopIds:
        """Returns the most frequent ids, without the unknown one.

        Above `exact_rows`, ids with a share of more than 0.12 % are always found (at the default
        width, see `count_min.most_frequent`); rarer ids may be missing.
        """
        self._count_buffer()
        doubtful = 0.0
        if self.options.exact:
            counters = self._counters
            count = min(count, counters.size)
            least = max(int(np.partition(counters, -count)[-count]), 1)
            ids = np.flatnonzero(counters >= least)
            counts = counters[ids]
            order = np.lexsort((ids, -counts))[:count]
            ids, counts = ids[order], counts[order]
            surely = most = counts
        else:
            ids, most = count_min.most_frequent(self._counters, self.options.size, _BEAM)
            ids, most = ids[:count], most[:count]
            searched = min(_BEAM * count_min.BRANCHES, self.options.size or LARGEST)
            usual, worst = count_min.collisions(self._counters, _FALSE * len(ids) / searched)
            found = most - worst > worst - usual
            doubtful = float(most[~found].sum())
            ids, most = ids[found], most[found]
            counts, surely = most - usual, most - worst
            doubtful = min(doubtful, float(self._sampled - surely.sum()))
        looked_up = self.seen - self.unknown - self.out_of_range
        scale = looked_up / max(self._sampled, 1)
        low, high = surely * scale, most * scale
        if self.options.sample_one_in > 1:
            low = looked_up * _wilson(surely, self._sampled, -_Z)
            high = looked_up * _wilson(most, self._sampled, _Z)
        return TopIds(ids.astype(np.int64), counts * scale, low, high, doubtful * scale)

    def top_share(self, count: int) -> float:
        """Returns the share of the `count` most frequent ids in all known ids in range.

        It is NaN without any, and if the sample has so few of each that chance decides which ones
        are frequent, or if collisions of the sketch may be more than a tenth of it.
        """
        top = self.top(count)
        looked_up = self.seen - self.unknown - self.out_of_range
        if not top.ids.size or not looked_up:
            return float("nan")
        draws = top.counts * self._sampled / looked_up
        if self.options.sample_one_in > 1 and draws.mean() < _LEAST_MEAN_COUNT:
            return float("nan")
        total = float(top.counts.sum())
        return total / looked_up if top.doubtful <= _MOST_DOUBTFUL * total else float("nan")

    def following(self) -> IdFrequency:
        """Returns an empty state whose sample goes on where that of this state ends."""
        new = type(self)(self.options)
        new._owed, new._drawn = self._owed, self._drawn
        return new

    def arrays(self) -> dict[str, Array]:
        """Returns the options, the totals and the counters."""
        self._count_buffer()
        size, unknown_id, *settings = astuple(self.options)
        totals = [self.seen, self.unknown, self.out_of_range]
        totals += [self._sampled, self._owed, self._drawn]
        return {
            "size": optional_array(size),
            "unknown_id": optional_array(unknown_id),
            "settings": np.array(settings, np.int64),
            "totals": np.array(totals, np.int64),
            "counters": self._counters.copy(),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> IdFrequency:
        settings = arrays.sums("settings", np.int64, (3,)).tolist()
        options = FrequencyOptions(
            arrays.optional("size"), arrays.optional("unknown_id"), *settings
        )
        # Checked before the state is made: a damaged size must not allocate memory.
        counters = arrays.sums("counters", np.int64, _shape(options))
        totals = arrays.sums("totals", np.int64, (6,)).tolist()
        new = cls(options)
        new.seen, new.unknown, new.out_of_range, new._sampled = totals[:4]
        new._owed, new._drawn = totals[4:]
        new._counters = counters
        sums = counters.sum(axis=-1)
        if (sums != new._sampled).any():
            what = "The array 'counters' of a state"
            raise ValueError(three_part(what, int(sums.min()), f"a sum of {new._sampled}"))
        what = "The array 'totals' of a state"
        if new.unknown + new.out_of_range > new.seen:
            raise ValueError(three_part(what, totals, "parts of at most the whole"))
        # The next batch draws as many ids as are owed, and counts on.
        if new._owed >= options.sample_one_in or max(totals) > LARGEST // 2:
            expected = f"less than {options.sample_one_in} ids owed, and counts that can rise"
            raise ValueError(three_part(what, totals, expected))
        return new

    def _add(self, other: IdFrequency) -> None:
        other._count_buffer()
        super()._add(other)
        self._owed = max(self._owed, other._owed)
        self._drawn = max(self._drawn, other._drawn)

    def _sample(self, ids: Array) -> Array:
        """Returns a sample of the ids of a batch, (n,)."""
        one_in = self.options.sample_one_in
        if one_in == 1:
            return ids
        number, self._owed = divmod(self._owed + ids.size, one_in)
        if not ids.size:
            return ids
        round_, start = divmod(self._drawn, _DRAWS.size)
        self._drawn += number
        if start + number > _DRAWS.size:
            draws = _draws(self._drawn - number, number)
        else:
            # Each round through the stored draws is another sample: all are moved by one number.
            draws = (_DRAWS[start : start + number] + int(_draws(round_, 1)[0])) & _DRAW_MASK
        # Exact for up to 2**31 ids in a batch.
        sample: Array = ids[(draws * ids.size) >> 32]
        return sample

    def _count_exactly(self, rows: npt.NDArray[np.intp]) -> None:
        """Counts rows, (n,), each with its own counter."""
        # Fast only if counters and increment have the same type (numpy 1.25 and later).
        np.add.at(self._counters, rows, np.int64(1))
        self._sampled += rows.size
        unknown_id = self.options.unknown_id
        if unknown_id is not None and 0 <= unknown_id < self._counters.size:
            self._sampled -= int(self._counters[unknown_id])
            self._counters[unknown_id] = 0

    def _count_buffer(self) -> None:
        """Counts the buffered ids in the sketch."""
        if self._filled:
            self._count(self._buffer[: self._filled])
            self._filled = 0

    def _count(self, ids: Array) -> None:
        """Counts ids, (n,), in the sketch."""
        unique, counts = np.unique(ids, return_counts=True)
        if self.options.unknown_id is not None:
            is_known = unique != self.options.unknown_id
            unique, counts = unique[is_known], counts[is_known]
        self._sampled += int(counts.sum())
        count_min.add(self._counters, unique, counts)


def _shape(options: FrequencyOptions) -> tuple[int, ...]:
    """Returns the shape of the counters: one for each row, or those of a sketch."""
    if options.exact:
        return (options.size or 0,)
    return count_min.shape(options.size, options.width)


def _wilson(counts: Array, total: int, z: float) -> Floats:
    """Returns bounds of shares of which a sample was counted, by Wilson's score interval.

    Wilson, Probable inference, the law of succession, and statistical inference, 1927.

    Args:
        counts: The counts in the sample, (k,).
        total: The size of the sample.
        z: The distance of the bounds in standard errors; negative for lower bounds.
    """
    if not total:
        return np.zeros(counts.shape)
    share = counts / total
    centre = share + z * z / (2 * total)
    spread = z * np.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    bound: Floats = np.clip((centre + spread) / (1 + z * z / total), 0.0, 1.0)
    return bound
