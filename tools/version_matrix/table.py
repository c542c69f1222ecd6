"""The table: a column for each environment, in the terminal and in docs/versions.md."""

from __future__ import annotations

from pathlib import Path

from tools.version_matrix.outcome import Outcome

Column = dict[str, str]
_BEGIN, _END = "<!-- table -->", "<!-- end of the table -->"
_ABSENT = "–"


def column(outcome: Outcome, day: str) -> Column:
    """Returns what is shown of an outcome: row by row, in order."""
    counts = {what: str(number) for what, number in outcome.counts.items()}
    if outcome.trouble:
        counts["failed"] = f"{counts['failed']}: {outcome.trouble}"
    return {**outcome.versions, **counts, "seconds": f"{outcome.seconds:.0f}", "day": day}


def render(columns: dict[str, Column], rows: list[str]) -> str:
    """Returns the table as Markdown, aligned so that it is one for a terminal, too."""
    lines = [["", *columns]]
    lines += [[row, *(column.get(row, _ABSENT) for column in columns.values())] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    padded = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    return "\n".join([padded[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *padded[1:]])


def parse(text: str) -> dict[str, Column]:
    """Returns the columns of a table that `render` has made."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    if len(lines) < 2:
        return {}
    names = lines[0][1:]
    return {
        name: {line[0]: line[place] for line in lines[2:] if line[place] != _ABSENT}
        for place, name in enumerate(names, start=1)
    }


def update(document: Path, columns: dict[str, Column], order: list[str], rows: list[str]) -> None:
    """Puts columns into the document's table; those of other environments stay.

    Args:
        document: A Markdown file with the two comments that the table stands between.
        columns: The new columns by environment.
        order: All environments in the order of the table; columns of others are dropped.
        rows: All rows in the order of the table.

    Raises:
        ValueError: The document lacks the comments.
    """
    text = document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    old, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{document} lacks the comments {_BEGIN} and {_END}")
    both = {**parse(old), **columns}
    table = render({name: both[name] for name in order if name in both}, rows)
    document.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}", encoding="utf-8")
