"""The highest value of the last time of one series, in bounded memory."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from typing import Final

import numpy as np

from rec_summary.arrays import Floats
from rec_summary.series.batch import Columns

MOST: Final = 2048
"""The most values that a `SlidingMaximum` keeps."""

_PARTS: Final = 512  # of a span, when values are merged


class SlidingMaximum:
    """The highest finite value within a span before each value.

    Going back to an earlier step or time, as a restart does, takes the later values away. The
    earlier ones then count again, as if no time had passed since the last of them, so values older
    than the span are kept, too. All values are kept up to `MOST`. Then, values that are less than a
    512th of the span apart are merged to the highest of them, and the oldest are dropped.
    """

    def __init__(self, span: float) -> None:
        """Begins empty; the span is in seconds."""
        self._span = span
        self._steps, self._times, self._numbers = array("q"), array("d"), array("d")  # ascending
        # The values within the span that are above all later ones, each behind its time.
        self._peaks: deque[tuple[float, float]] = deque()
        self._now = -math.inf  # the time of the last value, also of one that is not finite

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, values: Columns) -> Floats:
        """Takes the next values; returns the highest within the span at each, itself included.

        It is -inf where there is no finite value within the span.

        Args:
            values: The next values; none is NaN.
        """
        steps, times, numbers, peaks = self._steps, self._times, self._numbers, self._peaks
        columns = (values.steps, values.wall_times, values.values)
        highest = []
        for step, time, number in zip(*(column.tolist() for column in columns), strict=True):
            if steps and (step < steps[-1] or time < times[-1]):
                end = min(bisect_right(steps, step), bisect_right(times, time))
                del steps[end:], times[end:], numbers[end:]
                if times:  # nothing was trained since then that counts
                    gap = time - times[-1]
                    times[:] = array("d", [known + gap for known in times])
                self._find_peaks()
            elif time < self._now:
                self._find_peaks()  # some are within the span again
            self._now = time
            if -math.inf < number < math.inf:
                if len(steps) == MOST:
                    self._merge()
                steps.append(step)
                times.append(time)
                numbers.append(number)
                while peaks and peaks[-1][1] <= number:
                    peaks.pop()
                peaks.append((time, number))
            while peaks and time - peaks[0][0] > self._span:
                peaks.popleft()
            highest.append(peaks[0][1] if peaks else -math.inf)
        return np.array(highest)

    def _merge(self) -> None:
        """Merges values that are close to each other, and drops the oldest."""
        times, numbers = self._times, self._numbers
        start, indices = times[0], [0]
        for index in range(1, len(self)):
            if times[index] - start > self._span / _PARTS:
                indices.append(index)
                start = times[index]
            elif numbers[index] >= numbers[indices[-1]]:
                indices[-1] = index
        indices = indices[-MOST // 2 :]
        self._steps[:] = array("q", [self._steps[index] for index in indices])
        self._times[:] = array("d", [self._times[index] for index in indices])
        self._numbers[:] = array("d", [self._numbers[index] for index in indices])
        self._find_peaks()

    def _find_peaks(self) -> None:
        """Finds the values that are above all later ones again."""
        numbers = np.array(self._numbers)
        later = np.maximum.accumulate(numbers[::-1])[::-1]
        above = np.flatnonzero(numbers > np.append(later[1:], -np.inf)).tolist()
        self._peaks.clear()
        self._peaks.extend((self._times[index], self._numbers[index]) for index in above)
