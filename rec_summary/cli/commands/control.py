"""`rec-summary control`: changes what a running training records, and ends it."""

from __future__ import annotations

import contextlib
import getpass
import json
import math
import os
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand, one_run
from rec_summary.cli.output import complain, count_of, one_line, print_json, printing, say
from rec_summary.errors import SourceError

if TYPE_CHECKING:
    from rec_summary._pb.lineage_pb2 import RunState
    from rec_summary.records.control import Request
    from rec_summary.records.reading.runs import Run
    from rec_summary.series.lineage import Lineage
    from rec_summary.series.overview.position import Position

EXAMPLES: Final = """\b
Examples:
  rec-summary control records --show
  rec-summary control records --collect-freq 1 --histograms '.*embedding' --for 500steps
  rec-summary control records --tensors 'user_embedding' --for 50steps
  rec-summary control records --checkpoint now --lineage incident=1234
  rec-summary control records --stop

\b
Exit codes: 0 all ranks have done it, or with --wait 0 it was asked for; 1 a
rank has refused it, or has not answered; 2 a mistake in the arguments.
"""
_SPAN: Final = re.compile(r"([1-9]\d{0,14})\s*steps?", re.ASCII)
_MARGIN_SECS: Final = 4.0  # until the last rank has read the file
# Ranks that end at different steps wait for each other for ever: also a slow disk, or a cache of a
# network file system, has to show the file to all of them before.
_STOP_MARGIN_SECS: Final = 60.0
_POLL_SECS: Final = 0.1
LONGEST_NOTE: Final = 1000
Answers = dict[int, tuple[int, str]]
"""The step and the words of each rank that has answered."""


class NotYetError(SourceError):
    """A training cannot be asked for something yet."""


def _span(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Returns the number of a text such as `500steps`."""
    match = _SPAN.fullmatch(value or "")
    if value is not None and match is None:
        raise click.BadParameter(f"{value!r} is no number of steps, such as 500steps.")
    return int(match[1]) if match is not None else None


def _entries(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """Returns `KEY=VALUE` texts as entries; numbers, true and false are what they look like."""
    found: dict[str, Any] = {}
    for each in value:
        key, equals, text = each.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{each!r} is not KEY=VALUE.")
        found[key] = text
        with contextlib.suppress(ValueError, OverflowError, RecursionError):
            number = json.loads(text)
            if isinstance(number, bool | int | float) and math.isfinite(number):
                found[key] = number
    return found


def _wait(text: str) -> options.Decorator:
    return options.option("--wait SECS", text, click.FloatRange(0), default=30.0)


@click.command(cls=RecordsCommand, epilog=EXAMPLES)
@options.run
@options.flag("--show", "Print the settings in force, and what was changed.")
@options.option("--collect-freq N", "Record at every multiple of N steps.", options.COUNT)
@options.option(
    "--tensor-freq N",
    "Record tensors at every multiple of N steps.",
    options.COUNT,
    into="collect_tensor_freq",
)
@options.option(
    "--histograms REGEX",
    "Record histograms of the parameters whose names REGEX matches from their beginning.",
)
@options.option(
    "--tensors REGEX",
    "Record parameters and tensors whole in whose names REGEX is found.",
)
@options.option(
    "--gradients", "Measure gradients and updates at every step, or not at all.", ("on", "off")
)
@options.option(
    "--for Nsteps",
    "Go back to the settings before after so many steps.  [default: until the end]",
    into="steps",
    callback=_span,
)
@options.option(
    "--checkpoint",
    "Save a checkpoint of the network in checkpoints/ of the record directory.",
    ("now",),
)
@options.flag("--flush", "Write all records and the lineage to the files.")
@options.option(
    "--lineage KEY=VALUE",
    "Add an entry to the lineage. May be given several times.",
    callback=_entries,
    multiple=True,
)
@options.flag("--reset", "Go back to the settings of the code.")
@options.flag("--stop", "End the training in good order after a step.")
@_wait(
    "How long to wait until all ranks have done it. Several ranks stop after a minute, "
    "which is added."
)
@options.as_json()
def control(
    source: str,
    *,
    show: bool,
    steps: int | None,
    lineage: dict[str, Any],
    wait: float,
    **chosen: Any,
) -> None:
    """Change what a running training records, or end it.

    RUN is the record directory of one training. The training reads the request within a second
    or two, and applies it at a step; of several ranks, all at the same step. What was changed, when
    and by whom is in its lineage. A training that is started again begins with the settings of
    its code.
    """
    run, known = run_of(source)
    actions = tuple(name for name in ("checkpoint", "flush", "stop", "reset") if chosen.pop(name))
    settings = {name: value for name, value in chosen.items() if value is not None}
    if "gradients" in settings:
        settings["gradients"] = settings["gradients"] == "on"
    if not (settings or lineage or actions):
        if not show:
            raise click.UsageError("Nothing is asked for: give --show, or what is to be changed.")
        _print_settings(run, known)
        return
    if steps is not None and not settings:
        raise click.UsageError("--for needs a setting, such as --collect-freq.")
    _ask(run, known, wait, settings=settings, lineage=lineage, actions=actions, steps=steps)


NOTE_EXAMPLES: Final = """\b
Examples:
  rec-summary note records "learning rate halved after the outage"
  rec-summary note records "the new catalogue is live" --at 120000
  rec-summary note records "an outage of the click log" --at 2026-11-01T12:00
"""


@click.command(cls=RecordsCommand, epilog=NOTE_EXAMPLES)
@options.run
@click.argument("text")
@options.option("--at WHEN", f"What it is about: {options.WHEN}.  [default: the next step]")
@_wait("How long to wait until it is recorded.")
@options.as_json()
def note(source: str, text: str, at: str | None, wait: float) -> None:
    """Write a note into the lineage of a training.

    TensorBoard shows it in its Text dashboard, with its author and step; so do inspect, lineage
    and `control --show`. A training that runs records it itself. If it has ended, or its process
    was killed, this command does.
    """
    from rec_summary.series.options import read_since
    from rec_summary.series.text import utc

    if not text.strip() or len(text) > LONGEST_NOTE:
        raise click.UsageError(f"A note has from 1 to {LONGEST_NOTE:,} characters.")
    step = None
    if at is not None:
        moment = read_since(at, time.time())
        step = moment.step
        text = text if step is not None else f"{utc(moment.wall_time)}: {text}"
    run, known = run_of(source)
    if _status(run, known) in ("RUNNING", "UNKNOWN"):
        _ask(run, known, wait, note=text, note_step=step)
    else:
        request = _new_request(None, note=text, note_step=step)
        _print_answers(request, _write_note(run, known, request), 1, wait)


def run_of(source: str) -> tuple[Run, Lineage]:
    """Returns the only run of a local source, and its lineage."""
    from rec_summary.errors import three_part
    from rec_summary.records.remote import Url
    from rec_summary.series.lineage import lineage_of
    from rec_summary.series.options import ArgumentError
    from rec_summary.series.report import Report

    if isinstance(source, Url):
        expected = "a local directory, or one of a file system that the training shares"
        raise ArgumentError(three_part("RUN", str(source), expected))
    run = one_run(source)
    return run, lineage_of(run, Report())


def _status(run: Run, known: Lineage) -> str:
    """Returns the status of a run; `KILLED` if it is running, but its process does not exist."""
    from rec_summary._pb.lineage_pb2 import RunState
    from rec_summary.records.liveness import writer_is_alive

    train = known.train if known.status == RunState.RUNNING else None
    if train is not None and writer_is_alive(run.path, train.run_state) is False:
        return "KILLED"
    return RunState.Status.Name(known.status)


def _write_note(run: Run, known: Lineage, request: Request) -> Answers:
    """Writes a note to record files of its own; returns its step and text, by rank."""
    from rec_summary._pb.lineage_pb2 import LineageEvent
    from rec_summary.errors import os_errors_as
    from rec_summary.records.control import check_request
    from rec_summary.records.writing.record import MessageRecord
    from rec_summary.records.writing.run_writer import RunWriter
    from rec_summary.series.lineage import NOTE
    from rec_summary.series.options import ArgumentError

    try:
        check_request(request)
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    owner = _check_user(run)
    rank = min(run.ranks)
    last = 0 if known.train is None else known.train.run_state.step
    event = LineageEvent(wall_time=request.time, step=request.note_step)
    if request.note_step is None:
        event.step = last
    event.note.text, event.note.author = request.note, request.author
    event.note.kind, event.note.request = NOTE, request.id
    expected = "a record directory in which this user may write"
    with os_errors_as(SourceError, "the record directory", run.path, expected):
        writer = RunWriter(run.path, rank)
        with contextlib.closing(writer):
            writer.write(MessageRecord(event))
        if os.geteuid() == 0:
            for path in writer.paths:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return {rank: (event.step, request.note)}


def training_of(run: Run, known: Lineage) -> RunState:
    """Returns the state of a training that can be asked for something."""
    from rec_summary._pb.lineage_pb2 import RunState
    from rec_summary.errors import three_part, verbatim

    state = RunState() if known.train is None else known.train.run_state
    status = _status(run, known)
    if status == "KILLED":
        status = f"killed: its process {state.pid} does not exist"
    if status != "RUNNING":
        expected = "a training that is running"
        raise SourceError(three_part(f"the status of {run.path}", verbatim(status), expected))
    if not state.settings:
        expected = "a training with SummaryCollector(control=True), of this version or a later one"
        raise SourceError(three_part(f"{run.path}", verbatim("no settings"), expected))
    _check_user(run)
    return state


def _check_user(run: Run) -> os.stat_result:
    """Returns the status of a record directory in which this user may ask for something."""
    from rec_summary.errors import three_part

    owner, user = os.stat(run.path), os.geteuid()
    if user not in (0, owner.st_uid):
        expected = f"{owner.st_uid}, the owner of the record directory, or 0"
        raise SourceError(three_part("the user of this command", user, expected))
    return owner


def request_to(run: Run, state: RunState, author: str | None = None, **what: Any) -> Request:
    """Returns a request to a training, at the same step on all ranks.

    Args:
        run: The run.
        state: The state of the training.
        author: Who makes it; None for the user of this process.
        what: What it asks for.

    Raises:
        NotYetError: It ends a training of several ranks, and it is not known where they are.
    """
    from rec_summary.errors import three_part, verbatim
    from rec_summary.series.overview.position import positions

    at_step = None
    if state.rank_size > 1:
        known = positions(run)
        missing = [rank for rank in range(state.rank_size) if not _is_known(known.get(rank))]
        stops = "stop" in what.get("actions", ())
        if missing and stops:
            received = f"no values of two steps of rank {', '.join(map(str, missing[:10]))}"
            expected = (
                "values of all ranks, from which a step that all of them will reach is known: ask "
                "again when they have recorded some (sooner with --collect-freq 1), or end all "
                "processes with SIGTERM"
            )
            raise NotYetError(three_part(f"to end {run.path} now", verbatim(received), expected))
        if known:
            end = time.time() + (_STOP_MARGIN_SECS if stops else _MARGIN_SECS)
            # The next step is the first one that ends later; one more, as steps differ.
            at_step = 2 + max(each.step_at(end) for each in known.values())
        if missing:
            complain(
                "control",
                "it cannot be known where all ranks are (ranks without enough records: "
                f"{', '.join(map(str, missing))}): they may apply it at different steps",
            )
    return _new_request(author, at_step=at_step, **what)


def _new_request(author: str | None, **what: Any) -> Request:
    from rec_summary.records.control import Request, new_identity
    from rec_summary.records.format.names import this_host

    author = (author or f"{_user()}@{this_host()}")[:200]
    return Request(id=new_identity(), author=author, time=time.time(), **what)


def _is_known(position: Position | None) -> bool:
    return position is not None and position.rate > 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container has no name for its number
        return f"uid {os.getuid()}"


def _ask(run: Run, known: Lineage, wait: float, **what: Any) -> None:
    """Asks a running training for something, and prints what it answers."""
    state = training_of(run, known)
    request = request_to(run, state, **what)
    if wait and "stop" in request.actions and state.rank_size > 1:
        wait += _STOP_MARGIN_SECS
    _print_answers(request, _answers(run, state, request, wait), max(state.rank_size, 1), wait)


def _answers(run: Run, state: RunState, request: Request, wait: float) -> Answers:
    """Puts a request, and waits for answers."""
    from rec_summary.errors import os_errors_as
    from rec_summary.records.control import add_request
    from rec_summary.records.format.names import Kind
    from rec_summary.records.liveness import writer_is_alive
    from rec_summary.records.reading.runs import find_runs
    from rec_summary.series.new_records import NewRecords
    from rec_summary.series.options import ArgumentError
    from rec_summary.series.report import Report
    from rec_summary.series.text import valid

    records = NewRecords(Report())
    for file in run.files:
        records.skip(file)
    expected = "a record directory in which this user may write"
    try:
        with os_errors_as(SourceError, "the record directory", run.path, expected):
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
            for batch in records.batches(run.of(Kind.LINEAGE, rank)):
                for record in batch.records():
                    note = record.event.note
                    if record.kind == "note" and note.request == request.id:
                        answers[rank] = (record.event.step, valid(note.text))
        if ended:
            break
        ended = not is_alive  # what it wrote before is read once more
        run = next(iter(find_runs(run.path)))
        time.sleep(_POLL_SECS)
    return answers


def _print_answers(request: Request, answers: Answers, ranks: int, wait: float) -> None:
    """Prints the answers of so many ranks.

    Raises:
        ClickException: One has refused it, or has not answered.
    """
    silent = [str(rank) for rank in range(ranks) if rank not in answers]
    refused = [text for _, text in answers.values() if text.startswith("refused: ")]
    if printing().as_json:
        done = {str(rank): {"step": step, "text": text} for rank, (step, text) in answers.items()}
        print_json({"request": request.id, "at_step": request.at_step, "ranks": done})
    for rank, (step, text) in sorted(answers.items()):
        if text not in refused:
            say(f"{f'rank {rank}, ' if ranks > 1 else ''}step {step:,}: {one_line(text)}")
    if not wait:
        say("Asked for. The training applies it at a step; --show says whether it has.")
    steps = {step for step, _ in answers.values()}
    if len(steps) > 1:
        complain("control", "the ranks applied it at different steps")
    if silent and wait:
        who = f"rank {', '.join(silent)}" if ranks > 1 else "the training"
        raise click.ClickException(
            f"{who} has not answered within {wait:g} seconds: it may be between two steps that "
            "take longer, wait for data, or have ended; the request stays. See --show"
        )
    if refused:
        raise click.ClickException(one_line(refused[0]))


def _print_settings(run: Run, known: Lineage) -> None:
    from rec_summary.series.text import utc, valid

    settings = {} if known.train is None else dict(known.train.run_state.settings)
    if printing().as_json:
        print_json({"settings": settings, "notes": known.notes})
        return
    click.secho(one_line(run.name), bold=True)
    for name, value in sorted(settings.items()):
        click.echo(f"  {name:<20} {one_line(valid(value))}")
    if not settings:
        click.echo("  This training takes no requests (control=False, or an earlier version).")
    if known.notes:
        click.echo(f"  {count_of(len(known.notes), 'note')}:")
    for note in known.notes:
        by = f" ({note.author})" if note.author else ""
        click.echo(f"  {utc(note.wall_time)}, step {note.step:,}: {one_line(note.text + by)}")
