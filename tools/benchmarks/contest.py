"""Contestants measured in alternation, each time in a fresh process."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from .child import RESULT

ROOT = Path(__file__).parents[2]

Measuring = Callable[..., dict[str, Any]]
"""A function of a module: its process is given the module's name and its own."""

Rounds = dict[str, list[dict[str, float]]]
"""What was measured: for each contestant, a dictionary of numbers for each round."""


@dataclass(frozen=True)
class Contestant:
    """Something to measure.

    Attributes:
        name: What it is called.
        function: Takes `work`, an empty directory that is removed afterwards, and
            `arguments`; returns a dictionary of numbers.
        arguments: Of the function; must fit into JSON.
        python: The interpreter that measures it; this one by default.
    """

    name: str
    function: Measuring
    arguments: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable


@dataclass(frozen=True)
class Settings:
    """How a benchmark is run.

    Attributes:
        rounds: How often each contestant is measured.
        quick: Whether everything is made small: to try the command, not to publish.
        say: Receives progress messages.
        scale: The size of records in proportion to what is published.
        disturbance: The share of the machine that other processes took, for each measurement
            that counts; filled while measuring.
    """

    rounds: int
    quick: bool
    say: Callable[[str], None]
    scale: float = 1.0
    disturbance: list[float] = field(default_factory=list)

    def more(self, times: int) -> Settings:
        """Returns settings with more rounds, for short measurements, which vary more."""
        return dataclasses.replace(self, rounds=times * self.rounds)

    def once(self) -> Settings:
        """Returns settings with one round, for very long measurements."""
        return dataclasses.replace(self, rounds=1)

    def at_most(self, rounds: int) -> Settings:
        """Returns settings with no more rounds than that, for many contestants."""
        return dataclasses.replace(self, rounds=min(rounds, self.rounds))

    def size(self, full: int, quick: int) -> int:
        """Returns the size that is asked for."""
        return quick if self.quick else full


class MeasurementFailed(Exception):
    """A measuring process failed; its output is the text."""


def measure(contestant: Contestant) -> dict[str, float]:
    """Measures once, in a process of its own.

    Returns:
        What the function returned; and as `others` the share of the machine's CPU time that
        other processes took meanwhile, 0 to 1.

    Raises:
        MeasurementFailed: It failed.
    """
    before = _cpu_seconds()
    result = _run(contestant)
    whole, busy, own = (now - then for now, then in zip(_cpu_seconds(), before, strict=True))
    result["others"] = max(0.0, busy - own) / whole if whole else 0.0
    return result


def call(function: Measuring, **arguments: Any) -> dict[str, float]:
    """Measures a function once, as `measure` does."""
    return measure(Contestant(function.__name__, function, arguments))


def command(contestant: Contestant, arguments: dict[str, Any]) -> list[str]:
    """Returns the command that calls a contestant's function in a process of its own."""
    function = f"{contestant.function.__module__}:{contestant.function.__name__}"
    child = "tools.benchmarks.child"
    return [contestant.python, "-m", child, function, json.dumps(arguments)]


def _run(contestant: Contestant) -> dict[str, float]:
    with temporary_directory() as work:
        arguments = {"work": str(work), **contestant.arguments}
        environment = {**os.environ, "GLOG_v": "3", "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            command(contestant, arguments),
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if done.returncode or not lines:
        raise MeasurementFailed(
            f"{contestant.name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    result: dict[str, float] = json.loads(lines[-1][len(RESULT) :])
    return result


def alternate(contestants: Sequence[Contestant], settings: Settings) -> Rounds:
    """Measures all contestants in turn, round after round.

    Every second round goes backwards, so that none always follows the same other one.
    """
    rounds: Rounds = {contestant.name: [] for contestant in contestants}
    for number in range(settings.rounds):
        for contestant in contestants if number % 2 == 0 else list(reversed(contestants)):
            settings.say(f"round {number + 1} of {settings.rounds}: {contestant.name}")
            rounds[contestant.name].append(measure(contestant))
    settings.disturbance.extend(measured["others"] for measured in chain(*rounds.values()))
    return rounds


def _cpu_seconds() -> tuple[float, float, float]:
    """Returns the machine's CPU seconds, those not idle, and those of our ended children."""
    with open("/proc/stat") as file:
        ticks = [int(text) for text in file.readline().split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]  # idle, and waiting for a disk
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = children.ru_utime + children.ru_stime
    return sum(ticks) / second, (sum(ticks) - idle) / second, own


def column(rounds: Rounds, name: str, what: str = "seconds") -> list[float]:
    """Returns one number of a contestant, of all rounds."""
    return [measured[what] for measured in rounds[name]]


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A temporary directory, below `TMPDIR`."""
    with tempfile.TemporaryDirectory(prefix="rec_summary-bench-") as name:
        yield Path(name)
