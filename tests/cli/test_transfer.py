"""Directories at URLs are fetched, and put so that nothing of another program is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rec_summary.cli.transfer import Upload, fetch_tree
from rec_summary.errors import DestinationError
from rec_summary.records.remote import NotFoundError, Url
from tests.support.record_dirs import summary_name, tree
from tests.support.s3 import put, there

fsspec = pytest.importorskip("fsspec")
memory = pytest.importorskip("fsspec.implementations.memory")

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
        fetch_tree(place[0].child("nothing"), str(tmp_path), nothing)


def nothing(name: str, done: int, total: int) -> None:
    """Takes progress, and shows none."""


def write(directory: Path, name: str, data: bytes) -> None:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)


def test_files_are_put_and_hidden_ones_are_not(place: tuple[Url, Any, str], tmp_path: Path) -> None:
    upload = Upload(str(tmp_path), place[0])
    write(tmp_path, EVENTS, b"one")
    write(tmp_path, "run/.cursor.json", b"mine")
    write(tmp_path, ".hidden/x", b"mine")
    said: list[tuple[str, int, int]] = []
    upload.put(lambda *each: said.append(each))
    assert there(place) == {EVENTS: b"one"}
    assert said == [(place[0], 0, 3)]


def test_event_files_of_an_earlier_export_are_removed(
    place: tuple[Url, Any, str], tmp_path: Path
) -> None:
    put(place, "run/events.out.tfevents.7.rec_summary", b"of another machine")
    put(place, "other/events.out.tfevents.7.theirs", b"theirs")
    put(place, "run/notes.txt", b"mine")
    write(tmp_path, EVENTS, b"one")
    Upload(str(tmp_path), place[0]).put(nothing)
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
        Upload(str(tmp_path), place[0]).put(nothing)
    assert there(place) == {"run/events.out.tfevents.7.theirs": b"theirs"}


@pytest.mark.parametrize("name", [EVENTS, "run/events.out.tfevents.7.rec_summary"])
def test_what_another_has_put_meanwhile_is_not_replaced(
    place: tuple[Url, Any, str], tmp_path: Path, name: str
) -> None:
    put(place, EVENTS, b"old")
    upload = Upload(str(tmp_path), place[0])
    write(tmp_path, EVENTS, b"one and two")
    put(place, name, b"of another")
    before = there(place)
    with pytest.raises(DestinationError, match="which another process has written meanwhile"):
        upload.put(nothing)
    assert there(place) == before
    put(place, "other/events.out.tfevents.7.rec_summary", b"of another run")
    Upload(str(tmp_path), place[0]).put(nothing)
    assert there(place)[EVENTS] == b"one and two"


def test_what_a_command_has_not_written_is_not_put(
    place: tuple[Url, Any, str], tmp_path: Path
) -> None:
    upload = Upload(str(tmp_path), place[0])
    put(place, EVENTS, b"of another")
    upload.put(nothing)
    assert there(place) == {EVENTS: b"of another"}


class ReadOnlyStore(memory.MemoryFileSystem):  # type: ignore[misc, name-defined]
    """A store in which nobody may write."""

    protocol = "readonly"

    def put_file(self, *_: Any, **__: Any) -> None:
        raise PermissionError("secret=hunter2 is not allowed")


def test_a_failed_put_names_the_url_without_secrets(tmp_path: Path) -> None:
    fsspec.register_implementation("readonly", ReadOnlyStore, clobber=True)
    url = Url("readonly://failing/logs")
    upload = Upload(str(tmp_path), url)
    write(tmp_path, EVENTS, b"one")

    with pytest.raises(DestinationError) as caught:
        upload.put(nothing)
    assert url in str(caught.value)
    assert "hunter2" not in str(caught.value)
