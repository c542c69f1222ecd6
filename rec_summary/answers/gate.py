"""Asks of a recorded run whether its model is better than the one that serves."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from rec_summary.errors import ArgumentError, SourceError, three_part, verbatim
from rec_summary.metrics.slices.gate import Gate, Part, Verdict, judge
from rec_summary.metrics.slices.sums import SERVED_EXAMPLES
from rec_summary.records.checkpoints.saved import SAVED, list_checkpoints, newest_between
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions, Moment, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.slices import histories
from rec_summary.series.text import valid


@dataclass(frozen=True)
class GateAnswer:
    """A verdict, and of what.

    Attributes:
        verdict: The verdict.
        steps: The steps of the first and the last report that are judged.
        times: When they were recorded, in seconds since the epoch.
        checkpoint: The newest checkpoint of these reports, below the record directory; None if
            there is none.
    """

    verdict: Verdict
    steps: tuple[int, int]
    times: tuple[float, float]
    checkpoint: str | None

    def as_json(self) -> dict[str, Any]:
        """Returns what the command prints with `--json`, without the name of the run."""
        (first, last), (begin, end) = self.steps, self.times
        return {
            **self.verdict.as_json(),
            "first_step": first,
            "last_step": last,
            "first_time": begin,
            "last_time": end,
            "checkpoint": self.checkpoint,
        }


def gate_of(run: Run, report: Report, gate: Gate, since: Moment = None) -> GateAnswer:
    """Returns whether a run's model may take the place of the one that serves.

    Of several processes that have recorded as the same rank at the same time, the first counts.

    Args:
        run: The run.
        report: Counts what is read, and takes problems.
        gate: The gate.
        since: Only reports from then on.

    Raises:
        ArgumentError: There is no such task.
        SourceError: No example has a served score, or the checkpoints cannot be listed.
    """
    slices = histories(run, Selection(ExportOptions(since=since)), report).get(valid(run.name), [])
    parts = [Part(each.task, each.column, each.values, each.sums.sum(axis=0)) for each in slices]
    served = {each.task for each in parts if not each.column and each.sums[0, SERVED_EXAMPLES] > 0}
    chosen = [each for each in slices if each.task in served and gate.task in (None, each.task)]
    if not served:
        then = "" if since is None else " since then"
        received = verbatim(f"no example with a served score{then} in {run.name}")
        expected = "reports of a task with Task(served=...), the column of the served score"
        raise SourceError(three_part("the source", received, expected))
    if not chosen:
        expected = f"a task with served scores: {', '.join(map(repr, sorted(served)))}"
        raise ArgumentError(three_part("the task", gate.task, expected))
    steps, times = (
        (min(each[0] for each in every), max(each[-1] for each in every))
        for every in (
            [each.steps.tolist() for each in chosen],
            [each.wall_times.tolist() for each in chosen],
        )
    )
    # The examples of the first report of a run begin with the run.
    begin = (0, -math.inf) if since is None else (steps[0], times[0])
    found = list_checkpoints(run.path, SAVED)
    path = newest_between(found, (begin[0], steps[1]), (begin[1], times[1]))
    name = None if path is None else f"{SAVED}/{os.path.basename(path)}"
    return GateAnswer(judge(gate, parts), steps, times, name)
