"""What TensorBoard should show of records, worked out from the records alone.

Nothing of the exporter is used here but the protobufs and the reader of record files, so
that a mistake in the exporter is not made twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.reader import BadDataChecksum, RecordError, RecordReader

STEADY: Final = ("scalar_value", "histogram")


@dataclass
class Shown:
    """A value that should be shown: its step, its time, and what it is."""

    step: int
    wall_time: float
    content: Any


@dataclass
class Expected:
    """What should be shown of one TensorBoard run.

    Attributes:
        series: The values by kind and recorded tag, in the order of recording.
        graphs: The computation graphs, each once.
        dataset_graphs: The graphs of data pipelines, each once.
        lineage: What is known of the run, if it has a session.
    """

    series: dict[tuple[str, str], list[Shown]] = field(default_factory=dict)
    graphs: list[Any] = field(default_factory=list)
    dataset_graphs: list[Any] = field(default_factory=list)
    lineage: dict[str, Any] | None = None


class Loader:
    """Takes values in order, and keeps what one of TensorBoard's loaders keeps of them."""

    def __init__(self, *, fast: bool) -> None:
        self.runs: dict[str, Expected] = {}
        self._fast = fast
        self._last: dict[str, dict[tuple[str, str], int]] = {}

    def run(self, name: str) -> Expected:
        return self.runs.setdefault(name, Expected())

    def begin(self, run: str, step: int, keys: list[tuple[str, str]]) -> None:
        """Takes a record's step, kinds and tags; it may say that training was started again."""
        last = self._last.setdefault(run, {})
        steady = [key for key in keys if key[0] in STEADY]
        if any(last.get(key, step) > step for key in steady):
            self._restart(run, step)
        last.update(dict.fromkeys(steady, step))

    def add(self, run: str, kind: str, tag: str, shown: Shown) -> None:
        """Takes a value; what was recorded for this step and later ones may be superseded."""
        kept = self.run(run).series.setdefault((kind, tag), [])
        # The same step again: the later value counts, for both loaders.
        kept[:] = [
            each
            for each in kept
            if each.step != shown.step and not (self._fast and each.step > shown.step)
        ]
        kept.append(shown)

    def _restart(self, run: str, step: int) -> None:
        last = self._last[run]
        for key in [key for key, reached in last.items() if reached > step]:
            del last[key]
        if not self._fast:  # that loader forgets all series, the other one each on its own
            for kept in self.run(run).series.values():
                kept[:] = [each for each in kept if each.step < step]


def expected(source: Path, *, fast: bool) -> dict[str, Expected]:
    """Returns what one of TensorBoard's loaders should show, by TensorBoard run."""
    loader = Loader(fast=fast)
    for directory in sorted(_record_directories(source)):
        relative = directory.relative_to(source).as_posix()
        run = source.name if relative == "." else relative
        _take_run(loader, run, directory)
    return {name: each for name, each in loader.runs.items() if _has_something(each)}


def _has_something(each: Expected) -> bool:
    return bool(any(each.series.values()) or each.graphs or each.dataset_graphs or each.lineage)


def _record_directories(source: Path) -> set[Path]:
    return {path.parent for path in source.rglob("*.out.events.summary.*") if path.is_file()}


def _take_run(loader: Loader, run: str, directory: Path) -> None:
    files: dict[int, list[Path]] = {}
    for path in directory.glob("*.out.events.summary.*"):
        files.setdefault(_part(path, 1), []).append(path)
    lineages = {}
    for rank, paths in sorted(files.items()):
        name = f"{run}/rank_{rank}" if len(files) > 1 else run
        ordered = sorted(paths, key=lambda path: (_part(path, 0), path.name))
        reached = 0
        for path in (each for each in ordered if not each.name.endswith("_lineage")):
            reached = max(reached, _take_summaries(loader, name, path))
        lineage: dict[str, Any] = {"custom": {}, "evaluations": []}
        for path in (each for each in ordered if each.name.endswith("_lineage")):
            _take_lineage(loader.run(name), lineage, path, reached)
        if lineage.get("train") is not None or lineage["custom"] or lineage["evaluations"]:
            lineages[rank] = lineage
    describing = [each for each in lineages.values() if each.get("train") or each["custom"]]
    if describing:
        loader.run(run).lineage = describing[0]
    evaluating = [rank for rank, each in lineages.items() if each["evaluations"]]
    if evaluating:
        rank = evaluating[0]
        own = f"{run}/rank_{rank}" if len(files) > 1 else run
        _take_evaluations(loader, run, own, lineages[rank]["evaluations"])


def _part(path: Path, index: int) -> int:
    """Returns the stamp (0) or the rank (1) in a file's name."""
    parts = path.name.partition(".out.events.summary.")[2].split(".")
    return int(parts[index]) if len(parts) > index and parts[index].isdigit() else 0


def _take_summaries(loader: Loader, run: str, path: Path) -> int:
    reached = 0
    for payload, wall_time in _payloads(path, Event):
        graphs = loader.run(run).graphs
        if payload.HasField("graph_def") and payload.graph_def not in graphs:
            graphs.append(payload.graph_def)
        values = payload.summary.value
        keys = [(value.WhichOneof("value"), value.tag) for value in values]
        loader.begin(run, payload.step, keys)
        for value in values:
            reached = max(reached, payload.step)
            kind = value.WhichOneof("value")
            shown = Shown(payload.step, wall_time, getattr(value, kind))
            loader.add(run, kind, value.tag, shown)
    return reached


def _take_lineage(run: Expected, lineage: dict[str, Any], path: Path, reached: int) -> None:
    for event, wall_time in _payloads(path, LineageEvent):
        if event.HasField("train_lineage"):
            lineage["train"] = event.train_lineage
        elif event.HasField("user_defined_info"):
            lineage["custom"].update(_flattened(event.user_defined_info, ""))
        elif event.HasField("dataset_graph"):
            if event.dataset_graph not in run.dataset_graphs:
                run.dataset_graphs.append(event.dataset_graph)
        elif event.HasField("evaluation_lineage"):
            evaluation = event.evaluation_lineage
            step = evaluation.train_step if evaluation.HasField("train_step") else reached
            metrics = json.loads(evaluation.metric or "{}")
            lineage["evaluations"].append((step, wall_time, metrics))


def _take_evaluations(
    loader: Loader, run: str, own: str, evaluations: list[tuple[int, float, Any]]
) -> None:
    recorded = {tag for kind, tag in loader.run(own).series if kind == "scalar_value"}
    for step, wall_time, metrics in evaluations:
        for name, value in metrics.items():
            if isinstance(value, int | float) and f"eval/{name}" not in recorded:
                loader.add(f"{run}/eval", "scalar_value", name, Shown(step, wall_time, value))


def _flattened(info: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for part in info.user_info:
        yield from _flattened(part, prefix)
    for entries in (info.map_double, info.map_int32, info.map_str, info.map_bool, info.map_int64):
        yield from ((prefix + key, value) for key, value in entries.items())
    for key, inner in info.map_dict.items():
        yield from _flattened(inner, f"{prefix}{key}.")


def _payloads(path: Path, message: Any) -> Iterator[tuple[Any, float]]:
    """Yields the events of a file, and their times: that of the one before, if one has none."""
    wall_time = float(_part(path, 0))
    with RecordReader(path) as reader:
        while True:
            try:
                record = reader.read()
            except BadDataChecksum:
                continue
            except RecordError:
                return
            if record is None:
                return
            event = message.FromString(record.payload)
            if math.isfinite(event.wall_time):
                wall_time = event.wall_time
            yield event, wall_time


def status(lineage: dict[str, Any]) -> str:
    """Returns how the HParams dashboard should call a run's status."""
    train = lineage.get("train")
    if train is None:
        return "STATUS_UNKNOWN"
    if not train.HasField("run_state"):
        return "STATUS_SUCCESS"
    return {
        RunState.RUNNING: "STATUS_RUNNING",
        RunState.FINISHED: "STATUS_SUCCESS",
        RunState.STOPPED: "STATUS_SUCCESS",
        RunState.FAILED: "STATUS_FAILURE",
    }.get(train.run_state.status, "STATUS_UNKNOWN")
