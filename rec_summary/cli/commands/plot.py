"""`rec-summary plot`: draws scalars."""

from __future__ import annotations

from typing import Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli
from rec_summary.cli.text import count_of

EXAMPLES: Final = """\b
Examples:
  rec-summary plot records --tags loss -o loss.png
  rec-summary plot records --tags loss --group-by seed -o seeds.png
  rec-summary plot records --tags 'loss|auc' --runs 'ctr/*' -o trend.svg
  rec-summary plot records --tags loss --x samples -o loss.pdf
  rec-summary plot records --tags loss --max-points 100 --json
"""


@cli.command(epilog=EXAMPLES)
@options.source
@options.option(
    "-o --output FILE",
    "The picture: .png, .svg or .pdf; with --json, it may be left out.",
    options.PATH,
)
@options.tags
@options.runs
@options.since
@options.until
@options.group_by
@options.x
@options.option(
    "--max-points N", "Downsample each line to at most N points; peaks are kept.", click.IntRange(4)
)
@options.as_json("Print what was drawn as JSON; without -o, the points.")
def plot(
    source: str,
    output: str | None,
    tags: str | None,
    runs: str | None,
    since: str | None,
    until: str | None,
    group_by: str | None,
    x: str,
    max_points: int | None,
) -> None:
    """Draw scalars: all runs in one picture, a panel for each tag.

    More than eight runs of a tag are drawn as a band, with the best run as a line. With --group-by,
    each group of runs is drawn as its mean, in a band from the least to the greatest value.

    Without --tags, the loss, AUC, calibration, learning rate and evaluations are drawn, or what
    there is, at most six panels.

    SRC is a record directory or a tree of them, or a URL. Needs matplotlib: pip install
    'rec_summary[pictures]'.
    """
    from rec_summary.series.comparison.groups import grouped
    from rec_summary.series.lineage import parameters_of
    from rec_summary.series.options import ExportOptions, Selection
    from rec_summary.series.overview.choice import check_tags
    from rec_summary.tables.plot import (
        MOST_POINTS,
        as_json,
        check_output,
        important,
        in_groups,
        read_lines,
    )
    from rec_summary.tables.plot import plot as draw

    printed = terminal.printing().as_json
    if output is not None:
        check_output(output)
    elif not printed:
        raise click.UsageError("Nothing is asked for: give -o FILE, or --json for the points.")
    selection = Selection(ExportOptions(tags=tags, since=since, until=until))
    chosen = [selection.narrowed(run) for run in choose_runs(source, runs)]
    check_tags(chosen, tags)
    with terminal.reading_progress(source, chosen) as report:
        lines = read_lines(chosen, selection, report, x, max_points or MOST_POINTS)
        if group_by is not None:
            lines = in_groups(lines, grouped(parameters_of(chosen, report), group_by))
    lines = important(lines) if tags is None else sorted(lines, key=lambda line: line.tag)
    if output is None:
        terminal.print_json({"lines": [as_json(line, x) for line in lines]}, indent=None)
        terminal.print_problems(report.problems, report.problem_count)
        return
    plotted = draw(lines, output, x)
    empty = sorted({line.tag for line in lines}.difference(plotted))
    lines = [line for line in lines if line.tag in plotted]
    if printed:
        names = sorted({line.run for line in lines})
        terminal.print_json({"output": output, "tags": plotted, "runs": names})
    what = f"{count_of(len(lines), 'line')} in {count_of(len(plotted), 'panel')}"
    terminal.say(f"{output}: {what}")
    if empty:
        terminal.say(f"  without a value to draw: {', '.join(empty)}")
    terminal.print_problems(report.problems, report.problem_count)
