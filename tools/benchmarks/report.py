"""Results for people: a table in the terminal, and a page of the documentation."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .machine import in_words
from .results import Row, rows_from

_HEADINGS = ("what", "ours", "peer", "ratio", "spread", "target", "met?")
_RATIOS = {"speed": " × as fast", "cost": " of the peer's"}

BEGIN, END = "<!-- written by tools/bench -->", "<!-- end of the results -->"


def number(value: float) -> str:
    """Returns a number with three digits that count."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def cells(row: Row) -> tuple[str, ...]:
    """Returns a row's texts, one for each heading."""
    ratio, suffix = "", " ×" if row.ratio_is == "speed" else ""
    if row.ratio:
        ratio = number(statistics.median(row.ratio)) + _RATIOS[row.ratio_is]
    spread = row.ratio or row.ours
    unit = suffix if row.ratio else f" {row.unit}"
    peer = ""
    if row.peer:
        peer = f"{number(statistics.median(row.peer))} {row.unit} ({row.peer_name})"
    return (
        row.what,
        f"{number(statistics.median(row.ours))} {row.unit}",
        peer,
        ratio,
        f"{number(min(spread))} to {number(max(spread))}{unit}" if len(spread) > 1 else "",
        _target(row),
        _verdict(row),
    )


def table(rows: Sequence[Row]) -> str:
    """Returns rows as a table in Markdown.

    Columns that are empty in all rows are left out, and what all peers or ratios end with is in
    the heading.
    """
    endings = {
        "peer": {f" ({row.peer_name})" for row in rows if row.peer},
        "ratio": {_RATIOS[row.ratio_is] for row in rows if row.ratio},
    }
    columns = []
    for heading, *texts in zip(_HEADINGS, *(cells(row) for row in rows), strict=True):
        if len(common := endings.get(heading, set())) == 1:
            [ending] = common
            texts = [text.removesuffix(ending) for text in texts]
            heading = ending.strip(" ()")
        if any(texts):
            columns.append([heading, *texts])
    first, *lines = (f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
    return "\n".join([first, "|---" * len(columns) + "|", *lines])


def tables(rows: Sequence[Row]) -> str:
    """Returns rows as tables in Markdown, one for each subject: `subject: what`."""
    parts = []
    for subject, group in itertools.groupby(rows, lambda row: row.what.rpartition(": ")[0]):
        parts += [f"**{subject}**"] if subject else []
        own = [dataclasses.replace(row, what=row.what.rpartition(": ")[2]) for row in group]
        parts.append(table(own))
    return "\n\n".join(parts)


def side_by_side(rows: Sequence[Row]) -> str:
    """Returns rows as a table in Markdown with a column for each peer."""
    peers = list(dict.fromkeys(row.peer_name for row in rows))
    lines = [f"| | rec_summary | {' | '.join(peers)} |", "|---" * (2 + len(peers)) + "|"]
    for what in dict.fromkeys(row.what for row in rows):
        by_peer = {row.peer_name: row for row in rows if row.what == what}
        some = next(iter(by_peer.values()))
        medians = [number(statistics.median(some.ours))]
        medians += [number(statistics.median(by_peer[peer].peer)) for peer in peers]
        lines.append(f"| {what} ({some.unit}) | {' | '.join(medians)} |")
    return "\n".join(lines)


def write_comparison(path: Path, entry: dict[str, Any]) -> None:
    """Replaces the figures in the page that compares packages."""
    how = "[how it is measured](performance_tables.md#compare)"
    figures = side_by_side(rows_from(entry["rows"]))
    _replace(path, [f"{figures}\n", f"Medians of {entry['date']}; {how}.\n"])


def write_page(
    path: Path,
    stored: dict[str, Any],
    order: Sequence[str],
    images: Path,
    elsewhere: Mapping[str, str],
) -> None:
    """Replaces the results in the page of the documentation.

    Args:
        path: The page; what stands around the results is kept.
        stored: The results of all benchmarks, as in the JSON file.
        order: In which order they come.
        images: Where pictures are; `performance-<benchmark>*.png` are shown.
        elsewhere: For benchmarks whose figures are on another page, what is said in their place.
    """
    parts = []
    versions: dict[str, list[str]] = {}
    for name in (name for name in order if name in stored):
        entry = stored[name]
        versions.setdefault(in_words(entry["machine"]), []).append(name)
        parts.append(f"## {name}\n\n{entry['setting']}\n")
        parts.append((elsewhere.get(name) or tables(rows_from(entry["rows"]))) + "\n")
        for picture in sorted(images.glob(f"performance-{name}*.png")):
            title = picture.stem.removeprefix("performance-").replace("-", " ")
            parts.append(f"![{title}]({images.name}/{picture.name})\n")
        parts.append(f"{_when(entry)}.\n")
    parts.append("## Machines\n")
    parts += [f"{words}: {', '.join(names)}.\n" for words, names in versions.items()]
    _replace(path, parts)


def _when(entry: dict[str, Any]) -> str:
    machine = entry["machine"]
    return f"{entry['date']}; load before {machine['load_before']}; commit {machine['commit']}"


def _replace(path: Path, parts: Sequence[str]) -> None:
    before, _, rest = path.read_text().partition(BEGIN)
    path.write_text("\n".join([f"{before}{BEGIN}\n", *parts, END + rest.partition(END)[2]]))


def _verdict(row: Row) -> str:
    if row.met is None:
        return ""
    met, rounds = row.rounds_met
    word = "yes" if row.met else "**no**"
    return word if met == (rounds if row.met else 0) else f"{word} ({met} of {rounds} rounds)"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    bound = number(row.target.bound)
    unit = {"speed": " ×", "cost": " of it"}.get(row.ratio_is, "")
    if row.target.of != "ratio":
        unit = f" {row.unit}" + (", always" if row.target.of == "worst" else "")
    return f"{row.target.sign} {bound}{unit}"
