"""Loggers side by side, for docs/other_loggers.md: cost, disk, reading, what a kill loses."""

from __future__ import annotations

from typing import Final

from ..contest import (
    ROOT,
    Contestant,
    MeasurementFailed,
    Measuring,
    Rounds,
    Settings,
    alternate,
    column,
    measure,
)
from ..results import Row
from ..writing import training_run
from . import compare_run

_OWN: Final = str(ROOT / ".venv-compare" / "bin" / "python")  # what W&B and Aim need is in there
# By the name in `LOGGERS`: the title, the package, and the interpreter if it is another one.
_WHO: Final = {
    "ours": ("rec_summary", "rec_summary", None),
    "mindspore": ("MindSpore", "mindspore", None),
    "torch": ("TensorBoard's writer (PyTorch)", "torch", None),
    "tensorboardX": ("tensorboardX", "tensorboardX", None),
    "wandb": ("W&B offline", "wandb", _OWN),
    "aim": ("Aim", "aim", _OWN),
}
_NONE: Final = "none"
_ROUNDS: Final = 3  # at most: all of it takes ten minutes
# Of `training_run.wide_deep`: what is measured, its unit, its key, a factor, and whether the
# training without a callback is subtracted.
_TRAINING: Final = (
    ("hook on the training thread, mean of all steps", "ms", "hook_mean", 1.0, False),
    ("added to the mean step", "ms", "mean", 1.0, True),
    ("added CPU, all processes", "s", "cpu", 1.0, True),
    ("at the end of the training", "ms", "closing", 1.0, False),
    ("memory added", "MB", "memory", 1.0, True),
    ("on disk", "kB", "disk", 1e-3, False),
)
_SCALARS: Final = (
    ("a scalar: the call", "µs", "call"),
    ("a scalar on disk", "bytes", "disk"),
    ("scalars, close", "s", "closing"),
    ("scalars, read back", "s", "read"),
)
# What a writer that flushes at intervals loses depends on the moment when it is killed.
_KILL_PARTS: Final = (1 / 6, 1 / 2, 5 / 6)
_KILLED: Final = (
    ("kill -9: values lost", "of them", "lost"),
    ("kill -9: the last seconds lost", "s", "lost_secs"),
)


def compare(settings: Settings) -> tuple[str, list[Row]]:
    """Measures all packages that can be used here."""
    who, versions = _usable(settings)
    few = settings.at_most(_ROUNDS)
    steps, count = settings.size(300, 60), settings.size(20_000, 200)
    network = {"rows": 100_000, "width": 16, "steps": steps, "collect_freq": 10}
    train = training_run.wide_deep
    rounds = alternate(
        [Contestant(_NONE, train, {"who": _NONE, **network}), *_all(who, train, network)], few
    )
    rows = []
    for what, unit, key, factor, is_added in _TRAINING:
        base = column(rounds, _NONE, key) if is_added else [0.0] * len(rounds[_NONE])
        values = {
            name: [factor * (n - b) for n, b in zip(column(rounds, name, key), base, strict=True)]
            for name in who
        }
        rows += _rows(what, unit, values)
    rounds = alternate(_all(who, compare_run.scalars, {"count": count}), few)
    rows += _measured(_SCALARS, rounds)
    seconds = settings.size(10, 2)
    rows += _measured(_KILLED, kills(who, seconds, settings))
    setting = (
        f"{versions}. Training: a Wide & Deep network with 26 fields and two tables of 100,000 "
        f"rows, {steps} steps in graph mode; at every tenth step the loss and five histograms, of "
        "1.7 million values together. The first two are callbacks that also record the graph and "
        "the lineage; the others are a callback of ten lines. What is added is the difference to "
        f"the training without a callback in the same round. Scalars: {count:,} of them, one in "
        "each step, with the call that the package has for it, and read back by what the package "
        "has for it: MindSpore's records by ours, W&B's as `wandb sync` reads them. Kill: a scalar "
        f"every 2 ms, killed with all its processes after {seconds} seconds and a part of one: "
        "1/6, 1/2, and 5/6. All have their defaults."
    )
    return setting, rows


def kills(who: list[str], seconds: float, settings: Settings) -> Rounds:
    """Returns what kills lose after so many seconds, and a part of one: a round for each part."""
    rounds: Rounds = {name: [] for name in who}
    for moment in kill_times(seconds):
        asked = _all(who, compare_run.killed, {"seconds": moment})
        for name, measured in alternate(asked, settings.once()).items():
            rounds[name] += measured
    return rounds


def kill_times(seconds: float) -> list[float]:
    """Returns after how many seconds each round kills: more by another part of one."""
    return [seconds + part for part in _KILL_PARTS]


def _usable(settings: Settings) -> tuple[list[str], str]:
    """Returns those who can be measured, and the versions of all in words."""
    who, words = [], []
    for name, (title, package, _) in _WHO.items():
        asking = _contestant(name, compare_run.tried, {"who": name, "package": package})
        try:
            words.append(f"{title} {measure(asking)['version']}")
            who.append(name)
        except (MeasurementFailed, OSError) as error:
            settings.say(f"{title} is left out: {error}")
            words.append(f"{title} cannot be used here")
    return who, ", ".join(words)


def _contestant(name: str, function: Measuring, arguments: dict[str, object]) -> Contestant:
    python = _WHO[name][2]
    return Contestant(name, function, arguments, **({"python": python} if python else {}))


def _all(who: list[str], function: Measuring, arguments: dict[str, object]) -> list[Contestant]:
    return [_contestant(name, function, {"who": name, **arguments}) for name in who]


def _measured(table: tuple[tuple[str, str, str], ...], rounds: Rounds) -> list[Row]:
    rows = []
    for what, unit, key in table:
        rows += _rows(what, unit, {name: column(rounds, name, key) for name in rounds})
    return rows


def _rows(what: str, unit: str, values: dict[str, list[float]]) -> list[Row]:
    """Returns a row for each peer, beside ours."""
    ours = values["ours"]
    return [
        Row(what, unit, ours, theirs, _WHO[name][0])
        for name, theirs in values.items()
        if name != "ours"
    ]
