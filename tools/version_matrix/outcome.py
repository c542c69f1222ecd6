"""Runs the tests in one environment and counts what came of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from tools.version_matrix.environments import ROOT

_HANG_SECS = 3600  # the whole of the tests takes a quarter of that


@dataclass(frozen=True)
class Outcome:
    """What came of the tests in one environment.

    Attributes:
        versions: The version of Python and of each package installed.
        counts: How many tests "passed", "failed" (errors included) and "skipped".
        seconds: How long the tests took.
        trouble: Why the tests did not come to an end; empty when they did.
        failures: The tests that failed.
    """

    versions: dict[str, str]
    counts: dict[str, int]
    seconds: float
    trouble: str = ""
    failures: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether everything was run and nothing failed."""
        return not self.trouble and not self.counts["failed"] and self.counts["passed"] > 0


def count(report: Path) -> tuple[dict[str, int], tuple[str, ...]]:
    """Returns the counts, and the names of what failed, in a report in JUnit's XML."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            failures.append(f"{case.get('classname') or ''}::{case.get('name')}".lstrip(":"))
        elif case.find("skipped") is not None:
            counts["skipped"] += 1
        else:
            counts["passed"] += 1
    return counts, tuple(failures)


def _heed_interrupts() -> None:
    # A shell starts what runs in its background with Ctrl-C ignored; our tests send it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_tests(
    home: Path,
    versions: dict[str, str],
    arguments: list[str],
    log: Path,
    variables: tuple[tuple[str, str], ...] = (),
) -> Outcome:
    """Runs pytest in an environment.

    Args:
        home: The folder of the environment.
        versions: What is installed there, for the outcome.
        arguments: What pytest is given.
        log: Where all goes that it says.
        variables: What is set in its process environment besides, as name and value.
    """
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = [str(home / "bin" / "python"), "-m", "pytest", f"--junit-xml={report}", *arguments]
    surroundings = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")
    }
    # Subprocesses of the tests, and msrun, must find this environment's python first.
    surroundings["PATH"] = f"{home / 'bin'}{os.pathsep}{surroundings.get('PATH', '')}"
    surroundings["VIRTUAL_ENV"] = str(home)
    surroundings.setdefault("GLOG_v", "3")  # MindSpore's own warnings would bury a failure
    surroundings.update(variables)
    begin = time.monotonic()
    trouble = ""
    with log.open("w") as out:
        try:
            code = subprocess.run(
                command,
                cwd=ROOT,
                env=surroundings,
                stdout=out,
                stderr=out,
                timeout=_HANG_SECS,
                preexec_fn=_heed_interrupts,
            ).returncode
        except subprocess.TimeoutExpired:
            code, trouble = -1, f"not done after {_HANG_SECS} seconds"
    seconds = time.monotonic() - begin
    if not report.is_file():  # a hanging test, or a crash of MindSpore's, ends the process
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        return Outcome(versions, counts, seconds, trouble or f"pytest ended with code {code}")
    counts, failures = count(report)
    if code not in (0, 1):
        trouble = trouble or f"pytest ended with code {code}"
    return Outcome(versions, counts, seconds, trouble, failures)
