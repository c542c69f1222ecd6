"""How the cost grows with histograms of a training, and with tags, steps and runs to export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from . import made_records
from .contest import ROOT, Contestant, Found, Settings, alternate, column, temporary_directory
from .plots import Panel, draw
from .results import Row

_IMAGES = ROOT / "docs" / "images"
_SCALARS = 100_000


def growth(settings: Settings) -> tuple[str, list[Row]]:
    """Measures each kind of growth, and draws a picture of each."""
    rows = _histograms(settings) + _tags(settings) + _steps(settings) + _runs(settings)
    setting = (
        "Histograms: the weights (64 × 64) of so many layers of 64, recorded at every step of a "
        "training of 200; the rest is exported with `export_tensorboard`, memory being the most "
        f"that the process had resident. Tags and runs share {_SCALARS:,} scalars; steps are "
        "scalars of four tags. Imports are not counted. In the pictures, the band goes from the "
        "smallest to the largest value of all rounds."
    )
    return setting, rows


def _histograms(settings: Settings) -> list[Row]:
    counts = [1, 2, 4, 8, 16, 32, 64]
    steps = settings.size(200, 30)
    contestants = [
        Contestant(
            str(count),
            "training_run:histograms",
            {"layers": counts[-1], "chosen": count, "steps": steps},
        )
        for count in counts
    ]
    found = alternate(contestants, settings)
    panels = [
        Panel("step hook, median (ms)", _columns(found, counts, "hook")),
        Panel("whole step, median (ms)", _columns(found, counts, "median")),
        Panel("CPU of the training (s)", _columns(found, counts, "cpu")),
    ]
    _draw(settings, "histograms", "parameters with histograms", counts, panels)
    names = [f"{count} histogram{'s' if count > 1 else ''} a step" for count in counts]
    return [
        Row(f"{name}: {what}", unit, column(found, str(count), key))
        for count, name in zip(counts, names, strict=True)
        for what, unit, key in (
            ("hook, median", "ms", "hook"),
            ("whole step, median", "ms", "median"),
        )
    ]


def _tags(settings: Settings) -> list[Row]:
    total = settings.size(_SCALARS, 20_000)

    def write(folder: Path, tags: int) -> int:
        made_records.write_scalars(folder, total, tags)
        return total

    return _exports(settings, "tags", [1, 10, 100, 1_000, 10_000], write)


def _steps(settings: Settings) -> list[Row]:
    def write(folder: Path, steps: int) -> int:
        made_records.write_scalars(folder, 4 * steps)
        return 4 * steps

    largest = settings.size(250_000, 25_000)
    return _exports(settings, "steps", [largest // part for part in (100, 30, 10, 3, 1)], write)


def _runs(settings: Settings) -> list[Row]:
    total = settings.size(_SCALARS, 20_000)

    def write(folder: Path, runs: int) -> int:
        for number in range(runs):
            made_records.write_scalars(folder / f"run_{number:04}", total // runs)
        return total // runs * runs

    return _exports(settings, "runs", [1, 3, 10, 30, 100, 300, 1000], write)


def _exports(
    settings: Settings, what: str, sizes: Sequence[int], write: Callable[[Path, int], int]
) -> list[Row]:
    with temporary_directory() as base:
        made_records.write_scalars(base / "few", 8)
        contestants = []
        for size in sizes:
            settings.say(f"making records: {size:,} {what}")
            records = base / str(size)
            arguments = {"records": str(records), "count": write(records, size)}
            arguments["warm_up"] = str(base / "few")
            contestants.append(Contestant(str(size), "event_files:ours", arguments))
        found = alternate(contestants, settings)
    panels = [
        Panel("export (s)", _columns(found, sizes, "seconds")),
        Panel("peak memory (MB)", _columns(found, sizes, "memory")),
    ]
    _draw(settings, what, what, sizes, panels)
    return [
        Row(
            f"{size:,} {what if size > 1 else what[:-1]}: {name}",
            unit,
            column(found, str(size), key),
        )
        for size in sizes
        for name, unit, key in (("export", "s", "seconds"), ("peak memory", "MB", "memory"))
    ]


def _columns(found: Found, sizes: Sequence[int], what: str) -> list[list[float]]:
    return [column(found, str(size), what) for size in sizes]


def _draw(
    settings: Settings, name: str, axis: str, sizes: Sequence[int], panels: list[Panel]
) -> None:
    if not settings.quick:
        draw(_IMAGES / f"performance-growth-{name}.png", axis, sizes, panels)
