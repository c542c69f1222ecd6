"""`--since` and `--until`, which mean the same in every command."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rec_summary.cli import cli
from rec_summary.records.files import PlainFile
from tests.support.command import flat, run
from tests.support.record_dirs import (
    event,
    scalar,
    summary_name,
    write_payloads,
)

HOURS = 12


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    """A run of twelve hours that ends now; each hour is a file of its own."""
    now = time.time()
    for hour in range(HOURS):
        begun = now - 3600 * (HOURS - hour)
        values = [
            event(60 * hour + minute, scalar("loss", hour + minute / 64), at=begun + 60 * minute)
            for minute in range(60)
        ]
        path = tmp_path / "records" / "run" / summary_name(int(begun))
        write_payloads(path, *(each.SerializeToString() for each in values))
        os.utime(path, (begun + 3540, begun + 3540))
    return tmp_path / "records"


def read_by(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> tuple[str, set[int], int]:
    """Runs a command here; returns its output, the hours it has read of, and how many bytes."""
    numbers: dict[str, int] = {}
    bytes_read = dict.fromkeys(range(HOURS), 0)
    names: dict[int, str] = {}
    begin, read_at = PlainFile.__init__, PlainFile.read_at

    def counted_begin(self: PlainFile, path: str, **options: Any) -> None:
        begin(self, path, **options)
        names[id(self)] = os.path.basename(path)

    def counted_read(self: PlainFile, offset: int, nbytes: int) -> bytes:
        data = read_at(self, offset, nbytes)
        bytes_read[numbers[names[id(self)]]] += len(data)
        return data

    found = sorted(Path(arguments[1]).rglob("*_MS"), key=lambda path: path.stat().st_mtime)
    numbers.update({path.name: number for number, path in enumerate(found)})
    with monkeypatch.context() as patch:
        # What a command prints does not say which files it has read, nor how much of them.
        patch.setattr(PlainFile, "__init__", counted_begin)
        patch.setattr(PlainFile, "read_at", counted_read)
        result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    hours = {hour for hour, nbytes in bytes_read.items() if nbytes}
    return result.stdout, hours, sum(bytes_read.values())


def test_a_query_of_the_last_hours_reads_their_files_only(
    hours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = {HOURS - 2, HOURS - 1}
    since = ("--since", "90m")
    commands: list[tuple[str | Path, ...]] = [
        ("tail", hours, "--once", "--json"),
        ("tail", hours, "--once", "--tags", "loss"),
        ("inspect", hours, "--json"),
        ("lineage", hours, "--json"),
        ("watch", hours, "--once", "--rule", "loss > 100"),
        ("plot", hours, "-o", tmp_path / "loss.png", "--tags", "loss"),
        ("export", hours, tmp_path / "tables", "--format", "csv"),
    ]
    for command in commands:
        _, everything, most = read_by(monkeypatch, *command)
        assert everything == set(range(HOURS)), command
        _, read, nbytes = read_by(monkeypatch, *command, *since)
        assert read == last, command
        assert nbytes < most / 4, command
    # An export has the graph, which is in the first file.
    _, read, _ = read_by(monkeypatch, "export", hours, tmp_path / "logs", *since, "--tags", "loss")
    assert read == {0, *last}
    rows = (tmp_path / "tables" / "scalars.csv").read_text().splitlines()[1:]
    steps = [int(row.split(",")[3]) for row in rows]
    assert steps == list(range(steps[0], 60 * HOURS))
    assert 630 <= steps[0] <= 650  # some time has passed


def test_since_a_time_means_the_same_in_every_command(hours: Path) -> None:
    tail = [json.loads(line) for line in run("tail", hours, "--once", "--json").stdout.splitlines()]
    [found] = json.loads(run("inspect", hours, "--json", "--since", "90m").stdout)["runs"]
    assert [each["last_step"] for each in found["tags"]] == [tail[0]["step"]] == [719]
    assert 630 <= found["first_step"] <= 650
    [whole] = json.loads(run("inspect", hours, "--json").stdout)["runs"]
    assert whole["first_step"] == 0
    moment = datetime.fromtimestamp(whole["first_time"] + 60 * 100 - 1).isoformat()
    [found] = json.loads(run("inspect", hours, "--json", "--since", moment).stdout)["runs"]
    assert (found["first_step"], found["records"]) == (100, {"summary": 620})
    assert (found["tags"][0]["values"], found["tags"][0]["least"]) == (620, 1.625)
    for command in ("tail", "inspect", "lineage", "watch", "plot", "export"):
        more = {"plot": ["-o", hours / "x.png"], "export": [hours.parent / "logs"]}.get(command, [])
        result = run(command, hours, *more, "--since", "soon")
        assert result.returncode == 2
        assert "since is invalid. Received: 'soon'. Expected: a step (5000)" in flat(result.stderr)


def test_a_time_of_modification_before_that_in_the_name_is_not_trusted(hours: Path) -> None:
    for path in (hours / "run").iterdir():
        os.utime(path, (0, 0))  # as some archives do
    [found] = json.loads(run("inspect", hours, "--json", "--since", "90m").stdout)["runs"]
    assert 630 <= found["first_step"] <= 650
    assert found["last_step"] == 719


def test_a_query_of_the_first_hours_reads_their_files_only(
    hours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = ("--until", "10.5h")
    for command in (
        ("plot", hours, "-o", tmp_path / "loss.png"),
        ("export", hours, tmp_path / "tables", "--format", "csv"),
        ("export", hours, tmp_path / "logs"),
    ):
        _, read, _ = read_by(monkeypatch, *command, *until)
        assert read == {0, 1}, command
    rows = (tmp_path / "tables" / "scalars.csv").read_text().splitlines()[1:]
    steps = [int(row.split(",")[3]) for row in rows]
    assert steps == list(range(len(steps)))
    assert 90 <= len(steps) <= 110  # some time has passed
    _, read, _ = read_by(
        monkeypatch, *command[:2], tmp_path / "x", "--since", "9.5h", *until[:1], "8.5h"
    )
    assert read == {0, 2, 3}  # the graph is in the first file
