"""`tools/bench`: runs benchmarks, prints a table, and keeps the results in `docs/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from statistics import median
from typing import Any

import click
from rich.console import Console

from . import machine, report
from .contest import ROOT, Settings
from .results import Row, merge

_GROUPS = {  # the order of the page: what a training pays first, then readers
    "training": {"training": "writing.training:training"},
    "recommender": {"recommender": "writing.recommender:recommender"},
    "online": {"online": "writing.online:online"},
    "landscape": {"landscape": "writing.landscape:landscape"},
    "soak": {"soak": "writing.soak:soak"},
    "provider": {"provider": "reading.provider:provider"},
    "read": {"read": "reading.readers:read"},
    "fleet": {"fleet": "reading.fleet:fleet"},
    "page": {"page": "reading.page:page"},
    "follow": {"follow": "reading.follow:follow"},
    "growth": {"growth": "reading.growth:growth"},
    "export": {
        "export-scalars": "reading.exports:export_scalars",
        "export-histograms": "reading.exports:export_histograms",
        "export-images": "reading.exports:export_images",
        "export-memory": "reading.exports:export_memory",
        "load": "reading.exports:load",
        "start": "reading.exports:start",
    },
    "compare": {"compare": "comparison.compare:compare"},
}
_BENCHMARKS = {name: function for group in _GROUPS.values() for name, function in group.items()}
_COUNT = click.IntRange(min=1)
_JSON = ROOT / "docs" / "performance.json"
_PAGE = ROOT / "docs" / "performance_tables.md"
_COMPARISON = ROOT / "docs" / "other_loggers.md"
_WIDTH = 160  # of the table in a log
_IMAGES = ROOT / "docs" / "images"


@click.command(epilog=f"Benchmarks: {', '.join(_GROUPS)}; all of them if none is named.")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(_GROUPS)))
@click.option("--pairs", type=_COUNT, default=5, help="Rounds of each contestant; 5 by default.")
@click.option("--size", type=float, default=1.0, help="Scale records of read, provider, soak.")
@click.option("--quick", is_flag=True, help="Small sizes, to try it; nothing is kept.")
@click.option("--page", is_flag=True, help="Only write the page again, from the stored results.")
def main(names: tuple[str, ...], pairs: int, size: float, quick: bool, page: bool) -> None:
    """Measure this package and others that do the same, in alternation.

    Each measurement runs in a fresh process. Results go to docs/performance.json, those of
    other benchmarks stay there, and docs/performance_tables.md is made from it.
    """
    if page:
        _write(json.loads(_JSON.read_text()))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    results: dict[str, Sequence[Row]] = {}
    here = machine.describe()
    console.print(machine.in_words(here), highlight=False)
    for name in (name for group in names or _GROUPS for name in _GROUPS[group]):
        settings = Settings(
            pairs,
            quick,
            lambda text, name=name: console.log(f"{name}: {text}", highlight=False),
            size,
        )
        setting, results[name] = _benchmark(name)(settings)
        others = sorted(settings.disturbance)
        rounds = len(results[name][0].ours)
        disturbance = f"{rounds} round{'' if rounds == 1 else 's'}."
        if others:
            disturbance += (
                f" Other processes took {median(others):.0%} of the machine in the median "
                f"measurement, {others[-1]:.0%} at most."
            )
        console.log(f"{name}: {disturbance}", highlight=False)
        if not quick:
            stored = merge(_JSON, name, f"{setting} {disturbance}", results[name], here)
            _write(stored)
    for name, rows in results.items():
        console.print(f"\n{name}\n" + report.table(rows), highlight=False, markup=False)
    if quick:
        console.print("Small sizes: these numbers say little, and were not kept.")


def _write(stored: dict[str, Any]) -> None:
    """Writes the pages from all results; the figures of the comparison are on another one."""
    elsewhere = {"compare": f"The figures are in [Other loggers]({_COMPARISON.name})."}
    report.write_page(_PAGE, stored, list(_BENCHMARKS), _IMAGES, elsewhere)
    if "compare" in stored:
        report.write_comparison(_COMPARISON, stored["compare"])


def _benchmark(name: str) -> Callable[[Settings], tuple[str, list[Row]]]:
    module, _, function = _BENCHMARKS[name].partition(":")
    benchmark: Callable[[Settings], tuple[str, list[Row]]]
    benchmark = getattr(import_module(f"tools.benchmarks.{module}"), function)
    return benchmark


if __name__ == "__main__":
    main(prog_name="tools/bench")
