from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rec_summary.errors import DestinationError
from rec_summary.series.exports.directory import HOLDER_NAME, LOCK_NAME
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.event_file import EventFile, FilePosition
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name
from tests.support.record_dirs import tree


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
