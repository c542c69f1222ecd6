"""Lineage: the data set, the network, the hyper-parameters and the process of a run.

The messages are MindSpore's. Values that do not fit them (64-bit sizes, the status of the run) are
in fields of our own, which older readers skip.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mindspore import nn

from rec_summary._pb import lineage_pb2
from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.failures import Troubles
from rec_summary.training import _mindspore
from rec_summary.training.online.stream import is_unbounded
from rec_summary.training.step_view import StepView

_INT32_MAX: Final = 2**31 - 1
# The attributes of MindSpore's data sets that hold the paths of their data.
_PATH_ATTRIBUTES: Final = ("dataset_files", "dataset_file", "dataset_dir")


@dataclass(frozen=True)
class DatasetInfo:
    """The known properties of a data set.

    Attributes:
        path: The directory of its files, or of the first one; None if it reads no files.
        batch_size: Samples in a batch; 0 if unknown.
        size: Samples in one pass; None for an unbounded stream, and if unknown.
        unbounded: Whether it has no known end.
    """

    path: str | None
    batch_size: int
    size: int | None
    unbounded: bool


def describe_dataset(dataset: Any, troubles: Troubles, samples: int = 0) -> DatasetInfo:
    """Describes a data set without reading it.

    It never asks a stream for its size, because the call would not return.

    Args:
        dataset: A `mindspore.dataset.Dataset`, or None if it is unknown.
        troubles: Receives the failure of a data set that cannot be described.
        samples: The number of samples in a batch of this data set; 0 if unknown.
    """
    if dataset is not None:
        with troubles.attempt("data set"):
            return _described(dataset, samples)
    return DatasetInfo(None, samples, None, False)


def _described(dataset: Any, samples: int) -> DatasetInfo:
    # MindSpore stores a size after it has counted it. Only this size of a stream can be known.
    counted = getattr(dataset, "dataset_size", None)
    unbounded = is_unbounded(dataset) and counted is None
    batch_size = int(dataset.get_batch_size() or 0)
    if batch_size <= 1:  # a generator of whole batches reports 1
        batch_size = samples or batch_size
    size = None
    if not unbounded:
        batches = counted if counted is not None else dataset.get_dataset_size()
        size = int(batches) * max(batch_size, 1)
    return DatasetInfo(_path(dataset), batch_size, size, unbounded)


def _path(dataset: Any) -> str | None:
    """Returns the first path between the last operation and the source."""
    for operation in operations(dataset):
        for attribute in _PATH_ATTRIBUTES:
            path = getattr(operation, attribute, None)
            if isinstance(path, (list, tuple)) and path:
                path = path[0]
            if isinstance(path, str) and path:
                return os.path.dirname(path) if os.path.isfile(path) else path
    return None


def operations(dataset: Any) -> Iterator[Any]:
    """Yields the operations of a data set, from the last one to its first source."""
    while dataset is not None:
        yield dataset
        children = getattr(dataset, "children", None)
        dataset = children[0] if children else None


def train_lineage(
    view: StepView,
    data: DatasetInfo,
    optimizers: list[Any],
    state: RunState,
    loss: float | None,
    learning_rate: float | None,
) -> lineage_pb2.LineageEvent:
    """Returns the current train lineage. A field that the callback arguments lack stays empty.

    Args:
        view: The callback arguments.
        data: The data set.
        optimizers: The optimizers.
        state: The process and its progress; what is known of the data set is added.
        loss: The last loss; None if unknown.
        learning_rate: The last learning rate (of the first group); None if unknown.
    """
    loss_fn, parallel_mode = loss_function(view), view.get("parallel_mode")
    checkpoint = _latest_checkpoint(view)
    # protobuf leaves out a field that is None.
    message = lineage_pb2.TrainLineage(
        hyper_parameters=lineage_pb2.TrainLineage.HyperParameters(
            epoch=_epochs(view),
            device_num=int(view.get("device_number") or state.rank_size),
            parallel_mode=None if parallel_mode is None else str(parallel_mode),
            optimizer=", ".join(type(optimizer).__name__ for optimizer in optimizers) or None,
            learning_rate=learning_rate,
            loss_function=None if loss_fn is None else type(loss_fn).__name__,
            batch_size=_clip(data.batch_size) or None,
        ),
        algorithm=lineage_pb2.TrainLineage.Algorithm(
            network=type(backbone(view)).__name__, loss=loss
        ),
        model=lineage_pb2.TrainLineage.Model(
            path=json.dumps({"ckpt": checkpoint}),
            size=os.path.getsize(checkpoint) if checkpoint else 0,
        ),
        run_state=state,
    )
    message.run_state.unbounded = data.unbounded
    if data.batch_size:
        message.run_state.batch_size = data.batch_size
    if data.path is not None:
        message.train_dataset.train_dataset_path = data.path
    if data.size is not None:
        message.train_dataset.train_dataset_size = _clip(data.size)
        message.run_state.dataset_size = data.size
    return lineage_pb2.LineageEvent(wall_time=time.time(), step=state.step, train_lineage=message)


def evaluation_lineage(
    metrics: Mapping[str, Any],
    data: DatasetInfo,
    train_step: int,
    directions: Mapping[str, str],
) -> lineage_pb2.LineageEvent:
    """Returns the lineage of one evaluation.

    Args:
        metrics: The metrics of the evaluation, by name.
        data: The data set of the evaluation.
        train_step: The last step trained before it.
        directions: Which values are better, of metrics whose names do not say it.
    """
    event = lineage_pb2.LineageEvent(wall_time=time.time(), step=train_step)
    message = event.evaluation_lineage
    message.metric = json.dumps({name: _plain(value) for name, value in metrics.items()})
    message.train_step = train_step
    message.directions.update(directions)
    if data.path is not None:
        message.valid_dataset.valid_dataset_path = data.path
    if data.size is not None:
        message.valid_dataset.valid_dataset_size = _clip(data.size)
        message.valid_dataset_size64 = data.size
    return event


def _epochs(view: StepView) -> int:
    """Returns the planned number of epochs; for an unbounded run, the epochs begun so far."""
    planned = view.get("epoch_num")
    is_known = isinstance(planned, int) and 0 < planned < _INT32_MAX
    return _clip(planned if is_known else view.epoch)


def loss_function(view: StepView) -> Any:
    """Returns the loss: the argument `loss_fn`, or the first loss in the network, or None."""
    named = view.get("loss_fn")
    if named is not None or view.network is None:
        return named
    cells = (cell for _, cell in view.network.cells_and_names())
    return next((cell for cell in cells if isinstance(cell, nn.LossBase)), None)


def backbone(view: StepView) -> Any:
    """Returns the user's own network, which a training step may wrap, with or without its loss."""
    network = view.get("network")
    network = outermost = view.network if network is None else network
    while _is_training_step(network):
        network = network.network
    if network is outermost:
        return network
    if "WithLoss" in type(network).__name__ and isinstance(
        getattr(network, "network", None), nn.Cell
    ):
        return network.network
    return _mindspore.wrapped_network(network)


def _is_training_step(cell: Any) -> bool:
    """Whether a Cell has an optimizer of its own, and a network."""
    return (
        isinstance(cell, nn.Cell)
        and isinstance(getattr(cell, "network", None), nn.Cell)
        and any(isinstance(child, nn.Optimizer) for child in cell.cells())
    )


def _latest_checkpoint(view: StepView) -> str | None:
    for callback in view.get("list_callback") or ():
        path = getattr(callback, "latest_ckpt_file_name", "")
        if path and os.path.isfile(path):
            return os.path.realpath(path)
    return None


def _plain(value: object) -> Any:
    """Returns a value that JSON can hold; NaN and infinities become their names."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _clip(value: int) -> int:
    """Returns the nearest 32-bit value; a field of our own holds the exact one."""
    return max(-_INT32_MAX - 1, min(int(value), _INT32_MAX))
