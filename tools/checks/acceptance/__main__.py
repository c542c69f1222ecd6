"""`python -m tools.checks.acceptance [SRC]`: exit code 1 if anything is shown wrongly."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rec_summary.tensorboard.event_files.export import export_tensorboard
from tools.checks.acceptance import trees
from tools.checks.acceptance.check import check


def main(source: str | None = None) -> int:
    """Exports records, has them shown, and prints how that compares; returns an exit code."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tree = Path(source) if source else scratch / "records"
        if source is None:
            trees.write(tree)
        report = export_tensorboard(tree, scratch / "logs")
        for problem in report.problems:
            print(f"problem: {problem}")
        wrong = check(tree, scratch / "logs", scratch)
    print("\nall that was recorded is shown, and nothing else" if not wrong else f"\n{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
