"""Following poll by poll, with a clock that stands where it is put, into event files."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rec_summary.errors import DestinationError
from rec_summary.records.reading.runs import Run
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.following import (
    COMMIT_SECS,
    RETRY_SECS,
    Follower,
)
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.run_writer import Destination
from rec_summary.tensorboard.run_names import Names
from tests.support import event_files
from tests.support.record_dirs import event, scalar, write_segment


class Followed:
    """A follower of `records`, which exports to `logs` beside it.

    Attributes:
        now: The monotonic time, in seconds.
        stop: Set when the follower is to stop.
        commits: How often exporters were committed.
    """

    def __init__(self, base: Path) -> None:
        self.now, self.stop, self.commits, self.report = 100.0, threading.Event(), 0, Report()
        self.records, self.logs = base / "records", base / "logs"
        self.logdir = LogDir(str(self.logs))

    def follow(
        self, pattern: str | None = None, opened: Callable[[Run], Any] | None = None
    ) -> Follower:
        destination = Destination(Names(), self.logdir, self.report, ExportOptions())
        exporter = opened or functools.partial(RunExporter, destination=destination)
        return Follower(
            *(RunPoller(str(self.records)), exporter, self.report, self.stop),
            named=destination.names.claim_run,
            pattern=pattern,
            committed=self._committed,
            clock=lambda: self.now,
        )

    def _committed(self) -> None:
        self.commits += 1

    def write(self, run: str, step: int, rank: int = 0) -> None:
        write_segment(self.records / run, event(step, scalar("loss", step)), rank=rank)

    def steps(self, run: str) -> list[int]:
        return [step for step, _ in event_files.scalars(self.logs / run, "loss")]


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    made = Followed(tmp_path)
    with made.logdir:
        yield made


def test_what_is_new_is_committed_a_while_after_the_first_of_it(followed: Followed) -> None:
    follower, cursor = followed.follow(), followed.logs / "run" / CURSOR_NAME
    followed.write("run", 1)
    assert follower.poll()
    assert not follower.poll()
    followed.now += COMMIT_SECS - 1
    followed.write("run", 2)
    assert follower.poll()
    assert (cursor.exists(), followed.commits) == (False, 0)
    followed.now += 1
    assert not follower.poll()
    assert (cursor.exists(), followed.commits) == (True, 1)
    followed.now += 2 * COMMIT_SECS
    assert not follower.poll()
    assert followed.commits == 1
    follower.finish()
    assert followed.commits == 2
    assert followed.steps("run") == [1, 2]
    follower.close()


def test_at_the_end_all_that_the_last_poll_has_found_is_exported_and_closed(
    followed: Followed,
) -> None:
    follower = followed.follow(pattern="b*")
    for run in ("a", "b"):
        followed.write(run, 1)
    assert follower.poller.find()
    followed.stop.set()
    follower.run(0.0)
    assert (followed.steps("b"), followed.commits) == ([1], 1)
    assert not (followed.logs / "a").exists()
    assert followed.report.bytes_written > 0  # counted as the file is closed
    followed.logdir.__exit__()
    assert export_tensorboard(followed.records, followed.logs, runs="b").runs == []


def test_a_run_that_cannot_be_written_is_tried_again_and_reported_once(
    followed: Followed,
) -> None:
    follower = followed.follow()
    theirs = followed.logs / "bad" / "events.out.tfevents.1.host"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    for run in ("bad", "good"):
        followed.write(run, 1)
    assert follower.poll()
    assert followed.steps("good") == [1]
    [problem] = followed.report.problems
    assert "cannot be written, and is tried again" in problem.text
    assert (problem.path, problem.offset) == (str(followed.records / "bad"), 0)
    followed.now += RETRY_SECS
    assert not follower.poll()
    theirs.unlink()
    followed.now += RETRY_SECS - 1
    follower.poll()
    assert not list(theirs.parent.iterdir())
    followed.now += 1
    follower.poll()
    assert followed.steps("bad") == [1]
    assert len(followed.report.problems) == 1
    assert followed.report.notes == ["run bad: can be written again"]
    followed.write("bad", 2)
    follower.poll()
    assert followed.steps("bad") == [1, 2]
    assert len(followed.report.notes) == 1
    follower.close()


def test_a_run_that_cannot_be_committed_is_tried_again(followed: Followed) -> None:
    follower, run = followed.follow(), followed.logs / "run"
    followed.write("run", 1)
    follower.poll()
    run.rename(followed.logs / "moved")
    run.write_text("in the way")
    followed.now += COMMIT_SECS
    follower.poll()
    [problem] = followed.report.problems
    assert "cannot be written, and is tried again" in problem.text
    assert followed.report.bytes_written > 0  # it was closed
    run.unlink()
    followed.now += RETRY_SECS
    follower.poll()
    follower.finish()
    assert followed.steps("run") == [1]
    assert (run / CURSOR_NAME).exists()
    follower.close()


def test_a_stop_in_the_middle_of_a_run_leaves_the_rest_for_the_next_export(
    followed: Followed,
) -> None:
    follower = followed.follow()
    for run in ("a", "b"):
        followed.write(run, 1)
    followed.stop.set()
    follower.poll()
    follower.finish()
    follower.close()
    assert not list(followed.logs.rglob(CURSOR_NAME))
    assert not (followed.logs / "b").exists()
    followed.logdir.__exit__()
    export_tensorboard(followed.records, followed.logs)
    assert (followed.steps("a"), followed.steps("b")) == ([1], [1])


def test_a_run_keeps_the_name_that_it_got_beside_the_sub_runs_of_another(
    followed: Followed,
) -> None:
    follower = followed.follow()
    for rank in (0, 1):
        followed.write("a", 1, rank)
    follower.poll()
    for step in (1, 2):
        followed.write("a/rank_1", step)
        follower.poll()
    assert followed.steps("a/rank_1") == [1]
    assert followed.steps("a/rank_1_") == [1, 2]
    follower.close()


class Parts:
    """An exporter of three parts for each update, which notes what is called."""

    is_waiting = False

    def __init__(self, calls: list[str], at: Callable[[str], None]) -> None:
        self._calls, self._at = calls, at

    def update(self, run: Run, *, final: bool) -> Iterator[None]:
        for part in range(3):
            self._note(f"{run.name} {part}")
            yield

    def commit(self) -> None:
        self._note("commit")

    def close(self) -> None:
        self._note("close")

    def _note(self, call: str) -> None:
        self._calls.append(call)
        self._at(call)


def test_a_stop_ends_the_export_after_the_part_that_is_written(followed: Followed) -> None:
    """Nothing is committed: a cursor would say that the run was read to there."""
    calls: list[str] = []
    follower = followed.follow(opened=lambda run: Parts(calls, lambda _: followed.stop.set()))
    for run in ("a", "b"):
        followed.write(run, 1)
    follower.run(0.0)
    assert calls == ["a 0", "close"]


def test_the_last_export_of_a_run_is_whole(followed: Followed) -> None:
    calls: list[str] = []
    follower = followed.follow(opened=lambda run: Parts(calls, lambda _: None))
    followed.write("a", 1)
    follower.poll()
    followed.stop.set()
    follower.finish()
    assert calls == ["a 0", "a 1", "a 2"] * 2 + ["commit"]


def test_polls_are_an_interval_apart(followed: Followed) -> None:
    class Stop(threading.Event):
        """Stops at the third wait, without waiting."""

        waits: ClassVar[list[float | None]] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout)
            if len(self.waits) == 3:
                self.set()
            return self.is_set()

    followed.stop = Stop()
    polls: list[Report] = []
    followed.write("run", 1)
    followed.follow().run(7.0, polls.append)
    assert Stop.waits == [7.0] * 3
    assert polls == [followed.report]  # only one has exported something


def test_a_run_that_fails_before_it_was_committed_is_not_committed(followed: Followed) -> None:
    calls: list[str] = []
    full: set[str] = set()

    def fail(call: str) -> None:
        if call in full:
            raise DestinationError("the disk is full")

    follower = followed.follow(opened=lambda run: Parts(calls, fail))
    followed.write("a", 1)
    follower.poll()
    full.add("a 0")
    followed.write("a", 2)
    follower.poll()
    assert calls == ["a 0", "a 1", "a 2", "a 0", "close"]
    followed.now += COMMIT_SECS
    follower.poll()
    assert calls[5:] == []
    assert followed.commits == 0
    full.clear()
    followed.now += RETRY_SECS
    follower.poll()
    follower.finish()
    assert calls[5:] == ["a 0", "a 1", "a 2"] * 2 + ["commit"]
    assert followed.commits == 1
    follower.close()
