"""The plugins of a `SummaryRecord`: the values that they accept, and their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary._pb import anf_ir_pb2, lineage_pb2
from rec_summary._pb.summary_pb2 import LossLandscape, Summary
from rec_summary.checks import check_type, check_unicode
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.task import MessageRecord, Record
from rec_summary.training.graphs import GraphRecord
from rec_summary.training.npy_export import NpyExporter
from rec_summary.training.operators import snapshot
from rec_summary.training.recorder import StepRecord
from rec_summary.training.tensors import own_array
from rec_summary.values.scalar import to_number
from rec_summary.values.summary import ScalarValue, SummaryValue

_VALUES: Final = ("tensor", "scalar", "image", "histogram")
# By plugin: the message that it accepts, and the message's field in a lineage event.
_LINEAGE: Final = {
    "train_lineage": ("TrainLineage", "train_lineage"),
    "eval_lineage": ("EvaluationLineage", "evaluation_lineage"),
    "dataset_graph": ("DatasetGraph", "dataset_graph"),
    "custom_lineage_data": ("UserDefinedInfo", "user_defined_info"),
}
GRAPH: Final = "graph"
_LANDSCAPE: Final = "landscape"
PLUGINS: Final = (*_VALUES, *_LINEAGE, GRAPH, _LANDSCAPE)


def own_content(plugin: str, name: str, value: Any) -> SummaryValue | bytes:
    """Checks a user's value, and returns it with its own memory.

    Returns:
        A snapshot, or the bytes of a lineage message or of a ModelProto.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has an invalid value.
    """
    expected = f"one of {', '.join(PLUGINS)}"
    check_type("plugin", plugin, str, expected)
    if plugin not in PLUGINS:
        raise ValueError(three_part("plugin", plugin, expected))
    if plugin in _LINEAGE:
        return _serialised(plugin, value, _LINEAGE[plugin][0])
    if plugin == GRAPH:
        return _model(value)
    _check_name(name)
    if plugin == _LANDSCAPE:
        return _Landscape(name, _serialised(plugin, value, "LossLandscape"))
    return _scalar(name, value) if plugin == "scalar" else snapshot(plugin, name, value)


@dataclass
class Pool:
    """The values of the next step: the newest value of each tag, and all lineage and graphs."""

    _values: dict[tuple[str, str], SummaryValue] = field(default_factory=dict)
    _rest: list[tuple[str, bytes]] = field(default_factory=list)

    def put(self, plugin: str, content: SummaryValue | bytes) -> None:
        """Adds a value of a plugin; bytes for lineage and graphs."""
        if isinstance(content, bytes):
            self._rest.append((plugin, content))
        else:
            self._values[plugin, content.tag] = content

    def records(
        self,
        step: int,
        wall_time: float,
        wanted: Callable[[str], bool],
        troubles: Troubles,
        exporter: NpyExporter | None,
    ) -> list[Record]:
        """Returns the records of one step.

        Args:
            step: The step of all values.
            wall_time: The time of the step, in seconds since the epoch.
            wanted: Returns whether a plugin is written; called once for each plugin with values.
            troubles: Receives each value that cannot be encoded.
            exporter: Also receives each tensor.
        """
        present = {plugin for plugin, _ in (*self._values, *self._rest)}
        chosen = {plugin for plugin in PLUGINS if plugin in present and wanted(plugin)}
        records: list[Record] = []
        for plugin, payload in self._rest:
            if plugin in chosen:
                graph = plugin == GRAPH
                records.append(
                    GraphRecord(payload) if graph else _lineage(plugin, step, wall_time, payload)
                )
        values = [value for (plugin, _), value in self._values.items() if plugin in chosen]
        if values:
            records.append(StepRecord(step, wall_time, values, troubles, exporter))
        return records


@dataclass(frozen=True)
class _Landscape:
    """A loss landscape as a `SummaryValue`."""

    tag: str
    payload: bytes

    @property
    def nbytes(self) -> int:
        return len(self.payload)

    def encode(self) -> bytes:
        landscape = LossLandscape.FromString(self.payload)
        return bytes(Summary.Value(tag=self.tag, loss_landscape=landscape).SerializeToString())


def _lineage(plugin: str, step: int, wall_time: float, payload: bytes) -> MessageRecord:
    event = lineage_pb2.LineageEvent(wall_time=wall_time, step=step)
    message = getattr(event, _LINEAGE[plugin][1])
    message.SetInParent()  # also for an empty message
    message.MergeFromString(payload)
    return MessageRecord(event)


def _check_name(name: str) -> None:
    check_type("name", name, str, "a non-empty str")
    if not name:
        raise ValueError(three_part("name", name, "a non-empty str"))
    check_unicode("name", name)


def _scalar(name: str, value: Any) -> ScalarValue:
    what = f"scalar {name!r}"
    array = own_array(value, what)
    if array.size != 1:
        raise ValueError(three_part(what, verbatim(f"shape {array.shape}"), "one number"))
    return ScalarValue(name, to_number(array))


def _serialised(plugin: str, value: Any, message: str) -> bytes:
    """Returns the bytes of a protobuf message of this name, from any package."""
    if getattr(getattr(value, "DESCRIPTOR", None), "name", None) != message:
        expected = f"a {message} message of MindSpore or of rec_summary"
        raise TypeError(three_part(f"the value of {plugin}", type(value).__name__, expected))
    return bytes(value.SerializeToString())


def _model(value: Any) -> bytes:
    """Returns the bytes of a ModelProto with a graph."""
    what, expected = "the value of graph", "a ModelProto message with a graph, or its bytes"
    payload = value if isinstance(value, bytes) else _serialised(GRAPH, value, "ModelProto")
    try:
        model = anf_ir_pb2.ModelProto.FromString(payload)
    except Exception as error:  # the module of DecodeError depends on the release of protobuf
        raise ValueError(three_part(what, value, expected)) from error
    if not model.HasField("graph"):
        raise ValueError(three_part(what, value, expected))
    return payload
