"""What `RecordsCommand` passes to a command in the place of URLs; signals, and waiting."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rec_summary.cli import main
from rec_summary.cli.command import RecordsCommand
from rec_summary.records.remote import Url
from tests.support.command import flat, run, start
from tests.support.record_dirs import event, scalar, summary_name, write_segment
from tests.support.waiting import PATIENCE_SECS

RECORD = summary_name()


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pipe_file(f"/runs/a/{RECORD}", b"record")
    fs.pipe_file("/runs/a/ckpt_dir/one.ckpt", b"checkpoint")
    fs.pipe_file("/runs/a/incidents/rank_0_step_1.npz", b"data of users")
    yield fs
    fs.store.clear()


def command(body: Any, **options: Any) -> click.Command:
    """Returns a command with a source, a destination, and a body that gets both."""

    @click.command(cls=RecordsCommand, writes="output", **options)
    @click.argument("source")
    @click.option("--output")
    def made(source: str, output: str | None) -> None:
        body(source, output)

    return made


def names(directory: str) -> list[str]:
    found = (os.path.join(parent, name) for parent, _, here in os.walk(directory) for name in here)
    return sorted(os.path.relpath(path, directory) for path in found)


def test_local_paths_are_left_alone(tmp_path: Path) -> None:
    seen: list[Any] = []
    made = command(lambda *places: seen.append(places))
    for source in (str(tmp_path), f"file://{tmp_path}"):
        assert CliRunner().invoke(made, [source, "--output", "x"]).exit_code == 0
        assert CliRunner().invoke(made, ["x", "--output", source]).exit_code == 0
    assert seen == [(str(tmp_path), "x"), ("x", str(tmp_path))] * 2


def test_a_source_is_read_where_it_is(memory: Any) -> None:
    seen: list[Any] = []
    made = command(lambda *places: seen.append(places))
    assert CliRunner().invoke(made, ["memory://runs"]).exit_code == 0
    assert seen == [("memory://runs", None)]
    assert isinstance(seen[0][0], Url)


def test_a_source_is_copied_where_the_command_needs_files(memory: Any) -> None:
    seen: list[Any] = []
    made = command(lambda source, _: seen.append((source, names(source))), fetches=True)
    result = CliRunner().invoke(made, ["memory://runs"])
    assert result.exit_code == 0, result.output
    [(path, found)] = seen
    assert found == ["a/ckpt_dir/one.ckpt", f"a/{RECORD}"]
    assert os.path.basename(path) == "runs"
    assert not os.path.exists(path)


def test_what_is_written_goes_beside_the_source(memory: Any) -> None:
    seen: list[str] = []

    def write(source: str, output: str) -> None:
        assert output != source
        Path(output, "new").write_text("landscape")
        seen.append(output)

    made = command(write, writes_beside=True, fetches=True)
    assert CliRunner().invoke(made, ["memory://runs"]).exit_code == 0
    assert memory.cat_file("/runs/new") == b"landscape"
    assert memory.exists(f"/runs/a/{RECORD}")
    assert not os.path.exists(seen.pop())
    # A local source is the destination itself; the command knows that.
    made = command(lambda _, output: seen.append(output), writes_beside=True)
    CliRunner().invoke(made, ["local"])
    assert seen == [None]


def test_nothing_is_put_when_the_command_fails(memory: Any) -> None:
    def write(_: str, output: str) -> None:
        Path(output, "half").write_text("half")
        raise click.ClickException("no more")

    result = CliRunner().invoke(command(write), ["memory://runs", "--output", "memory://logs"])
    assert result.exit_code == 1
    assert memory.find("/logs") == []


def test_a_destination_that_must_be_empty(memory: Any) -> None:
    made = command(lambda *_: None, empty=True)
    result = CliRunner().invoke(made, ["local", "--output", "memory://runs"])
    assert result.exit_code == 2
    assert "an empty place, or one that does not exist" in result.output
    assert CliRunner().invoke(made, ["local", "--output", "memory://new"]).exit_code == 0


def test_an_error_while_files_are_put_is_reported(memory: Any) -> None:
    name = "events.out.tfevents.1.rec_summary"

    def beside_another(_: str, directory: str) -> None:
        (Path(directory) / name).write_bytes(b"ours")
        memory.pipe(f"/logs/{name}", b"theirs")

    made = command(beside_another)
    result = CliRunner().invoke(made, ["memory://runs", "--output", "memory://logs"])
    assert result.exit_code == 1
    assert "which another process has written meanwhile" in flat(result.output)


# The main thread takes and releases the lock of the event all the time.
PROGRAM = """
import os, signal, threading, time
from rec_summary.cli.command import stopping

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
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECS, check=True
        )
        assert done.stdout == "stopped\n"


FOLLOWING = {
    "view": [],
    "serve": [],
    "tail": [],
    "watch": [],
    "export": ["logs", "--follow"],
}


def said(command: str, source: Path, tmp_path: Path, lines: int, *options: str) -> list[str]:
    """Returns the first lines on standard error, and stops the command."""
    more = [tmp_path / word if word == "logs" else word for word in FOLLOWING[command]]
    process = start(command, source, *more, *options)
    assert process.stderr is not None
    found = [process.stderr.readline().rstrip("\n") for _ in range(lines)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECS)
    return found


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_source_that_is_not_there_is_named_in_full(command: str, tmp_path: Path) -> None:
    lines = 1 if command in ("serve", "tail") else 2
    told = said(command, tmp_path / "recods", tmp_path, lines)
    assert told[-1] == f"{tmp_path}/recods does not exist yet: waiting for records."


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_directory_without_records_is_named_in_full(command: str, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    lines = 1 if command in ("serve", "tail") else 2
    told = said(command, tmp_path / "wrong", tmp_path, lines)
    assert told[-1] == f"There are no records in {tmp_path}/wrong yet: waiting for records."


@pytest.mark.parametrize("command", ["tail", "export"])
def test_a_choice_that_matches_no_run_yet_is_named(command: str, tmp_path: Path) -> None:
    write_segment(tmp_path / "records" / "ctr", event(1, scalar("loss", 1)))
    lines = 1 if command == "tail" else 2
    told = said(command, tmp_path / "records", tmp_path, lines, "--runs", "crt")
    assert told[-1].endswith("matches a run; there are: ctr. Waiting for such a run.")


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_file_is_refused(command: str, tmp_path: Path) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    [path] = (tmp_path / "records").glob("*_MS")
    more = [tmp_path / word if word == "logs" else word for word in FOLLOWING[command]]
    done = run(command, path, *more)
    assert done.returncode == 2
    assert f"Expected: a directory; that of this file is '{path.parent}'." in flat(done.stderr)


def test_a_view_says_how_its_pages_keep_up_and_which_are_empty(tmp_path: Path) -> None:
    for number in range(21):
        write_segment(tmp_path / f"records/{number}", event(1, scalar("loss", 1)))
    told = said("view", tmp_path / "records", tmp_path, 3)
    assert told[0] == f"Starting TensorBoard for {tmp_path / 'records'}."
    assert "`Reload data`" in told[1]
    assert told[2].startswith("Of more than 40 runs")
    for number in range(251):
        write_segment(tmp_path / f"records/{number}", event(2, scalar("loss", 1)))
    told = said("view", tmp_path / "records", tmp_path, 4)
    assert told[2].startswith("Of more than 40 runs")
    assert "then tick the box above their names" in told[3]


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "{}"],
        ["inspect", "records", "{}"],
        ["export", "records", "{}"],
        ["watch", "{}"],
        ["tail", "records", "--poll", "{}"],
        ["{}"],
    ],
)
@pytest.mark.parametrize(
    "url", ["s3://KEY:hunter2@bucket/x", "s3://KEY:12/hunter2@bucket/x", "s3:/KEY:hunter2@bucket/x"]
)
def test_no_message_shows_the_secret_of_a_url(
    arguments: list[str], url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1.0)))
    found = [str(tmp_path / each) if each == "records" else each.format(url) for each in arguments]
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(found) != 0
    finally:
        signal.signal(signal.SIGTERM, before)
    output = capfd.readouterr()
    assert "Error" in output.err
    assert "hunter2" not in output.out + output.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_a_full_disk_is_reported_as_one(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)))
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "rec_summary", "lineage", tmp_path, "--format", "csv"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "standard output: No space left on device. Expected: a disk that works" in done.stderr


def _firing(tmp_path: Path) -> list[Any]:
    """Returns a watch of a run with a name beyond ASCII, one of whose alerts fires."""
    write_segment(tmp_path / "Länder", event(1, scalar("loss", math.nan)))
    return [sys.executable, "-m", "rec_summary", "watch", tmp_path, "--once", "--rule", "nan-loss"]


def test_what_the_encoding_of_the_output_lacks_is_escaped(tmp_path: Path) -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(_firing(tmp_path), capture_output=True, text=True, env=ascii_only)
    assert (done.returncode, done.stderr) == (1, "")
    assert r"FIRING L\xe4nder: nan-loss" in done.stdout


def test_a_closed_output_ends_no_command(tmp_path: Path) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *_firing(tmp_path)]
    done = subprocess.run(closing, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "")
