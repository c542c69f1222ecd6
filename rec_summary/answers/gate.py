"""Asks of a recorded run whether its model is better than the one that serves."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.errors import ArgumentError, three_part
from rec_summary.metrics.slices.gate import Gate, Verdict, judge
from rec_summary.metrics.slices.sums import SERVED_EXAMPLES
from rec_summary.records.checkpoints.saved import (
    SAVED,
    is_link_out,
    list_checkpoints,
    newest_between,
)
from rec_summary.records.files import follows_links
from rec_summary.records.reading.runs import Run
from rec_summary.series.lineage import lineage_events
from rec_summary.series.options import ExportOptions, Moment, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.slices import intervals
from rec_summary.series.text import valid
from rec_summary.values.slice_sums import parts_of

_MOST_INTERVALS: Final = 1024  # that are held: more of them are added up


@dataclass(frozen=True)
class GateAnswer:
    """A verdict, and of what.

    Attributes:
        verdict: The verdict.
        steps: The steps of the first and the last report that are judged.
        times: When they were recorded, in seconds since the epoch.
        checkpoint: The newest checkpoint of these reports, below the record directory; None if
            there is none.
        is_link: Whether their folder is a link, which is not followed.
    """

    verdict: Verdict
    steps: tuple[int, int]
    times: tuple[float, float]
    checkpoint: str | None
    is_link: bool

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


def gate_of(run: Run, report: Report, gate: Gate, since: Moment = None) -> GateAnswer | None:
    """Returns whether a run's model may take the place of the one that serves.

    Returns None if no example has a served score.

    Of several processes that have recorded as the same rank at the same time, the first counts.

    Args:
        run: The run.
        report: Counts what is read, and takes problems.
        gate: The gate.
        since: Only reports from then on.

    Raises:
        ArgumentError: There is no such task.
        SourceError: The checkpoints cannot be listed.
    """
    selection = Selection(ExportOptions(since=since))
    every = intervals(run, selection, report, _MOST_INTERVALS).get(valid(run.name), [])
    parts = parts_of(column for each in every for column in each.columns.values())
    served = {each.task for each in parts if not each.column and each.sums[0, SERVED_EXAMPLES] > 0}
    chosen = [
        (each.step, each.wall_time)
        for each in every
        if any((task, "") in each.columns for task in served if gate.task in (None, task))
    ]
    if not served:
        return None
    if not chosen:
        expected = f"a task with served scores: {', '.join(map(repr, sorted(served)))}"
        raise ArgumentError(three_part("the task", gate.task, expected))
    # The examples of the first report of a run begin with the run.
    begin = [(0, -math.inf)] if since is None else []
    steps, times = zip(*begin, *chosen, strict=True)
    is_link = is_link_out(run.path, SAVED) and not follows_links()
    found = list_checkpoints(run.path, SAVED, follow=not is_link)
    path = newest_between(found, steps, times, _starts(run, report))
    name = None if path is None else f"{SAVED}/{os.path.basename(path)}"
    (first, began), (last, ended) = chosen[0], chosen[-1]
    return GateAnswer(judge(gate, parts), (first, last), (began, ended), name, is_link)


def _starts(run: Run, report: Report) -> list[float]:
    """Returns when each process began to train."""
    return [
        record.event.train_lineage.run_state.start_time
        for record in lineage_events(run, run.ranks[0], report)
        if record.event.WhichOneof("what") == "train_lineage"
    ]
