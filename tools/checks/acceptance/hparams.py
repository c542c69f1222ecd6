"""The HParams dashboard: a session for each run, with every parameter and every metric."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from tools.checks.acceptance import parameters, scalars, series
from tools.checks.acceptance.comparison import Items, equal
from tools.checks.acceptance.records import RecordedRun, Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "hparams"

_LAST_STEP: Final = 2**31 - 1  # runs beyond would break the page, and are left out
_LARGEST: Final = 2**53  # greater integers are shown as text
_STATUS: Final = {
    RunState.UNKNOWN: "STATUS_UNKNOWN",
    RunState.RUNNING: "STATUS_RUNNING",
    RunState.FINISHED: "STATUS_SUCCESS",
    RunState.STOPPED: "STATUS_SUCCESS",
    RunState.FAILED: "STATUS_FAILURE",
}


def expected(records: Records) -> Items:
    """Yields parameters, metrics and status by run."""
    for run in records:
        rank = parameters.session_rank(run)
        if rank is None or any(abs(value.step) > _LAST_STEP for value in run.values):
            continue
        for name, value in parameters.all_of(rank).items():
            yield (run.name, "parameter", name), _plain(value)
        yield (run.name, "status"), _status(rank.train)
        yield (run.name, "start"), _start(run, rank.train)
        for group, tag, number, step, wall_time in _metrics(records, run):
            yield (run.name, "metric", group, tag), (number, step, wall_time)


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, group in server.sessions().items():
        for name, value in group["hparams"].items():
            yield (run, "parameter", name), value
        states = {session["status"] for session in group["sessions"]}
        yield (run, "status"), "+".join(states - {"STATUS_UNKNOWN"}) or "STATUS_UNKNOWN"
        yield (run, "start"), group["sessions"][0]["startTimeSecs"]
        for each in group["metricValues"]:
            name = each["name"]
            value = (float(each["value"]), each["trainingStep"], each["wallTimeSecs"])
            yield (run, "metric", name["group"], name["tag"]), value


def same(expected: Any, shown: Any) -> bool:
    """Whether two values are equal; a learning rate was recorded in 32 bits."""
    if equal(expected, shown):
        return True
    both = isinstance(expected, float) and isinstance(shown, float)
    return both and np.float32(expected) == np.float32(shown)


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str):
        return value
    is_whole = math.isfinite(value) and (isinstance(value, float) or abs(value) <= _LARGEST)
    return value if is_whole else str(value)


def _status(train: tuple[Any, float] | None) -> str:
    if train is None:
        return "STATUS_UNKNOWN"
    # MindSpore writes its lineage when training has ended, and has no word for how.
    has_state = train[0].HasField("run_state")
    return _STATUS[train[0].run_state.status] if has_state else "STATUS_SUCCESS"


def _start(run: RecordedRun, train: tuple[Any, float] | None) -> float:
    if train is not None and train[0].run_state.HasField("start_time"):
        return float(train[0].run_state.start_time)
    return run.began


def _metrics(records: Records, run: RecordedRun) -> Iterator[tuple[str, str, float, int, float]]:
    """Yields the last point of each scalar of the run and its sub-runs."""
    last = {}
    for point in series.points([each for each in records if each is run], "scalars"):
        last[point.run, point.tag] = point
    for (name, tag), point in last.items():
        group = name.removeprefix(run.name).removeprefix("/")
        yield group, tag, scalars.number(point), point.value.step, point.value.wall_time
