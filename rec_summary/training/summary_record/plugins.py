"""The plugins of a `SummaryRecord`: what each takes, and which records come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary._pb import anf_ir_pb2, lineage_pb2
from rec_summary._pb.summary_pb2 import LossLandscape, Summary
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.task import MessageRecord, Record
from rec_summary.training.checks import check_type
from rec_summary.training.collector.graphs import GraphRecord
from rec_summary.training.collector.operators import own_array, snapshot
from rec_summary.training.collector.step_record import StepRecord, TensorExporter
from rec_summary.values.scalar import to_number
from rec_summary.values.summary import ScalarValue, SummaryValue

_VALUES: Final = ("tensor", "scalar", "image", "histogram")
# Each with the message that it takes, and the field of a lineage event where that stands.
_LINEAGE: Final = {
    "train_lineage": ("TrainLineage", "train_lineage"),
    "eval_lineage": ("EvaluationLineage", "evaluation_lineage"),
    "dataset_graph": ("DatasetGraph", "dataset_graph"),
    "custom_lineage_data": ("UserDefinedInfo", "user_defined_info"),
}
GRAPH: Final = "graph"
_LANDSCAPE: Final = "landscape"
PLUGINS: Final = (*_VALUES, *_LINEAGE, GRAPH, _LANDSCAPE)


@dataclass(frozen=True)
class Item:
    """A value that waits for its step.

    Attributes:
        plugin: What it is to be shown as.
        tag: Its tag; empty for lineage and graphs, which have none.
        content: A snapshot, or the bytes of a lineage message or of a ModelProto.
    """

    plugin: str
    tag: str
    content: SummaryValue | bytes


def make_item(plugin: str, name: str, value: Any) -> Item:
    """Checks what a user hands over, and makes it an item that owns its memory.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has a value that is not allowed.
    """
    expected = f"one of {', '.join(PLUGINS)}"
    check_type("plugin", plugin, str, expected)
    if plugin not in PLUGINS:
        raise ValueError(three_part("plugin", plugin, expected))
    if plugin in _LINEAGE:
        return Item(plugin, "", _serialised(plugin, value, _LINEAGE[plugin][0]))
    if plugin == GRAPH:
        return Item(plugin, "", _model(value))
    _check_name(name)
    if plugin == _LANDSCAPE:
        return Item(plugin, name, _Landscape(name, _serialised(plugin, value, "LossLandscape")))
    if plugin == "scalar":
        return Item(plugin, name, _scalar(name, value))
    return Item(plugin, name, snapshot(plugin, name, value))


@dataclass
class Pool:
    """What waits for the next step: of a tag the newest value, of the rest everything."""

    _values: dict[tuple[str, str], SummaryValue] = field(default_factory=dict)
    _rest: list[tuple[str, bytes]] = field(default_factory=list)

    def put(self, item: Item) -> None:
        """Takes an item."""
        if isinstance(item.content, bytes):
            self._rest.append((item.plugin, item.content))
        else:
            self._values[item.plugin, item.tag] = item.content

    def records(
        self,
        step: int,
        wall_time: float,
        wanted: Callable[[str], bool],
        troubles: Troubles,
        exporter: TensorExporter | None,
    ) -> list[Record]:
        """Returns the records of one step.

        Args:
            step: The step that everything here belongs to.
            wall_time: When it was taken, in seconds since the epoch.
            wanted: Says which plugins are to be written; asked once for each at hand.
            troubles: Told of each value that cannot be encoded.
            exporter: Also given each tensor.
        """
        at_hand = {plugin for plugin, _ in (*self._values, *self._rest)}
        chosen = {plugin for plugin in PLUGINS if plugin in at_hand and wanted(plugin)}
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
    message.SetInParent()  # an empty one is one too
    message.MergeFromString(payload)
    return MessageRecord(event)


def _check_name(name: str) -> None:
    check_type("name", name, str, "a non-empty str")
    if not name:
        raise ValueError(three_part("name", name, "a non-empty str"))
    if name.encode("utf-8", "replace").decode() != name:
        raise ValueError(three_part("name", name, "text that is valid Unicode"))


def _scalar(name: str, value: Any) -> ScalarValue:
    what = f"scalar {name!r}"
    array = own_array(value, what)
    if array.size != 1:
        raise ValueError(three_part(what, verbatim(f"shape {array.shape}"), "one number"))
    return ScalarValue(name, to_number(array))


def _serialised(plugin: str, value: Any, message: str) -> bytes:
    """Returns the bytes of a protobuf message of that name, whichever package it is from."""
    if getattr(getattr(value, "DESCRIPTOR", None), "name", None) != message:
        expected = f"a {message} message of MindSpore or of rec_summary"
        raise TypeError(three_part(f"the value of {plugin}", type(value).__name__, expected))
    return bytes(value.SerializeToString())


def _model(value: Any) -> bytes:
    """Returns the bytes of a ModelProto that has a graph."""
    what, expected = "the value of graph", "a ModelProto message with a graph, or its bytes"
    payload = value if isinstance(value, bytes) else _serialised(GRAPH, value, "ModelProto")
    try:
        model = anf_ir_pb2.ModelProto.FromString(payload)
    except Exception as error:  # DecodeError lives in another module in each protobuf
        raise ValueError(three_part(what, value, expected)) from error
    if not model.HasField("graph"):
        raise ValueError(three_part(what, value, expected))
    return payload
