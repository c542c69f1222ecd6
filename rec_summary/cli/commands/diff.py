"""`rec-summary diff`: what differs between two runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import cli, one_run
from rec_summary.cli.text import count_of, number_of

if TYPE_CHECKING:
    from rec_summary.series.comparison.difference import Difference, GraphChange, ValueChange

_SHOWN: Final = 10  # rows
_HOW: Final = "(--all shows them)"

EXAMPLES: Final = """\b
Examples:
  rec-summary diff records/run-1 records/run-2
  rec-summary diff records/run-1 records/run-2 --tags 'loss|auc' --json

\b
Exit codes: 0 nothing differs; 1 something does; 2 a mistake in the arguments;
3 it failed.
"""


@cli.command(
    epilog=EXAMPLES,
    failure=3,
    quiet="Print no progress.",
)
@options.run
@click.argument("other", metavar="RUN", type=options.PATH)
@options.tags
@options.since
@options.until
@options.flag("--all", f"Show all rows, not {_SHOWN}.", into="every")
@options.wide
@options.as_json()
def diff(
    source: str,
    other: str,
    tags: str | None,
    since: str | None,
    until: str | None,
    every: bool,
) -> int:
    """Show what differs between two runs.

    Each RUN is the record directory of one training, or a URL. The command compares versions,
    data, hyper-parameters, settings and results of the lineage, the operators of the graph by name,
    and the last values of all scalars except those that measure time or the telemetry itself. It
    does not compare times, hosts, names, commits and command lines. --tags, --since and --until
    choose scalars and steps: with --until 5000, the last values up to this step are compared.
    It shows ten rows, of each part some.
    """
    from rec_summary.series.comparison.difference import difference
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.series.overview.choice import check_tags

    selection = Selection(ExportOptions(tags=tags, since=since, until=until))
    runs = one_run(source), one_run(other)
    check_tags(runs, tags)
    with terminal.reading_progress(source, runs) as report:
        differences = difference(runs, selection, report)
    if terminal.printing().as_json:
        terminal.print_json(
            {"runs": [run.path for run in runs], "same": differences.empty, **vars(differences)}
        )
    elif differences.empty:
        values = count_of(differences.same_values, "last value")
        terminal.echo(f"Nothing differs: versions, data, parameters, results, graph, {values}.")
    else:
        _print(differences, [run.path for run in runs], sys.maxsize if every else _SHOWN)
    terminal.print_problems(report.problems, report.problem_count)
    return int(not differences.empty)


def _print(differences: Difference, names: Iterable[str], most: int) -> None:
    """Prints what differs, in at most so many rows."""
    for sign, name in zip("-+", names, strict=True):
        terminal.echo(f"{sign} {name}")
    graph = [] if differences.graph is None else _names(differences.graph)
    parts: list[Sequence[object]] = [
        *differences.facts.values(),
        graph,
        differences.values,
        *differences.only,
    ]
    # The parts take turns, so that a long one leaves room for the others.
    turns = sorted((row, part) for part, rows in enumerate(parts) for row in range(len(rows)))
    taken = Counter(part for _, part in turns[:most])
    *of_facts, of_graph, of_values, of_first, of_second = (taken[i] for i in range(len(parts)))
    for (section, changes), share in zip(differences.facts.items(), of_facts, strict=True):
        heads = (section, *"-+")
        cells = [(change.name, *map(number_of, change.values)) for change in changes]
        _print_columns(heads, cells, heads, share)
    if differences.graph is not None:
        before, after = (count_of(number, "node") for number in differences.graph.nodes)
        terminal.echo()
        terminal.echo(f"graph: {before}, {after}")
        terminal.print_first(graph, f"names {_HOW}", of_graph)
    if differences.values:
        heads = ("last values", "-", "+", "difference", "- at step", "+ at step")
        _print_columns(heads, [*map(_value_cells, differences.values)], heads[:1], of_values)
    if differences.same_values:
        tags = count_of(differences.same_values, "tag")
        terminal.echo(f"{tags} with the same last value in both")
    for sign, only, share in zip("-+", differences.only, (of_first, of_second), strict=True):
        terminal.print_first([f"{sign} {tag}" for tag in only], f"tags {_HOW}", share)


def _print_columns(
    heads: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str], most: int
) -> None:
    terminal.echo()
    left_out = terminal.print_table(terminal.columns_of(heads, rows[:most], names))
    terminal.print_more(len(rows) - most, f"{heads[0]} {_HOW}")
    if left_out:
        terminal.echo("Some columns do not fit: --wide shows them.")


def _names(graph: GraphChange) -> list[str]:
    """Returns a line for each name of operators that differ."""
    lines = []
    for sign, names in (("-", graph.removed), ("+", graph.added)):
        for name, count in sorted(names.items()):
            lines.append(f"{sign} {name}" + (f" ×{count}" if count > 1 else ""))
    return lines


def _value_cells(change: ValueChange) -> tuple[str, ...]:
    steps = (f"{step:,}" for step in change.steps)
    return (change.tag, *map(number_of, (*change.values, change.difference)), *steps)
