"""What the ranks of a run have in common, and which of them differ.

Of a few measures (`MEASURES`), the run itself gets the minimum, the median and the maximum over
the ranks at each step, and the rank that has the maximum. A step is summarised as soon as all
ranks have reached it. A rank that lags for longer than a minute is not waited for: `count` says how
many ranks a point is made of.

Memory is bounded. Of what is not summarised yet, which is much only while the files of one rank
after another are read for the first time, steps next to each other are joined: each rank has the
mean of its values there. What is summarised is not kept.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from rec_summary.arrays import Array, Flags, Floats, Integers
from rec_summary.series.batch import SCALAR, Batch, Columns, by_tag
from rec_summary.series.limits import Count, Rank
from rec_summary.series.ranks.restarts import (
    Place,
    Reached,
    Restarts,
    find_restart,
    place_of,
    starts_at,
)

PREFIX: Final = "ranks/"
LOSS: Final = "loss"
STEP_TIME: Final = "step_time"

_NOT_TRAINED: Final = r"(?!(.*/)?(eval|evaluation|val|valid|validation|test|best)[/_.A-Z-])"
_NO_LOSS: Final = r"(?![^/]*(?i:loss_?(scal(e|er|ing)|weight)s?)(?![a-z]))"
_LOSS: Final = rf"(.*/)?{_NO_LOSS}[^/]*[lL]oss(es)?(?![a-z])[^/]*(/auto)?$"
LOSSES: Final = (
    *(r"loss/auto$", r"loss$"),
    rf"{_NOT_TRAINED}(?=(.*/)?train(ing)?[/_.A-Z-]){_LOSS}",
    rf"{_NOT_TRAINED}{_LOSS}",
)
"""Tags of losses that are not of an evaluation, the best one first."""

MEASURES: Final[Mapping[str, tuple[str, ...]]] = {
    STEP_TIME: (r"(.*/)?step_(time|seconds)(/auto)?$",),
    "input_stall": (
        r"recommender/throughput/input_stall_share$",
        r"(.*/)?(input|data)_(stall|wait)(_share|_time|_seconds)?(/auto)?$",
    ),
    LOSS: LOSSES,
    "gradient_norm": (r"gradients/norm$", r"(.*/)?(global_)?(grad|gradient)s?_norm(/auto)?$"),
}
"""What is summarised, with the tags that it is recorded under, the best one first.

Where no step time is recorded, it is that between two records of the loss, divided by their steps.
"""

STATISTICS: Final = ("min", "median", "max", "max_rank", "count")
"""What is recorded of each measure; `max_rank` is the rank with the maximum. NaN is greater than
every number."""

_DERIVED: Final = (3, "")  # worse than every tag of a step time; the same in older states
_MOST_RANKS: Final = 256  # of more, more values may wait
_LAGGING_SECS: Final = 60.0  # without a record, while others have some
_LAGGING_STEPS: Final = 3  # recorded ones: of slow steps, few come in a minute
_FARTHEST: Final = 1 << 62  # steps
_LATEST: Final = 1e18  # seconds
_ROW: Final = np.dtype(
    [
        *(("start", "i4"), ("rank", "i4"), ("step", "i8"), ("count", "i8")),
        *(("sum", "f8"), ("wall_time", "f8")),
    ]
)


class RankPoint(NamedTuple):
    """What is known of all ranks at a step.

    Attributes:
        start: How often training had begun again before.
        step: The step.
        wall_time: When the last rank recorded it, in seconds since the epoch.
        values: Numbers by tag.
    """

    start: int
    step: int
    wall_time: float
    values: dict[str, float]


class RankTable(Struct, dict=True):
    """Values by start, step and rank, in a bounded number of columns of steps.

    Attributes:
        width: How many steps are joined.
        packed: The values as they are stored; up to date when `pack` was called.
        most: How many columns there may be.
    """

    width: Count = 1
    packed: bytes = field(default=b"", name="rows")
    most = 1024  # not annotated: it is not stored

    def __post_init__(self) -> None:
        if self.width < 1 or self.width > _FARTHEST:
            raise ValueError("a table of ranks with another form")
        rows = np.frombuffer(self.packed, _ROW)
        sound = (rows["start"] >= 0) & (rows["rank"] >= 0) & (rows["count"] > 0)
        if not (sound & _can_be_kept(rows)).all():
            raise ValueError("a table of ranks with impossible numbers")
        self._parts = [rows]
        self._held = self._joined = len(rows)

    @property
    def nbytes(self) -> int:
        """The size of the values."""
        return self._held * _ROW.itemsize

    def extend(self, rows: Array) -> None:
        """Adds values."""
        self._parts.append(rows)
        self._held += len(rows)
        if self._held > 2 * self._joined + 2 * self.most:
            self.rows()

    def rows(self) -> Array:
        """Returns the values by start, column and rank, joined."""
        if len(self._parts) > 1:
            rows = self._join(np.concatenate(self._parts))
            while len(_begins(rows, self.columns(rows))) > self.most:
                self.width *= 2
                rows = self._join(rows)
            self.replace(rows)
        return self._parts[0]

    def columns(self, rows: Array) -> tuple[Any, ...]:
        """Returns what the rows of one column have in common."""
        return rows["start"], rows["step"] // self.width

    def replace(self, rows: Array) -> None:
        """Takes other rows instead of those that `rows` has returned."""
        self._parts = [rows]
        self._held = self._joined = len(rows)
        if not len(rows):
            self.width = 1

    def pack(self) -> None:
        """Brings what is stored up to date."""
        self.packed = self.rows().tobytes()

    def _join(self, rows: Array) -> Array:
        start, column = self.columns(rows)
        rows = rows[np.lexsort((rows["rank"], column, start))]
        begins = _begins(rows, (*self.columns(rows), rows["rank"]))
        if len(begins) == len(rows):
            return rows
        joined = rows[begins]
        with np.errstate(all="ignore"):
            for name in ("count", "sum"):
                joined[name] = np.add.reduceat(rows[name], begins)
        for name in ("step", "wall_time"):
            joined[name] = np.maximum.reduceat(rows[name], begins)
        return joined


class Measure(Struct):
    """One measure of all ranks.

    Attributes:
        tag: The place of its tag among those of the measure, and the tag; empty if it is derived.
        waiting: What is not summarised yet.
        done: What was summarised last.
        last: The last value of each rank.
    """

    tag: tuple[Count, str]
    waiting: RankTable
    done: Place | None
    last: dict[Rank, Reached]

    def take(self, rank: int, starts: Integers, columns: Columns, most: int) -> None:
        """Takes values of a rank, at least one.

        Args:
            rank: The rank.
            starts: The number of restarts before each value.
            columns: The values.
            most: How many values of all ranks may wait.
        """
        self.last[rank] = Reached(int(columns.steps[-1]), float(columns.wall_times[-1]))
        self.waiting.most = most // min(len(self.last), _MOST_RANKS)
        rows = np.zeros(len(columns.steps), _ROW)
        rows["start"], rows["rank"], rows["count"] = starts, rank, 1
        rows["step"], rows["sum"] = columns.steps, columns.values
        rows["wall_time"] = columns.wall_times
        if self.done is not None:  # points did not wait for a late rank
            start, step = self.done
            rows = rows[(starts > start) | ((starts == start) & (columns.steps > step))]
        self.waiting.extend(rows[_can_be_kept(rows)])

    def restart(self, restarts: Restarts) -> None:
        """Counts the restarts before each value again."""
        rows = self.waiting.rows().copy()
        rows["start"] = starts_at(restarts, rows["wall_time"])
        self.waiting.replace(rows[:0])
        self.waiting.extend(rows)

    def forget(self, rank: int, start: int, step: int) -> None:
        """Drops the values of a rank that a restart supersedes, as far as they wait."""
        rows = self.waiting.rows()
        of_others = (rows["rank"] != rank) | (rows["start"] >= start)
        self.waiting.replace(rows[of_others | (rows["step"] < step)])

    def points(
        self, name: str, reached: Mapping[int, Reached], restarts: Restarts
    ) -> Iterator[RankPoint]:
        """Yields what of the measure can be summarised now and could not before."""
        rows = self.waiting.rows()
        begins = _begins(rows, self.waiting.columns(rows))
        steps = np.maximum.reduceat(rows["step"], begins)
        places = list(zip(rows["start"][begins].tolist(), steps.tolist(), strict=True))
        walls = np.maximum.reduceat(rows["wall_time"], begins).tolist()
        limit = self._limit(places, walls, reached, restarts)
        count = bisect.bisect_right(places, limit)
        if not count:
            return
        places, end = places[:count], begins[count] if count < len(begins) else len(rows)
        tags = [f"{PREFIX}{name}/{statistic}" for statistic in STATISTICS]
        numbers = _summary(rows[:end], begins[:count]).tolist()
        for place, wall_time, values in zip(places, walls, numbers, strict=False):
            yield RankPoint(*place, wall_time, dict(zip(tags, values, strict=True)))
        self.done = places[-1]
        self.waiting.replace(rows[end:])

    def _limit(
        self,
        places: list[Place],
        walls: list[float],
        reached: Mapping[int, Reached],
        restarts: Restarts,
    ) -> Place:
        """Returns the last place up to which all ranks have recorded this measure."""
        newest = max(point.wall_time for point in reached.values())
        limits = []
        for rank, point in reached.items():
            start, step = place_of(restarts, point)
            is_there = rank in self.last and self.last[rank].step == point.step
            limit = (start, step if is_there else step - 1)
            missing = bisect.bisect_right(places, limit)
            is_late = missing < len(places) and newest - walls[missing] > _LAGGING_SECS
            if not (is_late and len(places) - missing >= _LAGGING_STEPS):
                limits.append(limit)
        return min(limits)


class RankSummary(Struct):
    """Summarises the measures of all ranks of one run; can be stored after `pack`.

    Attributes:
        reached: How far each rank is.
        restarts: When training began again.
        measures: What is known of each measure, by its name.
        most_waiting: How many values of a measure may wait until they are summarised.
    """

    most_waiting = 1 << 18  # not annotated: it is not stored

    reached: dict[Rank, Reached] = {}
    restarts: Restarts = []
    measures: dict[str, Measure] = {}

    def __post_init__(self) -> None:
        if not self.measures.keys() <= MEASURES.keys():
            raise ValueError("a measure that is not known")

    def pack(self) -> None:
        """Makes this complete, to be stored."""
        for measure in self.measures.values():
            measure.waiting.pack()

    @property
    def nbytes(self) -> int:
        """The size of the state, in bytes."""
        return sum(each.waiting.nbytes for each in self.measures.values())

    def take(self, rank: int, batch: Batch) -> None:
        """Takes recorded values of a rank."""
        spans = {tag: span for (kind, tag), span in batch.series().items() if kind == SCALAR}
        if not spans:
            return
        for tag in spans:
            name, place = _measure_of(tag)
            if name:
                self._choose(name, (place, tag))
        measures = {own.tag[1]: (name, own) for name, own in self.measures.items()}
        wanted = {(SCALAR, tag) for tag in measures.keys() & spans.keys()}
        for tag, columns in by_tag(batch.only(wanted).scalars()):
            name, own = measures[tag]
            last = own.last.get(rank)
            if last is not None:
                self._compare(rank, last, columns)
            starts = starts_at(self.restarts, columns.wall_times)
            own.take(rank, starts, columns, self.most_waiting)
            if name == LOSS:
                self._derive(rank, last, columns)
        highest = max(span.last_step for span in spans.values())
        self.reached[rank] = Reached(highest, float(batch.wall_times.max()))

    def points(self, expected: int = 2) -> Iterator[RankPoint]:
        """Yields what can be summarised now and could not before, by start and step.

        Args:
            expected: How many ranks there will be, as far as that is known.
        """
        times = [point.wall_time for point in self.reached.values()]
        if len(times) < 2 or (len(times) < expected and max(times) - min(times) < _LAGGING_SECS):
            return
        points: dict[Place, RankPoint] = {}
        for name, measure in self.measures.items():
            for point in measure.points(name, self.reached, self.restarts):
                before = points.setdefault(point[:2], point)
                if before is not point:
                    before.values.update(point.values)
        for _, point in sorted(points.items()):
            yield point

    def _compare(self, rank: int, last: Reached, columns: Columns) -> None:
        """Compares the last value of a rank with its next ones: training may have begun again."""
        first = Reached(int(columns.steps[0]), float(columns.wall_times[0]))
        if find_restart(self.restarts, last, first):
            for measure in self.measures.values():
                measure.restart(self.restarts)
        start, _ = place_of(self.restarts, first)
        if start > place_of(self.restarts, last)[0]:
            for measure in self.measures.values():
                measure.forget(rank, start, first.step)

    def _choose(self, name: str, tag: tuple[int, str]) -> None:
        """Uses a tag for a measure, unless it has a better one."""
        known = self.measures.get(name)
        if known is None or tag < known.tag:
            done = None if known is None else known.done
            self.measures[name] = Measure(tag, RankTable(), done, {})

    def _derive(self, rank: int, last: Reached | None, columns: Columns) -> None:
        """Takes the time of steps, in seconds: that between records, divided by their steps."""
        self._choose(STEP_TIME, _DERIVED)
        own = self.measures[STEP_TIME]
        if own.tag != _DERIVED:
            return
        steps, walls = columns.steps, columns.wall_times
        if last is not None:
            steps = np.concatenate([[last.step], steps])
            walls = np.concatenate([[last.wall_time], walls])
        starts = starts_at(self.restarts, walls)
        durations, counts = np.diff(walls), np.diff(steps)
        # No step takes less than no time: the clock was set back.
        rising = np.flatnonzero((counts > 0) & (durations >= 0) & (np.diff(starts) == 0))
        if len(rising):
            seconds = durations[rising] / counts[rising]
            codes, ends = np.zeros(len(rising), np.int64), rising + 1
            columns = Columns(("",), codes, steps[ends], walls[ends], seconds)
            own.take(rank, starts[ends], columns, self.most_waiting)


@functools.lru_cache(1024)
def _measure_of(tag: str) -> tuple[str, int]:
    """Returns the measure that is recorded under a tag, and the place of the tag; else nothing."""
    for name, patterns in MEASURES.items():
        for place, pattern in enumerate(patterns):
            if re.match(pattern, tag):
                return name, place
    return "", 0


def _can_be_kept(rows: Array) -> Flags:
    """Returns which rows have a step and a time that numbers can be added to."""
    step = rows["step"]  # the least one has no absolute value
    can_be_kept: Flags = (step >= -_FARTHEST) & (step <= _FARTHEST)
    can_be_kept &= np.abs(rows["wall_time"]) < _LATEST
    return can_be_kept


def _begins(rows: Array, keys: tuple[Any, ...]) -> Integers:
    """Returns where rows, which are ordered by keys, have other keys than the row before."""
    changes = np.zeros(len(rows), np.bool_)
    changes[:1] = True
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changes)


def _summary(rows: Array, begins: Integers) -> Floats:
    """Returns the `STATISTICS` of each column, of shape [columns, statistics]."""
    sizes = np.diff(begins, append=len(rows))
    with np.errstate(all="ignore"):
        values = rows["sum"] / rows["count"]
        # NaN comes last; of equal ranks, the lowest one.
        order = np.lexsort((-rows["rank"], values, np.repeat(np.arange(len(begins)), sizes)))
        values, ends = values[order], begins + sizes - 1
        median = (values[begins + (sizes - 1) // 2] + values[begins + sizes // 2]) / 2
    ranks = rows["rank"][order][ends]
    return np.stack([values[begins], median, values[ends], ranks, sizes], axis=1)
