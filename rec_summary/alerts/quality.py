"""What quality a run has lost of late, for alerts: an answer of `why`."""

from __future__ import annotations

import math
from collections.abc import Callable

from rec_summary.alerts.states import Damage
from rec_summary.answers.reading import why_of
from rec_summary.answers.text import lines
from rec_summary.answers.why import SLICE, TASK, Answer, Finding
from rec_summary.metrics.slices.report import quoted
from rec_summary.metrics.tags import IMPORTANCE, PREFIX
from rec_summary.metrics.tags import SLICE as SLICE_GROUP
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import Since
from rec_summary.series.report import Report
from rec_summary.series.text import reason


def damage_of(
    run: Run,
    since: float,
    report: Report,
    ask: Callable[..., Answer] = why_of,
    past: float = math.inf,
) -> Damage | None:
    """Returns the quality that a run has lost; None if there is none.

    A model learns a fault of its data after a while, and then looks well: that counts as well.

    Args:
        run: The run.
        since: When it began at the earliest, in seconds since the epoch.
        report: Takes why the run cannot be judged.
        ask: Answers why a run's quality moved.
        past: For how long before that its records are read, in seconds.
    """
    try:
        read = Since(wall_time=since - past)
        answer = ask(run, Report(), since=Since(wall_time=since), read=read)
    except Exception as error:  # noqa: BLE001  # one run must not end the watch of all others
        report.problem(run.path, 0, f"its quality is not judged: {reason(error)}")
        return None
    lost = [
        each
        for each in answer.findings
        if each.kind in (SLICE, TASK) or each.metric.endswith(IMPORTANCE)
    ]
    if not lost:
        return None
    first = lost[0]
    return Damage(tuple(map(_tag, lost)), first.step, first.after, lines(answer)[0])


def _tag(finding: Finding) -> str:
    """Returns the tag of a finding, as that of its metric without the window."""
    if finding.metric.endswith(IMPORTANCE):
        return f"{PREFIX}{finding.metric}/{finding.name}"
    task = f"{finding.task}/" if finding.task else ""
    column, _, value = finding.name.partition("=")
    slice_ = f"{SLICE_GROUP}/{column}={quoted(value)}/" if finding.kind == SLICE else ""
    metric = {"ne": "normalised_entropy"}.get(finding.metric, finding.metric)
    return f"{PREFIX}{task}{slice_}{metric}"
