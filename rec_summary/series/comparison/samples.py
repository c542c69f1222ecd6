"""Steps, or the examples that a training has seen: what series of runs are shown over."""

from __future__ import annotations

from typing import Final

from rec_summary.errors import ArgumentError, three_part
from rec_summary.records.reading.runs import Run
from rec_summary.records.reading.totals import Totals
from rec_summary.series.lineage import lineage_events
from rec_summary.series.report import Report
from rec_summary.series.text import printable

STEP: Final = "step"
SAMPLES: Final = "samples"

_TRAIN: Final = "train_lineage"


def totals_of(run: Run, report: Report) -> Totals:
    """Returns the examples that the lowest rank of a run with a training lineage has seen.

    Raises:
        ArgumentError: Neither a batch size nor a total is recorded.
    """
    for rank in run.ranks:
        totals = Totals()
        for record in lineage_events(run, rank, report):
            if record.kind == _TRAIN:
                totals.take(record.event.train_lineage)
        if totals.known:
            return totals
    raise ArgumentError(unknown_samples(run.name))


def unknown_samples(run: str) -> str:
    """Returns the message about a run that does not state how many examples it has seen."""
    expected = (
        f"runs whose lineage has a batch size; {printable(run)} has none: leave it out with "
        "--runs, take steps (TensorBoard: --rec_summary_x step), or record it with SummaryCollector"
    )
    return three_part("x", SAMPLES, expected)
