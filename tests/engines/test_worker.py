"""Workers are set up like the process that sends them units, and end with it."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from rec_summary.engines.engine import Engine
from rec_summary.engines.units import run_units
from rec_summary.engines.worker import end_with_parent
from tests.support import units
from tests.support.waiting import eventually

_EVALUATING = """
import sys
from tests.support.landscape_workers import landscape
from pathlib import Path
if __name__ == "__main__":
    landscape(Path(sys.argv[1]), "wait")
"""


def test_workers_search_for_cycles_as_rarely_as_the_sender() -> None:
    threshold = gc.get_threshold()
    gc.set_threshold(4321)
    try:
        outcomes = list(run_units(Engine(jobs=2), units.threshold, range(2)))
    finally:
        gc.set_threshold(*threshold)
    assert [outcome.result for outcome in outcomes] == [4321] * 2


def _is_running(process: psutil.Process) -> bool:
    """Whether a process goes on; one that has ended stays a zombie until its new parent asks."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def test_the_workers_of_a_killed_landscape_end_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _EVALUATING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "evaluating\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert len(workers) >= 2
        eventually(lambda: [each for each in workers if _is_running(each)], lambda left: not left)


def test_a_process_without_a_parent_goes_on() -> None:
    end_with_parent()
    assert "rec_summary-parent" not in {thread.name for thread in threading.enumerate()}
