"""How fast training goes, how long it waits for data, and how old the data are.

`Throughput` is the state; `StepClock` measures what it is told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part
from rec_summary.metrics.log_histogram import LogHistogram
from rec_summary.metrics.state import register
from rec_summary.metrics.state_io import (
    Arrays,
    check_int,
    check_same,
    check_seconds,
    of_prefix,
    stored_array,
    stored_counts,
    with_prefix,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_NANO: Final = 1_000_000_000
# Bounds of the quantiles, in seconds: a microsecond to a day, a millisecond to thirty years.
_STEP_BOUNDS: Final = (1e-6, 1e5)
_LAG_BOUNDS: Final = (1e-3, 1e9)

QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class ThroughputReport:
    """What the state tells. Where there is nothing to tell, a number is NaN.

    Attributes:
        steps: How many steps.
        samples: How many examples.
        steps_per_second: Steps through the time that they took, waiting included. Of merged
            processes, which run side by side, it is the mean of a process.
        samples_per_second: The same for examples.
        step_seconds: Quantiles of the time of a step, waiting included, relative error 1 %.
        stall_share: The time that was spent waiting for data, through all time.
        lag_seconds: Quantiles of the time from event to training, relative error 1 %.
        future_share: The share of events that lie in the future of their training: clocks that
            disagree. In the quantiles such an event counts as the most negative lag.
        undated: How many examples had no event time.
        first_event: The earliest event time, in seconds since 1970.
        watermark: The latest event time, in seconds since 1970.
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
    first_event: float
    watermark: float


@register
class Throughput:
    """Sums and histograms of steps and event times; a mergeable state."""

    def __init__(self) -> None:
        self._steps = LogHistogram(*_STEP_BOUNDS)
        self._lags = LogHistogram(*_LAG_BOUNDS)
        self._samples = 0
        # Integers: sums of floats depend on the order in which they are merged.
        self._nanoseconds = 0
        self._waited = 0
        self._future = 0
        self._undated = 0
        self._first_event, self._last_event = math.inf, -math.inf

    def add_step(self, samples: int, seconds: float, waited: float = 0.0) -> None:
        """Adds a step.

        Args:
            samples: How many examples it had.
            seconds: The time from the end of the step before to its end.
            waited: How much of that was waiting for data.

        Raises:
            TypeError, ValueError: A number is no number, negative or not finite, or the waiting
                took longer than the step.
        """
        check_int("samples", samples, 0)
        check_seconds("seconds", seconds)
        if check_seconds("waited", waited) > seconds:
            raise ValueError(three_part("waited", waited, f"at most the step's {seconds} s"))
        self._samples += int(samples)
        self._nanoseconds += round(seconds * _NANO)
        self._waited += round(waited * _NANO)
        self._steps.add(float(seconds))

    def add_steps(
        self, samples: Sequence[int], seconds: Sequence[float], waited: Sequence[float]
    ) -> None:
        """Adds several steps at once, see `add_step`; the arguments have shape [steps].

        Raises:
            ValueError: A number is negative or not finite, or the waiting took longer than the
                step.
        """
        sizes, times = np.asarray(samples, np.int64), np.asarray(seconds, np.float64)
        waits = np.asarray(waited, np.float64)
        sound = (sizes >= 0) & (waits >= 0) & (waits <= times) & np.isfinite(times)
        if not sound.all():
            wrong = int(np.argmin(sound))
            received = (int(sizes[wrong]), float(times[wrong]), float(waits[wrong]))
            expected = "numbers of at least 0, and no longer waiting than the step"
            raise ValueError(three_part("samples, seconds, waited", received, expected))
        self._samples += int(sizes.sum())
        self._nanoseconds += int(np.rint(times * _NANO).sum())
        self._waited += int(np.rint(waits * _NANO).sum())
        self._steps.add_all(times)

    def add_events(self, event_times: npt.ArrayLike, now: float) -> None:
        """Adds the event times of a batch.

        Args:
            event_times: Seconds since 1970, of any shape; what is not finite counts as undated.
            now: When the batch is trained, in seconds since 1970.

        Raises:
            TypeError, ValueError: `now` is no time.
        """
        now = check_seconds("now", now)
        found = np.asarray(event_times, np.float64).ravel()
        dated = found[np.isfinite(found)]
        self._undated += found.size - dated.size
        if dated.size:
            lags = now - dated
            self._lags.add_all(lags)
            self._future += int(np.count_nonzero(lags < 0))
            self._first_event = min(self._first_event, float(dated.min()))
            self._last_event = max(self._last_event, float(dated.max()))

    def report(self, quantiles: Sequence[float] = QUANTILES) -> ThroughputReport:
        """Returns what the state tells.

        Args:
            quantiles: Which quantiles of step time and lag.
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
            first_event=self._first_event if dated else math.nan,
            watermark=self._last_event if dated else math.nan,
        )

    def merge(self, other: Self) -> None:
        """Adds the steps and events of another state.

        Raises:
            ValueError: It is of another kind.
        """
        check_same("the kind", type(self), type(other))
        self._steps.merge(other._steps)
        self._lags.merge(other._lags)
        self._samples += other._samples
        self._nanoseconds += other._nanoseconds
        self._waited += other._waited
        self._future += other._future
        self._undated += other._undated
        self._first_event = min(self._first_event, other._first_event)
        self._last_event = max(self._last_event, other._last_event)

    def copy(self) -> Self:
        """Returns an independent copy."""
        new = type(self)()
        new.merge(self)
        return new

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the state as arrays to be stored."""
        sums = [self._samples, self._nanoseconds, self._waited, self._future, self._undated]
        return {
            **with_prefix("steps", self._steps.arrays()),
            **with_prefix("lags", self._lags.arrays()),
            "sums": np.array(sums, np.int64),
            "events": np.array([self._first_event, self._last_event]),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state of which these are the arrays.

        Raises:
            ValueError: They are none of such a state.
        """
        new = cls()
        # Merging checks that the bounds are ours.
        new._steps.merge(LogHistogram.from_arrays(of_prefix("steps", arrays)))
        new._lags.merge(LogHistogram.from_arrays(of_prefix("lags", arrays)))
        sums = stored_counts(arrays, "sums", (5,)).tolist()
        new._samples, new._nanoseconds, new._waited, new._future, new._undated = sums
        first, last = stored_array(arrays, "events", "f", (2,)).tolist()
        none = (first, last) == (math.inf, -math.inf)
        if new._waited > new._nanoseconds or new._future > new._lags.count:
            raise ValueError(three_part("the stored array 'sums'", sums, "parts within the whole"))
        if none != (new._lags.count == 0) or not (none or first <= last):
            raise ValueError(three_part("the stored array 'events'", (first, last), "two times"))
        new._first_event, new._last_event = first, last
        return new


class StepClock:
    """Measures steps and the waiting before them, for one thread.

    Call `waiting` when the next batch is asked for and `working` when it is there; `step_ended`
    adds the step to a state.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Starts the first step.

        Args:
            clock: Returns seconds that never go back.
        """
        self._clock = clock
        self._began = clock()
        self._waiting_since: float | None = None
        self._waited = 0.0

    def waiting(self) -> None:
        """Says that the thread begins to wait for data."""
        self._waiting_since = self._clock()

    def working(self) -> None:
        """Says that the data are there. Without a `waiting` before it does nothing."""
        if self._waiting_since is not None:
            self._waited += self._clock() - self._waiting_since
            self._waiting_since = None

    def step_ended(self, samples: int, into: Throughput) -> None:
        """Adds the step that ends now, and starts the next one.

        Args:
            samples: How many examples it had.
            into: The state to which it is added.
        """
        now = self._clock()
        seconds = max(now - self._began, 0.0)
        into.add_step(samples, seconds, min(max(self._waited, 0.0), seconds))
        self._began, self._waited = now, 0.0


def _ratio(part: float, whole: float) -> float:
    """Returns a share, NaN of nothing."""
    return part / whole if whole else math.nan
