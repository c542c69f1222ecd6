"""TensorBoard as a child process that ends with the process that started it."""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import IO, Final

from rec_summary.errors import RecSummaryError
from rec_summary.records.remote import Url

LOCALHOST: Final = "127.0.0.1"
_START_SECS: Final = 60.0
_STOP_SECS: Final = 10.0
_ADDRESS: Final = re.compile(r" at (http://\S+)")
# TensorBoard keeps a random sample of a series. It sends a tag of all runs in one answer, at about
# 10 microseconds and 75 bytes for a point.
_MOST_POINTS: Final = 90_000
_MOST_SAMPLES: Final = 10_000
_LEAST_SAMPLES: Final = 100
_OTHER_SAMPLES: Final = "histograms=500,images=100,text=100"


class ViewerError(RecSummaryError):
    """TensorBoard cannot be started."""


class Viewer:
    """A TensorBoard on a log directory, as a context: leaving it ends it.

    If this process dies, TensorBoard finds its standard input closed, and ends as well.

    Attributes:
        url: Where its pages are.
    """

    def __init__(
        self,
        logdir: str,
        *,
        host: str = LOCALHOST,
        port: int | None = None,
        runs: int = 1,
        arguments: Sequence[str] = (),
    ) -> None:
        """Prepares; entering starts it.

        Args:
            logdir: The log directory.
            host: The address to listen at. TensorBoard has no passwords: at any address other
                than this machine's own, anyone who can reach it can see the records.
            port: The port to listen at; by default a free one from 6006 on.
            runs: How many runs there are: of many runs, each series has fewer points.
            arguments: More arguments for TensorBoard.
        """
        samples = f"scalars={scalar_samples(runs)},{_OTHER_SAMPLES}"
        self.url = ""
        self._lines: deque[str] = deque(maxlen=50)
        self._started = threading.Event()
        self._command = [
            *(sys.executable, "-m", "rec_summary.tensorboard.server"),
            *("--logdir", logdir, "--host", host),
            *("--reload_interval", "1", "--samples_per_plugin", samples),
            *(() if port is None else ("--port", str(port))),
            *arguments,
        ]

    def __enter__(self) -> Viewer:
        """Starts it, and waits until its pages can be opened.

        Raises:
            ViewerError: It does not start, for example because the port is in use.
        """
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C goes to this process, which ends it
        )
        assert self._process.stdout is not None
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        reader.start()
        if not self._started.wait(_START_SECS) or not self.url:
            self.__exit__()
            said = "\n".join(self._lines) or "nothing"
            raise ViewerError(f"TensorBoard does not start. It says:\n{said}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def running(self) -> bool:
        """Whether TensorBoard is running."""
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """The last lines that TensorBoard has printed."""
        return "\n".join(self._lines)

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.append(line.rstrip())
            found = _ADDRESS.search(line)
            if found and not self.url:
                self.url = found[1]
                self._started.set()
        self._started.set()  # it has ended


def scalar_samples(runs: int) -> int:
    """Returns how many points of a series of scalars TensorBoard keeps.

    It is so many that a tag of all runs is answered in less than 2 seconds.

    Args:
        runs: How many runs there are.
    """
    return min(max(_MOST_POINTS // max(runs, 1), _LEAST_SAMPLES), _MOST_SAMPLES)


def cache_directory(source: str) -> str:
    """Returns where the log directory of a source is kept, for it to be shown again later.

    It is below `$XDG_CACHE_HOME` or `~/.cache`, and the same for the same source.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = source if isinstance(source, Url) else os.path.realpath(source)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    name = re.sub(r"[^\w.-]", "_", os.path.basename(path)) or "root"
    return os.path.join(home, "rec_summary", f"{name}-{digest}")


def prepare_cache(source: str) -> str:
    """Creates `cache_directory(source)`, readable by this user only (mode 0700); returns it.

    Record directories are private, and event files have the same content. The directory of all
    caches may be a link; the mode of its target is not changed.

    Raises:
        OSError: It cannot be made, or is a link.
    """
    path = cache_directory(source)
    caches = os.path.dirname(path)
    os.makedirs(os.path.dirname(caches), exist_ok=True)
    for each in (caches, path):
        os.makedirs(each, mode=0o700, exist_ok=True)
        if each == caches and os.path.islink(caches):
            continue
        directory = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(directory, 0o700)  # an earlier release made it readable for all users
        finally:
            os.close(directory)
    return path


def exposed(host: str, arguments: Sequence[str]) -> str | None:
    """Returns the address at which others can reach a viewer with these options; None if none.

    Args:
        host: The address to listen at.
        arguments: More arguments for TensorBoard; they may have another address.
    """
    # Like TensorBoard's parser, this one accepts beginnings of options.
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", nargs="?", default=host)
    parser.add_argument("--bind_all", nargs="?", const=True)
    options, _ = parser.parse_known_args(arguments)
    if options.bind_all is not None:
        return "all addresses of this machine"
    return None if _is_loopback(options.host or host) else options.host


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def wait_while_running(viewer: Viewer, stop: threading.Event, interval: float = 0.5) -> None:
    """Waits until `stop` is set or TensorBoard has ended; then `stop` is set in any case."""
    while viewer.running and not stop.is_set():
        time.sleep(interval)
    stop.set()
