"""The log directory: what it leaves open, and what it never touches."""

from __future__ import annotations

import contextlib
import errno
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
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.event_file import EventFile, FilePosition
from rec_summary.tensorboard.event_files.logdir import (
    HOLDER_NAME,
    LOCK_NAME,
    LogDir,
    event_file_name,
)
from tests.support.record_dirs import tree


def open_files() -> set[str]:
    """Returns the descriptors of this process with what each is, but that of this look."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return found


def test_no_file_stays_open(tmp_path: Path) -> None:
    with LogDir(str(tmp_path / "logs")):
        pass  # what Python opens at the first use stays open
    before = open_files()
    with LogDir(str(tmp_path / "logs")) as directory:
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
    with LogDir(str(tmp_path)) as first:
        place = f"process {os.getpid()} on {socket.gethostname()}, since "
        assert re.fullmatch(rf"{re.escape(place)}\d{{4}}-\d\d-\d\d [\d:+-]+", first.holder)
        with pytest.raises(DestinationError) as error:
            LogDir(str(tmp_path)).__enter__()
    assert str(error.value) == (
        f"the log directory is invalid. Received: {tmp_path}, which another export "
        f"writes to: {first.holder}. Expected: another directory, or wait until that export has "
        "ended."
    )
    with LogDir(str(tmp_path)):
        pass  # and afterwards it is free again
    assert {path.name for path in tmp_path.iterdir()} <= {LOCK_NAME}


@pytest.mark.parametrize("content", [None, b"", b"\xff\n\x1b[31m", b"a" * 5000])
def test_a_name_that_a_stranger_has_written_is_printable(
    tmp_path: Path, content: bytes | None
) -> None:
    with LogDir(str(tmp_path)):
        if content is None:
            (tmp_path / HOLDER_NAME).unlink()
        else:
            (tmp_path / HOLDER_NAME).write_bytes(content)
        with pytest.raises(DestinationError, match="another export writes to: ") as error:
            LogDir(str(tmp_path)).__enter__()
    text = str(error.value)
    assert text.isprintable()
    assert ("has not given its name" in text) == (content != b"\xff\n\x1b[31m")


def test_a_worker_enters_while_its_exporter_has_the_lock(tmp_path: Path) -> None:
    with (
        LogDir(str(tmp_path)) as exporter,
        LogDir(str(tmp_path), worker_of=exporter.holder) as worker,
        worker.made("a"),
    ):
        pass
    assert (tmp_path / "a").is_dir()
    with pytest.raises(DestinationError, match="another export writes to"):
        LogDir(str(tmp_path), worker_of=exporter.holder).__enter__()


_KILLED = """
import os, signal, sys
from rec_summary.tensorboard.event_files.logdir import LogDir
with LogDir(sys.argv[1]):
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
    with LogDir(str(tmp_path), worker_of=holder):
        expected = f"workers of one that was killed, {holder}"
        with pytest.raises(DestinationError, match=re.escape(expected)):
            LogDir(str(tmp_path)).__enter__()
    with LogDir(str(tmp_path)) as exporter:
        assert (tmp_path / HOLDER_NAME).read_text() == exporter.holder != holder


def test_nothing_is_removed_from_where_the_process_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If somebody else has removed the directory above one that is to be removed."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    with LogDir(str(tmp_path / "logs")) as directory:
        directory.remove_empty(["gone/run"])
        assert not directory.has("gone/run")
    assert (tmp_path / "run").is_dir()


def test_directories_that_were_made_in_vain_are_removed(tmp_path: Path) -> None:
    with LogDir(str(tmp_path)) as directory:
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
        LogDir(str(tmp_path)) as directory,
        pytest.raises(DestinationError, match="the run directory is invalid"),
    ):
        directory.has(run)


@pytest.mark.parametrize("path", ["s3://bucket/logs", "file"])
def test_only_a_local_directory_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    what = rf"the log directory is invalid\. Received: '?{path}.*Expected: a.* directory"
    with pytest.raises(DestinationError, match=what):
        LogDir(path).__enter__()


def test_a_link_that_appears_while_a_directory_is_made_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    made = os.mkdir

    def be_late(name: str, *args: Any, **options: Any) -> None:
        if name == "run":
            os.symlink(tmp_path / "elsewhere", tmp_path / "logs" / "run")
        made(name, *args, **options)

    with LogDir(str(tmp_path / "logs")) as directory:
        monkeypatch.setattr(os, "mkdir", be_late)  # another program has microseconds for it
        with pytest.raises(DestinationError), directory.replacing("run/file") as file:
            file.write(b"data")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def put(logdir: LogDir, run: str, data: bytes, stamp: int = 1) -> bool:
    file = EventFile(logdir, run, FilePosition(stamp))
    try:
        file.write_framed([data])
        file.settle()
    finally:
        file.close(Report())
    return file.replaced


def files(path: Path) -> dict[str, bytes]:
    found = tree(path)
    return {name: data for name, data in found.items() if name not in (LOCK_NAME, HOLDER_NAME)}


def test_modes_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with LogDir(str(tmp_path / "logs")) as logdir:
            put(logdir, "run", b"")
    finally:
        os.umask(before)
    run = tmp_path / "logs" / "run"
    assert run.stat().st_mode & 0o777 == 0o750
    assert (run / event_file_name(1)).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "name", ["events.out.tfevents.1.host", "x.tfevents", "events.out.tfevents.1.rec_summary.v2"]
)
def test_event_files_of_others_keep_us_away(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_bytes(b"theirs")
    with (
        LogDir(str(tmp_path)) as logdir,
        pytest.raises(DestinationError, match="one writer for each run directory") as error,
    ):
        logdir.check("run")
    assert name in str(error.value)
    assert files(tmp_path) == {f"run/{name}": b"theirs"}


def test_other_files_and_our_own_are_no_obstacle(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "tfevents").mkdir(parents=True)
    (run / "notes.txt").write_text("x")
    (run / event_file_name(1)).write_bytes(b"")
    with LogDir(str(tmp_path)) as logdir:
        logdir.check("run")
        logdir.check("missing")
    assert files(tmp_path) == {"run/notes.txt": b"x", f"run/{event_file_name(1)}": b""}


def test_only_our_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "notes.txt").write_text("x")
    (run / event_file_name(5)).write_bytes(b"")
    with LogDir(str(tmp_path)) as logdir:
        assert logdir.remove("missing/run") is False
        assert logdir.remove("run") is True
        assert logdir.remove("run") is False
        assert logdir.remove("missing") is False
    assert files(tmp_path) == {"run/notes.txt": b"x"}


def test_the_directories_below_are_listed_with_their_files(tmp_path: Path) -> None:
    (tmp_path / "run" / "eval").mkdir(parents=True)
    (tmp_path / "run" / "eval" / "x").write_bytes(b"")
    with LogDir(str(tmp_path)) as logdir:
        for run, expected in (
            ("", [("run", []), ("run/eval", ["x"])]),
            ("run", [("run/eval", ["x"])]),
        ):
            assert [(path, names) for path, names, _ in logdir.directories(run)] == expected


def test_the_current_directory_does_not_stand_in_for_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "rank_0").mkdir(parents=True)
    for name in (event_file_name(5), "x.tfevents"):
        (here / name).write_bytes(b"")
    monkeypatch.chdir(here)
    with LogDir(str(tmp_path / "logs")) as logdir:
        logdir.check("missing")
        assert not logdir.remove("missing")
        assert list(logdir.directories("missing")) == []
    assert len(list(here.iterdir())) == 3


def test_directories_that_were_made_for_nothing_are_removed(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    with LogDir(str(tmp_path)) as logdir:
        with pytest.raises(DestinationError, match="No space left"), logdir.made("group/a/b"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert list((tmp_path / "group").iterdir()) == []


def test_links_in_the_log_directory_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "run").symlink_to(outside)
    (logs / "group").symlink_to(outside)
    with LogDir(str(logs)) as logdir:
        for run in ("run", "group/deep", "../outside"):
            with pytest.raises(DestinationError, match="the run directory"):
                logdir.check(run)
            with pytest.raises(DestinationError, match="the run directory"):
                put(logdir, run, b"")
            with pytest.raises(DestinationError, match="the run directory"):
                logdir.remove(run)
    assert files(outside) == {}


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_links_in_place_of_our_files_are_replaced_not_followed(tmp_path: Path, link: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    run = tmp_path / "logs" / "run"
    run.mkdir(parents=True)
    getattr(run / event_file_name(1), link)(victim)
    with LogDir(str(tmp_path / "logs")) as logdir:
        put(logdir, "run", b"new")
    assert victim.read_bytes() == b"precious"
    assert not (run / event_file_name(1)).is_symlink()
    assert files(run) == {event_file_name(1): b"new"}


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / LOCK_NAME).symlink_to(victim)
    with pytest.raises(DestinationError, match="lock"), LogDir(str(tmp_path / "logs")):
        pass
    assert victim.read_bytes() == b"precious"


def test_the_log_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with LogDir(str(tmp_path / "link")) as logdir:
        put(logdir, "run", b"data")
    assert files(tmp_path / "real") == {f"run/{event_file_name(1)}": b"data"}


@pytest.mark.parametrize("place", ["/proc/self/rec_summary", "/dev/null", "/dev/null/logs"])
def test_places_that_cannot_be_written_to(place: str) -> None:
    with pytest.raises(DestinationError) as error, LogDir(place):
        pass
    assert str(error.value).startswith("the log directory is invalid. Received: " + place)


@pytest.mark.parametrize("url", ["s3://bucket/logs", "file:///tmp/logs"])
def test_a_url_is_refused_and_no_directory_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DestinationError, match="a local directory"), LogDir(url):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DestinationError, match="Permission denied"), LogDir(str(tmp_path)):
        pass


def test_a_file_in_the_place_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"theirs")
    with LogDir(str(tmp_path)) as logdir:
        for action in (logdir.check, logdir.remove, lambda run: put(logdir, run, b"")):
            with pytest.raises(DestinationError, match=rf"{tmp_path}/run.*Not a directory"):
                action("run")
    assert files(tmp_path) == {"run": b"theirs"}


def test_a_directory_in_the_place_of_our_file(tmp_path: Path) -> None:
    (tmp_path / "run" / event_file_name(1)).mkdir(parents=True)
    with LogDir(str(tmp_path)) as logdir, pytest.raises(DestinationError, match="directory"):
        put(logdir, "run", b"data")
    assert files(tmp_path) == {}
