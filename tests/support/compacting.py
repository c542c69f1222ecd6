"""A run that is larger than its budget, and the check that its history is whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import recorded_values
from tests.support.record_dirs import event, scalar, write_segment

ROOT = Path(__file__).parents[2]
BUDGET = 200_000
EDGES = range(1, 2001)


def write_records(directory: Path) -> Path:
    """Writes eight segments whose values the budget has no room for; returns the directory."""
    for number in range(8):
        steps = range(number * 250 + 1, number * 250 + 251)
        write_segment(directory, *(event(step, *_values(step)) for step in steps))
    return directory


def _values(step: int) -> list[object]:
    return [scalar(f"metric_{number}", step + number) for number in range(8)]


def shown(directory: Path) -> tuple[dict[str, list[int]], list[str]]:
    """Returns the steps of each tag, in the order of reading, and what was wrong."""
    report = Report()
    found: dict[str, list[int]] = {}
    [run] = find_runs(directory)
    for value in recorded_values(run, ("scalar_value",), EVERYTHING, report):
        assert value.run == directory.name  # of one writer
        found.setdefault(value.recorded.tag, []).append(value.step)
    return found, [str(problem) for problem in report.problems]


def check(directory: Path, *, complete: bool = False) -> None:
    """Checks that all is there that must be, and nothing twice."""
    found, problems = shown(directory)
    assert problems == []
    assert len(found) == 8
    for steps in found.values():
        assert steps == sorted(set(steps))
        assert (steps[0], steps[-1]) == (1, 2000)
        if complete:
            assert steps == list(EDGES)


def compact(directory: Path, number: int) -> subprocess.CompletedProcess[str]:
    """Compacts in a process that is killed at a call of the operating system; 0 for never."""
    command = [sys.executable, "-m", "tests.support.programs.killed_compaction"]
    words = [*command, str(directory), str(BUDGET), str(number)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
