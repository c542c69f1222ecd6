"""A TensorBoard that is open while records are written and followed, with both its loaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.records.writing.run_writer import RunWriter
from tests.support.following import Follower, write
from tests.support.record_dirs import START, event, lineage, scalar, train, write_segment
from tools.tensorboard_pages.server import TensorBoardServer

RunState = lineage_pb2.RunState


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[TensorBoardServer]]:
    """Both loaders on a log directory that is still empty."""
    (tmp_path / "logs").mkdir()
    fast = TensorBoardServer(tmp_path / "logs", tmp_path / "rust.log", load_fast=True)
    slow = TensorBoardServer(tmp_path / "logs", tmp_path / "python.log", load_fast=False)
    with fast, slow:
        yield [fast, slow]


def eventually_scalars(
    servers: list[TensorBoardServer], run: str, expected: list[tuple[int, float]]
) -> None:
    for server in servers:

        def shown(server: TensorBoardServer = server) -> bool:
            answer = server.get("plugin/scalars/scalars", run=run, tag="loss") or []
            return [(step, value) for _, step, value in answer] == expected

        server.eventually(shown)


def statuses(server: TensorBoardServer) -> list[str]:
    group = server.sessions().get("run", {"sessions": []})
    return [session["status"] for session in group["sessions"]]


def test_steps_ranks_restarts_and_late_files_appear(
    records: Path, tmp_path: Path, servers: list[TensorBoardServer]
) -> None:
    with Follower(records, tmp_path / "logs"):
        writer = RunWriter(records / "run", 0)
        for step in (1, 2, 3):
            write(writer, event(step, scalar("loss", step)))
            eventually_scalars(servers, "run", [(s, s) for s in range(1, step + 1)])
        writer.close()
        # Restarted from a checkpoint: the steps from there on are superseded.
        write_segment(records / "run", event(2, scalar("loss", -2)), event(4, scalar("loss", -4)))
        eventually_scalars(servers, "run", [(1, 1), (2, -2), (4, -4)])
        # A rank that comes late, and a file that sorts before all others.
        write_segment(records / "run", event(1, scalar("loss", 7)), rank=1)
        eventually_scalars(servers, "run/rank_1", [(1, 7)])
        early, _ = write_segment(
            tmp_path / "elsewhere", event(5, scalar("loss", 5), at=START + 5), rank=1
        )
        early.rename(records / "run" / early.name.replace("summary.1", "summary.0", 1))
        eventually_scalars(servers, "run/rank_1", [(1, 7), (5, 5)])


def test_a_session_is_running_and_then_finished(
    records: Path, tmp_path: Path, servers: list[TensorBoardServer]
) -> None:
    with Follower(records, tmp_path / "logs"):
        writer = RunWriter(records / "run", 0)
        state = train(status=RunState.RUNNING, start_time=START)
        write(writer, event(1, scalar("loss", 1)), lineage(train_lineage=state))
        for server in servers:
            server.eventually(lambda server=server: "STATUS_RUNNING" in statuses(server))
        state = train(status=RunState.FINISHED, start_time=START)
        write(writer, event(2, scalar("loss", 2)), lineage(train_lineage=state))
        for server in servers:
            server.eventually(lambda server=server: statuses(server) == ["STATUS_SUCCESS"])
        writer.close()
