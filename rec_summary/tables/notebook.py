"""What `rec_summary.load` shows in a notebook: runs as HTML tables with sparklines.

The HTML has no scripts, no styles except in attributes, and loads nothing from a network. All text
comes from records, which are not trusted: `_html` escapes everything but `_Html`.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import by_tag
from rec_summary.series.options import Selection
from rec_summary.series.overview.rows import DETAILS, TIMES, Row, column_names, rows_of, stated_row
from rec_summary.series.overview.statistics import ScalarSummary, relative_heights
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from rec_summary.series.text import printable, utc, valid

READ_BYTES: Final = 1 << 26  # of records; a list of runs shows sparklines up to this size
_LOSS: Final = ("loss", "loss/auto")
_LONGEST: Final = 300  # characters of a text
_MOST_ROWS: Final = 200
_WIDTH, _HEIGHT = 120, 24
_COLOURS: Final = {"FINISHED": "#2e7d32", "RUNNING": "#1565c0", "FAILED": "#c62828"}
_IN_TITLE: Final = ("run", "status", "reason")


class RunView:
    """A summary of one run; a notebook shows it as a table with sparklines.

    Attributes:
        run: The run's name.
        status: The run's status, as in `rec-summary lineage`.
        lineage: The run's row of that table: hyper-parameters, metrics, custom data.
        series: The run's scalars: the last value, the extremes and the means of each tag.
        problems: What could not be read.
    """

    def __init__(self, run: Run, selection: Selection) -> None:
        """Use `Records.run`."""
        report, again = Report(), Report()
        self.lineage: dict[str, Any] = dict(next(rows_of(run, again)))
        self.run = str(self.lineage["run"])
        self.status = str(self.lineage["status"])
        self.series: tuple[ScalarSummary, ...] = tuple(series_of(run, selection, report))
        report.add_again(again)
        self.problems = tuple(report.problems)
        self._notes = _problem_notes(report)

    def __repr__(self) -> str:
        count = len(self.series)
        tags = f"{count} tag{'' if count == 1 else 's'} of scalars"
        return f"<Run {printable(self.run)}: {self.status}, {tags}>"

    def _repr_html_(self) -> str:
        return run_html(self.lineage, self.series, self._notes)


def series_of(run: Run, selection: Selection, report: Report) -> list[ScalarSummary]:
    """Returns the scalars of a run, by tag, rank and writer."""
    collected: dict[tuple[str, int, str], ScalarSummary] = {}
    for writer, scalars in finished_scalars(run, selection, report):
        name, rank = writer.name(valid(run.name)), writer.rank
        for tag, values in by_tag(scalars):
            collected.setdefault((tag, rank, name), ScalarSummary(name, rank, tag)).extend(values)
    return [series for _, series in sorted(collected.items())]


def overview_html(source: str, runs: Sequence[Run], selection: Selection) -> str:
    """Returns the HTML of a list of runs: their lineage and, of small records, their loss."""
    report = Report()
    rows: list[Row] = []
    trends: list[ScalarSummary | None] = []
    small = sum(run.nbytes for run in runs) <= READ_BYTES
    for run in runs:
        run_rows = list(rows_of(run, report)) if small else [stated_row(run, report)]
        is_shown = small and len(rows) < _MOST_ROWS
        series = series_of(run, selection, Report()) if is_shown else []
        for row in run_rows:
            own = [curve for curve in series if curve.run == row["run"]]
            trends.append(next((curve for curve in own if curve.tag in _LOSS), (*own, None)[0]))
        rows += run_rows
    first = ["run", "status"]
    names = [name for name in column_names(rows) if name not in (*first, *DETAILS)]
    cells = [
        [
            *(run["run"], _badge(run["status"]), "" if trend is None else _titled(trend)),
            *(_fact(name, run) for name in names),
        ]
        for run, trend in zip(rows, trends, strict=True)
    ]
    notes = [] if small else ["large records: `records.run(NAME)` shows the sparklines of one run"]
    count = f"{len(rows):,} run{'' if len(rows) == 1 else 's'}"
    title = _Html(f"<b>{count}</b> in {_html(source)}")
    table = _table(cells, [*first, "trend", *names])
    return _block(title, table, _more(cells, "runs"), *notes, *_problem_notes(report))


def _problem_notes(report: Report) -> list[str]:
    count = report.problem_count
    if not count:
        return []
    return [f"{count:,} problem{'' if count == 1 else 's'}, the first one: {report.problems[0]}"]


def run_html(row: Mapping[str, Any], series: Sequence[ScalarSummary], notes: Iterable[str]) -> str:
    """Returns the status of one run, its lineage, and a row for each tag.

    Args:
        row: The lineage, as `series.overview.rows` returns it.
        series: The run's scalars.
        notes: Sentences for below the table.
    """
    reason = f" ({_html(row['reason'])})" if row.get("reason") else ""
    title = _Html(f"<b>{_html(row['run'])}</b> {_badge(row.get('status'))}{reason}{_silence(row)}")
    facts = _table([name, _fact(name, row)] for name in row if name not in _IN_TITLE)
    ranks = {curve.rank for curve in series} - {0}
    cells = [
        [
            curve.tag + (f" (rank {curve.rank})" if ranks else "") + curve.run[len(row["run"]) :],
            *(curve.step, curve.last, curve.least, curve.greatest, curve.not_finite or None),
            sparkline(curve),
        ]
        for curve in series
    ]
    head = ("tag", "step", "last", "least", "greatest", "not finite", "trend")
    return _block(
        title,
        _Html(f"<details open><summary>lineage</summary>{facts}</details>"),
        _table(cells, head) if cells else "no scalars",
        _more(cells, "tags"),
        *notes,
    )


def _silence(row: Mapping[str, Any]) -> str:
    since = row.get("silent_since")
    return "" if since is None else f", no sign of life since {utc(since)}"


def _fact(name: str, row: Mapping[str, Any]) -> Any:
    """Returns what a table shows of a column of the lineage."""
    value = row.get(name)
    return utc(value) if name in TIMES and isinstance(value, int | float) else value


def sparkline(series: ScalarSummary) -> _Html:
    """Returns the means of a series as inline SVG; gaps where nothing is finite."""
    heights = relative_heights(series.means.means(_WIDTH // 2))
    x = np.arange(len(heights)) * (_WIDTH / max(len(heights) - 1, 1))
    y = 2 + (1 - heights) * (_HEIGHT - 4)
    gaps = np.flatnonzero(np.isnan(heights))
    lines = []
    for begin, end in zip([0, *(gaps + 1)], [*gaps, len(heights)], strict=True):
        points = [f"{x[index]:.1f},{y[index]:.1f}" for index in range(begin, end)]
        if points:  # a line needs two points
            lines.append(
                f'<polyline points="{" ".join(points * 2 if len(points) == 1 else points)}"/>'
            )
    if not lines:
        return _Html()
    return _Html(
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'fill="none" stroke="#1565c0" stroke-width="1.5" stroke-linecap="round" role="img" '
        'style="vertical-align:middle">'
        f"{''.join(lines)}</svg>"
    )


class _Html(str):
    """Text that is HTML already."""


def _html(value: object) -> str:
    """Returns a value as HTML: numbers in short, all other text escaped and cut."""
    if isinstance(value, _Html):
        return value
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = printable(str(value))
    return html.escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…", quote=True)


def _titled(series: ScalarSummary) -> _Html:
    return _Html(f"{sparkline(series)} {_html(series.tag)} {_html(series.last)}")


def _badge(status: object) -> _Html:
    colour = _COLOURS.get(str(status), "#757575")
    return _Html(f'<span style="color:{colour}">{_html(str(status))}</span>')


def _table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> _Html:
    cells = [[_cell("th", value) for value in head]] if head else []
    cells += [[_cell("td", value) for value in row] for row in itertools.islice(rows, _MOST_ROWS)]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return _Html(f'<table style="border-collapse:collapse;font-size:90%">{body}</table>')


def _cell(kind: str, value: object) -> str:
    side = "right" if isinstance(value, int | float) and not isinstance(value, bool) else "left"
    style = f"text-align:{side};padding:2px 10px 2px 0;white-space:nowrap"
    return f'<{kind} style="{style}">{_html(value)}</{kind}>'


def _more(rows: Sequence[object], what: str) -> str:
    return f"and {len(rows) - _MOST_ROWS:,} more {what}" if len(rows) > _MOST_ROWS else ""


def _block(*parts: str) -> str:
    lines = "".join(f"<div>{_html(part)}</div>" for part in parts if part)
    return f'<div style="overflow-x:auto">{lines}</div>'
