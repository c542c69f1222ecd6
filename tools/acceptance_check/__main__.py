"""`python -m tools.acceptance_check [SRC]`: exports, serves, compares, prints a table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rec_summary.export.tensorboard import export_tensorboard
from tools.acceptance_check.boards import CHECKS
from tools.acceptance_check.expected import expected
from tools.tensorboard_pages.server import TensorBoardServer

ROOT = Path(__file__).parents[2]
_SHOWN = 5
# Nothing is sampled away.
_ALL = "--samples_per_plugin=scalars=100000,histograms=10000,images=10000,text=10000,mesh=1000"


def check(source: Path, logdir: Path, logs: Path) -> int:
    """Compares an exported tree with its records in both loaders; returns what is wrong."""
    total = 0
    print(f"\n{source}\n{'loader':8} {'dashboard':16} {'values':>8} {'wrong':>6}")
    for fast in (True, False):
        loader = "rust" if fast else "python"
        runs = expected(source, fast=fast)
        log = logs / f"{loader}.log"
        with TensorBoardServer(logdir, log, load_fast=fast, arguments=(_ALL,)) as server:
            server.eventually(lambda server=server, runs=runs: set(runs) <= set(server.get("runs")))
            server.settle()
            for name, compare in CHECKS.items():
                values, wrong = 0, []
                for count, differences in compare(runs, server):
                    values += count
                    wrong += differences
                print(f"{loader:8} {name:16} {values:8,} {len(wrong):6,}")
                for difference in wrong[:_SHOWN]:
                    print(f"    {difference}")
                total += len(wrong)
    return total


def record(which: str, folder: Path, scratch: Path) -> None:
    """Has a collector record a training, in a process of its own."""
    command = [sys.executable, "-m", "tools.acceptance_check.training", which, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    done = subprocess.run(
        command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise SystemExit(f"the training of {which} failed:\n{done.stdout}\n{done.stderr}")


def main(arguments: list[str]) -> int:
    """Checks a tree of records; without an argument, trees that it makes itself."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        if arguments:
            sources = [Path(argument).resolve() for argument in arguments]
        else:
            for which in ("ours", "theirs"):
                print(f"recording a training with {which} ...", flush=True)
                record(which, base / "recorded" / which, base)
            from tests.export import cases

            cases.write_all(base / "cases")
            sources = [base / "recorded", base / "cases"]
        for index, source in enumerate(sources):
            logdir, logs = base / f"logs_{index}", base / f"served_{index}"
            logs.mkdir()
            report = export_tensorboard(source, logdir)
            for problem in report.problems:
                print(f"problem: {problem}")
            wrong += check(source, logdir, logs)
    print("\nEverything that was recorded is shown." if not wrong else f"\n{wrong} differences.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
