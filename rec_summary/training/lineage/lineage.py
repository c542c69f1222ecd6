"""Lineage: which data, network and hyper-parameters gave which result.

The messages are MindSpore's; what they cannot hold (64-bit sizes, the run's status) is in
our own fields, which older readers skip.
"""

from __future__ import annotations

import enum
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mindspore import nn

from rec_summary._pb import lineage_pb2
from rec_summary.training.collector.step_view import StepView
from rec_summary.training.lineage.dataset import DatasetInfo
from rec_summary.training.lineage.environment import Environment

_INT32_MAX: Final = 2**31 - 1


class Status(enum.Enum):
    """How a run stands."""

    RUNNING = lineage_pb2.RunState.RUNNING
    FINISHED = lineage_pb2.RunState.FINISHED
    STOPPED = lineage_pb2.RunState.STOPPED
    FAILED = lineage_pb2.RunState.FAILED


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        status: How it stands.
        reason: Why it stopped or failed, in a line; empty otherwise.
        step: The last step trained.
        samples: Samples seen; 0 if not known.
        start_time: When it began, in seconds since the epoch.
        loss: The last loss; None if not known.
        learning_rate: The last learning rate (of the first group); None if not known.
        troubles: Telemetry failures by kind.
    """

    status: Status
    reason: str
    step: int
    samples: int
    start_time: float
    loss: float | None
    learning_rate: float | None
    troubles: Mapping[str, int]


def train_lineage(
    view: StepView,
    data: DatasetInfo,
    optimizers: list[Any],
    environment: Environment,
    progress: Progress,
) -> lineage_pb2.LineageEvent:
    """Returns the train lineage as it stands.

    Every part that the callback arguments do not tell is left out, not invented.
    """
    event = lineage_pb2.LineageEvent(wall_time=time.time(), step=progress.step)
    message = event.train_lineage
    hyper = message.hyper_parameters
    hyper.epoch = _epochs(view)
    hyper.device_num = int(view.get("device_number") or environment.rank_size)
    if view.get("parallel_mode") is not None:
        hyper.parallel_mode = str(view.get("parallel_mode"))
    if optimizers:
        hyper.optimizer = type(optimizers[0]).__name__
    if progress.learning_rate is not None:
        hyper.learning_rate = progress.learning_rate
    loss_fn = _loss_function(view)
    if loss_fn is not None:
        hyper.loss_function = type(loss_fn).__name__
    if data.batch_size:
        hyper.batch_size = _clip(data.batch_size)
    if data.path is not None:
        message.train_dataset.train_dataset_path = data.path
    if data.size is not None:
        message.train_dataset.train_dataset_size = _clip(data.size)
    message.algorithm.network = type(backbone(view)).__name__
    if progress.loss is not None:
        message.algorithm.loss = progress.loss
    checkpoint = _latest_checkpoint(view)
    message.model.path = json.dumps({"ckpt": checkpoint})
    message.model.size = os.path.getsize(checkpoint) if checkpoint else 0
    _fill_state(message.run_state, view, environment, progress)
    message.run_state.unbounded = data.unbounded
    if data.batch_size:
        message.run_state.batch_size = data.batch_size
    if data.size is not None:
        message.run_state.dataset_size = data.size
    return event


def evaluation_lineage(
    metrics: Mapping[str, Any], data: DatasetInfo, train_step: int
) -> lineage_pb2.LineageEvent:
    """Returns the lineage of one evaluation.

    Args:
        metrics: What the evaluation gave, by name.
        data: The data set that it was made on.
        train_step: The step that training had reached.
    """
    event = lineage_pb2.LineageEvent(wall_time=time.time(), step=train_step)
    message = event.evaluation_lineage
    message.metric = json.dumps({name: _plain(value) for name, value in metrics.items()})
    message.train_step = train_step
    if data.path is not None:
        message.valid_dataset.valid_dataset_path = data.path
    if data.size is not None:
        message.valid_dataset.valid_dataset_size = _clip(data.size)
        message.valid_dataset_size64 = data.size
    return event


def _fill_state(
    state: lineage_pb2.RunState, view: StepView, environment: Environment, progress: Progress
) -> None:
    state.status = progress.status.value
    if progress.reason:
        state.reason = progress.reason
    state.step = progress.step
    state.epoch = view.epoch
    if progress.samples:
        state.samples = progress.samples
    state.start_time = progress.start_time
    state.rank = environment.rank
    state.rank_size = environment.rank_size
    state.host = environment.host
    state.pid = environment.pid
    state.mindspore_version = environment.mindspore_version
    state.rec_summary_version = environment.rec_summary_version
    for kind, count in progress.troubles.items():
        state.troubles[kind] = count


def _epochs(view: StepView) -> int:
    """The number of epochs asked for; of an unbounded run, the epochs begun so far."""
    asked = view.get("epoch_num")
    known = isinstance(asked, int) and 0 < asked < _INT32_MAX
    return _clip(asked if known else view.epoch)


def _loss_function(view: StepView) -> Any:
    named = view.get("loss_fn")
    if named is not None or view.network is None:
        return named
    cells = (cell for _, cell in view.network.cells_and_names())
    return next((cell for cell in cells if isinstance(cell, nn.LossBase)), None)


def backbone(view: StepView) -> Any:
    """The user's own network: given by name, or inside the training wrappers."""
    network = view.get("network")
    if network is None and view.network is not None:
        network = view.network
        while isinstance(network, (nn.TrainOneStepCell, nn.TrainOneStepWithLossScaleCell)):
            network = network.network
        network = getattr(network, "_backbone", network)
    return network


def _latest_checkpoint(view: StepView) -> str | None:
    for callback in view.get("list_callback") or ():
        path = getattr(callback, "latest_ckpt_file_name", "")
        if path and os.path.isfile(path):
            return os.path.realpath(path)
    return None


def _plain(value: Any) -> Any:
    """Returns what JSON can hold; NaN and infinities become their names."""
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
    """The nearest that the format's 32-bit fields can hold; the exact value stands elsewhere."""
    return max(-_INT32_MAX - 1, min(int(value), _INT32_MAX))
