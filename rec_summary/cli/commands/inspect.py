"""`rec-summary inspect`: the content of a record directory."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli
from rec_summary.cli.text import count_of, counts_of, number_of, size_of

if TYPE_CHECKING:
    from rec_summary.records.reading.runs import Run
    from rec_summary.series.overview.inspection import RunSummary
    from rec_summary.series.overview.statistics import TagSummary

_SHOWN: Final = 50
_INDENT: Final = 13
EXAMPLES: Final = """\b
Examples:
  rec-summary inspect records
  rec-summary inspect records --since 2h
  rec-summary inspect records --tags slice/country
  rec-summary inspect records --json | jq '.runs[].status'
"""
_NOTES: Final = 5  # the last ones
_HEADS: Final = (
    *("tag", "kind", "last", "least", "greatest"),
    *("steps", "values", "not finite", "size"),
)


@cli.command(epilog=EXAMPLES, quiet="Print no progress and no hints.")
@options.source
@options.runs
@options.tags
@options.ranks("Only the values of these ranks")
@options.since
@options.flag("--all", f"Show all tags, not {_SHOWN} of each run.", into="every")
@options.wide
@options.on_engine
@options.as_json()
def inspect(
    source: str,
    runs: str | None,
    tags: str | None,
    ranks: str | None,
    since: str | None,
    every: bool,
    engine: str,
    jobs: int | None,
) -> None:
    """List what records contain: runs, tags, steps, sizes and status.

    SRC is a record directory or a tree of them, or a URL. With --since, tags, steps and records
    are those since then; the status is that of the whole run. The slices of a column have one line
    for each metric, with the number of values, unless --all or --tags lists them.
    """
    from rec_summary.series.options import ExportOptions, Selection, chosen_engine
    from rec_summary.series.overview.choice import check_ranks, check_tags
    from rec_summary.series.overview.each_run import each_run
    from rec_summary.series.overview.inspection import inspect_run

    reader, failed = chosen_engine(engine, jobs), list[str]()
    selection = Selection(ExportOptions(since=since, ranks=ranks))
    chosen = choose_runs(source, runs)
    check_ranks(chosen, ranks)
    check_tags(map(selection.narrowed, chosen), tags, scalars=False, ranks=ranks, whole=chosen)
    wanted = Selection(ExportOptions(tags=tags))  # of what is listed, not of what is counted
    with terminal.reading_progress(source, chosen) as report:
        work = functools.partial(inspect_run, selection=selection)

        def fail(run: Run, error: Exception) -> None:
            failed.append(f"{run.path}: the run is left out: {error}")

        summaries = [summary for _, summary in each_run(work, chosen, reader, report, fail)]
    for summary in summaries:
        summary.tags = [tag for tag in summary.tags if wanted.tag(tag.tag)]
    terminal.print_problems(failed, len(failed))
    if terminal.printing().as_json:
        terminal.print_json({"runs": summaries})
        return
    for summary in summaries:
        _print_run(summary, every=every, folds=not (every or tags))


def _print_run(summary: RunSummary, *, every: bool, folds: bool) -> None:
    from rec_summary.series.overview.statistics import folded

    terminal.echo(summary.run, bold=True)
    width = max(terminal.console().size.width, _INDENT + 1)  # COLUMNS may be 0
    for what, text in _facts(summary):
        for line in textwrap.wrap(
            terminal.one_line(text),
            width,
            initial_indent=f"  {what:<10} ",
            subsequent_indent=" " * _INDENT,
            break_long_words=False,
        ):
            terminal.echo(line)
    if summary.tags:
        tags = folded(summary.tags) if folds else summary.tags
        listed = tags if every else tags[:_SHOWN]
        columns = terminal.columns_of(_HEADS, map(_cells, listed), _HEADS[:2])
        left_out = terminal.print_table([column for column in columns if any(column.cells)])
        if left_out:
            terminal.say(f"  not shown: {', '.join(left_out)} (--wide shows all)")
        if len(listed) < len(tags):
            terminal.say(f"  and {len(tags) - len(listed):,} more tags (--all shows them)")
        if len(tags) < len(summary.tags):
            terminal.say("  slices: --all or --tags lists each value")
    terminal.print_problems(summary.problems, summary.problem_count)
    terminal.echo()


def _facts(summary: RunSummary) -> Iterator[tuple[str, str]]:
    from rec_summary.series.text import utc

    reason = f" ({summary.reason})" if summary.reason else ""
    silent = summary.silent_since
    silence = "" if silent is None else f", no sign of life since {utc(silent)}"
    yield "status", summary.status + reason + silence
    if summary.host:
        process = "" if summary.pid is None else f", process {summary.pid}"
        yield "host", summary.host + process
    if summary.ranks not in ((), (0,)):
        yield "ranks", _spans(summary.ranks)
    if summary.first_step is not None:
        yield "steps", f"{summary.first_step:,} to {summary.last_step:,}"
    if summary.samples is not None:
        yield "samples", f"{summary.samples:,}"
    if summary.first_time is not None and summary.last_time is not None:
        yield "time", f"{utc(summary.first_time)} to {utc(summary.last_time)}"
    yield "records", counts_of(summary.records) or "none"
    yield "files", f"{count_of(summary.files, 'file')}, {size_of(summary.nbytes)}"
    if summary.health:
        yield "health", _health(summary.health)
    if summary.troubles:
        troubles = (f"{n:,} {kind}" for kind, n in sorted(summary.troubles.items()))
        yield "troubles", ", ".join(troubles)
    for number, note in enumerate(summary.notes[-_NOTES:]):
        by = f" ({note['author']})" if note["author"] else ""
        said = f"step {note['step']:,}, {utc(note['wall_time'])}: {note['text']}{by}"
        yield "" if number else "notes", said


def _health(health: Mapping[str, float]) -> str:
    names = {"records": "recorded", "dropped": "dropped", "errors": "errors"}
    parts = [f"{health[key]:,.0f} {name}" for key, name in names.items() if key in health]
    if "queue_length" in health:
        parts.append(f"queue at most {health['queue_length']:,.0f}")
    if "snapshot_ms" in health:
        parts.append(f"{health['snapshot_ms']:.3g} ms a snapshot")
    return ", ".join(parts)


def _cells(summary: TagSummary) -> list[str]:
    return [
        summary.tag,
        summary.kind.replace("_", " "),
        *map(number_of, (summary.last, summary.least, summary.greatest)),
        f"{summary.first_step:,}–{summary.last_step:,}",
        f"{summary.values:,}",
        f"{summary.not_finite:,}" if summary.not_finite else "",
        size_of(summary.nbytes),
    ]


def _spans(ranks: Sequence[int]) -> str:
    """Returns ranks as a text; three and more in a row are its first and its last one."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][-1] == rank - 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    parts = (span if len(span) < 3 else [f"{span[0]}–{span[-1]}"] for span in spans)
    return ", ".join(str(span) for part in parts for span in part)
