"""`rec-summary verify`, `repair` and `compact`: whether records are sound, and how large."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli
from rec_summary.cli.text import count_of, size_of

if TYPE_CHECKING:
    from rec_summary.compaction.directory import Replacement, RunCompaction
    from rec_summary.records.reading.runs import Run

VERIFY_EXAMPLES = """\b
Examples:
  rec-summary verify records
  rec-summary verify records && rsync -a records backup:
"""
REPAIR_EXAMPLES = """\b
Examples:
  rec-summary repair records records-repaired
  rec-summary repair records records-repaired --json | jq '.files[].lost'
"""
COMPACT_EXAMPLES = """\b
Examples:
  rec-summary compact records --total-bytes 1000000000 --dry-run
  rec-summary compact records --total-bytes 1000000000
  rec-summary compact records --total-bytes 1000000000 --output records-small
"""


@cli.command(epilog=VERIFY_EXAMPLES, quiet="Print damage only.")
@options.source
@options.runs
@options.on_engine
@options.as_json()
def verify(source: str, runs: str | None, engine: str, jobs: int | None) -> int:
    """Check the checksums, contents and order of records.

    SRC is a record directory, a tree of them, or a URL; it is not changed.
    Exits with 0 if there is no damage, with 1 if there is. An unfinished record at the end of a
    file is a warning: a running training leaves one.
    """
    from rec_summary.series.options import chosen_engine
    from rec_summary.series.overview.each_run import each_run
    from rec_summary.series.overview.verify import DAMAGE, WARNING, FileReport, verify_run

    reader = chosen_engine(engine, jobs)
    reports, unreadable = list[FileReport](), list[tuple[str, str]]()
    chosen = choose_runs(source, runs)

    def fail(run: Run, error: Exception) -> None:
        unreadable.append((run.path, str(error)))

    with terminal.reading_progress(source, chosen) as counted:
        for _, result in each_run(verify_run, chosen, reader, counted, fail):
            if isinstance(result, FileReport):
                reports.append(result)
            else:
                unreadable.append(result)
    damaged = sum(report.damaged for report in reports) + len(unreadable)
    if terminal.printing().as_json:
        files = [{**dataclasses.asdict(file), "damaged": file.damaged} for file in reports]
        terminal.print_json({"files": files, "unreadable": unreadable})
    else:
        for report in reports:
            where = f"{report.path}, offset"
            lines = [
                f"{finding.severity}: {where} {finding.offset}: {finding.text}"
                for finding in report.findings
                if not terminal.printing().quiet or finding.severity == DAMAGE
            ]
            terminal.print_first(lines, "in this file")
        for path, why in unreadable:
            terminal.echo(f"damage: {path}: the file cannot be read: {why}")
        records = sum(sum(report.records.values()) for report in reports)
        counts = f"{count_of(len(reports), 'file')}, {count_of(records, 'sound record')}"
        size = size_of(sum(report.nbytes for report in reports))
        found = count_of(damaged, "damaged file") if damaged else "no damage"
        warnings = sum(each.severity == WARNING for file in reports for each in file.findings)
        found += f", {count_of(warnings, 'warning')}" if warnings else ""
        terminal.say(f"{counts}, {size}: {found}")
    return int(damaged > 0)


@cli.command(
    epilog=REPAIR_EXAMPLES,
    quiet="Print losses only.",
    writes="destination",
    empty=True,
)
@options.source
@click.argument("destination", metavar="DEST", type=options.PATH)
@options.as_json()
def repair(source: str, destination: str) -> None:
    """Copy all readable records to DEST; SRC is not changed.

    Records after damaged bytes are found, too. DEST must be empty or new. Other files of a
    record directory, such as checkpoints, are not copied. Both may be URLs.
    """
    from rec_summary.records.reading.repair import repair as copy

    with terminal.progress_shown(doing="copying") as progress:
        report = copy(source, destination, progress=progress)
    if terminal.printing().as_json:
        terminal.print_json(report)
        return
    places = [
        f"{file.source}, offset {offset}: {size_of(size)} could not be read"
        for file in report.files
        for offset, size in file.lost
    ]
    places += [f"{path}: cannot be opened: {why}" for path, why in report.unreadable]
    terminal.print_first(places, "places")
    records = sum(file.records for file in report.files)
    size = size_of(sum(file.nbytes for file in report.files))
    lost = sum(size for file in report.files for _, size in file.lost)
    copied = f"{count_of(records, 'record')} ({size}) in {count_of(len(report.files), 'file')}"
    terminal.say(f"Copied {copied} to {destination}; {size_of(lost)} could not be read.")


@cli.command(
    epilog=COMPACT_EXAMPLES,
    quiet="Print nothing but errors and what was left as it is.",
    writes="output",
    empty=True,
)
@options.source
@options.option(
    "--total-bytes N",
    "The most bytes of record files for each run.",
    options.COUNT,
    required=True,
)
@options.option(
    "--output DIR",
    "Write compacted copies to DIR, which is empty or new; SRC is not changed.",
    options.PATH,
)
@options.flag("--dry-run", "Only print what would be replaced.")
@options.runs
@options.on_engine
@options.as_json()
def compact(source: str, total_bytes: int, dry_run: bool, **chosen: Any) -> None:
    """Make old records coarser until each run has at most N bytes.

    The newest part of a run stays complete. Older parts become coarser with their age, and no part
    is lost. Of each bucket of steps, a scalar keeps its first, minimum, maximum and last point, NaN
    and infinities included. Histograms, images and tensors keep the first value of buckets 100
    times as wide. Lineage, graphs, landscapes and evaluations keep all. The format of the files
    does not change.

    No process may write to SRC meanwhile. Records of MindSpore's collector can be compacted, too.
    A training with SummaryCollector(retention=...) compacts its own records.
    """
    from rec_summary.compaction.directory import compact as compact_all

    with terminal.progress_shown(doing="compacting") as progress:
        reports = compact_all(source, total_bytes, dry_run=dry_run, progress=progress, **chosen)
    if terminal.printing().as_json:
        terminal.print_json(reports)
        return
    would = "would shrink " if dry_run else ""
    for run in reports:
        for path, why in run.left:
            terminal.echo(f"{path}: left as it is: {why}", err=True)
        if run.bytes_after > total_bytes:
            over = size_of(run.bytes_after - total_bytes)
            what = "files that are left, and what stays in any case, have no room in --total-bytes"
            terminal.echo(f"{run.run}: {over} too large: {what}", err=True)
        nothing = f"nothing to do ({size_of(run.bytes_before)})"
        terminal.say(f"{run.run}: {would + _sizes(run) if run.replaced else nothing}")
        for joined in run.replaced:
            line = f"  rank {joined.rank}: {count_of(len(joined.files), f'{joined.kind} file')}"
            steps = f", at most {joined.bucket_steps:,} steps in a bucket"
            terminal.say(f"{line}, {_sizes(joined)}{steps if joined.bucket_steps > 1 else ''}")
    if len(reports) > 1:
        terminal.say(f"{count_of(len(reports), 'run')}: {would}{_sizes(*reports)}")


def _sizes(*done: RunCompaction | Replacement) -> str:
    before = sum(each.bytes_before for each in done)
    return f"{size_of(before)} -> {size_of(sum(each.bytes_after for each in done))}"
