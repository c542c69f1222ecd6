"""What `RecordsCommand` hands to a command in the place of URLs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rec_summary.cli.command import RecordsCommand
from rec_summary.errors import DestinationError
from rec_summary.records.remote.upload import Upload
from tests.support.record_dirs import summary_name

fsspec = pytest.importorskip("fsspec")
RECORD = summary_name()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("REC_SUMMARY_CACHE", str(tmp_path / "cache"))
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
    @click.option("--debug", is_flag=True)
    def made(source: str, output: str | None, debug: bool) -> None:
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
    assert seen == [(str(tmp_path), "x")] * 2


def test_a_source_is_mirrored_with_what_the_command_needs(memory: Any) -> None:
    seen: list[Any] = []
    for everything in (False, True):
        made = command(
            lambda source, _: seen.append(names(source)), everything=lambda _, all=everything: all
        )
        result = CliRunner().invoke(made, ["memory://runs"])
        assert result.exit_code == 0, result.output
    assert seen == [[f"a/{RECORD}"], ["a/ckpt_dir/one.ckpt", f"a/{RECORD}"]]


def test_what_is_written_goes_beside_the_source(memory: Any) -> None:
    def write(source: str, output: str) -> None:
        assert output != source
        Path(output, "new").write_text("landscape")

    made = command(write, writes_beside=True, fresh=True)
    assert CliRunner().invoke(made, ["memory://runs"]).exit_code == 0
    assert memory.cat_file("/runs/new") == b"landscape"
    assert memory.exists(f"/runs/a/{RECORD}")
    # A local source is the destination itself, which the command knows.
    seen: list[Any] = []
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


def test_what_goes_wrong_on_the_way_out_is_told(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Upload, *_: object) -> None:
        raise DestinationError("the lock is stuck")

    monkeypatch.setattr(Upload, "__exit__", fail)
    made = command(lambda *_: None)
    result = CliRunner().invoke(made, ["memory://runs", "--output", "memory://logs"])
    assert (result.exit_code, "Error: the lock is stuck" in result.output) == (1, True)
