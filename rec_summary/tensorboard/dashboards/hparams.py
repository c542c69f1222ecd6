"""Lineage to the HParams dashboard: one session for each run.

Which columns there are, and which of them differ, TensorBoard infers from all sessions, unless it
has many metrics to choose from (see `hparams_metrics`). The metadata of a tag cannot be changed
later, so a session gets its end only when its run has ended. Until then, a session of a sub-run in
the same group states that it is running; it disappears with that sub-run.
Source: `tensorboard/plugins/hparams/plugin_data.proto`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.series.lineage import Lineage, hyper_parameters
from rec_summary.series.text import valid
from rec_summary.tensorboard.dashboards.points import Point, plugin, tensor_value

START_TAG: Final = "_hparams_/session_start_info"
END_TAG: Final = "_hparams_/session_end_info"

RUNNING: Final[int] = api_pb2.STATUS_RUNNING
_ENDED: Final[dict[int, int]] = {
    RunState.FINISHED: api_pb2.STATUS_SUCCESS,
    RunState.STOPPED: api_pb2.STATUS_SUCCESS,
    RunState.FAILED: api_pb2.STATUS_FAILURE,
}
LAST_STEP: Final = 2**31 - 1  # `MetricValue.training_step` of its API is an int32


def start_point(run: str, lineage: Lineage, started: float) -> Point:
    """Returns the start of a session.

    Args:
        run: The run's name; it becomes the name of the session's group.
        lineage: What is known of the run.
        started: The start in seconds since the epoch, if the lineage does not state it.
    """
    state = lineage.state
    if state.HasField("start_time") and math.isfinite(state.start_time):
        started = state.start_time
    start = plugin_data_pb2.SessionStartInfo(group_name=valid(run), start_time_secs=started)
    for name, value in hyper_parameters(lineage).items():
        if isinstance(value, str):
            start.hparams[name].string_value = value
        elif isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif math.isfinite(value):  # TensorBoard drops others; text beside numbers has no order
            start.hparams[name].number_value = value
    return hparams_point(START_TAG, plugin_data_pb2.HParamsPluginData(session_start_info=start))


def end_point(status: int, ended: float | None = None) -> Point:
    """Returns the end of a session.

    Args:
        status: An `api_pb2.Status`.
        ended: When it ended, in seconds since the epoch.
    """
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=ended)
    return hparams_point(END_TAG, plugin_data_pb2.HParamsPluginData(session_end_info=end))


def ended_status(lineage: Lineage) -> int | None:
    """Returns the `api_pb2.Status` of a run that has ended; None for any other."""
    return _ENDED.get(lineage.status)


def session_points(run: str, lineage: Lineage, began: float | None) -> list[Point]:
    """Returns the start of a session, and its end or that it is running, as far as that is stated.

    Args:
        run: The run's name.
        lineage: What is known of the run.
        began: When it was recorded first, in seconds since the epoch; None if that is unknown.
    """
    start, ended = lineage.last_time if began is None else began, ended_status(lineage)
    points = [start_point(run, lineage, start)]
    if ended is not None:
        points.append(end_point(ended, lineage.train_time))
    elif lineage.status == RunState.RUNNING:
        points.append(end_point(RUNNING))
    return points


def hparams_point(tag: str, content: plugin_data_pb2.HParamsPluginData) -> Point:
    """Returns a point of HParams; its metadata states everything."""
    serialized = content.SerializeToString(deterministic=True)
    owner = plugin("hparams", summary_pb2.DATA_CLASS_TENSOR, serialized, reserved=True)
    return Point(tag, owner, tensor_value(np.empty(0, np.float32)))
