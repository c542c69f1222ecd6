"""Which ids of an embedding table are looked up most, how skewed that is, and which are wrong.

Tables of up to `exact_rows` rows have a counter for each row; larger ones, and those of open size,
a `count_min` sketch. Either counts a random sample of the ids, one of sixteen by default: counting
all would cost the training thread more than twice as much. How many ids there were in all, how
many were unknown and how many no rows of the table, is always exact.
"""

from __future__ import annotations

import copy
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.sampling import Sampler, wilson
from rec_summary.metrics.state import register
from rec_summary.metrics.state_io import (
    Arrays,
    check_int,
    check_same,
    maybe,
    stored_counts,
    stored_maybe,
)
from rec_summary.metrics.tables import count_min
from rec_summary.metrics.tables.ids import TableIds, sort_out
from rec_summary.metrics.tables.zipf import zipf_exponent

if TYPE_CHECKING:
    from typing_extensions import Self

_BUFFER: Final = 8192  # ids that are sorted at once: sorting costs less, the more there are
_BEAM: Final = 2048
_Z: Final = 3.0  # standard errors that the bounds are away: 99.7 %


@dataclass(frozen=True)
class FrequencyOptions:
    """How ids are counted.

    Attributes:
        size: How many rows the table has; None when that is open.
        unknown_id: The id that stands for everything unknown; it is counted apart. None when
            there is none.
        sample_one_in: Of how many ids one is counted; 1 counts all.
        exact_rows: Tables of up to so many rows have a counter (8 bytes) for each.
        width: Counters in a row of the sketch of larger tables, a power of two, 16 to 2**16. Its
            size in bytes is 32 times that, for each four bits of the ids.

    Raises:
        TypeError, ValueError: An option is none of these.
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
    """The most frequent ids, the most frequent first; of equal ones, the smaller id first.

    Attributes:
        ids: Which, (k,) int64; fewer than asked for when fewer were seen.
        counts: How often they were looked up, (k,) float64: estimates for all ids, the sample
            scaled up. They are exact when all are counted, each with its own counter.
        low: Where the truth lies above, (k,), with a probability of 99.7 % for the sample and
            98 % for the sketch, for each id.
        high: Where it lies below, (k,), with 99.7 %.
    """

    ids: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Skew:
    """How unequally ids are looked up.

    Attributes:
        top_share: The share of the most frequent ids in all that are known and in range; NaN
            when there were none.
        zipf_exponent: The s for which the frequency of the r-th most frequent id goes with
            ``r**-s``; NaN when too few were seen to tell.
    """

    top_share: float
    zipf_exponent: float


@register
class IdFrequency:
    """Counts of ids; a mergeable state.

    What was sampled depends on how the stream was cut into batches and states; merging is exact.

    Attributes:
        options: The settings.
        seen: All ids.
        unknown: Those that were the unknown id.
        out_of_range: Those that were no rows of the table, the unknown id apart.
    """

    def __init__(self, options: FrequencyOptions) -> None:
        self.options = options
        self.seen = 0
        self.unknown = 0
        self.out_of_range = 0
        self._counters = (
            np.zeros(options.size or 0, np.int64)
            if options.exact
            else count_min.new_counters(options.size, options.width)
        )
        self._sampled = 0
        # Not yet counted by the sketch, to be sorted together.
        self._buffer = np.empty(0 if options.exact else _BUFFER, np.int64)
        self._filled = 0
        self._sampler = Sampler(options.sample_one_in)

    def add(self, ids: npt.ArrayLike) -> None:
        """Counts the ids of a batch, integers of any shape.

        Raises:
            TypeError: The ids are no integers.
        """
        self.add_sorted_out(sort_out(ids, self.options.size, self.options.unknown_id))

    def add_sorted_out(self, ids: TableIds) -> None:
        """Counts the ids of a batch that were sorted out with this state's settings."""
        self.seen += ids.count
        self.unknown += ids.unknown
        self.out_of_range += ids.out_of_range
        rows = self._sampler.sample(ids.rows)
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
        """Returns the ids that are looked up most, the unknown one apart.

        Above `exact_rows`, ids with more than 0.12 % of all are surely among them (at the default
        width, see `count_min.most_frequent`); rarer ones may be missing.
        """
        self._count_buffer()
        if self.options.exact:
            counters = self._counters
            count = min(count, counters.size)
            least = max(int(np.partition(counters, -count)[-count]), 1) if count else 1
            ids = np.flatnonzero(counters >= least)
            found = counters[ids]
            order = np.lexsort((ids, -found))[:count]
            ids, found = ids[order], found[order]
            surely = found.astype(float)
        else:
            ids, found = count_min.most_frequent(self._counters, self.options.size, _BEAM)
            ids, found = ids[:count], found[:count]
            surely = np.maximum(found - self._sampled * count_min.excess(self.options.width), 0.0)
        known = self.seen - self.unknown - self.out_of_range
        scale = known / max(self._sampled, 1)
        low, high = surely * scale, found * scale
        if self.options.sample_one_in > 1:
            low = known * wilson(surely, self._sampled, -_Z)
            high = known * wilson(found, self._sampled, _Z)
        return TopIds(ids.astype(np.int64), found * scale, low, high)

    def skew(self, count: int = 100) -> Skew:
        """Returns how unequally ids are looked up, from the `count` most frequent ones."""
        top = self.top(count)
        known = self.seen - self.unknown - self.out_of_range
        if not top.ids.size or not known:
            return Skew(float("nan"), float("nan"))
        share = min(float(top.counts.sum()) / known, 1.0)
        return Skew(share, zipf_exponent(top.counts * self._sampled / known))

    def merge(self, other: Self) -> None:
        """Adds the counts of another state.

        Raises:
            ValueError: It has other settings.
        """
        check_same("the options", self.options, other.options)
        self._count_buffer()
        other._count_buffer()
        self.seen += other.seen
        self.unknown += other.unknown
        self.out_of_range += other.out_of_range
        self._sampled += other._sampled
        self._counters += other._counters

    def copy(self) -> Self:
        """Returns an independent copy."""
        return copy.deepcopy(self)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns settings and state as arrays to be stored."""
        self._count_buffer()
        size, unknown_id, *settings = astuple(self.options)
        return {
            "size": maybe(size),
            "unknown_id": maybe(unknown_id),
            "settings": np.array(settings, np.int64),
            "totals": np.array(
                [self.seen, self.unknown, self.out_of_range, self._sampled], np.int64
            ),
            "counters": self._counters.copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of which these are the arrays; its sampling starts anew.

        Raises:
            ValueError: They are none of such a state.
        """
        settings = stored_counts(arrays, "settings", (3,)).tolist()
        options = FrequencyOptions(
            stored_maybe(arrays, "size"), stored_maybe(arrays, "unknown_id"), *settings
        )
        shape: tuple[int, ...] = (options.size or 0,)
        if not options.exact:
            shape = (count_min.levels(options.size), count_min.DEPTH, options.width)
        counters = stored_counts(arrays, "counters", shape)
        totals = stored_counts(arrays, "totals", (4,))
        sums = counters.sum(axis=-1)
        if (sums != totals[3]).any():
            raise ValueError(
                three_part("the stored array 'counters'", int(sums.min()), f"a sum of {totals[3]}")
            )
        if totals[1] + totals[2] > totals[0]:
            raise ValueError(
                three_part("the stored array 'totals'", totals.tolist(), "parts within the whole")
            )
        new = cls(options)
        new.seen, new.unknown, new.out_of_range, new._sampled = totals.tolist()
        new._counters = counters
        return new

    def _count_exactly(self, rows: npt.NDArray[np.intp]) -> None:
        """Counts rows, (n,), each with its own counter."""
        # Fast only where counters and increment are of one type (numpy 1.25 and later).
        np.add.at(self._counters, rows, np.int64(1))
        self._sampled += rows.size
        unknown_id = self.options.unknown_id
        if unknown_id is not None and 0 <= unknown_id < self._counters.size:
            self._sampled -= int(self._counters[unknown_id])
            self._counters[unknown_id] = 0

    def _count_buffer(self) -> None:
        """Counts the ids that wait for the sketch."""
        if self._filled:
            self._count(self._buffer[: self._filled])
            self._filled = 0

    def _count(self, ids: npt.NDArray[Any]) -> None:
        """Counts ids, (n,), in the sketch."""
        found, counts = np.unique(ids, return_counts=True)
        if self.options.unknown_id is not None:
            known = found != self.options.unknown_id
            found, counts = found[known], counts[known]
        self._sampled += int(counts.sum())
        count_min.add(self._counters, found, counts)
