"""One value for each tag and step: the last one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rec_summary.export.report import Tally
from rec_summary.export.words import printable

_HELD_VALUES: Final = 4096
_HELD_BYTES: Final = 1 << 24


class Recorded(NamedTuple):
    """A value as it was recorded: its kind, its tag, its time, and the protobuf that holds it."""

    kind: str
    tag: str
    wall_time: float
    value: Any


class StepBuffer:
    """Holds the values of the step at hand until the next step begins.

    MindSpore records a step twice when an epoch ends there. TensorBoard's default loader
    shows the later value, its other loader both; so here the later one wins before either
    sees them. Memory is bounded: a step with more than 4096 values or 16 MiB is passed on
    in parts, and repetitions across these are left for TensorBoard to settle.

    Steps that go back (a training resumed from a checkpoint, a second training in the same
    directory) are passed on as they are, and noted.
    """

    def __init__(
        self, run: str, tally: Tally, emit: Callable[[int, float, list[Recorded]], None]
    ) -> None:
        """Begins with no step.

        Args:
            run: The run's name, for the notes.
            tally: Told of repetitions.
            emit: Takes a step, a wall time, and the values that were recorded then.
        """
        self._run = run
        self._tally = tally
        self._emit = emit
        self._step = 0
        self._held: dict[tuple[str, str], Recorded] = {}
        self._held_bytes = 0
        self._reached: int | None = None
        self._back: tuple[int, int] | None = None  # the first time that steps went back
        self._times_back = 0

    def add(self, step: int, nbytes: int, values: list[Recorded]) -> None:
        """Takes the values of one record of `nbytes` bytes."""
        if step != self._step:
            self.flush()
            if self._reached is not None and step < self._reached:
                self._back = self._back or (self._reached, step)
                self._times_back += 1
            self._step = step
        self._reached = step
        held = self._held
        for recorded in values:
            key = recorded[:2]
            if held.pop(key, None) is not None:
                self._tally.repeated += 1
            held[key] = recorded
        self._held_bytes += nbytes
        if len(held) > _HELD_VALUES or self._held_bytes > _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Passes on what is held."""
        for wall_time, group in itertools.groupby(self._held.values(), lambda held: held.wall_time):
            self._emit(self._step, wall_time, list(group))
        self._held.clear()
        self._held_bytes = 0

    def close(self) -> None:
        """Passes on what is held, and notes whether steps went back."""
        self.flush()
        if self._back is not None:
            self._tally.note(
                f"run {printable(self._run)}: steps go back (from {self._back[0]} to "
                f"{self._back[1]}; {self._times_back} times in all); where values overlap, "
                "TensorBoard shows the later ones, or both with --load_fast=false"
            )
