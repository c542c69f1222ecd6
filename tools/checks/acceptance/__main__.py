"""Runs `tools/check acceptance`; exits with 1 if anything is shown wrongly."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from rec_summary.tensorboard.event_files.export import export_tensorboard

from .check import check, store, stored
from .trees import FIXED, written


@click.command()
@click.argument("source", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--update", is_flag=True, help="Write dashboards.json from what is shown now.")
def main(source: Path | None, update: bool) -> None:
    """Compare what TensorBoard shows with the records in SOURCE, or with fixed records."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        trees = {"yours": source} if source else written(scratch, trainings=not update)
        wrong = 0
        for name, tree in trees.items():
            logdir = scratch / f"{name}-logs"
            for problem in export_tensorboard(tree, logdir).problems:
                print(f"problem: {problem}")
            items = stored() if name == FIXED and not update else {}
            wrong += check(tree, logdir, scratch, items)
        if update and not wrong:
            store(items)
    print(f"\n{wrong} wrong" if wrong else "\neverything recorded is shown, and nothing else")
    sys.exit(1 if wrong else 0)


main(prog_name="tools/check acceptance")
