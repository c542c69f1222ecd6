"""Putting a directory to stores of different kinds: of objects, and of files."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rec_summary.errors import DestinationError
from rec_summary.records.remote import lease as lease_module
from rec_summary.records.remote.lease import LOCK_NAME
from rec_summary.records.remote.upload import Upload

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402

EVENTS = "run/events.out.tfevents.1.rec_summary"


class ShelfFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Files that grow while others look, as on HDFS, which is no store of objects."""

    protocol = ("shelf",)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(str(path).removeprefix("shelf://"))


@pytest.fixture(params=["memory", "shelf"])
def url(request: pytest.FixtureRequest, cache: Path, tmp_path: Path) -> Iterator[str]:
    fsspec.register_implementation("shelf", ShelfFileSystem, clobber=True)
    where = tmp_path / "there" if request.param == "shelf" else f"/{request.node.name}"
    yield f"{request.param}://{where}/logs"
    fsspec.filesystem("memory").store.clear()


def there(url: str) -> dict[str, bytes]:
    fs, root = fsspec.core.url_to_fs(url)
    return {path[len(root) + 1 :]: fs.cat_file(path) for path in fs.find(root)}


def put(url: str, name: str, data: bytes) -> None:
    fs, root = fsspec.core.url_to_fs(f"{url}/{name}")
    fs.makedirs(root.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(root, data)


def write(upload: Upload, name: str, data: bytes) -> None:
    path = Path(upload.path, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_what_has_changed_is_put_and_nothing_else(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Upload(url) as upload:
        write(upload, EVENTS, b"one")
        write(upload, "run/.cursor.json", b"mine")
        write(upload, ".hidden/x", b"mine")
        assert upload.push() == 3
        assert upload.push() == 0
        write(upload, EVENTS, b"one and two")
        assert upload.push() == 11
        assert set(there(url)) == {EVENTS, LOCK_NAME}
    assert there(url) == {EVENTS: b"one and two"}
    puts: list[str] = []
    with Upload(url) as upload:
        monkeypatch.setattr(upload, "_put", puts.append)
        upload.push()
    assert puts == []


def test_an_event_file_under_another_stamp_takes_the_place(url: str) -> None:
    put(url, "run/events.out.tfevents.7.rec_summary", b"of another machine")
    put(url, "other/events.out.tfevents.7.theirs", b"theirs")
    with Upload(url) as upload:
        write(upload, EVENTS, b"one")
        upload.push()
    expected = {EVENTS: b"one", "other/events.out.tfevents.7.theirs": b"theirs"}
    assert there(url) == expected


def test_what_is_removed_here_is_removed_there(url: str) -> None:
    with Upload(url) as upload:
        write(upload, EVENTS, b"one")
        write(upload, "run/x.tsv", b"two")
        upload.push()
        Path(upload.path, "run/x.tsv").unlink()
        upload.push()
    assert there(url) == {EVENTS: b"one"}


def test_a_lost_cache_removes_nothing_there(url: str, cache: Path) -> None:
    with Upload(url) as upload:
        write(upload, EVENTS, b"one")
        write(upload, "run/x.tsv", b"two")
        upload.push()
    shutil.rmtree(upload.path)
    with Upload(url) as upload:
        upload.push()
    assert there(url) == {EVENTS: b"one", "run/x.tsv": b"two"}


def test_what_was_changed_there_is_put_again(url: str) -> None:
    with Upload(url) as upload:
        write(upload, EVENTS, b"one")
        upload.push()
    put(url, EVENTS, b"something else")
    with Upload(url) as upload:
        upload.push()
    assert there(url) == {EVENTS: b"one"}


def test_a_fresh_upload_only_adds(url: str) -> None:
    for name in ("a", "b"):
        with Upload(url, fresh=True) as upload:
            write(upload, name, b"x")
            upload.push()
    assert set(there(url)) == {"a", "b"}


def test_two_uploads_at_a_time(url: str, tmp_path: Path) -> None:
    with Upload(url), pytest.raises(DestinationError, match="another export writes"):
        Upload(url, str(tmp_path / "another")).__enter__()
    with Upload(url, str(tmp_path / "another")):  # the first one has let go
        pass
    assert there(url) == {}


def test_a_lock_is_renewed_while_it_is_held(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_BEAT_SECS", 0.05)
    with Upload(url):
        first = json.loads(there(url)[LOCK_NAME])["time"]
        deadline = time.monotonic() + 20
        while True:
            try:
                if json.loads(there(url)[LOCK_NAME])["time"] > first:
                    break
            except (FileNotFoundError, ValueError):
                pass  # in the middle of being written, where files are not put as wholes
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_destination_that_cannot_be_written_names_the_url(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Upload(url) as upload:
        write(upload, EVENTS, b"one")

        def broken(*_: Any) -> None:
            raise PermissionError("secret=hunter2 is not allowed")

        monkeypatch.setattr(upload._fs, "put_file", broken, raising=False)
        with pytest.raises(DestinationError) as caught:
            upload.push()
    assert upload.url in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with Upload(url) as upload:
        assert upload.push() == 3  # nothing was taken for put
