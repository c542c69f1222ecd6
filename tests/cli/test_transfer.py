"""Directories at URLs are fetched, and put so that nothing of another program is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rec_summary.cli import transfer
from rec_summary.cli.transfer import Upload, fetch_tree
from rec_summary.errors import DestinationError
from rec_summary.records.remote import DESTINATION, NotFoundError, Url
from tests.support.record_dirs import summary_name, tree
from tests.support.s3 import put, there
from tests.support.waiting import PATIENCE_SECS, eventually

fsspec = pytest.importorskip("fsspec")

FIRST = f"run/{summary_name(1)}"
EVENTS = "run/events.out.tfevents.1.rec_summary"


def test_a_tree_is_fetched(place: tuple[Url, Any, str], tmp_path: Path) -> None:
    put(place, "ckpt_dir/a.ckpt", b"one")
    put(place, FIRST, b"")
    said: list[tuple[str, int, int]] = []
    fetch_tree(place[0], str(tmp_path), lambda *each: said.append(each))
    assert tree(tmp_path) == {"ckpt_dir/a.ckpt": b"one", FIRST: b""}
    assert said == [(place[0], 0, 3), (place[0], 3, 3)]
    with pytest.raises(NotFoundError):
        fetch_tree(place[0].child("nothing"), str(tmp_path))


def write(directory: Path, name: str, data: bytes) -> None:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)


def test_what_has_changed_is_put_and_nothing_else(
    place: tuple[Url, Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = Upload(str(tmp_path), place[0])
    write(tmp_path, EVENTS, b"one")
    write(tmp_path, "run/.cursor.json", b"mine")
    write(tmp_path, ".hidden/x", b"mine")
    assert upload.put() == 3
    assert upload.put() == 0
    write(tmp_path, EVENTS, b"one and two")
    said: list[tuple[str, int, int]] = []
    assert upload.put(lambda *each: said.append(each)) == 11
    assert there(place) == {EVENTS: b"one and two"}
    assert said == [(place[0], 0, 11)]


def test_event_files_of_an_earlier_export_are_removed(
    place: tuple[Url, Any, str], tmp_path: Path
) -> None:
    put(place, "run/events.out.tfevents.7.rec_summary", b"of another machine")
    put(place, "other/events.out.tfevents.7.theirs", b"theirs")
    put(place, "run/notes.txt", b"mine")
    write(tmp_path, EVENTS, b"one")
    Upload(str(tmp_path), place[0]).put()
    assert there(place) == {
        EVENTS: b"one",
        "other/events.out.tfevents.7.theirs": b"theirs",
        "run/notes.txt": b"mine",
    }


def test_a_directory_with_event_files_of_others_is_not_written_to(
    place: tuple[Url, Any, str], tmp_path: Path
) -> None:
    put(place, "run/events.out.tfevents.7.theirs", b"theirs")
    write(tmp_path, EVENTS, b"one")
    with pytest.raises(DestinationError, match="an event file of another writer"):
        Upload(str(tmp_path), place[0]).put()
    assert there(place) == {"run/events.out.tfevents.7.theirs": b"theirs"}


@pytest.mark.parametrize("name", [EVENTS, "run/events.out.tfevents.7.rec_summary"])
def test_what_a_successor_has_put_is_not_replaced(
    place: tuple[Url, Any, str], tmp_path: Path, name: str
) -> None:
    upload, suspended = (Upload(str(tmp_path), place[0]) for _ in range(2))
    write(tmp_path, EVENTS, b"one")
    upload.put()
    write(tmp_path, EVENTS, b"one and two")
    with pytest.raises(DestinationError, match="which another process has written meanwhile"):
        suspended.put()
    assert there(place) == {EVENTS: b"one"}
    put(place, name, b"six")
    with pytest.raises(DestinationError, match="which another process has written meanwhile"):
        upload.put()
    assert there(place) == {EVENTS: b"one", name: b"six"}
    put(place, "other/events.out.tfevents.7.rec_summary", b"of another run")
    Upload(str(tmp_path), place[0]).put()
    assert there(place)[EVENTS] == b"one and two"


def test_what_another_has_put_during_a_put_is_not_replaced(
    place: tuple[Url, Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, other = Upload(str(tmp_path), place[0]), "run/events.out.tfevents.7.rec_summary"
    write(tmp_path, EVENTS, b"one")
    put_file = Upload._put_file

    def overtaken(self: Upload, name: str) -> None:
        put_file(self, name)
        put(place, other, b"of another")

    with monkeypatch.context() as patch:
        patch.setattr(Upload, "_put_file", overtaken)
        upload.put()
    write(tmp_path, EVENTS, b"one and two")
    with pytest.raises(DestinationError, match="which another process has written meanwhile"):
        upload.put()
    assert there(place) == {EVENTS: b"one", other: b"of another"}


def test_a_put_that_failed_halfway_is_no_foreign_one(
    place: tuple[Url, Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = Upload(str(tmp_path), place[0])
    write(tmp_path, EVENTS, b"one")
    put_file = Upload._put_file

    def broken(self: Upload, name: str) -> None:
        put_file(self, name)
        raise DestinationError("not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(Upload, "_put_file", broken)
        with pytest.raises(DestinationError):
            upload.put()
    write(tmp_path, EVENTS, b"one and two")
    assert upload.put() == 11
    assert there(place) == {EVENTS: b"one and two"}


def test_a_failed_put_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = (Url("memory://failing/logs"), fsspec.filesystem("memory"), "/failing/logs")
    upload = Upload(str(tmp_path), place[0])
    write(tmp_path, EVENTS, b"one")
    kind = type(place[0].connect(DESTINATION)[0])
    failed = threading.Event()

    def broken(*_: Any, **__: Any) -> None:
        failed.set()
        raise PermissionError("secret=hunter2 is not allowed")

    monkeypatch.setattr(transfer, "_PUT_SECS", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "put_file", broken)
        with pytest.raises(DestinationError) as caught:
            upload.put()
        assert place[0] in str(caught.value)
        assert "hunter2" not in str(caught.value)
        failed.clear()
        with upload.kept_up():
            assert failed.wait(PATIENCE_SECS)
            time.sleep(0.1)
            patch.undo()
            eventually(lambda: there(place))
    assert there(place) == {EVENTS: b"one"}
    assert caplog.text.count("writing to the URL failed, trying again") == 1
