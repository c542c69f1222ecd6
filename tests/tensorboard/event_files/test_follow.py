"""Following trainings: what is flushed is in the event file soon, and nothing gets lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.plugins.hparams import metadata

from rec_summary._pb import lineage_pb2
from rec_summary.errors import ArgumentError
from rec_summary.records.reading.reader import TruncatedRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.options import ExportOptions
from rec_summary.tensorboard.event_files.export import export_tensorboard, follow_tensorboard
from tests.support import event_files
from tests.support.event_files import shown
from tests.support.following import Follower, write
from tests.support.record_dirs import event, lineage, scalar, train, write_segment
from tests.support.waiting import eventually

RunState = lineage_pb2.RunState


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def writer(records: Path) -> Iterator[RunWriter]:
    opened = RunWriter(records / "run", 0)
    yield opened
    opened.close()


def losses(run: Path) -> list[tuple[int, float]]:
    """Returns the losses that are there, also while the event file is written."""
    try:
        return event_files.scalars(run, "loss") if list(run.glob("*tfevents*")) else []
    except (FileNotFoundError, TruncatedRecord):
        return []


def test_what_is_flushed_appears_while_the_step_is_still_open(
    records: Path, logdir: Path, writer: RunWriter
) -> None:
    with Follower(records, logdir):
        for step in range(1, 4):
            write(writer, event(step, scalar("loss", step)))
            eventually(lambda step=step: len(losses(logdir / "run")) == step)
    assert losses(logdir / "run") == [(1, 1), (2, 2), (3, 3)]


def test_a_source_runs_ranks_and_files_may_come_later(records: Path, logdir: Path) -> None:
    with Follower(records, logdir):
        time.sleep(0.1)
        write_segment(records / "a", event(1, scalar("loss", 1)))
        eventually(lambda: losses(logdir / "a") == [(1, 1)])
        write_segment(records / "a", event(2, scalar("loss", 2)))
        write_segment(records / "a", event(1, scalar("loss", 5)), rank=1)
        write_segment(records / "b" / "c", event(1, scalar("loss", 3)))
        eventually(lambda: losses(logdir / "a") == [(1, 1), (2, 2)])
        eventually(lambda: losses(logdir / "a" / "rank_1") == [(1, 5)])
        eventually(lambda: losses(logdir / "b" / "c") == [(1, 3)])


def test_ranks_that_are_announced_have_their_own_runs_from_the_beginning(
    records: Path, logdir: Path
) -> None:
    state = train(status=RunState.RUNNING, rank=0, rank_size=2)
    write_segment(records / "run", lineage(train_lineage=state), event(1, scalar("loss", 1)))
    with Follower(records, logdir):
        eventually(lambda: losses(logdir / "run" / "rank_0") == [(1, 1)])
        write_segment(records / "run", event(1, scalar("loss", 2)), rank=1)
        eventually(lambda: losses(logdir / "run" / "rank_1") == [(1, 2)])


def test_a_run_is_running_until_it_has_ended(
    records: Path, logdir: Path, writer: RunWriter
) -> None:
    running = logdir / "run" / "running"
    with Follower(records, logdir) as follower:
        write(writer, lineage(train_lineage=train(status=RunState.RUNNING)))
        eventually(running.exists)
        write(writer, lineage(train_lineage=train(status=RunState.FAILED)))
        eventually(lambda: not running.exists())
    assert follower.report is not None
    assert follower.report.replaced == []


def test_a_session_begins_with_the_first_step_and_ends_though_its_facts_have_changed(
    records: Path, logdir: Path, writer: RunWriter
) -> None:
    """A stream of whole batches has batch size 1 until its first batch, and more epochs later."""
    running = logdir / "run" / "running"

    def state(status: int, step: int, batch_size: int, epoch: int) -> lineage_pb2.TrainLineage:
        message = train(status=status, step=step, batch_size=batch_size)
        message.hyper_parameters.epoch = epoch
        return message

    with Follower(records, logdir):
        write(writer, lineage(train_lineage=state(RunState.RUNNING, 0, 1, 0)))
        eventually((logdir / "run").exists)  # its table is there
        write(writer, event(1, scalar("loss", 1)))
        write(writer, lineage(train_lineage=state(RunState.RUNNING, 1, 64, 1)))
        eventually(running.exists)
        write(writer, lineage(train_lineage=state(RunState.STOPPED, 9, 64, 2)))
        eventually(lambda: not running.exists())
        values = eventually(
            lambda: event_files.values(logdir / "run"),
            lambda found: {metadata.SESSION_END_INFO_TAG} <= {value.tag for *_, value in found},
            despite=TruncatedRecord,  # the event file is being written
        )
        [start] = [
            metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
            for _, _, value in values
            if value.tag == metadata.SESSION_START_INFO_TAG
        ]
        assert start.hparams["batch_size"].number_value == 64
        assert start.hparams["epoch"].number_value == 1


def test_a_table_of_lineage_is_not_written_for_every_step(
    records: Path, logdir: Path, writer: RunWriter
) -> None:
    with Follower(records, logdir):
        for step in range(1, 6):
            state = train(status=RunState.RUNNING, step=step)
            write(writer, event(step, scalar("loss", step)), lineage(train_lineage=state))
            eventually(lambda step=step: len(losses(logdir / "run")) == step)
    texts = [
        step for step, _, value in event_files.values(logdir / "run") if value.tag == "lineage"
    ]
    assert texts[-1] == 5  # the last one is written at the end
    assert len(texts) <= 3


def test_a_follower_goes_on_from_an_export_and_an_export_from_a_follower(
    records: Path, logdir: Path
) -> None:
    write_segment(records / "run", event(1, scalar("loss", 1)))
    export_tensorboard(records, logdir)
    write_segment(records / "run", event(2, scalar("loss", 2)))
    with Follower(records, logdir) as follower:
        eventually(lambda: len(losses(logdir / "run")) == 2)
    assert follower.report is not None
    assert follower.report.exported == {"scalar_value": 1}
    write_segment(records / "run", event(3, scalar("loss", 3)))
    assert export_tensorboard(records, logdir).exported == {"scalar_value": 1}
    export_tensorboard(records, logdir.parent / "at once")
    assert shown(logdir) == shown(logdir.parent / "at once")


def test_a_torn_record_is_a_problem_only_in_the_end(records: Path, logdir: Path) -> None:
    summary, _ = write_segment(records / "run", event(1, scalar("loss", 1)))
    summary.chmod(0o600)
    with summary.open("ab") as file:
        file.write(b"half")
    with Follower(records, logdir) as follower:
        eventually(lambda: len(losses(logdir / "run")) == 1)
        assert not any(report.problems for report in follower.reported)
    assert follower.report is not None
    assert [problem.text for problem in follower.report.problems] == [
        "incomplete record at the end (a writer may still be at work)"
    ]


def test_a_run_that_cannot_be_written_is_reported_and_the_others_go_on(
    records: Path, logdir: Path
) -> None:
    (logdir / "bad").mkdir(parents=True)
    (logdir / "bad" / "events.out.tfevents.1.host").write_bytes(b"theirs")
    write_segment(records / "bad", event(1, scalar("loss", 1)))
    write_segment(records / "good", event(1, scalar("loss", 1)))
    with Follower(records, logdir) as follower:
        eventually(lambda: losses(logdir / "good") == [(1, 1)])
    assert follower.report is not None
    [problem] = follower.report.problems
    assert "one writer for each run directory" in problem.text


def test_a_stop_in_the_middle_of_much_leaves_the_rest_for_later(
    records: Path, logdir: Path
) -> None:
    events = [event(step, scalar("loss", step)) for step in range(30_000)]
    write_segment(records / "run", *events)
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    follow_tensorboard(records, logdir, stop=stop)
    export_tensorboard(records, logdir)
    assert len(losses(logdir / "run")) == 30_000


def test_only_the_runs_that_are_wanted(records: Path, logdir: Path) -> None:
    for name in ("a", "b"):
        write_segment(records / name, event(1, scalar("loss", 1)))
    with Follower(records, logdir, runs="b"):
        eventually(lambda: losses(logdir / "b") == [(1, 1)])
    assert not (logdir / "a").exists()


def test_what_grows_cannot_be_thinned(records: Path, logdir: Path) -> None:
    with pytest.raises(ArgumentError, match="a series that still grows cannot be downsampled"):
        follow_tensorboard(
            records, logdir, stop=threading.Event(), options=ExportOptions(max_points=10)
        )


def test_bytes_may_come_later_than_the_size_of_the_file(records: Path, logdir: Path) -> None:
    path, _ = write_segment(records / "run", *(event(step, scalar("loss", 1)) for step in range(9)))
    data, begun = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o600)
    path.write_bytes(data[:200] + bytes(len(data) - 200))
    os.utime(path, ns=(begun, begun))
    with Follower(records, logdir) as follower:
        eventually(lambda: len(follower.reported) > 2)
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(begun, begun))
        eventually(lambda: len(losses(logdir / "run")) == 9)
    assert follower.report is not None
    assert follower.report.problems == []
