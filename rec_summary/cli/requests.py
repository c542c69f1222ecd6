"""Requests to running trainings, for `control` and `note`."""

from __future__ import annotations

import collections
import contextlib
import getpass
import os
import time
from collections.abc import Collection
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary.cli import terminal
from rec_summary.cli.command import one_run
from rec_summary.errors import (
    ArgumentError,
    SourceError,
    os_errors_as,
    three_part,
    verbatim,
)
from rec_summary.records.control import FullError, Request, add_request, check_request, new_identity
from rec_summary.records.format.names import Kind, this_host
from rec_summary.records.liveness import writer_is_alive
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.remote import Url
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.lineage import Lineage, lineage_of
from rec_summary.series.new_records import NewRecords
from rec_summary.series.overview.position import positions
from rec_summary.series.report import Report
from rec_summary.series.text import valid

LONGEST_NOTE: Final = 1000
_MARGIN_SECS: Final = 4.0  # until the last rank has read the file
# Ranks that end at different steps wait for each other for ever: also a slow disk, or a cache of a
# network file system, has to show the file to all of them before.
STOP_MARGIN_SECS: Final = 60.0
_POLL_SECS: Final = 0.1
_WRITABLE: Final = "a record directory in which this user may write"

Answers = dict[int, tuple[int, str]]
"""The step and the words of each rank that has answered."""


def run_of(source: str) -> tuple[Run, Lineage]:
    """Returns the only run of a source, and its lineage."""
    run = one_run(source)
    return run, lineage_of(run, Report())


def status_of(run: Run, lineage: Lineage) -> str:
    """Returns the status of a run; `KILLED` if it is running, but its process does not exist."""
    is_running = lineage.status == RunState.RUNNING
    if is_running and writer_is_alive(run.path, lineage.state) is False:
        return "KILLED"
    return RunState.Status.Name(lineage.status)


def write_note(run: Run, lineage: Lineage, request: Request) -> Answers:
    """Writes a note to record files of its own; returns its step and text, by rank."""
    owner = _check_user(run)
    rank = min(run.ranks)
    event = LineageEvent(wall_time=request.time, step=request.note_step)
    if request.note_step is None:
        # MindSpore's lineage has no step, and that of a killed training an earlier one.
        event.step = max([lineage.state.step, *(p.step for p in positions(run).values())])
    event.note.text, event.note.author = request.note, request.author
    event.note.kind, event.note.request = request.note_kind, request.id
    with os_errors_as(SourceError, "the record directory", run.path, _WRITABLE):
        writer = RunWriter(run.path, rank)
        with contextlib.closing(writer):
            writer.write(MessageRecord(event))
        if os.geteuid() == 0:
            for path in writer.paths:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return {rank: (event.step, request.note)}


def _training_of(run: Run, lineage: Lineage) -> RunState:
    """Returns the state of a training that can be asked for something."""
    state = lineage.state
    status = status_of(run, lineage)
    if status == "KILLED":
        status = f"killed: its process {state.pid} does not exist"
    if status != "RUNNING":
        expected = "a training that is running"
        raise SourceError(three_part(f"the status of {run.path}", verbatim(status), expected))
    if not state.settings:
        expected = "a training with control=True, of this version or a later one"
        raise SourceError(three_part(run.path, verbatim("no settings"), expected))
    _check_user(run)
    return state


def _check_user(run: Run) -> os.stat_result:
    """Returns the status of a record directory in which this user may ask for something."""
    if isinstance(run.path, Url):
        expected = "a local directory, or one of a file system that the training shares"
        raise ArgumentError(three_part("RUN", str(run.path), expected))
    owner, user = os.stat(run.path), os.geteuid()
    if user not in (0, owner.st_uid):
        expected = f"{owner.st_uid}, the owner of the record directory, or root"
        raise SourceError(three_part("the user of this command", user, expected))
    return owner


def ask(
    run: Run, recorded: Lineage, wait: float, **what: Any
) -> tuple[Request, Answers, Collection[int]]:
    """Asks a training for something, at the same step on all ranks.

    Args:
        run: The run.
        recorded: Its lineage.
        wait: How long to wait for room and for answers, in seconds; longer if it ends several
            ranks.
        what: What is asked for.

    Returns:
        The request, the answers and all ranks.

    Raises:
        SourceError: It is not running, or takes no requests; or it has not applied earlier ones,
            and there is no room for another one; or it has several ranks that are to end, and it
            is not known where they are.
        ArgumentError: No training could read the request.
    """
    state = _training_of(run, recorded)
    ranks = range(max(state.rank_size, 1))
    stops = "stop" in what.get("actions", ())
    wait += STOP_MARGIN_SECS if wait and stops and len(ranks) > 1 else 0
    end = time.monotonic() + wait
    conversation = _Conversation(run, state)
    while True:
        conversation.read()
        # Known at the last moment: a request that waits for room would be late.
        at_step, missing = _common_step(run, ranks, stops=stops)
        request = new_request(at_step=at_step, **what)
        try:
            with os_errors_as(SourceError, "the record directory", run.path, _WRITABLE):
                add_request(run.path, request, conversation.is_done)
            break
        except FullError as error:
            if conversation.ended or time.monotonic() >= end:
                raise SourceError(str(error)) from error
        time.sleep(_POLL_SECS)
    if missing:
        terminal.complain(
            "control",
            f"the step of rank {', '.join(map(str, missing))} is not known yet: "
            "ranks may apply the request at different steps",
        )
    answers = conversation.answers[request.id]
    while len(answers) < len(ranks) and time.monotonic() < end and not conversation.ended:
        conversation.read()
        time.sleep(_POLL_SECS)
    return request, answers, ranks


def _common_step(run: Run, ranks: range, *, stops: bool) -> tuple[int | None, list[int]]:
    """Returns the step at which all ranks can apply a request, and the ranks that may not.

    Raises:
        SourceError: They are to stop there, and it is not known where each of them is.
    """
    if len(ranks) == 1:
        return None, []
    known_positions = positions(run)
    moving = {rank for rank, position in known_positions.items() if position.rate > 0}
    missing = [rank for rank in ranks if rank not in moving]
    if missing and stops:
        received = f"values of fewer than two steps of rank {', '.join(map(str, missing[:10]))}"
        expected = (
            "values of two steps of each rank, which show what step all ranks will reach: try "
            "again when they are recorded (sooner with --collect-freq 1), or end all "
            "processes with SIGTERM"
        )
        raise SourceError(three_part(f"to end {run.path} now", verbatim(received), expected))
    end = time.time() + (STOP_MARGIN_SECS if stops else _MARGIN_SECS)
    # The next step is the first one that ends later; one more, as steps differ.
    steps = [2 + position.step_at(end) for position in known_positions.values()]
    return max(steps, default=None), missing


def new_request(**what: Any) -> Request:
    """Returns a request of the user of this process that a training can read."""
    author = f"{_user()}@{this_host()}"[:200]
    request = Request(id=new_identity(), author=author, time=time.time(), **what)
    try:
        check_request(request)
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    return request


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container has no name for its number
        return f"uid {os.getuid()}"


class _Conversation:
    """What a training has answered.

    Attributes:
        answers: The answers to each request, by its identity.
        ended: Whether nothing more is answered, because a training of one rank has ended.
    """

    def __init__(self, run: Run, state: RunState) -> None:
        """Reads nothing yet."""
        self.answers: dict[str, Answers] = collections.defaultdict(dict)
        self.ended = False
        self._run, self._state = run, state
        self._is_alive = True
        self._records = NewRecords(Report())

    def is_done(self, request: Request) -> bool:
        """Whether all ranks have answered a request, or it is for an earlier training."""
        if request.time < self._state.start_time:
            return True
        return len(self.answers[request.id]) >= max(self._state.rank_size, 1)

    def read(self) -> None:
        """Reads what is new."""
        # Of several ranks, the others may get to the step after the first one has ended.
        one_rank = self._state.rank_size <= 1
        self.ended = not self._is_alive  # what it wrote before is read once more
        self._is_alive = not one_rank or writer_is_alive(self._run.path, self._state) is not False
        run = next(iter(find_runs(self._run.path)))
        for rank in run.ranks:
            for batch in self._records.batches(run.files_of(Kind.LINEAGE, rank)):
                for record in batch.records():
                    if record.kind == "note":
                        note = record.event.note
                        self.answers[note.request][rank] = (record.event.step, valid(note.text))
                    elif record.kind == "train_lineage" and one_rank:
                        # Its process may go on without it.
                        stated = record.event.train_lineage.run_state
                        if stated.start_time == self._state.start_time:
                            self.ended |= stated.status != RunState.RUNNING
