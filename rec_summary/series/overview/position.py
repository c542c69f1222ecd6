"""Where the ranks of a run are: the last step of each, and its steps per second."""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.repair import find_record
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.event_reader import EventReader
from rec_summary.series.report import Report

_TAIL_BYTES: Final = 1 << 18  # of the newest file
_TRIES: Final = 3  # each with a part that is 16 times as long


class Position(NamedTuple):
    """Where a rank is.

    Attributes:
        step: The last recorded step.
        wall_time: When it was recorded, in seconds since the epoch.
        rate: Steps per second in the last records; 0 if there is only one, or if
            their times cannot be true.
    """

    step: int
    wall_time: float
    rate: float

    def step_at(self, wall_time: float) -> int:
        """Returns the last step that the rank will have ended at a time, at this rate."""
        steps = max(wall_time - self.wall_time, 0.0) * self.rate
        return self.step + (int(steps) if math.isfinite(steps) else 0)


def positions(run: Run) -> dict[int, Position]:
    """Returns where each rank of a run is, from the end of its newest file with values.

    A rank without values is left out.
    """
    positions = {}
    for rank in run.ranks:
        for file in reversed(run.files_of(Kind.SUMMARY, rank)):
            position = _position(file)
            if position is not None:
                positions[rank] = position
                break
    return positions


def _position(file: RecordFile) -> Position | None:
    nbytes = _TAIL_BYTES
    for _ in range(_TRIES):
        start = max(file.nbytes - nbytes, 0)
        offset = find_record(file.path, start) if start else 0
        steps: list[tuple[float, int]] = []
        if offset is not None:
            with EventReader(file, Report(), offset, steps_only=True) as reader:
                for batch in reader:
                    if batch.kind == "summary":
                        steps += zip(batch.wall_times.tolist(), batch.steps.tolist(), strict=True)
        if steps or not start:
            return _of_steps(steps)
        nbytes *= 16
    return None


def _of_steps(steps: list[tuple[float, int]]) -> Position | None:
    if not steps:
        return None
    # Behind the last restart, steps and times only grow.
    last = [steps[-1]]
    for later, earlier in itertools.pairwise(reversed(steps)):
        if earlier[1] > later[1] or earlier[0] > later[0]:
            break
        last.append(earlier)
    seconds = last[0][0] - last[-1][0]
    rate = (last[0][1] - last[-1][1]) / seconds if seconds > 0 else 0.0
    return Position(steps[-1][1], steps[-1][0], rate if math.isfinite(rate) else 0.0)
