"""`rec-summary compact`: makes old records coarser, so that a run fits a budget of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.output import count_of, one_line, print_json, progress_shown, size_of

if TYPE_CHECKING:
    from rec_summary.compaction.directory import RunCompaction

EXAMPLES = """\b
Examples:
  rec-summary compact records --total-bytes 1000000000 --dry-run
  rec-summary compact records --total-bytes 1000000000
  rec-summary compact records --total-bytes 1000000000 --output records-small
"""


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    quiet="Print nothing but errors and what was left as it is.",
    writes="output",
    empty=True,
)
@options.source
@click.option(
    "--total-bytes",
    metavar="N",
    type=click.IntRange(1),
    required=True,
    help="The most bytes of record files for each run.",
)
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(),
    help="Write compacted copies to DIR, which is empty or new; SRC is not changed.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be replaced.")
@options.runs
@options.as_json()
def compact(
    source: str,
    total_bytes: int,
    output: str | None,
    dry_run: bool,
    runs: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make old records coarser until each run has at most N bytes.

    The newest part of a run stays complete; older parts become coarser the older they are, and the
    whole history stays. Of scalars, the first, least, greatest and last point of each bucket of
    steps are kept, NaN and infinities among them; of histograms, images and tensors every n-th; of
    lineage, graphs, landscapes and evaluations all. The files are in the format that they had.

    SRC is for directories that no process writes, MindSpore's as well. A training with
    SummaryCollector(retention=...) does this by itself.
    """
    from rec_summary.compaction.directory import compact as compact_all

    with progress_shown(quiet=quiet or as_json, doing="compacting") as progress:
        found = compact_all(
            source, total_bytes, runs=runs, output=output, dry_run=dry_run, progress=progress
        )
    if as_json:
        print_json(found)
        return
    for run in found:
        for path, why in run.left:
            click.echo(f"{one_line(path)}: left as it is: {one_line(why)}", err=True)
        if not quiet:
            for line in _lines(run, dry_run=dry_run):
                click.echo(line)


def _lines(run: RunCompaction, *, dry_run: bool) -> Iterator[str]:
    would = "would have " if dry_run else ""
    sizes = f"{size_of(run.bytes_before)} -> {size_of(run.bytes_after)}"
    if not run.replaced:
        yield f"{one_line(run.run)}: {would}nothing to do ({size_of(run.bytes_before)})"
        return
    yield f"{one_line(run.run)}: {would}{sizes}"
    for each in run.replaced:
        files = count_of(len(each.files), f"{each.kind} file")
        width = (
            f", at most {each.bucket_steps:,} steps in a bucket" if each.bucket_steps > 1 else ""
        )
        yield (
            f"  rank {each.rank}: {files}, {size_of(each.bytes_before)} -> "
            f"{size_of(each.bytes_after)}{width}"
        )
