"""What columns of one series say of spans of time or steps: maxima and running minima."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.alerts.rules import Span
from rec_summary.series.batch import Columns, Floats, Integers, rows_of

_LEAST: Final = np.int64(-1 << 63)


class Window:
    """The highest finite value within a span before each value.

    All values of the span are kept, because going back to an earlier step or time takes the later
    ones away again: about 20 bytes for each. Several values of one step all count: an evaluation
    without a step of its own may come again and again while training stands still.
    """

    def __init__(self, span: Span) -> None:
        """Begins empty."""
        self._span = span
        # Values within the span are at the places from _first up to _end; steps and times ascend.
        self._steps: Integers = np.empty(0, np.int64)
        self._wall_times: Floats = np.empty(0, np.float64)
        self._numbers: npt.NDArray[np.float32] = np.empty(0, np.float32)
        self._first = self._end = 0
        self._peaks: Integers = np.empty(0, np.int64)  # places of values above all later ones

    def take(self, values: Columns) -> Floats:
        """Takes the next values; returns the highest within the span at each, itself included.

        It is -inf where there is no finite value within the span.

        Args:
            values: The next values; none is NaN.
        """
        steps, wall_times = values.steps, values.wall_times
        goes_back = (steps[1:] < steps[:-1]) | (wall_times[1:] < wall_times[:-1])
        cuts = [0, *(np.flatnonzero(goes_back) + 1).tolist(), len(steps)]
        found = [
            self._take_ascending(rows_of(values, slice(start, end)))
            for start, end in itertools.pairwise(cuts)
        ]
        return np.concatenate(found)

    def _take_ascending(self, values: Columns) -> Floats:
        """Takes values whose steps and times ascend."""
        self._go_back(values.steps[0], values.wall_times[0])
        finite = np.isfinite(values.values)
        before = self._append(rows_of(values, finite))
        ends = before + np.cumsum(finite)
        starts = np.minimum(self._starts(values), ends)

        highest = np.full(len(ends), -np.inf)
        peaks = self._peaks[np.searchsorted(self._peaks, self._first) :]
        if len(peaks):
            place = np.searchsorted(peaks, starts)
            known = starts < before
            highest[known] = self._numbers[peaks[place[known]]]
        new = self._numbers[before : self._end]
        np.maximum(highest, _range_maxima(new, starts - before, ends - before), out=highest)

        if len(new):
            self._peaks = np.concatenate(
                [peaks[self._numbers[peaks] > new.max()], before + _peaks(new)]
            )
        self._first = int(starts[-1])
        return highest

    def _go_back(self, step: np.int64, wall_time: np.float64) -> None:
        """Forgets the values of later steps or times."""
        kept = slice(self._first, self._end)
        end = self._first + min(
            int(np.searchsorted(self._steps[kept], step, "right")),
            int(np.searchsorted(self._wall_times[kept], wall_time, "right")),
        )
        if end < self._end:
            self._end = end
            self._peaks = self._first + _peaks(self._numbers[self._first : end])

    def _append(self, values: Columns) -> int:
        """Adds values; returns the place of the first of them."""
        size, count = self._end - self._first, len(values.steps)
        if self._end + count > len(self._steps):
            kept, room = slice(self._first, self._end), (size + count) * 3 // 2
            self._steps = _with_room(self._steps[kept], room)
            self._wall_times = _with_room(self._wall_times[kept], room)
            self._numbers = _with_room(self._numbers[kept], room)
            self._peaks = self._peaks - self._first
            self._first, self._end = 0, size
        first, self._end = self._end, self._end + count
        self._steps[first : self._end] = values.steps
        self._wall_times[first : self._end] = values.wall_times
        self._numbers[first : self._end] = values.values
        return first

    def _starts(self, values: Columns) -> Integers:
        """Returns the place of the first value within the span before each value."""
        kept, seconds = slice(self._first, self._end), self._span.seconds
        if seconds is None:
            theirs = unsigned(values.steps)
            edges = theirs - np.minimum(theirs, np.uint64(int(self._span.amount)))
            starts: Integers = np.searchsorted(unsigned(self._steps[kept]), edges)
            return self._first + starts
        return self._first + _first_within(self._wall_times[kept], values.wall_times, seconds)


def unsigned(steps: Integers) -> npt.NDArray[np.uint64]:
    """Returns steps as numbers whose order is the same and whose differences do not overflow."""
    return (steps ^ _LEAST).view(np.uint64)


def _first_within(times: Floats, moments: Floats, seconds: float) -> Integers:
    """Returns the place of the first time that is at most so many seconds before each moment.

    Args:
        times: The times, ascending.
        moments: The moments, ascending, each at or after at least one of the times if any.
        seconds: The distance; a difference of two times is rounded before it is compared.
    """
    with np.errstate(over="ignore"):
        places = np.searchsorted(times, moments - seconds)
        while True:  # `moments - seconds` is rounded too, so that some places are not exact
            early = np.flatnonzero(places)
            early = early[moments[early] - times[places[early] - 1] <= seconds]
            if not len(early):
                break
            places[early] = np.searchsorted(times, times[places[early] - 1])
        while True:
            late = np.flatnonzero(places < len(times))
            late = late[moments[late] - times[places[late]] > seconds]
            if not len(late):
                return places
            places[late] = np.searchsorted(times, times[places[late]], "right")


def _with_room(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Returns a copy of a column that is longer; its end is undefined."""
    found = np.empty(size, column.dtype)
    found[: len(column)] = column
    return found


def _peaks(numbers: npt.NDArray[np.float32]) -> Integers:
    """Returns the places of the values that are above all later ones."""
    later = np.maximum.accumulate(numbers[::-1])[::-1]
    return np.flatnonzero(numbers > np.append(later[1:], -np.inf))


def _range_maxima(numbers: npt.NDArray[np.float32], starts: Integers, ends: Integers) -> Floats:
    """Returns the highest number from each start (at least 0) up to each end; -inf for none."""
    starts = np.maximum(starts, 0)
    found = np.full(len(starts), -np.inf)
    # The maximum of two overlapping pieces of the largest power of two that fits.
    powers = np.frexp(np.maximum(ends - starts, 0))[1] - 1
    pieces, size = numbers, 1
    for power in range(int(powers.max()) + 1):
        here = np.flatnonzero(powers == power)
        found[here] = np.maximum(pieces[starts[here]], pieces[ends[here] - size])
        pieces = np.maximum(pieces[:-size], pieces[size:])
        size *= 2
    return found


def running_minima(positions: npt.NDArray[Any], groups: Integers) -> npt.NDArray[Any]:
    """Returns the least position of the same group so far; groups are ascending."""
    order = np.argsort(positions, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    # Each group is below the one before, so that the minimum begins again.
    below = groups * len(order)
    origins: npt.NDArray[Any] = positions[order[np.minimum.accumulate(ranks - below) + below]]
    return origins
