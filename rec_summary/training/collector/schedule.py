"""When values are due: pure arithmetic on step numbers."""

from __future__ import annotations

from typing import Final

_LIMIT: Final = 20  # the most steps at which tensors are collected in a run of known length
_PER_OCTAVE: Final = 10


class TensorSchedule:
    """At which steps tensors are due; they are large, so by default there are few.

    With a frequency, at each multiple of it. Without one, in a run of known length, at about
    20 steps, as `mindspore.SummaryCollector` has it. Where the length is not known, as often
    as other values at first, then ever more seldom: ten times for each doubling of the step,
    which is about 200 times in a million steps.
    """

    def __init__(self, collect_freq: int, tensor_freq: int | None, total: int | None) -> None:
        """Makes the schedule of one run.

        Args:
            collect_freq: The frequency of other values, in steps.
            tensor_freq: The frequency that was asked for, in steps; None for the default.
            total: How many steps the run has; None if nobody knows.
        """
        self._every = tensor_freq or collect_freq
        self._end: int | None = None
        self._thins_out = tensor_freq is None and total is None
        if tensor_freq is None and total is not None and total // collect_freq + 1 > _LIMIT:
            every = total // (_LIMIT - 1)
            self._every = max(every, 1)
            # A short run is collected whole up to the limit, step 1 beside step 0 included.
            self._end = every * (_LIMIT - 1) if every > 1 else _LIMIT

    def due(self, step: int) -> bool:
        """Whether tensors are due at a step; steps are to be asked for in their order."""
        if self._end is not None and step > self._end:
            return False
        while self._thins_out and step >= 2 * _PER_OCTAVE * self._every:
            self._every *= 2
        return step % self._every == 0
