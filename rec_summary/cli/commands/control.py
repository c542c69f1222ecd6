"""`rec-summary control`: changes what a running training records, and ends it."""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import cli
from rec_summary.cli.text import count_of

if TYPE_CHECKING:
    from rec_summary.cli.requests import Answers
    from rec_summary.records.control import Request
    from rec_summary.records.reading.runs import Run
    from rec_summary.series.lineage import Lineage

EXAMPLES: Final = """\b
Examples:
  rec-summary control records --show
  rec-summary control records --collect-freq 1 --gradients on --for 500steps
  rec-summary control records --tensors 'user_embedding' --for 50steps
  rec-summary control records --checkpoint now --lineage incident=1234
  rec-summary control records --stop

\b
Exit codes: 0 all ranks have done it, or with --wait 0 it was asked for; 1 a
rank has refused it, or has not answered, or there is no room for it; 2 a
mistake in the arguments.
"""
_ACTIONS: Final = ("checkpoint", "incident", "flush", "stop", "reset")
_SPAN: Final = re.compile(r"([1-9]\d{0,14})\s*steps?", re.ASCII)


def _span(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Returns the number of a text such as `500steps`."""
    match = _SPAN.fullmatch(value or "")
    if value is not None and match is None:
        raise click.BadParameter(f"{value!r} is not a number of steps, such as 500steps.")
    return int(match[1]) if match is not None else None


def _entries(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """Returns `KEY=VALUE` texts as entries; numbers, true and false get their types."""
    settings: dict[str, Any] = {}
    for entry in value:
        key, equals, text = entry.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{entry!r} is not KEY=VALUE.")
        settings[key] = text
        with contextlib.suppress(ValueError, OverflowError, RecursionError):
            number = json.loads(text)
            if isinstance(number, bool | int | float) and math.isfinite(number):
                settings[key] = number
    return settings


def _wait(text: str) -> options.Decorator:
    return options.option("--wait SECS", text, options.Seconds(0), default=30.0)


@cli.command(epilog=EXAMPLES)
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
    "Record all values of parameters and tensors in whose names REGEX is found.",
)
@options.option(
    "--gradients", "Measure gradients and updates at every step, or not at all.", ("on", "off")
)
@options.option(
    "--for Nsteps",
    "Go back to the earlier settings after so many steps.  [default: until the end]",
    into="steps",
    callback=_span,
)
@options.option(
    "--checkpoint",
    "Save a checkpoint of the network in checkpoints/ of the record directory.",
    ("now",),
)
@options.flag(
    "--incident",
    "Write the last batches to incidents/ of the record directory, if the training keeps them.",
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
    "How long to wait until all ranks have done it. With --stop, several ranks stop about a minute "
    "later; this minute is added."
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
    from rec_summary.cli.requests import ask, run_of
    from rec_summary.series.options import compiled

    for name in ("histograms", "tensors"):
        compiled(chosen[name] or "", f"--{name}")
    run, recorded = run_of(source)
    actions = tuple(
        name for name in ("checkpoint", "incident", "flush", "stop", "reset") if chosen.pop(name)
    )
    settings = {name: value for name, value in chosen.items() if value is not None}
    if "gradients" in settings:
        settings["gradients"] = settings["gradients"] == "on"
    if not (settings or lineage or actions):
        if not show:
            raise click.UsageError("Nothing is asked for: give --show, or what is to be changed.")
        _print_settings(run, recorded)
        return
    if steps is not None and not settings:
        raise click.UsageError("--for needs a setting, such as --collect-freq.")
    what = {"settings": settings, "lineage": lineage, "actions": actions, "steps": steps}
    _print_answers(*ask(run, recorded, wait, **what), wait)


NOTE_EXAMPLES: Final = """\b
Examples:
  rec-summary note records "learning rate halved after the outage"
  rec-summary note records "the new catalogue is live" --at 120000
  rec-summary note records "an outage of the click log" --at 2026-11-01T12:00
"""


@cli.command(epilog=NOTE_EXAMPLES)
@options.run
@click.argument("text")
@options.option("--at WHEN", f"What it is about: {options.WHEN}.  [default: the next step]")
@options.option(
    "--kind", "Whether it is a person's own words or an alert.", ("note", "alert"), default="note"
)
@_wait("How long to wait until it is recorded.")
@options.as_json()
def note(source: str, text: str, at: str | None, kind: str, wait: float) -> None:
    """Write a note into the lineage of a training.

    TensorBoard shows the note on its Text page, with its author and step. `inspect`, `lineage` and
    `control --show` print it. A running training records the note itself. After its end, also
    by a kill, this command records the note, at the last step or at that of --at. A run without
    lineage, such as one of SummaryRecord, accepts no notes.
    """
    from rec_summary.cli import requests
    from rec_summary.series.options import read_since
    from rec_summary.series.text import utc

    if not text.strip() or len(text) > requests.LONGEST_NOTE:
        raise click.UsageError(f"A note has from 1 to {requests.LONGEST_NOTE:,} characters.")
    step = None
    if at is not None:
        moment = read_since(at, time.time(), "--at")
        step = moment.step
        text = text if step is not None else f"{utc(moment.wall_time)}: {text}"
    what: dict[str, Any] = {"note": text, "note_kind": kind, "note_step": step}
    run, recorded = requests.run_of(source)
    answers: Answers = {}
    if requests.status_of(run, recorded) in ("RUNNING", "UNKNOWN"):
        request, answers, ranks = requests.ask(run, recorded, wait, **what)
        run, recorded = requests.run_of(source)  # it may have ended
    else:
        request = requests.new_request(**what)
    if not answers and requests.status_of(run, recorded) not in ("RUNNING", "UNKNOWN"):
        ranks = answers = requests.write_note(run, recorded, request)
    _print_answers(request, answers, ranks, wait)


def _print_answers(request: Request, answers: Answers, ranks: Collection[int], wait: float) -> None:
    """Prints the answers of these ranks.

    Raises:
        ClickException: One has refused it, or has not answered.
    """
    silent = [str(rank) for rank in ranks if rank not in answers]
    refused = [text for _, text in answers.values() if text.startswith("refused: ")]
    if terminal.printing().as_json:
        done = {str(rank): {"step": step, "text": text} for rank, (step, text) in answers.items()}
        terminal.print_json({"request": request.id, "at_step": request.at_step, "ranks": done})
    for rank, (step, text) in sorted(answers.items()):
        if text not in refused:
            terminal.say(f"{f'rank {rank}, ' if len(ranks) > 1 else ''}step {step:,}: {text}")
    if not wait:
        terminal.say("Asked for. The training applies it at a step; --show says whether it has.")
    steps = {step for step, _ in answers.values()}
    if len(steps) > 1:
        terminal.complain("control", "the ranks applied it at different steps")
    if silent and wait:
        who = f"rank {', '.join(silent)}" if len(ranks) > 1 else "the training"
        raise click.ClickException(
            f"{who} has not answered within {wait:g} seconds: it may be between two steps that "
            "take longer, wait for data, or have ended; the request stays. See --show"
        )
    if refused:
        raise click.ClickException(terminal.one_line(refused[0]))


def _print_settings(run: Run, recorded: Lineage) -> None:
    from rec_summary.series.text import utc, valid

    settings = dict(recorded.state.settings)
    if terminal.printing().as_json:
        notes = [note._asdict() for note in recorded.notes]
        terminal.print_json({"settings": settings, "notes": notes})
        return
    terminal.echo(run.name, bold=True)
    for name, value in sorted(settings.items()):
        terminal.echo(f"  {name:<20} {valid(value)}")
    if not settings:
        reasons = "control=False, an earlier version, or MindSpore's own collector"
        terminal.echo(f"  This training takes no requests ({reasons}).")
    if recorded.notes:
        terminal.echo(f"  {count_of(len(recorded.notes), 'note')}:")
    for note in recorded.notes:
        by = f" ({note.author})" if note.author else ""
        terminal.echo(f"  {utc(note.wall_time)}, step {note.step:,}: {note.text + by}")
