"""Results for people: a table in the terminal, and a page of the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .machine import in_words
from .results import Row, rows_from

_HEADINGS = ("what", "ours", "peer", "ratio", "spread", "target", "met?")

_INTRODUCTION = """# What it costs

Measured by `tools/bench`, which makes this page from [performance.json](performance.json).
Each contestant runs in a fresh process, in alternation; a cell is the median over all rounds,
the spread goes from the smallest to the largest ratio of a round (of a value, where there is
no ratio). "× as fast" is the peer's time divided by ours; "of the peer's" is our cost divided
by the peer's. A target is beside what it was set for, met or not; it is judged by the median,
and where not all rounds agree, their number is told. Added costs are differences between two
processes: where others took much of the machine meanwhile, which is told as well, they are
noisy, and a round in which the peer's came out as nothing or less has no ratio.
"""

# Findings, beside the numbers that the tables above it have.
_LIMITS = """## What is not reached, and why

**The hook's 95th percentile with `collect_freq=10`.** One step in ten is due, so it is the time
of an ordinary step that is due. With the small tables that is five tensors, a loss and a learning
rate read out of MindSpore: 4 to 16 µs for each read, most of it within MindSpore, and 7 µs to hand
the record over: 0.08 ms in all. A fifth of MindSpore's time is 0.05 ms, which these reads take
alone. With the large tables it was the copy of 6.8 MB, which took 0.2 ms in
a quiet process and 0.5 ms beside a training, as fast as memory is; the sample of now takes
half of that, and what is left is cache misses. A next design would let the device copy:
on CPU there is none.

**3 % of a step with `collect_freq=10`.** The steps here take 1.1 and 2.3 ms on two cores, which
they keep busy. Ten of them cost 0.2 ms in hooks and 0.4 to 0.6 ms of the writer's thread, which is
4 % of one core; whether that comes out as 1 % or as 15 % of a step is settled when the process
begins, by which thread is on which core. Where all of it is
on the way of a step, it is below 3 % from 3 ms a step on; that is computed from these times, not
measured. The sample of large tables took the cost from 20 % to what it is. A next design would
count the histograms of all parameters in one pass, or in a process of its own with shared memory,
which no lock of Python's couples to training.
"""


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
        words = {"speed": " × as fast", "cost": " of the peer's"}[row.ratio_is]
        ratio = number(statistics.median(row.ratio)) + words
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
        f"{number(min(spread))} to {number(max(spread))}{unit}",
        _target(row),
        _verdict(row),
    )


def show(found: dict[str, Sequence[Row]], console: Console) -> None:
    """Prints a table of all results."""
    table = Table(*_HEADINGS)
    for name, rows in found.items():
        table.add_section()
        table.add_row(f"[bold]{name}")
        for row in rows:
            *texts, met = cells(row)
            colour = {True: "[green]", False: "[red]", None: ""}[row.met]
            table.add_row(*texts, colour + met.replace("*", ""))
    console.print(table)


def write_page(path: Path, stored: dict[str, Any], order: Sequence[str], images: Path) -> None:
    """Writes the page of the documentation.

    Args:
        path: Where to.
        stored: The results of all benchmarks, as in the JSON file.
        order: In which order they come.
        images: Where pictures are; `performance-<benchmark>-*.png` are shown.
    """
    parts = [_INTRODUCTION]
    for name in (name for name in order if name in stored):
        entry = stored[name]
        parts.append(f"## {name}\n\n{entry['setting']}\n")
        lines = [f"| {' | '.join(_HEADINGS)} |", "|---" * len(_HEADINGS) + "|"]
        lines += [f"| {' | '.join(cells(row))} |" for row in rows_from(entry["rows"])]
        parts.append("\n".join(lines) + "\n")
        for picture in sorted(images.glob(f"performance-{name}-*.png")):
            title = picture.stem.removeprefix("performance-").replace("-", " ")
            parts.append(f"![{title}]({images.name}/{picture.name})\n")
        parts.append(f"{entry['date']}; {in_words(entry['machine'])}.\n")
    parts.append(_LIMITS)
    path.write_text("\n".join(parts))


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
