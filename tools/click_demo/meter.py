"""Smoothed loss and pace of a training, fed step by step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_WINDOW = 200  # steps; small batches are noisy


class Meter:
    """Keeps what the progress line shows.

    Attributes:
        steps: How many steps were counted.
        loss: The mean loss so far, and from step 200 on an exponential moving average over
            about as many steps; None before the first step.
    """

    def __init__(self, batch_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps = 0
        self.loss: float | None = None
        self._batch_size = batch_size
        self._clock = clock
        self._ends: deque[float] = deque(maxlen=_WINDOW + 1)

    def count(self, loss: float) -> None:
        """Counts a step that ended now."""
        self.steps += 1
        self._ends.append(self._clock())
        # A plain mean at first: a moving average would lean on its first value for long.
        previous = loss if self.loss is None else self.loss
        self.loss = previous + (loss - previous) / self.window

    @property
    def window(self) -> int:
        """Over how many steps `loss` is taken."""
        return min(self.steps, _WINDOW)

    @property
    def samples(self) -> int:
        """How many samples the steps were made of."""
        return self.steps * self._batch_size

    @property
    def samples_per_second(self) -> float:
        """The pace of the last 200 steps; the first step, which compiles, is left out."""
        seconds = self._ends[-1] - self._ends[0] if self._ends else 0.0
        return (len(self._ends) - 1) * self._batch_size / seconds if seconds > 0 else 0.0
