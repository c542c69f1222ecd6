"""Reading TensorBoard event files back, with TensorBoard's protobufs and our framing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2

from rec_summary.records.reading.reader import RecordReader

LAYOUT = "custom_scalars__config__"
Shown = dict[tuple[str, str, int], tuple[float, bytes]]


def read_events(path: Path) -> list[Any]:
    """Returns the events of a file, its version record included."""
    with RecordReader(path) as reader:
        return [event_pb2.Event.FromString(record.payload) for record in reader]


def event_file(run: Path) -> Path:
    """Returns the one event file of a run directory."""
    [path] = run.glob("*tfevents*")
    return path


def values(run: Path) -> list[tuple[int, float, Any]]:
    """Returns step, wall time and `Summary.Value` of every value of a run."""
    return [
        (event.step, event.wall_time, value)
        for event in read_events(event_file(run))
        for value in event.summary.value
    ]


def scalars(run: Path, tag: str) -> list[tuple[int, float]]:
    """Returns step and value of every scalar under a tag."""
    found = [(step, value) for step, _, value in values(run) if value.tag == tag]
    return [(step, value.simple_value) for step, value in found if value.HasField("simple_value")]


def shown(logdir: Path) -> Shown:
    """Returns what a TensorBoard shows: the last value of each run, tag and step."""
    found: Shown = {}
    for path in sorted(logdir.rglob("*tfevents*")):
        run = str(path.parent.relative_to(logdir))
        for each in read_events(path):
            if each.HasField("session_log"):
                later = [key for key in found if key[0] == run and key[2] >= each.step]
                for key in later:
                    del found[key]
            for value in each.summary.value:
                value.ClearField("metadata")
                key = (run, value.tag, each.step)
                found[key] = (each.wall_time, value.SerializeToString(deterministic=True))
    return found
