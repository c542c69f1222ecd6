"""Which program trains: its git commit, its command line, and the versions of packages.

A thread finds them once a process: git may be slow, or wait for a disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.checks import valid_unicode
from rec_summary.scrubbing import scrubbed_command

OFF: Final = "REC_SUMMARY_NO_PROVENANCE"

MOST_SECS = 3.0
"""For git. The end of a training waits as long."""

_MOST_WORDS: Final = 50  # of a command line
_MOST_CHARS: Final = 2000
_PACKAGES: Final = (
    *("catboost", "cupy", "dgl", "flax", "jax", "keras", "lightgbm", "lightning", "mindspore"),
    *("numpy", "pandas", "polars", "pyarrow", "scipy", "sklearn", "tensorflow", "torch"),
    *("torchrec", "xgboost"),
)
_COMMIT: Final = re.compile(rb"[0-9a-f]{40,64}")
_ELSEWHERE: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # as a hook of git has them


def begin() -> None:
    """Begins to find the facts of this process, unless `REC_SUMMARY_NO_PROVENANCE` is 1."""
    if os.environ.get(OFF) != "1":
        _search(os.getpid())


def complete(state: RunState) -> None:
    """Adds the facts that are known to the state of this process; if it has ended, all of them."""
    if os.environ.get(OFF) == "1":
        return
    search = _search(os.getpid())
    if state.status != RunState.RUNNING and search.is_alive():
        search.join(MOST_SECS)
    for field, _ in search.found.ListFields():
        state.ClearField(field.name)  # those of a process whose lineage it was
    state.MergeFrom(search.found)


@functools.cache
def _search(pid: int) -> _Search:
    """Returns the search of a process; a forked one does not have the thread of its parent."""
    search = _Search(name="rec_summary-provenance", daemon=True)
    with contextlib.suppress(RuntimeError):  # no room for another thread
        search.start()
    return search


class _Search(threading.Thread):
    """Finds the facts; replaces `found` as a whole, since others read it meanwhile."""

    found = RunState()

    def run(self) -> None:
        with contextlib.suppress(Exception):
            self._add(RunState(command=_command(), packages=dict(_versions())))
            until = time.monotonic() + MOST_SECS
            commit = _git(until, "rev-parse", "HEAD").strip()
            if _COMMIT.fullmatch(commit):
                self._add(RunState(git_commit=commit.decode()))
                changes = _git(until, "status", "--porcelain", "--untracked-files=no")
                self._add(RunState(git_dirty=bool(changes)))

    def _add(self, facts: RunState) -> None:
        facts.MergeFrom(self.found)
        self.found = facts


def _git(until: float, *arguments: str) -> bytes:
    """Returns what git says of the repository of the program, or of the working directory.

    Args:
        until: When to give up, on the monotonic clock.
        arguments: What to ask.

    Raises:
        OSError, subprocess.SubprocessError: There is no git, it refuses, or takes too long.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    directory = os.path.dirname(os.path.realpath(main)) if main else os.getcwd()
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    for name in _ELSEWHERE:
        environment.pop(name, None)
    done = subprocess.run(
        # Looked up here, since the start of a process holds up other threads. A monitor of files
        # would be a program of the repository, and go on running.
        [shutil.which("git") or "", "-C", directory, "-c", "core.fsmonitor=false", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C and questions at the terminal are not for it
        timeout=max(until - time.monotonic(), 0),
        check=True,
    )
    return done.stdout


def _command() -> list[str]:
    """Returns the words of the command line without secrets, or the first ones."""
    words = sys.orig_argv
    if sys.argv[:1] == ["-c"] or "--multiprocessing-fork" in words:
        words = [*words[:1], *sys.argv]  # a program in a word may hold anything
    shown: list[str] = []
    room = _MOST_CHARS
    for word in scrubbed_command(words):
        if len(shown) == _MOST_WORDS or len(word) > room:
            return [*shown, "…"]
        shown.append(valid_unicode(word))
        room -= len(word)
    return shown


def _versions() -> Iterator[tuple[str, str]]:
    """Yields the versions of the packages that are loaded, by the names of their distributions."""
    yield "python", platform.python_version()
    for name in _PACKAGES:
        module = sys.modules.get(name)
        if module is None:
            continue
        distribution = "scikit-learn" if name == "sklearn" else name
        # No attribute is looked up: a lazy module would import others.
        found = vars(module).get("__version__")
        with contextlib.suppress(Exception):  # no, or broken, metadata
            found = str(found or version(distribution))
            yield distribution, valid_unicode(found)[:100]
