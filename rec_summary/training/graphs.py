"""The graphs of a run: the computation of the network, and the pipeline of its data set."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary.records.writing.record import Record
from rec_summary.training import loaded

_INT32: Final = range(-(2**31), 2**31)


def model_record(model: bytes) -> Record:
    """Returns a computation graph as a record. A run has one.

    Args:
        model: A serialised `ModelProto`, the result of `Cell.get_func_graph_proto`.
    """
    return Record(functools.partial(_encoded, model, time.time()), len(model))


def _encoded(model: bytes, wall_time: float) -> bytes:
    """Returns an event with the model's graph and without a step, as MindSpore writes it."""
    graph = anf_ir_pb2.ModelProto.FromString(model).graph
    return bytes(summary_pb2.Event(wall_time=wall_time, graph_def=graph).SerializeToString())


def graph_record(network: Any) -> Record | None:
    """Returns the compiled graph of a network; None in PyNative mode, which has no graph.

    Args:
        network: A Cell that has run.
    """
    if network is None:
        return None
    mindspore = loaded.mindspore()
    if mindspore.get_context("mode") != mindspore.GRAPH_MODE:
        return None
    model = network.get_func_graph_proto()
    return None if model is None else model_record(model)


def dataset_graph(dataset: Any) -> lineage_pb2.LineageEvent:
    """Returns the pipeline of a data set: its operations, from the last one to the sources.

    It reads no rows.

    Args:
        dataset: A `mindspore.dataset.Dataset`.

    Raises:
        TypeError: MindSpore cannot serialise the pipeline.
    """
    event = lineage_pb2.LineageEvent(wall_time=time.time())
    event.dataset_graph.SetInParent()
    _fill(event.dataset_graph, loaded.mindspore().dataset.serialize(dataset))
    return event


def _fill(graph: lineage_pb2.DatasetGraph, node: Mapping[str, Any]) -> None:
    for key, value in node.items():
        if key == "children":
            for child in value or ():
                _fill(graph.children.add(), child)
        elif key == "operations" and value:
            for operation in value:
                _fill_operation(graph.operations.add(), operation)
        elif key == "sampler" and value:
            _fill_operation(graph.sampler, value)
        else:
            _fill_parameter(graph.parameter, key, value)


def _fill_operation(message: lineage_pb2.Operation, operation: Any) -> None:
    if not isinstance(operation, Mapping):  # a function that MindSpore cannot serialise
        _fill_parameter(message.operationParam, "tensor_op_name", str(operation))
        return
    for key, value in operation.items():
        is_filled_list = isinstance(value, (list, tuple)) and value
        if is_filled_list and all(type(item) is int and item in _INT32 for item in value):
            message.size.extend(value)
        elif is_filled_list and all(type(item) in (int, float) for item in value):
            message.weights.extend(value)
        else:
            _fill_parameter(message.operationParam, key, value)


def _fill_parameter(message: lineage_pb2.OperationParameter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        message.mapBool[key] = value
    elif isinstance(value, int) and value in _INT32:
        message.mapInt[key] = value
    elif isinstance(value, float):
        message.mapDouble[key] = value
    elif isinstance(value, str):
        message.mapStr[key] = value
    elif isinstance(value, Sequence):
        if value:
            message.mapStrList[key].strValue.extend(_text(item) for item in value)
    else:
        message.mapStr[key] = _text(value)


def _text(value: object) -> str:
    if value is None:
        return "None"
    return json.dumps(value, default=str)
