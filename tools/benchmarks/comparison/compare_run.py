"""What the comparison page measures of one logger, in a process of its own."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from importlib import metadata
from pathlib import Path

from ..child import Stopwatch, disk_usage
from ..contest import Contestant, call, command
from .loggers import LOGGERS, logger

_WARM_UP = 8  # values
_STEP_SECS = 0.002
_WAIT_SECS = 120.0
_PROGRESS = "progress"


def scalars(work: str, who: str, count: int) -> dict[str, float]:
    """Writes a scalar in each step, and reads all of them back: each in a process of its own.

    A run of Aim stays locked until the process that has written it is gone.
    """
    written = call(write, work=work, who=who, count=count)
    read_back = call(read, work=work, who=who)
    if read_back["count"] != count:
        raise RuntimeError(f"{read_back['count']} values were read, not {count}")
    return {**written, "read": read_back["seconds"]}


def write(work: str, who: str, count: int) -> dict[str, float]:
    """Writes a scalar in each step, behind a few others elsewhere."""
    warm_up, folder = Path(work, "warm-up"), Path(work, "run")
    made = logger(who, warm_up)
    for step in range(1, _WARM_UP + 1):
        made.scalar(step, 0.5)
    made.close()
    made = logger(who, folder)
    with Stopwatch() as calls:
        for step in range(1, count + 1):
            made.scalar(step, 1 / step)
    with Stopwatch() as closing:
        made.close()
    return {
        "call": 1e6 * calls.seconds / count,
        "closing": closing.seconds,
        "disk": disk_usage(folder) / count,
    }


def read(work: str, who: str) -> dict[str, float]:
    """Reads all steps back; imports of the package count."""
    with Stopwatch() as reading:
        steps = LOGGERS[who][0].steps(Path(work, "run"))
    return {"count": len(steps), "last": max(steps, default=0), **reading.result()}


def endless(work: str, who: str) -> dict[str, float]:
    """Writes a scalar in each step until it is killed, and which step it has written."""
    made = logger(who, Path(work, "run"))
    with Path(work, _PROGRESS).open("wb", buffering=0) as progress:
        for step in itertools.count(1):
            made.scalar(step, 1 / step)
            progress.write(b"%d %f\n" % (step, time.time()))
            time.sleep(_STEP_SECS)
    return {}


def killed(work: str, who: str, seconds: float) -> dict[str, float]:
    """Kills `endless` after some seconds of it, and reads what is left."""
    progress = Path(work, _PROGRESS)
    child = subprocess.Popen(
        command(Contestant(who, endless), {"work": work, "who": who}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + _WAIT_SECS
    while not progress.exists() or not progress.stat().st_size:
        if child.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{who} has not begun")
        time.sleep(0.1)
    time.sleep(seconds)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    lines = [line.split() for line in progress.read_text().splitlines()]
    times = {int(step): float(at) for step, at in lines}
    read_back = call(read, work=work, who=who)
    began = min(times.values())
    return {
        "lost": len(times) - read_back["count"],
        "written": len(times),
        "lost_secs": max(times.values()) - times.get(int(read_back["last"]), began),
    }


def tried(work: str, who: str, package: str) -> dict[str, str]:
    """Returns the version of a package that gives back what is written with it."""
    scalars(work, who, _WARM_UP)
    return {"version": metadata.version(package)}
