"""Runs pytest, and the few tests that failed once more, alone.

python -m tools.run_tests [ARGUMENTS OF PYTEST]

A test that fails twice fails the run. One that passes the second time depends on the time or on
other tests: it is listed at the end, as a defect to mend. Errors of the collection, a run that was
stopped early (`-x`, Ctrl-C) and many failures are not repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

_MOST: Final = 10  # tests that are repeated; if more fail, it is no accident
_NOTES: Final = "REC_SUMMARY_TEST_NOTES"  # where the plugin below writes what failed
_FAILED: Final = 1  # pytest's exit code when tests failed; other codes are other errors


class Notes:
    """A pytest plugin that notes which tests failed, and whether all were run."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._failed: dict[str, None] = {}
        self._is_whole = True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Notes a test that failed, in its set-up or its end too."""
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: Any) -> None:
        """Notes a module that cannot be loaded."""
        self._is_whole = self._is_whole and not report.failed

    def pytest_sessionfinish(self, session: Any) -> None:
        """Writes the notes."""
        is_whole = self._is_whole and not session.shouldstop and not session.shouldfail
        notes = {"failed": list(self._failed), "is_whole": is_whole}
        self._path.write_text(json.dumps(notes), encoding="utf-8")


def pytest_configure(config: Any) -> None:
    """Takes notes, in the process that gets the results of all."""
    path = os.environ.get(_NOTES)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(path))


def run(*arguments: str) -> tuple[int, list[str], bool]:
    """Runs pytest; returns its exit code, the tests that failed, and whether all were run."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes.json")
        # A test may run pytest as well: only this one takes notes.
        command = [sys.executable, "-m", "pytest", "-p", "tools.run_tests", *arguments]
        code = subprocess.run(command, env={**os.environ, _NOTES: str(notes)}).returncode
        if not notes.exists():
            return code, [], False
        noted = json.loads(notes.read_text(encoding="utf-8"))
    return code, noted["failed"], noted["is_whole"]


def main(*arguments: str) -> int:
    """Runs pytest with these arguments; returns the exit code."""
    code, failed, is_whole = run(*arguments)
    if code != _FAILED or not is_whole or not 0 < len(failed) <= _MOST:
        return code
    print(f"\nonce more, alone: {len(failed)} failed", flush=True)
    code, twice, is_whole = run("-p", "no:xdist", "-p", "no:cacheprovider", *failed)
    once = [test for test in failed if test not in twice] if is_whole else []
    if once:
        print("\npassed only the second time, alone; each is a defect to mend:")
        print("\n".join(f"  {test}" for test in once), flush=True)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(2)
