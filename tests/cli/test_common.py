"""What sub-commands share: an event that signals set, and what they print while they wait."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import flat, run, start
from tests.support.record_dirs import event, scalar, write_segment

# The main thread takes and releases the lock of the event all the time.
PROGRAM = """
import os, signal, threading, time
from rec_summary.cli.common import stopping

def interrupt():
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

with stopping() as stop:
    threading.Thread(target=interrupt).start()
    while not stop.wait(0):
        pass
print("stopped")
"""


def test_a_signal_sets_the_event_at_any_moment() -> None:
    for _ in range(8):
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "stopped\n"


FOLLOWING = {
    "view": ["--logdir", "logs"],
    "tail": [],
    "watch": [],
    "export": ["logs", "--follow"],
}


def said(command: str, source: Path, tmp_path: Path, lines: int) -> list[str]:
    """Returns the first lines on standard error, and stops the command."""
    more = [tmp_path / word if word == "logs" else word for word in FOLLOWING[command]]
    process = start(command, source, *more)
    assert process.stderr is not None
    found = [process.stderr.readline().rstrip("\n") for _ in range(lines)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return found


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_source_that_is_not_there_is_named_in_full(command: str, tmp_path: Path) -> None:
    lines = 1 if command in ("view", "tail") else 2
    told = said(command, tmp_path / "recods", tmp_path, lines)
    assert told[-1] == f"{tmp_path}/recods does not exist yet: waiting for records."


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_directory_without_records_is_named_in_full(command: str, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    lines = 1 if command in ("view", "tail") else 2
    told = said(command, tmp_path / "wrong", tmp_path, lines)
    assert told[-1] == f"There are no records in {tmp_path}/wrong yet: waiting for records."


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_file_is_refused(command: str, tmp_path: Path) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    [path] = (tmp_path / "records").glob("*_MS")
    more = [tmp_path / word if word == "logs" else word for word in FOLLOWING[command]]
    done = run(command, path, *more)
    assert done.returncode == 2
    assert "Expected: a directory, not a file: name its folder." in flat(done.stderr)


def test_a_view_is_refused_before_anything_is_shown_or_made(tmp_path: Path) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    done = run("view", tmp_path / "records", "--logdir", tmp_path / "records" / "logs")
    assert (done.returncode, done.stdout) == (2, "")
    assert "neither is in the other" in flat(done.stderr)
    assert not (tmp_path / "records" / "logs").exists()


def test_a_view_that_would_write_into_a_file_is_refused(tmp_path: Path) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    (tmp_path / "file").write_text("mine")
    done = run("view", tmp_path / "records", "--logdir", tmp_path / "file")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"the log directory is invalid\. Received: \S+file: File", flat(done.stderr))


def test_a_view_says_how_its_pages_keep_up(tmp_path: Path) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    [told] = said("view", tmp_path / "records", tmp_path, 1)
    assert "`Reload data`" in told
