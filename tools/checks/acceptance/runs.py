"""The runs that TensorBoard lists."""

from __future__ import annotations

from rec_summary._pb.lineage_pb2 import RunState
from tools.checks.acceptance import parameters
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "runs"


def expected(records: Records) -> Items:
    """Yields the runs of everything that was recorded."""
    names = set()
    for run in records:
        names |= {value.run for value in run.values}
        for rank in run.ranks:
            if rank.graphs or rank.pipelines:
                names.add(rank.run)
        if any(rank.has_lineage for rank in run.ranks):
            names.add(run.name)
        speaker = parameters.session_rank(run)
        train = speaker.train[0] if speaker and speaker.train else None
        if train is not None and train.run_state.status == RunState.RUNNING:
            # TensorBoard cannot take back a status, so a run of its own says this one.
            names.add(f"{run.name}/running")
    for name in names:
        yield (name,), "a run"


def shown(server: TensorBoardServer) -> Items:
    """Yields the runs that TensorBoard knows."""
    for name in server.get("runs"):
        yield (name,), "a run"
