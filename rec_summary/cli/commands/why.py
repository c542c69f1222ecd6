"""`rec-summary why`: what moved a metric, and since when."""

from __future__ import annotations

from typing import Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli

EXAMPLES: Final = """\b
Examples:
  rec-summary why records
  rec-summary why records --metric auc --task cvr --since 2h
  rec-summary why records/run-1 --at 5000 --json
"""


@cli.command(epilog=EXAMPLES, quiet="Print no progress and no hints.")
@options.source
@options.runs
@options.option("--metric", "Only this metric.  [default: all]", ("auc", "ne", "calibration"))
@options.option("--task NAME", "Only this task.  [default: all]")
@options.option("--since WHEN", f"Only what began at {options.WHEN} or later.")
@options.option("--at STEP", "Only what began around this step.", click.IntRange(0))
@options.as_json()
def why(
    source: str,
    runs: str | None,
    metric: str | None,
    task: str | None,
    since: str | None,
    at: int | None,
) -> None:
    """Say what moved a metric: which part, and since when.

    SRC is a record directory, or a URL; of a tree of them, the run counts that was written to
    last. Each value of each slice is compared with its own recent past: its calibration, its part
    of the normalised entropy (ne), its AUC, its traffic. So are features, tables, ranks, gradients,
    freshness, throughput and the learning rate. Only what is beyond chance for all comparisons
    together is shown.
    """
    from rec_summary.answers.reading import why_of
    from rec_summary.answers.text import lines

    chosen = choose_runs(source, runs)
    run = max(chosen, key=lambda each: max(file.changed for file in each.files))
    if len(chosen) > 1:
        terminal.hint(f"{run.name}: the last of {len(chosen)} runs (--runs chooses another)")
    with terminal.reading_progress(source, [run]) as report:
        answer = why_of(run, report, metric=metric, task=task, since=since, at=at)
    if terminal.printing().as_json:
        terminal.print_json({"run": run.name, **answer.as_json()})
    else:
        for line in lines(answer):
            terminal.echo(line)
    terminal.print_problems(report.problems, report.problem_count)
