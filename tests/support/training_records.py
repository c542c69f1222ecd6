"""Reading back what a collector has written, the plain way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import find_runs


def messages(directory: Path, kind: Kind, message: Any) -> Iterator[Any]:
    """Yields the messages of one kind in a record directory, oldest first."""
    [run] = find_runs(directory)
    for rank in run.ranks:
        for file in run.files_of(kind, rank):
            with RecordReader(file.path) as reader:
                for record in reader:
                    yield message.FromString(record.payload)


def events(directory: Path) -> list[Any]:
    """Returns the events with values."""
    every = messages(directory, Kind.SUMMARY, summary_pb2.Event)
    return [event for event in every if event.WhichOneof("what") == "summary"]


def graphs(directory: Path) -> list[Any]:
    """Returns the events with a graph."""
    every = messages(directory, Kind.SUMMARY, summary_pb2.Event)
    return [event for event in every if event.WhichOneof("what") == "graph_def"]


def scalars(directory: Path, tag: str) -> dict[int, float]:
    """Returns the values of a scalar by step; a step that was recorded twice is an error."""
    found: dict[int, float] = {}
    for event in events(directory):
        for value in event.summary.value:
            if value.tag == tag and value.WhichOneof("value") == "scalar_value":
                assert event.step not in found, f"{tag} has step {event.step} twice"
                found[event.step] = value.scalar_value
    return found


def histograms(directory: Path) -> dict[str, dict[int, Any]]:
    """Returns the histograms by tag and step."""
    found: dict[str, dict[int, Any]] = {}
    for event in events(directory):
        for value in event.summary.value:
            if value.WhichOneof("value") == "histogram":
                found.setdefault(value.tag, {})[event.step] = value.histogram
    return found


def lineage(directory: Path, kind: str) -> list[Any]:
    """Returns the lineage messages of one kind (a field of `LineageEvent`), oldest first."""
    every = messages(directory, Kind.LINEAGE, lineage_pb2.LineageEvent)
    return [getattr(event, kind) for event in every if event.WhichOneof("what") == kind]


def statuses(directory: Path) -> list[str]:
    """Returns the statuses that the train lineage went through."""
    name = lineage_pb2.RunState.Status.Name
    return [name(item.run_state.status) for item in lineage(directory, "train_lineage")]
