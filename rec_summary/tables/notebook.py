"""What `rec_summary.load` shows of runs in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rec_summary.records.reading.runs import Run
from rec_summary.series.glance import Series
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.runs import lineage_of, row
from rec_summary.series.values import recorded_values
from rec_summary.series.words import printable
from rec_summary.tables.html import run_html, runs_html

AT_A_GLANCE: Final = 1 << 26  # bytes of records that a list of runs reads without being asked
_LOSS: Final = ("loss", "loss/auto")


class RunView:
    """One run, at a glance; a notebook shows it as a table with sparklines.

    Attributes:
        run: Its name.
        status: How far it has come, as in `rec-summary lineage`.
        lineage: Its row of that table: hyper-parameters, metrics, custom data.
        series: Its scalars: the last value, the extremes and the course of each tag.
        problems: What could not be read.
    """

    def __init__(self, run: Run, selection: Selection) -> None:
        """Use `Records.run`."""
        report = Report()
        self.lineage: dict[str, Any] = dict(row(run, lineage_of(run, report)))
        self.run = str(self.lineage["run"])
        self.status = str(self.lineage["status"])
        self.series: tuple[Series, ...] = tuple(series_of(run, selection, report))
        self.problems = tuple(report.problems)
        self._problem_count = report.problem_count

    def __repr__(self) -> str:
        count = len(self.series)
        tags = f"{count} tag{'' if count == 1 else 's'} of scalars"
        return f"<Run {printable(self.run)}: {self.status}, {tags}>"

    def _repr_html_(self) -> str:
        return run_html(self.lineage, self.series, _told(self._problem_count, self.problems))


def series_of(run: Run, selection: Selection, report: Report) -> list[Series]:
    """Returns the scalars of a run, by tag and rank."""
    found: dict[tuple[str, int], Series] = {}
    for value in recorded_values(run, ["scalar_value"], selection, report):
        recorded = value.recorded
        series = found.setdefault(
            (recorded.tag, value.rank), Series(value.run, value.rank, recorded.tag)
        )
        series.add(value.step, recorded.origin.wall_time, recorded.value.scalar_value)
    return [series for _, series in sorted(found.items())]


def overview_html(source: str, runs: Sequence[Run], selection: Selection) -> str:
    """Returns the HTML of a list of runs.

    Lineage is read in any case; the course of the loss only where records are small.
    """
    report, rows = Report(), []
    small = sum(run.nbytes for run in runs) <= AT_A_GLANCE
    for run in runs:
        found: dict[str, Any] = dict(row(run, lineage_of(run, report)))
        if small:
            series = series_of(run, selection, report)
            losses = [each for each in series if each.tag in _LOSS] or series
            found["_series"] = losses[0] if losses else None
        rows.append(found)
    notes = [] if small else ["large records: `records.run(NAME)` shows the course of one run"]
    return runs_html(rows, source, [*notes, *_told(report.problem_count, report.problems)])


def _told(count: int, problems: Sequence[object]) -> list[str]:
    if not count:
        return []
    return [f"{count:,} problem{'' if count == 1 else 's'}, the first one: {problems[0]}"]
