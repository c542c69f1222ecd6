"""Arguments and options that several sub-commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

option: Final = functools.partial(click.option, show_default=True)
"""As `click.option`; the help says what the default is, if there is one."""

source: Final = click.argument("source", metavar="SRC", type=click.Path())
runs: Final = click.option(
    "--runs", metavar="GLOB", help="Only runs whose name matches GLOB; * also matches /."
)
tags: Final = click.option("--tags", metavar="REGEX", help="Only tags in which REGEX is found.")
WHEN: Final = "a step (5000), an age (2h), or a local date and time (2026-11-01T12:00)"
since: Final = click.option("--since", metavar="WHEN", help=f"Only what is from {WHEN} on.")
until: Final = click.option(
    "--until", metavar="WHEN", help="Only what is up to then, in the same forms."
)
interval: Final = option(
    "--interval",
    metavar="SECS",
    type=click.FloatRange(0.05),
    default=1.0,
    help="The time between two polls.",
)


group_by: Final = click.option(
    "--group-by",
    metavar="NAME",
    help="Group runs that differ only in the hyper-parameter NAME, such as seed; separate several "
    "names with commas. With the NAME group: runs with the same entry `group` in their lineage.",
)
x: Final = option(
    "--x",
    type=click.Choice(("step", "samples")),
    default="step",
    help="Show series over steps, or over the examples seen in training.",
)


def ranks(what: str) -> Decorator:
    """Returns the option `--ranks`, with its help."""
    return click.option("--ranks", metavar="LIST", help=f"{what}: 3,7,16-31, or all.")


separate_ranks: Final = ranks(
    "Show these ranks separately (by default all; if there are more than eight, the first)"
)


wide: Final = click.option(
    "--wide", is_flag=True, help="Show all columns at full width, however wide the terminal is."
)


def on_engine(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options `--engine` and `--jobs` of a command that reads many runs."""
    engine = option(
        "--engine",
        metavar="NAME",
        default="loky",
        help="Who does the work: loky (processes on this machine), dask://HOST:PORT, ray or spark.",
    )
    jobs = click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(1),
        help="Process N runs at the same time. [default: 1; on a cluster, as many as fit]",
    )
    return engine(jobs(command))


def as_json(what: str = "Print JSON.") -> Decorator:
    """Returns the option `--json`, with its help."""
    return click.option("--json", "as_json", is_flag=True, help=what)
