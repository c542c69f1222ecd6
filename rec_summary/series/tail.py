"""The scalars of runs while they are written: the last value, the extremes and a sparkline.

Memory is bounded: a series of any length is a few numbers and at most 128 means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import SCALAR, Columns, Floats, Integers, by_tag, gathered, rows_of
from rec_summary.series.lineage import lineage_of
from rec_summary.series.options import ExportOptions, Selection, matching_runs
from rec_summary.series.report import Report
from rec_summary.series.run_poller import NewRecords, RunPoller
from rec_summary.series.text import valid

_MOST_BUCKETS: Final = 128  # even; a screen has fewer columns for a sparkline
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_MOST_SERIES: Final = 100_000


class BucketMeans:
    """The means of a series in buckets of equally many values.

    When there are too many buckets, neighbours are joined, so memory is bounded.
    """

    def __init__(self) -> None:
        """Begins without values."""
        self._size = 1  # values of a bucket
        self._count = 0
        self._sums: Floats = np.zeros(0)
        self._finite: Floats = np.zeros(0)  # finite values of each bucket

    def extend(self, values: Floats) -> None:
        """Adds values, of shape [n]."""
        count = self._count + len(values)
        size = self._size
        while size * _MOST_BUCKETS < count:
            size *= 2
        self._join(size // self._size)
        buckets = np.arange(self._count, count) // size
        finite = np.isfinite(values)
        length = -(-count // size)
        sums, numbers = _by_bucket(buckets[finite], values[finite], length)
        sums[: len(self._sums)] += self._sums
        numbers[: len(self._finite)] += self._finite
        self._sums, self._finite = sums, numbers
        self._size, self._count = size, count

    def means(self, most: int = _MOST_BUCKETS) -> Floats:
        """Returns at most `most` means of finite values; NaN where a bucket has none."""
        means = _divided(self._sums, self._finite)
        if len(means) <= most:
            return means
        # Bucket i of the result begins at mean i * len(means) // most.
        edges = np.arange(1, most) * len(means) // most
        buckets = np.searchsorted(edges, np.arange(len(means)), side="right")
        finite = np.isfinite(means)
        return _divided(*_by_bucket(buckets[finite], means[finite], most))

    def _join(self, neighbours: int) -> None:
        starts = np.arange(0, len(self._sums), neighbours)
        if neighbours > 1 and len(starts):
            self._sums = np.add.reduceat(self._sums, starts)
            self._finite = np.add.reduceat(self._finite, starts)


def _by_bucket(buckets: Integers, values: Floats, length: int) -> tuple[Floats, Floats]:
    """Returns the sum of the values and how many there are, for each bucket."""
    sums = np.bincount(buckets, values, length)
    return sums.astype(np.float64), np.bincount(buckets, minlength=length).astype(np.float64)


def _divided(sums: Floats, numbers: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return sums / numbers


@dataclass
class ScalarSeries:
    """The scalars of a tag, of one run and rank.

    Attributes:
        run: The run's name.
        rank: The rank.
        tag: The tag.
        count: How many values there are.
        step: The step of the last value.
        wall_time: When the last value was recorded, in seconds since the epoch.
        last: The last value.
        least: The least finite value.
        greatest: The greatest finite value.
        not_finite: How many values are NaN or infinite.
        means: The means that a sparkline shows.
    """

    run: str
    rank: int
    tag: str
    count: int = 0
    step: int = 0
    wall_time: float = 0.0
    last: float = math.nan
    least: float | None = None
    greatest: float | None = None
    not_finite: int = 0
    means: BucketMeans = field(default_factory=BucketMeans)

    def extend(self, columns: Columns) -> None:
        """Adds values, of which there is at least one."""
        values = columns.values
        self.count += len(values)
        self.step, self.wall_time = int(columns.steps[-1]), float(columns.wall_times[-1])
        self.last = float(values[-1])
        self.means.extend(values)
        finite = values[np.isfinite(values)]
        self.not_finite += len(values) - len(finite)
        if len(finite):
            least, greatest = float(finite.min()), float(finite.max())
            self.least = least if self.least is None else min(self.least, least)
            self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def sparkline(self, width: int = 24) -> str:
        """Returns at most `width` characters; `×` stands for a bucket without finite values."""
        heights = relative_heights(self.means.means(width))
        return "".join(
            "×" if math.isnan(height) else _BLOCKS[max(0, math.ceil(height * len(_BLOCKS)) - 1)]
            for height in heights.tolist()
        )


def relative_heights(means: Floats) -> Floats:
    """Returns means scaled to 0 (the least) up to 1; a half if they are all the same, else NaN."""
    finite = means[np.isfinite(means)]
    if not len(finite):
        return np.full(means.shape, np.nan)
    # Halves, because the least and the greatest float are further apart than any float.
    low, span = finite.min() / 2, finite.max() / 2 - finite.min() / 2
    if not span:
        return np.where(np.isfinite(means), 0.5, np.nan)
    heights: Floats = np.where(np.isfinite(means), (means / 2 - low) / span, np.nan)
    return heights


class NewScalars(NamedTuple):
    """Scalars that were read, in the order of the records.

    Attributes:
        run: The run's name.
        rank: The rank that recorded them.
        columns: The values.
    """

    run: str
    rank: int
    columns: Columns


class Tail:
    """Reads the scalars of a source, and goes on with what is written.

    Attributes:
        series: The scalars so far, by run, rank and tag.
        status: The status of each run, by its name, as in `rec-summary lineage`.
        report: What could not be read.
        ignored: How many values were ignored because there are too many tags.
        bytes_read: The size of the records that were read.
    """

    def __init__(
        self,
        source: str,
        *,
        runs: str | None = None,
        tags: str | None = None,
    ) -> None:
        """Begins; nothing is read yet.

        Args:
            source: A record directory or a tree of them; it need not exist yet.
            runs: A pattern as of `fnmatch`: only these runs.
            tags: A regular expression: only tags in which it is found.

        Raises:
            ArgumentError: `tags` does not compile.
        """
        self.series: dict[tuple[str, int, str], ScalarSeries] = {}
        self.status: dict[str, str] = {}
        self.report = Report()
        self.ignored = 0
        self.bytes_read = 0
        self._poller = RunPoller(source)
        self._new = NewRecords(self.report)
        self._runs = runs
        self._selection = Selection(ExportOptions(tags=tags))

    def poll(self) -> Iterator[NewScalars]:
        """Reads what is new, while it is iterated over; yields new scalars."""
        for run in matching_runs(self._poller.poll(), self._runs):
            name = valid(run.name)
            for file in run.files:
                if file.name.kind is Kind.SUMMARY:
                    for columns in gathered(self._read(file)):
                        rank = file.name.rank
                        yield NewScalars(name, rank, self._add((name, rank), columns))
            # Lineage files are small, and the last record counts.
            lineage = lineage_of(run, Report())
            self.status[name] = RunState.Status.Name(lineage.status)

    def _read(self, file: RecordFile) -> Iterator[Columns]:
        for batch in self._new.batches((file,)):
            self.bytes_read += batch.end_offset - batch.offset
            yield batch.select(self._selection, (SCALAR,)).scalars()

    def _add(self, run: tuple[str, int], columns: Columns) -> Columns:
        """Adds scalars to their series; returns those for whose series there was room."""
        ignored = []
        for tag, values in by_tag(columns):
            key = (*run, tag)
            series = self.series.get(key)
            if series is None and len(self.series) >= _MOST_SERIES:
                self.ignored += len(values.codes)
                ignored.append(int(values.codes[0]))
                continue
            if series is None:
                series = self.series[key] = ScalarSeries(*key)
            series.extend(values)
        if ignored:
            columns = rows_of(columns, ~np.isin(columns.codes, ignored))
        return columns
