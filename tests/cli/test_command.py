"""What `RecordsCommand` passes to a command in the place of URLs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rec_summary.cli.command import RecordsCommand
from rec_summary.errors import DestinationError
from rec_summary.records.remote import Upload, Url
from tests.support.record_dirs import summary_name

fsspec = pytest.importorskip("fsspec")
RECORD = summary_name()


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pipe_file(f"/runs/a/{RECORD}", b"record")
    fs.pipe_file("/runs/a/ckpt_dir/one.ckpt", b"checkpoint")
    yield fs
    fs.store.clear()


def command(body: Any, **options: Any) -> click.Command:
    """Returns a command with a source, a destination, and a body that gets both."""

    @click.command(cls=RecordsCommand, writes="output", **options)
    @click.argument("source")
    @click.option("--output")
    def made(source: str, output: str | None, quiet: bool) -> None:
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
    assert result.exit_code == 1
    assert "an empty place, or one that does not exist" in result.output
    assert CliRunner().invoke(made, ["local", "--output", "memory://new"]).exit_code == 0


def test_an_error_while_files_are_put_is_reported(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DestinationError("the store is full")

    monkeypatch.setattr(Upload, "put", fail)
    made = command(lambda *_: None)
    result = CliRunner().invoke(made, ["memory://runs", "--output", "memory://logs"])
    assert (result.exit_code, "Error: the store is full" in result.output) == (1, True)
