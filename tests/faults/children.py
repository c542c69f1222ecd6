"""Starting the programs of this suite, and reading what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader, TruncatedRecord
from rec_summary.records.reading.runs import find_runs
from tests.support import event_files
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TRAINER_FLUSH_SECS = 0.2
COMMAND = [sys.executable, "-m", "rec_summary"]


def start(
    *command: object, popen: type[subprocess.Popen[str]] = subprocess.Popen, **options: Any
) -> subprocess.Popen[str]:
    """Starts a program of the suite (`tests.faults.…`) or another command, outputs captured."""
    words = [str(word) for word in command]
    if words[0].startswith("tests."):
        words = [sys.executable, "-m", *words]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GLOG_v": "3",
        "PYTHONUNBUFFERED": "1",
        **options.pop("env", {}),
    }
    options = {"cwd": ROOT, **options}
    pipe = subprocess.PIPE
    return popen(words, env=environment, stdout=pipe, stderr=pipe, text=True, **options)


def wait_for_events(logdir: Path, process: subprocess.Popen[str]) -> None:
    """Returns when an export begins to write event files, or has ended."""
    eventually(
        lambda: any(logdir.rglob("*tfevents*")) or process.poll() is not None, rest_secs=0.001
    )


@dataclass
class Left:
    """What is in a record directory.

    Attributes:
        steps: The steps of all values, in the order of the files.
        torn: How many files end in a torn record.
        statuses: The statuses that the train lineage went through.
        reason: The last one's reason.
        scalars: The last value of each scalar.
    """

    steps: list[int] = field(default_factory=list)
    torn: int = 0
    statuses: list[str] = field(default_factory=list)
    reason: str = ""
    scalars: dict[str, float] = field(default_factory=dict)


def left_in(directory: Path, rank: int | None = None) -> Left:
    """Reads a run's records; anything else than a torn end is an error of the test."""
    left = Left()
    [run] = find_runs(directory)
    for file in run.files:
        if rank is not None and file.name.rank != rank:
            continue
        with RecordReader(file.path) as reader:
            try:
                for record in reader:
                    if file.name.kind is Kind.SUMMARY:
                        _take_event(left, summary_pb2.Event.FromString(record.payload))
                    else:
                        _take_lineage(left, lineage_pb2.LineageEvent.FromString(record.payload))
            except TruncatedRecord:
                left.torn += 1
    return left


def _take_event(left: Left, event: Any) -> None:
    values = event.summary.value
    left.scalars.update(
        (value.tag, value.scalar_value) for value in values if value.HasField("scalar_value")
    )
    if any(not value.tag.startswith(("rec_summary/", "recommender/")) for value in values):
        left.steps.append(event.step)


def _take_lineage(left: Left, event: Any) -> None:
    if event.HasField("train_lineage"):
        state = event.train_lineage.run_state
        left.statuses.append(lineage_pb2.RunState.Status.Name(state.status))
        left.reason = state.reason


def shown(logdir: Path) -> dict[str, list[tuple[int, float, bytes]]]:
    """Returns the values of every series in their order, by run and tag."""
    series: dict[str, list[tuple[int, float, bytes]]] = {}
    for run in sorted({path.parent for path in logdir.rglob("*tfevents*")}):
        for step, at, value in event_files.values(run):
            name = f"{run.relative_to(logdir)}:{value.tag}"
            series.setdefault(name, []).append((step, at, value.SerializeToString()))
    return series


def count(values: dict[str, list[tuple[int, float, bytes]]]) -> int:
    """Returns the number of values."""
    return sum(len(each) for each in values.values())
