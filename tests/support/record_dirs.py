"""Record directories for the tests, written by the package's own writer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.format.framing import frame
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.values.histogram import histogram

START = 1_700_000_000.125  # a wall time with a fraction that a float64 holds exactly


def scalar(tag: str, number: float) -> summary_pb2.Summary.Value:
    """Returns a scalar value."""
    return summary_pb2.Summary.Value(tag=tag, scalar_value=number)


def histo(tag: str, values: Any) -> summary_pb2.Summary.Value:
    """Returns the histogram value of an array."""
    return summary_pb2.Summary.Value(tag=tag, histogram=histogram(values))


def picture(tag: str, height: int = 1) -> summary_pb2.Summary.Value:
    """Returns an image that nothing can show."""
    image = summary_pb2.Summary.Image(height=height, width=1, colorspace=1, encoded_image=b"")
    return summary_pb2.Summary.Value(tag=tag, image=image)


def event(step: int, *values: summary_pb2.Summary.Value, at: float | None = None) -> Any:
    """Returns a summary event; it is a quarter of a second per step after `START`."""
    wall_time = START + step / 4 if at is None else at
    return summary_pb2.Event(
        wall_time=wall_time, step=step, summary=summary_pb2.Summary(value=values)
    )


def lineage(at: float = START, **what: Any) -> Any:
    """Returns a lineage event."""
    return lineage_pb2.LineageEvent(wall_time=at, **what)


def train(**run_state: Any) -> lineage_pb2.TrainLineage:
    """Returns a training lineage; without arguments, one as MindSpore writes it."""
    result = lineage_pb2.TrainLineage(
        hyper_parameters=lineage_pb2.TrainLineage.HyperParameters(
            optimizer="Adam",
            learning_rate=0.001,
            loss_function="BCELoss",
            epoch=3,
            parallel_mode="stand_alone",
            device_num=1,
            batch_size=64,
        ),
        train_dataset=lineage_pb2.TrainLineage.TrainDataset(
            train_dataset_path="/data/clicks", train_dataset_size=6400
        ),
        algorithm=lineage_pb2.TrainLineage.Algorithm(network="DeepFM", loss=0.25),
        model=lineage_pb2.TrainLineage.Model(path='{"ckpt": null}', size=0),
    )
    if run_state:
        result.run_state.CopyFrom(lineage_pb2.RunState(**run_state))
    return result


def custom(entries: Mapping[str, Any]) -> lineage_pb2.UserDefinedInfo:
    """Returns custom data as MindSpore packs it: a list of messages with one entry each."""
    result = lineage_pb2.UserDefinedInfo()
    for key, value in entries.items():
        part = result.user_info.add()
        if isinstance(value, dict):
            part.map_dict[key].CopyFrom(custom(value))
        elif isinstance(value, bool):
            part.map_bool[key] = value
        elif isinstance(value, int):
            part.map_int64[key] = value
        elif isinstance(value, float):
            part.map_double[key] = value
        else:
            part.map_str[key] = str(value)
            part.none.extend([key] if value is None else [])
    return result


def write_segment(directory: Path, *events: Any, rank: int = 0) -> tuple[Path, Path]:
    """Writes events to a new pair of files; returns the summary file and the lineage file."""
    writer = RunWriter(directory, rank)
    for each in events:
        writer.write(MessageRecord(each))
    writer.close()
    summary, lineage_file = writer.paths
    return Path(summary), Path(lineage_file)


def write_payloads(path: Path, *payloads: bytes) -> Path:
    """Writes framed payloads, whatever they are, to a file of any name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frame(payload) for payload in payloads))
    return path


def summary_name(stamp: int = 1_700_000_000, rank: int = 0) -> str:
    """Returns the name of a summary file."""
    return f"events.out.events.summary.{stamp}.{rank}.host_MS"


def tree(path: Path) -> dict[str, bytes]:
    """Returns the content of every file below a directory, by relative path."""
    found = {}
    for parent, _, names in os.walk(path):
        for name in names:
            file = Path(parent, name)
            found[str(file.relative_to(path))] = file.read_bytes()
    return found


def ballast(step: int = 1) -> Any:
    """Returns an event that cannot be shown, and makes a run large enough for worker processes."""
    value = summary_pb2.Summary.Value(tag="ballast")
    value.tensor.raw_data = bytes(1 << 24)
    return event(step, value)


def losses(steps: Iterable[int], number: float | None = None, tag: str = "loss") -> list[Any]:
    """Returns an event with a scalar for each step: the number, or else the step itself."""
    return [event(step, scalar(tag, step if number is None else number)) for step in steps]
