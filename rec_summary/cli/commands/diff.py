"""`rec-summary diff`: what differs between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import cli, one_run
from rec_summary.cli.text import count_of, number_of

if TYPE_CHECKING:
    from rec_summary.series.comparison.difference import CurveChange, Difference, GraphChange

_SHOWN: Final = 50  # rows of a section

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
@options.wide
@options.as_json()
def diff(
    source: str,
    other: str,
    tags: str | None,
    since: str | None,
    until: str | None,
) -> int:
    """Show what differs between two runs, and where curves part.

    Each RUN is the record directory of one training, or a URL. The command compares versions,
    data, hyper-parameters, settings and results of the lineage, the operators of the graph by name,
    and all scalars except those that measure time or the telemetry itself. It does not compare
    times, hosts and names of runs.

    Curves part at the first step at which they differ by more than the noise before it. The
    differences are averaged over windows of a fiftieth of the common steps, or of five steps if
    there are few. The curves part where this mean is more than three times the noise in two windows
    in a row. The noise is the standard error of a mean, or the level of the earlier means if that
    is greater. --tags, --since and --until choose curves and steps.
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
        curves = count_of(differences.same_curves, "curve")
        terminal.echo(f"Nothing differs: versions, data, parameters, results, graph, {curves}.")
    else:
        _print(differences, [run.path for run in runs])
    terminal.print_problems(report.problems, report.problem_count)
    return int(not differences.empty)


def _print(differences: Difference, names: Iterable[str]) -> None:
    for sign, name in zip("-+", names, strict=True):
        terminal.echo(f"{sign} {name}")
    for section, changes in differences.facts.items():
        terminal.echo()
        heads = (section, *"-+")
        rows = [(change.name, *map(number_of, change.values)) for change in changes]
        _print_columns(heads, rows, heads)
    if differences.graph is not None:
        _print_graph(differences.graph)
    if differences.curves:
        terminal.echo()
        heads = ("curves", "part at step", "differ from step", "greatest difference", "at step")
        _print_columns(heads, [*map(_curve_cells, differences.curves)], heads[:1])
    if differences.same_curves:
        terminal.echo(f"{count_of(differences.same_curves, 'curve')} the same in both")
    for sign, tags in zip("-+", differences.only, strict=True):
        terminal.print_first([f"{sign} {tag}" for tag in tags], "tags")


def _print_columns(
    heads: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
) -> None:
    left_out = terminal.print_table(terminal.columns_of(heads, rows[:_SHOWN], names))
    if len(rows) > _SHOWN:
        terminal.echo(f"  and {len(rows) - _SHOWN:,} more {heads[0]} (--json lists all)")
    if left_out:
        terminal.echo("Some columns do not fit: --wide shows them.")


def _print_graph(graph: GraphChange) -> None:
    before, after = (count_of(number, "node") for number in graph.nodes)
    terminal.echo()
    terminal.echo(f"graph: {before}, {after}")
    lines = []
    for sign, names in (("-", graph.removed), ("+", graph.added)):
        for name, count in sorted(names.items()):
            lines.append(f"{sign} {name}" + (f" ×{count}" if count > 1 else ""))
    terminal.print_first(lines, "names")


def _curve_cells(change: CurveChange) -> tuple[str, ...]:
    parting = change.parting
    if parting is None:
        return (change.tag, "no common step", "", "", "")
    parts = "within the noise" if parting.parts_at is None else f"{parting.parts_at:,}"
    places = (
        f"{parting.differs_at:,}",
        number_of(parting.greatest),
        f"{parting.greatest_at:,}",
    )
    return (change.tag, parts, *places)
