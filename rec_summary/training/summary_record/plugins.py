"""The plugins of a `SummaryRecord`: the values that they accept, and their records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rec_summary._pb import anf_ir_pb2
from rec_summary._pb.lineage_pb2 import LineageEvent, TrainLineage
from rec_summary.checks import check_name, check_that, check_type, check_unicode
from rec_summary.errors import three_part, verbatim
from rec_summary.records.writing.record import Record
from rec_summary.training.graphs import model_record
from rec_summary.training.lineage.custom import custom_lineage
from rec_summary.training.operators import KINDS, snapshot
from rec_summary.training.recorder import Recorder
from rec_summary.training.tensors import own_array, to_number
from rec_summary.values.summary import LANDSCAPE, SCALAR, SummaryValue

_CUSTOM: Final = "custom_lineage_data"
# By plugin: the message that it accepts, and the message's field in a lineage event.
_LINEAGE: Final = {
    "train_lineage": ("TrainLineage", "train_lineage"),
    "eval_lineage": ("EvaluationLineage", "evaluation_lineage"),
    "dataset_graph": ("DatasetGraph", "dataset_graph"),
    _CUSTOM: ("UserDefinedInfo", "user_defined_info"),
}
GRAPH: Final = "graph"
_LANDSCAPE: Final = "landscape"
PLUGINS: Final = (*KINDS, *_LINEAGE, GRAPH, _LANDSCAPE)


def own_content(plugin: str, name: str, value: object) -> SummaryValue | LineageEvent | Record:
    """Checks a user's value, and returns it with its own memory.

    Returns:
        A snapshot, a lineage event without its step and time, or a graph.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has an invalid value.
    """
    expected = f"one of {', '.join(PLUGINS)}"
    check_type("plugin", plugin, str, expected)
    check_that(plugin in PLUGINS, "plugin", plugin, expected)
    if plugin in _LINEAGE:
        return _lineage(plugin, value)
    if plugin == GRAPH:
        return _graph(value)
    check_unicode("name", check_name("name", name))
    if plugin == _LANDSCAPE:
        return SummaryValue(LANDSCAPE, name, _serialised(plugin, value, "LossLandscape"))
    return _scalar(name, value) if plugin == SCALAR else snapshot(plugin, name, value)


class PendingValues:
    """The values of the next step: the newest value of each tag, and all lineage and graphs."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], SummaryValue] = {}
        self._rest: list[tuple[str, LineageEvent | Record]] = []

    def put(self, plugin: str, content: SummaryValue | LineageEvent | Record) -> None:
        """Adds a value of a plugin."""
        if isinstance(content, LineageEvent | Record):
            self._rest.append((plugin, content))
        else:
            self._values[plugin, content.tag] = content

    def write(
        self, recorder: Recorder, step: int, wanted: Callable[[str], bool]
    ) -> TrainLineage | None:
        """Queues everything as records of one step.

        Args:
            recorder: Receives the records.
            step: The step of all values.
            wanted: Returns whether a plugin is written; called once for each plugin with values.

        Returns:
            The last train lineage among them, if there is one.
        """
        present = {plugin for plugin, _ in (*self._values, *self._rest)}
        chosen = {plugin for plugin in PLUGINS if plugin in present and wanted(plugin)}
        now, train = time.time(), None
        for plugin, content in self._rest:
            if plugin not in chosen:
                continue
            if isinstance(content, Record):
                recorder.write(content)
            else:
                content.step, content.wall_time = step, now
                recorder.write_message(content)
                train = content.train_lineage if content.HasField("train_lineage") else train
        values = [value for (plugin, _), value in self._values.items() if plugin in chosen]
        if values:
            recorder.write_step(step, values, now)
        return train


def _lineage(plugin: str, value: Any) -> LineageEvent:
    if plugin == _CUSTOM and isinstance(value, Mapping):
        return custom_lineage(value)
    message, field = _LINEAGE[plugin]
    event = LineageEvent()
    content = getattr(event, field)
    content.SetInParent()  # also for an empty message
    content.MergeFromString(_serialised(plugin, value, message))
    return event


def _scalar(name: str, value: Any) -> SummaryValue:
    what = f"scalar {name!r}"
    array = own_array(value, what)
    check_that(array.size == 1, what, verbatim(f"shape {array.shape}"), "one number")
    return SummaryValue(SCALAR, name, to_number(array))


def _serialised(plugin: str, value: Any, message: str) -> bytes:
    """Returns the bytes of a protobuf message of this name, from any package."""
    if getattr(getattr(value, "DESCRIPTOR", None), "name", None) != message:
        expected = f"a {message} message of MindSpore or of rec_summary"
        expected += ", or a dict" if plugin == _CUSTOM else ""
        raise TypeError(three_part(f"the value of {plugin}", type(value).__name__, expected))
    return bytes(value.SerializeToString())


def _graph(value: Any) -> Record:
    """Returns the record of a ModelProto with a graph."""
    what, expected = "the value of graph", "a ModelProto message with a graph, or its bytes"
    payload = value if isinstance(value, bytes) else _serialised(GRAPH, value, "ModelProto")
    try:
        model = anf_ir_pb2.ModelProto.FromString(payload)
    except Exception as error:  # the module of DecodeError depends on the release of protobuf
        raise ValueError(three_part(what, value, expected)) from error
    check_that(model.HasField("graph"), what, value, expected)
    return model_record(payload)
