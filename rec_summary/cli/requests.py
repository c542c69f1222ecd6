"""Requests to running trainings, for `control` and `note`."""

from __future__ import annotations

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
from rec_summary.records.control import Request, add_request, check_request, new_identity
from rec_summary.records.format.names import Kind, this_host
from rec_summary.records.liveness import writer_is_alive
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.remote import Url
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.lineage import NOTE, Lineage, lineage_of
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
    """Returns the only run of a local source, and its lineage."""
    if isinstance(source, Url):
        expected = "a local directory, or one of a file system that the training shares"
        raise ArgumentError(three_part("RUN", str(source), expected))
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
    event.note.kind, event.note.request = NOTE, request.id
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
        expected = "a training with SummaryCollector(control=True), of this version or a later one"
        raise SourceError(three_part(run.path, verbatim("no settings"), expected))
    _check_user(run)
    return state


def _check_user(run: Run) -> os.stat_result:
    """Returns the status of a record directory in which this user may ask for something."""
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
        wait: How long to wait for answers, in seconds; longer if it ends several ranks.
        what: What is asked for.

    Returns:
        The request, the answers and all ranks.

    Raises:
        SourceError: It is not running, or takes no requests; or it has several ranks that are to
            end, and it is not known where they are.
        ArgumentError: No training could read the request.
    """
    state = _training_of(run, recorded)
    at_step = None
    if state.rank_size > 1:
        known_positions = positions(run)
        moving = {rank for rank, position in known_positions.items() if position.rate > 0}
        missing = [rank for rank in range(state.rank_size) if rank not in moving]
        stops = "stop" in what.get("actions", ())
        wait += STOP_MARGIN_SECS if wait and stops else 0
        if missing and stops:
            received = f"values of fewer than two steps of rank {', '.join(map(str, missing[:10]))}"
            expected = (
                "values of two steps of each rank, which show what step all ranks will reach: try "
                "again when they are recorded (sooner with --collect-freq 1), or end all "
                "processes with SIGTERM"
            )
            raise SourceError(three_part(f"to end {run.path} now", verbatim(received), expected))
        if known_positions:
            end = time.time() + (STOP_MARGIN_SECS if stops else _MARGIN_SECS)
            # The next step is the first one that ends later; one more, as steps differ.
            at_step = 2 + max(position.step_at(end) for position in known_positions.values())
        if missing:
            terminal.complain(
                "control",
                f"the step of rank {', '.join(map(str, missing))} is not known yet: "
                "ranks may apply the request at different steps",
            )
    request = new_request(at_step=at_step, **what)
    return request, _answers_to(run, state, request, wait), range(max(state.rank_size, 1))


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


def _answers_to(run: Run, state: RunState, request: Request, wait: float) -> Answers:
    """Puts a request, and waits for answers; no longer than a training of one rank goes on."""
    records = NewRecords(Report())
    for file in run.files:
        records.skip(file)
    try:
        with os_errors_as(SourceError, "the record directory", run.path, _WRITABLE):
            add_request(run.path, request)
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    answers: Answers = {}
    end = time.monotonic() + wait
    ended = False
    while len(answers) < max(state.rank_size, 1) and time.monotonic() < end:
        # Of several ranks, the others may get to the step after the first one has ended.
        is_alive = state.rank_size > 1 or writer_is_alive(run.path, state) is not False
        for rank in run.ranks:
            for batch in records.batches(run.files_of(Kind.LINEAGE, rank)):
                for record in batch.records():
                    note, train = record.event.note, record.event.train_lineage
                    if record.kind == "note" and note.request == request.id:
                        answers[rank] = (record.event.step, valid(note.text))
                    # Its process may go on without it.
                    is_last = record.kind == "train_lineage" and state.rank_size <= 1
                    ended |= is_last and train.run_state.status != RunState.RUNNING
        if ended:
            break
        ended = not is_alive  # what it wrote before is read once more
        run = next(iter(find_runs(run.path)))
        time.sleep(_POLL_SECS)
    return answers
