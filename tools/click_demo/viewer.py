"""TensorBoard on this machine: the command that opens it, and opening it."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

from rec_summary.errors import RecSummaryError, three_part, verbatim

_HOST = "127.0.0.1"
_USUAL_PORT = 6006
_START_SECONDS = 60.0


def script(name: str) -> Path:
    """Returns a command of the environment that runs this."""
    return Path(sys.executable).with_name(name)


def command_line(logdir: Path) -> str:
    """Returns what the user types to open TensorBoard."""
    return shlex.join([shown(script("tensorboard")), "--logdir", shown(logdir), "--host", _HOST])


def shown(path: Path) -> str:
    """Returns a path as the user would type it from where they are."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def view(logdir: Path) -> None:
    """Serves `logdir` with TensorBoard, opens a browser on it, and waits until it is stopped.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM; TensorBoard has ended, too.
        RecSummaryError: TensorBoard did not come up.
    """
    port = _free_port()
    command = [str(script("tensorboard")), "--logdir", str(logdir), "--host", _HOST]
    with subprocess.Popen([*command, "--port", str(port)]) as server:
        try:
            _wait_for(server, port)
            webbrowser.open(f"http://{_HOST}:{port}/")
            server.wait()
        finally:
            server.terminate()


def _free_port() -> int:
    """Returns TensorBoard's usual port, or any other if somebody listens there."""
    for port in (_USUAL_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RecSummaryError(three_part("the local network", verbatim("no port"), "a free TCP port"))


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((_HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    state = "no answer" if server.poll() is None else f"exit code {server.returncode}"
    raise RecSummaryError(
        three_part(
            "TensorBoard",
            verbatim(state),
            f"an answer on {_HOST}:{port} within {_START_SECONDS:.0f} s",
        )
    )
