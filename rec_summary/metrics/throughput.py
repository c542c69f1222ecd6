"""Speed of training, time spent waiting for data, and age of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.log_histogram import LogHistogram
from rec_summary.metrics.state import Array, State, Stored, nested, register

_NANO: Final = 1_000_000_000
# Bounds of the quantiles, in seconds: a microsecond to a day, a millisecond to thirty years.
_STEP_BOUNDS: Final = (1e-6, 1e5)
LAG_BOUNDS: Final = (1e-3, 1e9)

QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class ThroughputReport:
    """The numbers of a `Throughput`. A number without data is NaN.

    Attributes:
        steps: The number of steps.
        samples: The number of examples.
        steps_per_second: Steps divided by their time, waiting included. For merged processes, which
            run in parallel, it is the mean over the processes.
        samples_per_second: The same for examples.
        step_seconds: Quantiles of the time of a step, waiting included, relative error 1 %.
        stall_share: The share of the time that was spent waiting for data.
        lag_seconds: Quantiles of the time from event to training, relative error 1 %.
        future_share: The share of events with a time after their training, because clocks differ.
            In the quantiles such an event counts as the most negative lag.
        undated: The number of examples without an event time.
        watermark_age: The time from the latest event to the latest step with an event, in seconds.
    """

    steps: int
    samples: int
    steps_per_second: float
    samples_per_second: float
    step_seconds: tuple[float, ...]
    stall_share: float
    lag_seconds: tuple[float, ...]
    future_share: float
    undated: int
    watermark_age: float


@register
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
        self._first_event, self._last_event = math.inf, -math.inf
        self._now = -math.inf  # the latest step with an event

    def add_steps(
        self, samples: Sequence[int], seconds: Sequence[float], waited: Sequence[float]
    ) -> None:
        """Adds steps; every argument has shape (steps,).

        Args:
            samples: The number of examples of each step.
            seconds: The time from the end of the previous step to the end of each step.
            waited: The part of that time that was spent waiting for data.
        """
        times = np.asarray(seconds, np.float64)
        self._samples += int(sum(samples))
        self._nanoseconds += int(np.rint(times * _NANO).sum())
        self._waited += int(np.rint(np.asarray(waited, np.float64) * _NANO).sum())
        self._steps.add_all(times)

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

    def report(self, quantiles: Sequence[float] = QUANTILES) -> ThroughputReport:
        """Returns the numbers of the state.

        Args:
            quantiles: The quantiles of step time and lag to return, as shares of 0 to 1.
        """
        steps, dated, seconds = self._steps.count, self._lags.count, self._nanoseconds / _NANO
        return ThroughputReport(
            steps=steps,
            samples=self._samples,
            steps_per_second=_ratio(steps, seconds),
            samples_per_second=_ratio(self._samples, seconds),
            step_seconds=tuple(self._steps.quantile(share) for share in quantiles),
            stall_share=_ratio(self._waited, self._nanoseconds),
            lag_seconds=tuple(self._lags.quantile(share) for share in quantiles),
            future_share=_ratio(self._future, dated),
            undated=self._undated,
            watermark_age=self._now - self._last_event if math.isfinite(self._now) else math.nan,
        )

    def arrays(self) -> dict[str, Array]:
        """Returns both histograms, the sums, the first and last event time, and the latest step."""
        return {
            **nested("steps", self._steps.arrays()),
            **nested("lags", self._lags.arrays()),
            "sums": np.array([getattr(self, name) for name in self._sums], np.int64),
            "events": np.array([self._first_event, self._last_event, self._now]),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> Throughput:
        new = cls()
        # Merging checks that the bounds of the histograms are the same.
        new._steps.merge(LogHistogram.from_arrays(arrays.part("steps")))
        new._lags.merge(LogHistogram.from_arrays(arrays.part("lags")))
        sums = arrays.sums("sums", np.int64, (5,)).tolist()
        new._samples, new._nanoseconds, new._waited, new._future, new._undated = sums
        if new._waited > new._nanoseconds or new._future > new._lags.count:
            expected = "parts of at most the whole"
            raise ValueError(three_part("The array 'sums' of a state", sums, expected))
        first, last, now = arrays.take("events", np.float64, (3,), finite=False).tolist()
        none = (first, last) == (math.inf, -math.inf)
        if none != (new._lags.count == 0) or not (none or first <= last):
            what = "The array 'events' of a state"
            raise ValueError(three_part(what, (first, last), "two times"))
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
