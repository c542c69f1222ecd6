"""Runs as HTML, for notebooks: status, lineage, last values, sparklines as inline SVG.

No scripts, no styles but those in attributes, nothing from a network. All text comes from
records, which anybody may have written: it is escaped in one place, `_text`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from rec_summary.series.glance import Series, shortened
from rec_summary.series.words import printable

_LONGEST: Final = 300  # characters of a text
_MOST_ROWS: Final = 200
_WIDTH, _HEIGHT = 120, 24
_COLOURS: Final = {"FINISHED": "#2e7d32", "RUNNING": "#1565c0", "FAILED": "#c62828"}
_CELL: Final = "text-align:left;padding:2px 10px 2px 0;white-space:nowrap"
_NUMBER: Final = "text-align:right;padding:2px 10px 2px 0;white-space:nowrap"
_PLACES: Final = ("run", "status", "reason")


def runs_html(rows: Sequence[Mapping[str, Any]], source: str, notes: Iterable[str]) -> str:
    """Returns a table of runs, a row for each.

    Args:
        rows: As `runs_table.rows` gives them, perhaps with the key `_series`: the `Series`
            that are shown as a sparkline.
        source: Where the runs are.
        notes: Sentences for below the table.
    """
    names = [name for name in _columns(rows) if name not in ("start_time", "_series")]
    head = "".join(_cell("th", _text(name)) for name in (*names, "course"))
    body = []
    for row in rows[:_MOST_ROWS]:
        cells = [
            _status(str(row.get(name))) if name == "status" else _value(row.get(name))
            for name in names
        ]
        series = row.get("_series")
        cells.append(_cell("td", "" if series is None else _titled(series)))
        body.append(f"<tr>{''.join(cells)}</tr>")
    more = [f"and {len(rows) - _MOST_ROWS:,} more runs"] if len(rows) > _MOST_ROWS else []
    count = f"{len(rows):,} run{'' if len(rows) == 1 else 's'}"
    return _block(
        f"<div><b>{count}</b> in {_text(source)}</div>",
        _table(head, body),
        *(f"<div>{_text(note)}</div>" for note in (*more, *notes)),
    )


def run_html(row: Mapping[str, Any], series: Sequence[Series], notes: Iterable[str]) -> str:
    """Returns a view of one run: its status, its lineage, and each tag's course.

    Args:
        row: As `runs_table.row` gives it.
        series: The run's scalars.
        notes: Sentences for below.
    """
    reason = f" ({_text(row['reason'])})" if row.get("reason") else ""
    title = f"<b>{_text(row['run'])}</b> {_badge(str(row.get('status')))}{reason}"
    facts = [
        f"<tr>{_cell('th', _text(name))}{_value(_moment(name, value))}</tr>"
        for name, value in row.items()
        if name not in _PLACES
    ]
    head = "".join(
        _cell("th", name)
        for name in ("tag", "step", "last", "least", "greatest", "not finite", "course")
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


def sparkline(series: Series) -> str:
    """Returns a line of a series' course as inline SVG; gaps where nothing is finite."""
    points = shortened(series.course.points(), _WIDTH // 2)
    finite = [point for point in points if math.isfinite(point)]
    if not finite:
        return ""
    # Halves, because the least and the greatest float are further apart than any float.
    low, span = min(finite) / 2, max(finite) / 2 - min(finite) / 2
    across = _WIDTH / max(len(points) - 1, 1)
    stretches: list[list[str]] = [[]]
    for index, point in enumerate(points):
        if math.isfinite(point):
            height = 0.5 if span == 0 else (point / 2 - low) / span
            y = 2 + (1 - height) * (_HEIGHT - 4)
            stretches[-1].append(f"{index * across:.1f},{y:.1f}")
        else:
            stretches.append([])
    lines = "".join(
        f'<polyline points="{" ".join(stretch if len(stretch) > 1 else stretch * 2)}"/>'
        for stretch in stretches
        if stretch
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'fill="none" stroke="#1565c0" stroke-width="1.5" stroke-linecap="round" role="img">'
        f"{lines}</svg>"
    )


def _titled(series: Series) -> str:
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


def _status(status: str) -> str:
    return _cell("td", _badge(status))


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


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    hidden = ("last_update", "reason", "host", "train_dataset_path")
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in hidden]
