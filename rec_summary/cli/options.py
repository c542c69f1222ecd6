"""Options as `--help` shows them, and the arguments and options that several sub-commands share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

import click

from rec_summary.errors import three_part


class Seconds(click.FloatRange):
    """A number of seconds that a thread can wait: neither NaN nor infinite."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns the number; a click error if it is out of range."""
        seconds = float(super().convert(value, param, ctx))
        if not seconds <= threading.TIMEOUT_MAX:  # NaN is not, either
            self.fail(f"{value} is not a finite number of seconds.", param, ctx)
        return seconds


class Share(click.FloatRange):
    """A share up to 1, such as 0.001 or 0.1%."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns the share; a click error if it is none."""
        number: Any = str(value).removesuffix("%")
        share = float(super().convert(number.strip(), param, ctx))
        share /= 100 if number != str(value) else 1
        if not share <= 1:  # NaN is not, either
            self.fail(f"{value} is not a share, such as 0.1% or 0.001.", param, ctx)
        return share


class Path(click.Path):
    """A path, with `~` for the home directory also after `=`, where shells leave it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the path; a usage error for standard input and output."""
        if value == "-" and param is not None:
            is_option = isinstance(param, click.Option)
            name = (
                max(param.opts, key=len).strip("-")
                if is_option
                else param.human_readable_name.strip("[]")
            )
            expected = "a path; standard input and output are not used (./- has this name)"
            raise click.UsageError(three_part(name, value, expected), ctx)
        return os.path.expanduser(os.fsdecode(super().convert(value, param, ctx)))


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
COUNT: Final = click.IntRange(1)
PATH: Final = Path()
PORT: Final = click.IntRange(0, 65535)
SECONDS: Final = Seconds(0, min_open=True)


def option(
    declared: str, text: str, kind: Any = None, *, into: str | None = None, **more: Any
) -> Decorator:
    """Returns an option with a value; the help says what the default is, if there is one.

    Args:
        declared: Its names and what its value is, such as `-o --output FILE`.
        text: The help.
        kind: The type of the value, as click has it; a tuple has all values that there are.
        into: The name of the parameter, if it is not that of the option.
        more: As in `click.option`.
    """
    words = declared.split()
    names = [word for word in words if word.startswith("-")]
    metavar = words[-1] if len(names) < len(words) else None
    kind = click.Choice(kind) if isinstance(kind, tuple) else kind
    names += [into] if into else []
    more.setdefault("show_default", True)
    return click.option(*names, metavar=metavar, type=kind, help=text, **more)


def flag(name: str, text: str, *, into: str | None = None) -> Decorator:
    """Returns an option without a value, with its help."""
    return click.option(name, *([into] if into else []), is_flag=True, help=text)


def removed(name: str, instead: str, *, is_flag: bool = False) -> Decorator:
    """Returns an option that 0.1 had: with it, an error says what serves in its place."""

    def refuse(_: click.Context, __: click.Parameter, value: object) -> None:
        if value:
            what = f"the option {name}, which is removed,"
            raise click.UsageError(three_part(what, value, instead))

    more: dict[str, Any] = {"hidden": True, "expose_value": False, "is_flag": is_flag}
    return click.option(name, help=f"Removed: {instead}.", callback=refuse, **more)


source: Final = click.argument("source", metavar="SRC", type=PATH)
run: Final = click.argument("source", metavar="RUN", type=PATH)
runs: Final = option("--runs GLOB", "Only runs whose name matches GLOB; * also matches /.")
tags: Final = option("--tags REGEX", "Only tags in which REGEX is found.")
WHEN: Final = "a step (5000), an age (2h), or a local date and time (2026-11-01T12:00)"
since: Final = option("--since WHEN", f"Only what is from {WHEN} on.")
until: Final = option("--until WHEN", "Only what is up to then, in the same forms.")
interval: Final = option(
    "--interval SECS", "The time between two polls.", Seconds(0.05), default=1.0
)
group_by: Final = option(
    "--group-by NAME",
    "Group runs that differ only in the hyper-parameter NAME, such as seed; separate several "
    "names with commas. With the NAME group: runs with the same entry `group` in their lineage.",
)
x: Final = option(
    "--x",
    "Show series over steps, or over the examples seen in training.",
    ("step", "samples"),
    default="step",
)


def ranks(what: str) -> Decorator:
    """Returns the option `--ranks`, with its help."""
    return option("--ranks LIST", f"{what}: 3,7,16-31, or all.")


separate_ranks: Final = ranks(
    "Show these ranks separately (by default all, or of more than eight only the first)"
)
wide: Final = flag("--wide", "Show all columns at full width, however wide the terminal is.")


def rules(as_where: str = "") -> Decorator:
    """Returns the options `--rule` and `--rules` of a command that judges records."""
    rule = option(
        "--rule RULE",
        f"Raise an alert for this{as_where}. May be given several times.  [default: nan-loss, "
        "stall, auc-drop, quality-change, troubles]",
        into="rules",
        multiple=True,
    )
    files = option(
        "--rules FILE",
        "Read rules from FILE, one in each line, with # comments.",
        PATH,
        into="files",
        multiple=True,
    )
    return lambda command: rule(files(command))


def on_engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options `--engine` and `--jobs` of a command that reads many runs."""
    engine = option(
        "--engine NAME",
        "Where the work is done: loky (processes on this machine) or dask://HOST:PORT.",
        default="loky",
    )
    jobs = option(
        "--jobs N",
        "Process N runs at the same time. [default: 1; on a cluster, as many as fit]",
        COUNT,
    )
    return engine(jobs(command))


def as_json(text: str = "Print JSON.") -> Decorator:
    """Returns the option `--json`, with its help."""
    return flag("--json", text, into="as_json")
