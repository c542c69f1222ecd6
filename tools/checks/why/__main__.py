"""Makes streams, asks `rec-summary why`, and prints how often it was right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click

from .judging import Verdict, holds, judged, table, written
from .streams import KINDS, drawn, ranks_of

_QUIET: Final = 20  # at the least: at most one of them may have a finding
_PATIENCE_SECS: Final = 600
_AT_ONCE: Final = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--first-seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*KINDS]))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the records here, and do not train again where they are.",
)
@click.option(
    "--page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Write the table into this page, between its two comments.",
)
def main(
    seeds: int, first_seed: int, kinds: Sequence[str], out: Path | None, page: Path | None
) -> None:
    """Train on streams in which something breaks, and let `rec-summary why` find it.

    Each kind has as many streams as there are seeds; of all kinds, 20 have nothing to find. Ends
    with 1 if fewer than 9 of 10 are named right or in time, or more than 1 of 20 named in vain.
    """
    of_quiet = seeds if kinds else max(seeds, _QUIET)
    chosen = [
        (kind, first_seed + number)
        for kind in kinds or KINDS
        for number in range(of_quiet if kind == "quiet" else seeds)
    ]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(_AT_ONCE) as pool:
        directory = out or Path(scratch)
        work = [pool.submit(_tried, kind, seed, directory) for kind, seed in chosen]
        verdicts = []
        with click.progressbar(work, label="streams", file=sys.stderr) as shown:
            verdicts = [each.result() for each in shown]
    text = table(verdicts)
    click.echo(text, nl=False)
    if page is not None:
        page.write_text(written(page.read_text(encoding="utf-8"), text), encoding="utf-8")
    sys.exit(not holds(verdicts))


def _tried(kind: str, seed: int, directory: Path) -> Verdict:
    """Trains on a stream unless its records are there, and asks."""
    records = directory / f"{kind}-{seed}"
    if not records.exists():
        unfinished = directory / f".{records.name}"
        recorded(kind, seed, unfinished)
        unfinished.rename(records)
    command = [sys.executable, "-m", "rec_summary", "why", str(records), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECS)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}: {done.stderr}")
    return judged(kind, seed, drawn(kind, seed), json.loads(done.stdout))


def recorded(kind: str, seed: int, directory: Path) -> None:
    """Trains on a stream, with a process for each rank."""
    size = ranks_of(kind)
    command = [sys.executable, "-m", f"{__package__}.streams", kind, str(seed), str(directory)]
    own = {"WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(command, env={**os.environ, **own, "RANK": str(rank)})
        for rank in range(size)
    ]
    codes = [process.wait(_PATIENCE_SECS) for process in processes]
    if any(codes):
        raise click.ClickException(f"the training on {kind}, seed {seed}, failed")


if __name__ == "__main__":
    main(prog_name="tools/check why")
