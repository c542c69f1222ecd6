"""Who can look at what the viewer shows."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from rec_summary.cli.commands.serving import view
from rec_summary.tensorboard.provider.board import Board, exposed
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.crafted import MAIN, good, write
from tests.support.waiting import PATIENCE_SECS


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "127.0.0.2", "::1"])
def test_this_machine_alone_is_no_exposure(host: str) -> None:
    assert exposed(host, ["--window_title", "x", "--hostile", "y"]) is None


@pytest.mark.parametrize(
    ("host", "arguments", "address"),
    [
        ("0.0.0.0", [], "0.0.0.0"),
        ("::", [], "::"),
        ("example.org", [], "example.org"),
        ("127.0.0.1", ["--host", "0.0.0.0"], "0.0.0.0"),
        ("127.0.0.1", ["--host=10.0.0.1"], "10.0.0.1"),
        ("127.0.0.1", ["--hos", "10.0.0.1"], "10.0.0.1"),
        ("127.0.0.1", ["--bind_all"], "all addresses of this machine"),
        ("127.0.0.1", ["--bind_a"], "all addresses of this machine"),
        ("0.0.0.0", ["--host", "127.0.0.1"], None),
    ],
)
def test_every_way_to_be_exposed_is_noticed(
    host: str, arguments: list[str], address: str | None
) -> None:
    assert exposed(host, arguments) == address


def test_by_default_it_listens_at_this_machine_alone(tmp_path: Path) -> None:
    [option] = [each for each in view.params if each.name == "host"]
    assert option.default == "127.0.0.1"
    with Board(RunIndex(str(tmp_path))) as board:
        assert board.url.startswith("http://127.0.0.1:")


def test_exposure_is_reported_before_it_begins(tmp_path: Path) -> None:
    write(tmp_path / "records" / "run", good())
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments in (["--host", "0.0.0.0"], ["--", "--host=0.0.0.0"]):
            done = subprocess.run(
                [*MAIN, "view", tmp_path / "records", "--port", port, *arguments],
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECS,
            )
            _, warning, *_ = done.stderr.splitlines()  # the first line says what is started
            assert warning.startswith("Warning: TensorBoard listens at 0.0.0.0 without a password")
            assert f"port {port}: TensorBoard could not bind" in done.stderr
