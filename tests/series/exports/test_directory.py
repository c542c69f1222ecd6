"""The directory of an export: what it leaves open, and what it never touches."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rec_summary.errors import DestinationError
from rec_summary.series.exports.directory import HOLDER_NAME, LOCK_NAME, ExportDirectory


def open_files() -> set[str]:
    """Returns the descriptors of this process with what each is, but that of this look."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return found


def test_no_file_stays_open(tmp_path: Path) -> None:
    with ExportDirectory(str(tmp_path / "logs")):
        pass  # what Python opens at the first use stays open
    before = open_files()
    with ExportDirectory(str(tmp_path / "logs")) as directory:
        with directory.replacing("a/b/file") as file:
            file.write(b"data")
        assert (tmp_path / "logs" / "a" / "b" / "file").read_bytes() == b"data"
        assert directory.has("a/b")
        assert not directory.has("c")
        directory.remove_empty(["c/d"])
        assert open_files() != before
    assert open_files() == before


@pytest.mark.parametrize("kind", ["flock", "soft"])
def test_another_exporter_is_refused_and_told_who_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("REC_SUMMARY_LOCK", kind)
    with ExportDirectory(str(tmp_path)) as first:
        place = f"process {os.getpid()} on {socket.gethostname()}, since "
        assert re.fullmatch(rf"{re.escape(place)}\d{{4}}-\d\d-\d\d [\d:+-]+", first.holder)
        with pytest.raises(DestinationError) as error:
            ExportDirectory(str(tmp_path)).__enter__()
    assert str(error.value) == (
        f"the directory of the export is invalid. Received: {tmp_path}, which another export "
        f"writes to: {first.holder}. Expected: another directory, or wait until that export has "
        "ended."
    )
    with ExportDirectory(str(tmp_path)):
        pass  # and afterwards it is free again
    assert {path.name for path in tmp_path.iterdir()} <= {LOCK_NAME}


@pytest.mark.parametrize("content", [None, b"", b"\xff\n\x1b[31m", b"a" * 5000])
def test_a_name_that_a_stranger_has_written_is_printable(
    tmp_path: Path, content: bytes | None
) -> None:
    with ExportDirectory(str(tmp_path)):
        if content is None:
            (tmp_path / HOLDER_NAME).unlink()
        else:
            (tmp_path / HOLDER_NAME).write_bytes(content)
        with pytest.raises(DestinationError, match="another export writes to: ") as error:
            ExportDirectory(str(tmp_path)).__enter__()
    text = str(error.value)
    assert text.isprintable()
    assert ("has not given its name" in text) == (content != b"\xff\n\x1b[31m")


def test_a_worker_enters_while_its_exporter_has_the_lock(tmp_path: Path) -> None:
    with (
        ExportDirectory(str(tmp_path)) as exporter,
        ExportDirectory(str(tmp_path), worker_of=exporter.holder) as worker,
        worker.made("a"),
    ):
        pass
    assert (tmp_path / "a").is_dir()
    with pytest.raises(DestinationError, match="another export writes to"):
        ExportDirectory(str(tmp_path), worker_of=exporter.holder).__enter__()


_KILLED = """
import os, signal, sys
from rec_summary.series.exports.directory import ExportDirectory
with ExportDirectory(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["flock", "soft"])
def test_a_killed_exporter_holds_nothing_but_its_workers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("REC_SUMMARY_LOCK", kind)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    holder = (tmp_path / HOLDER_NAME).read_text()
    with ExportDirectory(str(tmp_path), worker_of=holder):
        expected = f"workers of one that was killed, {holder}"
        with pytest.raises(DestinationError, match=re.escape(expected)):
            ExportDirectory(str(tmp_path)).__enter__()
    with ExportDirectory(str(tmp_path)) as exporter:
        assert (tmp_path / HOLDER_NAME).read_text() == exporter.holder != holder


def test_nothing_is_removed_from_where_the_process_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If somebody else has removed the directory above one that is to be removed."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    with ExportDirectory(str(tmp_path / "logs")) as directory:
        directory.remove_empty(["gone/run"])
        assert not directory.has("gone/run")
    assert (tmp_path / "run").is_dir()


def test_directories_that_were_made_in_vain_are_removed(tmp_path: Path) -> None:
    with ExportDirectory(str(tmp_path)) as directory:
        with directory.made("kept"):
            pass
        for run in ("kept/a/b", "new/a"):
            what = f"the run directory.*{tmp_path / run}"
            with pytest.raises(DestinationError, match=what), directory.made(run):
                raise OSError("the disk is full")
    assert {path.name for path in tmp_path.rglob("*") if path.is_dir()} == {"kept"}


@pytest.mark.parametrize("run", ["..", "a/../b", "./a", "a//b", "/a", "a/", "file", "link"])
def test_what_is_no_directory_below_is_refused(tmp_path: Path, run: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with (
        ExportDirectory(str(tmp_path)) as directory,
        pytest.raises(DestinationError, match="the run directory is invalid"),
    ):
        directory.has(run)


@pytest.mark.parametrize("path", ["s3://bucket/logs", "file"])
def test_only_a_local_directory_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    what = rf"the directory of the export is invalid\. Received: '?{path}.*Expected: a.* directory"
    with pytest.raises(DestinationError, match=what):
        ExportDirectory(path).__enter__()


def test_a_link_that_appears_while_a_directory_is_made_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    made = os.mkdir

    def be_late(name: str, *args: Any, **options: Any) -> None:
        if name == "run":
            os.symlink(tmp_path / "elsewhere", tmp_path / "logs" / "run")
        made(name, *args, **options)

    with ExportDirectory(str(tmp_path / "logs")) as directory:
        monkeypatch.setattr(os, "mkdir", be_late)  # another program has microseconds for it
        with pytest.raises(DestinationError), directory.replacing("run/file") as file:
            file.write(b"data")
    assert list((tmp_path / "elsewhere").iterdir()) == []
