"""Python programs, forked from a process that has done their slow imports: MindSpore takes seconds.

`Popen` and `run` are subprocess's, for Python programs that train; `Command` is for commands that
read. A program is a child of the test's process and has an interpreter that begins and ends as any
other; only other packages are there already. What depends on an import, or on what differs
between interpreters, such as hashes, is tested with subprocess's.

The process that is forked does nothing else: no thread is lost in a fork.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_SET_CHILD_SUBREAPER = 36  # prctl's, on Linux: who gets the orphans among its descendants
_STREAMS = {"stdin", "stdout", "stderr", "text", "encoding", "errors", "bufsize"}
_ENVIRONMENT = dict(os.environ)
_LOCK = threading.Lock()
_SERVERS: dict[tuple[str, ...], socket.socket] = {}


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`, for [sys.executable, FILE or -m MODULE or -c CODE, *ARGUMENTS].

    Options that only a new process can have, and what an interpreter reads when it begins, start
    an interpreter.
    """

    imported: tuple[str, ...] = ("mindspore.dataset", "rec_summary.training.collector.collector")

    def __init__(self, args: Any, **options: Any) -> None:
        self._others = options.keys() - _STREAMS - {"cwd", "env"}
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        cwd, environment = rest[4:6]
        stdin, _, _, stdout, _, stderr = pipes = rest[9:15]
        environment = dict(os.environ if environment is None else environment)
        if self._others or _of_interpreter(environment) != _of_interpreter(_ENVIRONMENT):
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        request = {
            "words": [str(word) for word in args[1:]],
            "cwd": str(cwd or Path.cwd()),
            "environment": environment,
        }
        given = (stdin, stdout, stderr)
        files = [number if file == -1 else file for number, file in enumerate(given)]
        self.pid = _forked(self.imported, json.dumps(request).encode(), files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class Command(Popen):
    """The same for `-m rec_summary`: what most of its commands import is there."""

    imported = (
        *("rec_summary.cli.commands.lineage", "rec_summary.series.overview.rows"),
        *("rec_summary.tensorboard.event_files.export", "rich.progress", "rich.table"),
        "tensorboard.plugins.hparams.backend_context",
    )


if sys.platform != "linux":
    Popen = Command = subprocess.Popen  # type: ignore[assignment,misc]


def run(
    command: Any, *, popen: type[Popen] = Popen, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with captured text: runs a program to its end."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with popen(command, **options) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns what an interpreter or an import reads: variables, and paths that are not ours."""
    later = ("PYTHONPATH", "PYTHONUNBUFFERED")
    beginnings = ("PYTHON", "LC_", "LANG", "HOME", "TMPDIR", "XDG_")
    found = {k: v for k, v in environment.items() if k.startswith(beginnings) and k not in later}
    ours = _paths(_ENVIRONMENT)
    others = [path for path in _paths(environment) if path not in ours]
    return found | {path: "" for path in others if not Path(path).is_relative_to(ROOT)}


def _paths(environment: Mapping[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def _forked(imported: tuple[str, ...], request: bytes, files: list[int]) -> int:
    with _LOCK:
        if imported not in _SERVERS:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", __name__, str(its.fileno()), *imported]
            environment = {"GLOG_v": "3", **_ENVIRONMENT, "PYTHONPATH": str(ROOT)}
            subprocess.Popen(
                command, cwd=ROOT, env=environment, pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            its.close()
            _SERVERS[imported] = ours
        server = _SERVERS[imported]
        prctl = ctypes.CDLL(None).prctl
        prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(server, [request], files)
            pid = int(server.recv(100))
            assert server.recv(100) == b"an orphan"  # and so our child
        finally:
            prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return pid


def _serve(tests: socket.socket, *imported: str) -> list[str]:
    """Forks; returns the words of the program's command, in its process."""
    for name in imported:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages
    while True:
        message, files, *_ = socket.recv_fds(tests, 1 << 20, 3)
        if not message:
            sys.exit()  # the tests have ended
        if child := os.fork():
            os.waitpid(child, 0)
            tests.send(b"an orphan")
            for file in files:
                os.close(file)
            continue
        between = os.getpid()
        if program := os.fork():
            tests.send(str(program).encode())
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.001)
        break
    tests.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    request = json.loads(message)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _open_streams()
    sys.modules["numpy"].random.seed()  # as another process has other numbers
    words: list[str] = request["words"]
    return words


def _open_streams() -> None:
    """Opens the standard streams as an interpreter does."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        stream = open(  # noqa: SIM115
            number, before.mode, encoding=before.encoding, errors=before.errors, closefd=False
        )
        if number:
            lines = number == 2 or os.isatty(number)
            unbuffered = "PYTHONUNBUFFERED" in os.environ
            stream.reconfigure(line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _begin(words: list[str]) -> None:
    first = "" if words[0] in ("-c", "-m") else str(Path(words[0]).parent.resolve())
    sys.path[:1] = [first, *_paths(os.environ)]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    elif words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _begin(_serve(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:]))
