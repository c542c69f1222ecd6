"""Speed of training, time spent waiting for data, and age of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array
from rec_summary.errors import three_part
from rec_summary.metrics.log_histogram import LogHistogram
from rec_summary.metrics.state import State, Stored

_NANO: Final = 1_000_000_000
# Bounds of the quantiles, in seconds: a microsecond to a day, a millisecond to thirty years.
_STEP_BOUNDS: Final = (1e-6, 1e5)
LAG_BOUNDS: Final = (1e-3, 1e9)


class Throughput(State):
    """Sums and histograms of steps and event times; a mergeable state."""

    _sums = ("_samples", "_nanoseconds", "_waited", "_future", "_undated")
    _parts = ("_steps", "_lags")

    def __init__(self) -> None:
        self._steps = LogHistogram(*_STEP_BOUNDS)
        self._lags = LogHistogram(*LAG_BOUNDS)
        self._samples = 0
        # Integers: sums of floats depend on the order in which they are merged.
        self._nanoseconds = 0
        self._waited = 0
        self._future = 0
        self._undated = 0
        # The first one is stored, but not reported.
        self._first_event, self._last_event = math.inf, -math.inf
        self._now = -math.inf  # the latest step with an event

    def add_steps(
        self,
        samples: Sequence[float],
        seconds: Sequence[float],
        waited: Sequence[float],
        counts: Sequence[int] | None = None,
    ) -> None:
        """Adds steps, of which several may be equal; every argument has shape (n,).

        Args:
            samples: The number of examples of each step, or their mean where only that is known.
            seconds: The time from the end of the previous step to the end of each step.
            waited: The part of that time that was spent waiting for data.
            counts: The number of steps that are so; 1 by default.
        """
        times = np.asarray(seconds, np.float64)
        numbers = np.ones(len(times), np.int64) if counts is None else np.asarray(counts, np.int64)
        self._samples += round(float(np.asarray(samples, np.float64) @ numbers))
        self._nanoseconds += int(np.rint(times * _NANO) @ numbers)
        self._waited += int(np.rint(np.asarray(waited, np.float64) * _NANO) @ numbers)
        self._steps.add_all(times, numbers)

    def add_events(self, event_times: npt.ArrayLike, now: float) -> None:
        """Adds the event times of a batch.

        Args:
            event_times: Seconds since 1970, of any shape; a time that is not finite counts as
                undated.
            now: The time of the training step, in seconds since 1970.
        """
        times = np.asarray(event_times, np.float64).ravel()
        dated = times[np.isfinite(times)]
        self._undated += times.size - dated.size
        if dated.size:
            lags = now - dated
            self._lags.add_all(lags)
            self._future += int(np.count_nonzero(lags < 0))
            self._first_event = min(self._first_event, float(dated.min()))
            self._last_event = max(self._last_event, float(dated.max()))
            self._now = max(self._now, now)

    def report(self) -> dict[str, float]:
        """Returns the numbers of the state by tag. A number without data is NaN.

        Rates of merged processes, which run in parallel, are means over the processes. Times of
        steps, and their rates, include waiting. An event after its training, because clocks differ,
        counts as the most negative lag in the quantiles; their relative error is 1 %.
        """
        seconds = self._nanoseconds / _NANO
        return {
            "throughput/steps_per_second": _ratio(self._steps.count, seconds),
            "throughput/samples_per_second": _ratio(self._samples, seconds),
            # Without any wait, nothing has measured it.
            "throughput/input_stall_share": _ratio(self._waited or math.nan, self._nanoseconds),
            **self._steps.report("throughput/step_seconds"),
            **self._lags.report("freshness/lag_seconds"),
            # From the latest event to the latest step with one: float32 holds an age, and not
            # seconds since 1970, which it rounds to 128.
            "freshness/watermark_age": self._now - self._last_event,
            "freshness/future_share": _ratio(self._future, self._lags.count),
            "freshness/undated": self._undated or math.nan,
        }

    def arrays(self) -> dict[str, Array]:
        """Returns both histograms, the sums, the first and last event time, and the latest step."""
        events = np.array([self._first_event, self._last_event, self._now])
        return {**super().arrays(), "events": events}

    @classmethod
    def _restored(cls, arrays: Stored) -> Throughput:
        new = super()._restored(arrays)
        cls().check_mergeable(new)  # the bounds of the histograms are the same
        if new._waited > new._nanoseconds or new._future > new._lags.count:
            parts = (new._waited, new._future)
            raise ValueError(three_part("sums", parts, "parts of at most the whole"))
        events = arrays.take("events", np.float64, (3,), finite=False)
        first, last, now = events.tolist()
        dated = new._lags.count > 0
        if (np.isfinite(events) != dated).any() or (dated and first > last):
            raise ValueError(three_part("The array 'events' of a state", events, "three times"))
        new._first_event, new._last_event, new._now = first, last, now
        return new

    def _add(self, other: Throughput) -> None:
        super()._add(other)
        self._first_event = min(self._first_event, other._first_event)
        self._last_event = max(self._last_event, other._last_event)
        self._now = max(self._now, other._now)


def _ratio(part: float, whole: float) -> float:
    """Returns a share; NaN if the whole is 0."""
    return part / whole if whole else math.nan
