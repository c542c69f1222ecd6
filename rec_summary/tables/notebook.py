"""What `rec_summary.load` shows in a notebook: runs as HTML tables with sparklines.

The HTML has no scripts, no styles except in attributes, and loads nothing from a network. All text
comes from records, which are not trusted: `_text` is the one place that escapes it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import numpy as np

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import by_tag
from rec_summary.series.lineage import column_names, lineage_of, row
from rec_summary.series.options import Selection
from rec_summary.series.report import Report
from rec_summary.series.tail import ScalarSeries, relative_heights
from rec_summary.series.text import printable, valid
from rec_summary.series.values import finished_scalars

READ_BYTES: Final = 1 << 26  # of records; a list of runs shows sparklines up to this size
_LOSS: Final = ("loss", "loss/auto")
_LONGEST: Final = 300  # characters of a text
_MOST_ROWS: Final = 200
_WIDTH, _HEIGHT = 120, 24
_COLOURS: Final = {"FINISHED": "#2e7d32", "RUNNING": "#1565c0", "FAILED": "#c62828"}
_CELL: Final = "text-align:left;padding:2px 10px 2px 0;white-space:nowrap"
_NUMBER: Final = "text-align:right;padding:2px 10px 2px 0;white-space:nowrap"
_IN_TITLE: Final = ("run", "status", "reason")
_HIDDEN: Final = ("start_time", "last_update", "reason", "host", "train_dataset_path")


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
        report = Report()
        self.lineage: dict[str, Any] = dict(row(run, lineage_of(run, report)))
        self.run = str(self.lineage["run"])
        self.status = str(self.lineage["status"])
        self.series: tuple[ScalarSeries, ...] = tuple(series_of(run, selection, report))
        self.problems = tuple(report.problems)
        self._notes = _problem_notes(report)

    def __repr__(self) -> str:
        count = len(self.series)
        tags = f"{count} tag{'' if count == 1 else 's'} of scalars"
        return f"<Run {printable(self.run)}: {self.status}, {tags}>"

    def _repr_html_(self) -> str:
        return run_html(self.lineage, self.series, self._notes)


def series_of(run: Run, selection: Selection, report: Report) -> list[ScalarSeries]:
    """Returns the scalars of a run, by tag and rank."""
    name = valid(run.name)
    found: dict[tuple[str, int], ScalarSeries] = {}
    for rank, scalars in finished_scalars(run, selection, report):
        for tag, values in by_tag(scalars):
            found.setdefault((tag, rank), ScalarSeries(name, rank, tag)).extend(values)
    return [series for _, series in sorted(found.items())]


def overview_html(source: str, runs: Sequence[Run], selection: Selection) -> str:
    """Returns the HTML of a list of runs: their lineage and, of small records, their loss."""
    report, rows = Report(), []
    losses: list[ScalarSeries | None] = []
    small = sum(run.nbytes for run in runs) <= READ_BYTES
    for run in runs:
        rows.append(row(run, lineage_of(run, report)))
        series = series_of(run, selection, report) if small else []
        losses.append(next((each for each in series if each.tag in _LOSS), (*series, None)[0]))
    notes = [] if small else ["large records: `records.run(NAME)` shows the sparklines of one run"]
    return _runs_html(rows, losses, source, [*notes, *_problem_notes(report)])


def _problem_notes(report: Report) -> list[str]:
    count = report.problem_count
    if not count:
        return []
    return [f"{count:,} problem{'' if count == 1 else 's'}, the first one: {report.problems[0]}"]


def _runs_html(
    rows: Sequence[Mapping[str, Any]],
    losses: Sequence[ScalarSeries | None],
    source: str,
    notes: Iterable[str],
) -> str:
    """Returns a table with a row for each run.

    Args:
        rows: The rows, as `series.lineage.row` returns them.
        losses: The series of each run that is shown as a sparkline.
        source: Where the runs are.
        notes: Sentences for below the table.
    """
    names = [name for name in column_names(rows) if name not in _HIDDEN]
    head = "".join(_cell("th", _text(name)) for name in (*names, "trend"))
    body = []
    for each, series in zip(rows[:_MOST_ROWS], losses, strict=False):
        cells = [
            _cell("td", _badge(str(each["status"]))) if name == "status" else _value(each.get(name))
            for name in names
        ]
        cells.append(_cell("td", "" if series is None else _titled(series)))
        body.append(f"<tr>{''.join(cells)}</tr>")
    more = [f"and {len(rows) - _MOST_ROWS:,} more runs"] if len(rows) > _MOST_ROWS else []
    count = f"{len(rows):,} run{'' if len(rows) == 1 else 's'}"
    return _block(
        f"<div><b>{count}</b> in {_text(source)}</div>",
        _table(head, body),
        *(f"<div>{_text(note)}</div>" for note in (*more, *notes)),
    )


def run_html(row: Mapping[str, Any], series: Sequence[ScalarSeries], notes: Iterable[str]) -> str:
    """Returns the status of one run, its lineage, and a row for each tag.

    Args:
        row: The lineage, as `series.lineage.row` returns it.
        series: The run's scalars.
        notes: Sentences for below the table.
    """
    reason = f" ({_text(row['reason'])})" if row.get("reason") else ""
    title = f"<b>{_text(row['run'])}</b> {_badge(str(row.get('status')))}{reason}"
    facts = [
        f"<tr>{_cell('th', _text(name))}{_value(_moment(name, value))}</tr>"
        for name, value in row.items()
        if name not in _IN_TITLE
    ]
    head = "".join(
        _cell("th", name)
        for name in ("tag", "step", "last", "least", "greatest", "not finite", "trend")
    )
    ranks = {each.rank for each in series} - {0}
    body = []
    for each in series[:_MOST_ROWS]:
        name = each.tag + (f" (rank {each.rank})" if ranks else "")
        numbers = (each.step, each.last, each.least, each.greatest, each.not_finite or None)
        cells = "".join(map(_value, numbers))
        body.append(f"<tr>{_cell('td', _text(name))}{cells}{_cell('td', sparkline(each))}</tr>")
    more = [f"and {len(series) - _MOST_ROWS:,} more tags"] if len(series) > _MOST_ROWS else []
    return _block(
        f"<div>{title}</div>",
        _details("lineage", _table("", facts)) if facts else "",
        _table(head, body) if body else "<div>no scalars</div>",
        *(f"<div>{_text(note)}</div>" for note in (*more, *notes)),
    )


def sparkline(series: ScalarSeries) -> str:
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
        return ""
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'fill="none" stroke="#1565c0" stroke-width="1.5" stroke-linecap="round" role="img">'
        f"{''.join(lines)}</svg>"
    )


def _titled(series: ScalarSeries) -> str:
    return f"{sparkline(series)} {_text(series.tag)} {_text(_shown(series.last))}"


def _text(value: object) -> str:
    text = printable(str(value))
    return html.escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…", quote=True)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _moment(name: str, value: Any) -> Any:
    if name not in ("start_time", "last_update") or not isinstance(value, int | float):
        return value
    try:
        moment = datetime.fromtimestamp(value, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return value
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _value(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td style="{_NUMBER if number else _CELL}">{_text(_shown(value))}</td>'


def _badge(status: str) -> str:
    return f'<span style="color:{_COLOURS.get(status, "#757575")}">{_text(status)}</span>'


def _cell(kind: str, inner: str) -> str:
    return f'<{kind} style="{_CELL}">{inner}</{kind}>'


def _table(head: str, body: Sequence[str]) -> str:
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return (
        '<table style="border-collapse:collapse;font-size:90%">'
        f"{top}<tbody>{''.join(body)}</tbody></table>"
    )


def _details(title: str, inner: str) -> str:
    return f"<details open><summary>{title}</summary>{inner}</details>"


def _block(*parts: str) -> str:
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'
