"""The demo's command: get the data, train, export, and say how to see the result."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from rec_summary.cli.terminal import progress_shown
from rec_summary.errors import RecSummaryError, three_part, verbatim

from . import sources, viewer
from .stream import BREAKS
from .viewer import shown

ROOT = Path(__file__).resolve().parents[2]
_STEPS, _BATCH_SIZE = 1562, 64  # together one pass over MovieLens 100K
_LANDSCAPE_STEPS = 100  # fewer leave too few checkpoints apart from each other
_SIGINT_CODE = 128 + signal.SIGINT

_EPILOG = """\b
Examples:
  tools/demo                            under a minute, then how to see the result
  tools/demo --view                     the same, and opens TensorBoard
  tools/demo --tasks                    two heads, and metrics by genre, user and film
  tools/demo --data synthetic           without MovieLens, so without a network
  tools/demo --endless                  until Ctrl-C; what was recorded is exported
  tools/demo --endless --break labels --at 2000
                                        something to find: half of the labels flip from there on
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data",
    type=click.Choice(sources.CHOICES),
    default="auto",
    show_default=True,
    help="What to stream; auto is MovieLens, or synthetic clicks if it cannot be fetched.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=_STEPS,
    show_default=True,
    help="Training steps; by default one pass over MovieLens.",
)
@click.option("--endless", is_flag=True, help="Train until Ctrl-C, with at most 100 MB of records.")
@click.option(
    "--break",
    "broken",
    type=click.Choice([*BREAKS]),
    help="Break something, for you to find: "
    + "; ".join(f"{name}: {words}" for name, (words, _) in BREAKS.items())
    + ".",
)
@click.option(
    "--at", type=click.IntRange(min=1), default=2000, show_default=True, help="From which step on."
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=_BATCH_SIZE,
    show_default=True,
    help="Impressions a step.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / "runs" / "demo",
    show_default="runs/demo in the checkout",
    help="Where the records and TensorBoard's files go; runs add up there.",
)
@click.option(
    "--tasks", is_flag=True, help="Train two heads: a click, and the highest rating of a click."
)
@click.option("--view", is_flag=True, help="Open TensorBoard at the end and serve until Ctrl-C.")
def main(
    data: str,
    steps: int,
    endless: bool,
    broken: str | None,
    at: int,
    batch_size: int,
    seed: int,
    out: Path,
    tasks: bool,
    view: bool,
) -> None:
    """Train a click model online on MovieLens 100K and see it in TensorBoard.

    A Wide & Deep model learns which films people like from the ratings of MovieLens 100K,
    streamed in the order in which they were given, as an unbounded source. rec_summary
    records the training; the records are exported for TensorBoard.
    """
    # MindSpore warns of much that is of no interest here. Read when it is imported.
    os.environ.setdefault("GLOG_v", "3")
    try:
        options = {
            "batch_size": batch_size,
            "seed": seed,
            "tasks": tasks,
            **({} if broken is None else {"broken": broken, "broken_from": at}),
        }
        _run(data, None if endless else steps, out.absolute(), view, options)
    except RecSummaryError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
        sys.exit(_SIGINT_CODE)


def _run(data: str, steps: int | None, out: Path, view: bool, options: dict[str, Any]) -> None:
    seed, tasks = options["seed"], options["tasks"]
    records, logdir = out / "records", out / "tensorboard"
    try:
        records.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = three_part("the directory", verbatim(str(error)), "one that can be written")
        raise click.BadParameter(text, param_hint="'--out'") from error
    source = sources.choose(data, ROOT / ".cache" / "demo", seed)
    click.echo(source.about + "\n")

    # Imported late: it takes seconds, which --help and bad options need not pay for.
    from .training import Meter, landscape, train

    run = f"{datetime.now():%Y%m%d-%H%M%S}-{source.name}{'-tasks' if tasks else ''}"
    with progress_shown(counted="steps") as show:
        meter = Meter(steps, show)
        code = _stopped_with(train, source, records / run, meter, **options)
    # From here on, MindSpore turns Ctrl-C into SIGTERM, which would kill the process at once.
    # Not earlier: RecModel does not handle a signal that already has a handler.
    signal.signal(signal.SIGTERM, _exit)
    if code:
        click.echo(f"Stopped after {meter.steps:,} steps; what was recorded is exported.")
    if meter.steps >= _LANDSCAPE_STEPS and not code and steps is not None:
        click.echo("Computing the loss landscape around the path of the training.", err=True)
        with progress_shown(counted="points") as show:
            code = _stopped_with(landscape, source, records / run, show, tasks=tasks)
    if meter.steps:
        _export(records, logdir, run)
        samples = meter.steps * options["batch_size"]
        result = f"Log loss of the last {meter.window} steps: {meter.loss:.3f}."
        result += " It is that of both heads." if tasks else ""
        if source.rows_in_pass and samples > source.rows_in_pass:
            result += "\nThe stream started again: the model has seen some clicks before."
        click.echo(_closing(source, result, records / run, logdir))
        if view and not code:
            with contextlib.suppress(KeyboardInterrupt, SystemExit):  # either ends the view
                viewer.view(records)
    sys.exit(code)


def _stopped_with(work: Callable[..., None], *arguments: Any, **options: Any) -> int:
    """Calls a function, and returns 0 or the exit code of the signal that stopped it."""
    try:
        work(*arguments, **options)
    except KeyboardInterrupt:
        return _SIGINT_CODE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0


def _export(records: Path, logdir: Path, run: str) -> None:
    """Exports one run as a user would, beside those that are there already."""
    command = ["rec-summary", "export", shown(records), shown(logdir), "--runs", run]
    click.echo(f"\n$ {shlex.join(command)}")
    done = subprocess.run([viewer.script(command[0]), *command[1:]], check=False)
    if done.returncode:
        raise RecSummaryError(f"rec-summary export failed with exit code {done.returncode}")


def _closing(source: sources.Source, result: str, run: Path, logdir: Path) -> str:
    return f"""
{result} Always predicting the click rate has {_entropy(source.click_rate):.3f}.
Records:     {shown(run)}
Event files: {shown(logdir)}
To see the records in TensorBoard:

  {viewer.command_line(run.parent)}

or continue with the commands of the README:

  source {shlex.quote(shown(viewer.script("activate")))} && cd {shlex.quote(shown(run.parents[1]))}
"""


def _entropy(rate: float) -> float:
    """Returns the log loss, in nats, of always guessing the click rate."""
    return -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
