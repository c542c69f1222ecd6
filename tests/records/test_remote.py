"""URLs: listed, read by ranges, written to; what they hide is never shown."""

from __future__ import annotations

import contextlib
import datetime
import errno
import io
import logging
import os
import pickle
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rec_summary.errors import SourceError
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader, TruncatedRecord
from rec_summary.records.reading.repair import repair, sound_records
from rec_summary.records.reading.runs import find_runs
from rec_summary.records.remote import (
    SOURCE,
    NotFoundError,
    RemoteFile,
    Url,
    list_tree,
    open_binary,
    overlap,
    path_or_url,
)
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support.record_dirs import event, scalar, summary_name, write_segment
from tests.support.s3 import put

fsspec = pytest.importorskip("fsspec")

FIRST = f"run/{summary_name(1)}"
SECOND = f"run/{summary_name(2)}"


def payloads(count: int, size: int) -> list[bytes]:
    return [bytes([number % 251]) * size for number in range(count)]


def test_the_end_of_a_long_file_is_read_without_the_rest(
    bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    import s3fs

    data = b"".join(map(frame, payloads(300, 1 << 16)))  # 20 MB
    fs = s3fs.S3FileSystem()
    fs.pipe_file(f"{bucket}/{summary_name()}", data)

    def requested() -> int:
        """Returns how many bytes were requested since the last call."""
        calls = [text for each in caplog.records if "get_object" in (text := each.getMessage())]
        caplog.clear()
        ranges = [re.search(r"bytes=(\d+)-(\d+)", call) for call in calls]
        return sum(min(int(found[2]) + 1, len(data)) - int(found[1]) for found in ranges if found)

    caplog.set_level(logging.DEBUG, "s3fs")
    last = len(data) - len(frame(bytes(1 << 16)))
    with RecordReader(Url(f"s3://{bucket}/{summary_name()}"), last) as reader:
        assert reader.read() == (last, payloads(300, 1 << 16)[-1])
        assert reader.read() is None
    assert 0 < requested() < 1 << 18
    with RecordReader(Url(f"s3://{bucket}/{summary_name()}")) as reader:
        assert [record.payload for record in reader] == payloads(300, 1 << 16)
    assert requested() == len(data)  # nothing is requested twice


def test_reading_goes_on_when_the_rest_arrives(place: tuple[Url, Any, str]) -> None:
    one, two = frame(b"one"), frame(b"two")
    put(place, FIRST, one + two[:-3])
    url = place[0].child(FIRST)
    with RecordReader(url) as reader:
        assert reader.read() == (0, b"one")
        with pytest.raises(TruncatedRecord) as caught:
            reader.read()
        assert str(caught.value).startswith(f"{url}, offset {len(one)}")
        offset = reader.offset
    put(place, FIRST, one + two)
    with RecordReader(url, offset) as reader:
        assert reader.read() == (len(one), b"two")
        assert reader.size == len(one + two)


def test_a_file_that_is_replaced_while_it_is_read(place: tuple[Url, Any, str]) -> None:
    put(place, FIRST, bytes(100_000))
    file = RemoteFile(place[0].child(FIRST))
    put(place, FIRST, b"other")
    if place[0].startswith("memory:"):  # the old bytes are still there
        assert file.read_at(50_000, 100) == bytes(100)
        return
    with pytest.raises(OSError, match="FileExpired") as caught:
        file.read_at(50_000, 100)
    assert caught.value.filename == place[0].child(FIRST)


def test_a_damaged_file_is_repaired_from_a_url(place: tuple[Url, Any, str], tmp_path: Path) -> None:
    data = bytearray(b"".join(map(frame, payloads(50, 100))))
    data[116 * 7] ^= 1  # the length of a record
    put(place, FIRST, bytes(data))
    with RecordReader(place[0].child(FIRST)) as reader:
        assert len(list(sound_records(reader))) == 49
    report = repair(place[0], tmp_path / "repaired")
    assert report.files[0].lost == ((116 * 7, 116),)
    assert [file.source for file in report.files] == [place[0].child(FIRST)]
    assert len((tmp_path / "repaired" / FIRST).read_bytes()) == 49 * 116


@pytest.fixture
def stored(bucket: str) -> str:
    """Gives the URL of a file of a store, with ten bytes in it."""
    import s3fs

    s3fs.S3FileSystem().pipe_file(f"{bucket}/records/file", b"0123456789")
    return f"s3://{bucket}/records"


def test_a_store_is_not_asked_again_for_what_its_list_said(
    stored: str, caplog: pytest.LogCaptureFixture
) -> None:
    [entry] = list_tree(Url(stored))
    url = pickle.loads(pickle.dumps(entry.url))  # as it is sent to a worker
    with caplog.at_level(logging.DEBUG, "s3fs"):
        file = RemoteFile(url)
        assert (file.size, file.read_at(2, 3), file.read_at(9, 3)) == (10, b"234", b"9")
    calls = [each.args[0] for each in caplog.records if each.msg.startswith("CALL")]
    assert calls == ["get_object"]


@pytest.mark.parametrize("content", [b"0123456789 and more", b"another"])
def test_a_file_that_was_written_since_it_was_listed_is_read_as_it_is_now(
    stored: str, content: bytes
) -> None:
    import s3fs

    [entry] = list_tree(Url(stored))
    file = RemoteFile(entry.url)
    s3fs.S3FileSystem().pipe_file(f"{stored.removeprefix('s3://')}/file", content)
    assert file.read_at(0, 99) == content
    assert file.size == len(content)


def test_a_file_that_was_removed_since_it_was_listed_is_not_there(stored: str) -> None:
    import s3fs

    [entry] = list_tree(Url(stored))
    file = RemoteFile(entry.url)
    s3fs.S3FileSystem().rm_file(f"{stored.removeprefix('s3://')}/file")
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 1)


def test_runs_are_found_with_their_sizes(place: tuple[Url, Any, str]) -> None:
    put(place, FIRST, b"one")
    put(place, SECOND, b"")
    put(place, summary_name(1), b"top")
    put(place, "run/ckpt_dir/big.ckpt", b"x" * 1000)
    runs = find_runs(place[0].base)
    assert [(run.name, run.path, run.nbytes) for run in runs] == [
        ("records", place[0], 3),
        ("records/run", place[0].child("run"), 3),
    ]
    assert [file.path for file in runs[1].files] == [place[0].child(FIRST), place[0].child(SECOND)]
    assert [abs(file.changed - time.time()) < 600 for file in runs[1].files] == [True, True]
    assert pickle.loads(pickle.dumps(runs)) == runs  # for exports in several processes
    assert pickle.loads(pickle.dumps(runs))[1].path.base == place[0].base


def test_a_place_without_records_is_a_mistake(place: tuple[Url, Any, str]) -> None:
    with pytest.raises(NotFoundError, match="there is no file at this URL or below it"):
        find_runs(place[0].child("nowhere"))
    put(place, "run/ckpt_dir/big.ckpt", b"x")
    with pytest.raises(NotFoundError, match="record files in it or below it"):
        find_runs(place[0])


def test_a_bucket_that_does_not_exist_is_named(bucket: str) -> None:
    with pytest.raises(NotFoundError, match=f"s3://{bucket}-2.*an existing place"):
        find_runs(f"s3://{bucket}-2")


class Odd(fsspec.AbstractFileSystem):
    """A file system at `odd://`, which answers as a test says: with a value or an error."""

    protocol = "odd"
    cachable = False
    answers: ClassVar[dict[str, Any]] = {}

    def _answer(self, what: str) -> Any:
        answer = self.answers.get(what, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def find(self, path: str, *_: object, **__: object) -> Any:
        return self._answer("find")

    def ls(self, path: str, *_: object, **__: object) -> Any:
        return self._answer("ls")

    def open(self, path: str, *_: object, **__: object) -> Any:
        file = io.BytesIO(b"one")
        read = file.read
        file.read = lambda *size: self._answer("read") or read(*size)  # type: ignore[method-assign]
        return file


@pytest.fixture
def answers() -> Iterator[dict[str, Any]]:
    """The answers of `odd://`."""
    fsspec.register_implementation("odd", Odd, clobber=True)
    yield Odd.answers
    Odd.answers.clear()


def test_a_place_that_cannot_be_listed_is_not_an_empty_one(answers: dict[str, Any]) -> None:
    answers["ls"] = ConnectionRefusedError("nobody listens there")
    with pytest.raises(SourceError, match="nobody listens there"):
        list_tree(Url("odd://server/records"))


def test_names_that_lead_elsewhere_are_left_out(
    answers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    url = Url("odd://server/records")
    root = url.connect(SOURCE)[1]
    hostile = [f"{root}/../../{summary_name()}", f"{root}/run//{summary_name()}", "/etc/passwd"]
    hostile.append(f"{root}/run\0/{summary_name()}")
    about = {"size": 3, "type": "file"}
    answers["find"] = dict.fromkeys([f"{root}/{FIRST}", *hostile], about)
    with caplog.at_level(logging.WARNING, logger="rec_summary"):
        assert [entry.url.below for entry in list_tree(url)] == [FIRST]
    assert "is not the name of a file" in caplog.text


def test_load_takes_urls(place: tuple[Url, Any, str], tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    import rec_summary

    local, _ = write_segment(tmp_path / "r", event(1, scalar("loss", 2.0)))
    put(place, f"run/{local.name}", local.read_bytes())
    records = rec_summary.load(place[0].base)
    assert list(records.scalars()["value"]) == [2.0]
    assert records.source == place[0]


def test_a_file_that_is_not_there(place: tuple[Url, Any, str]) -> None:
    url = place[0].child(FIRST)
    with pytest.raises(FileNotFoundError) as caught:
        open_binary(url)
    assert caught.value.filename == url


def test_what_a_file_system_raises_while_a_file_is_read_is_an_error_of_it(
    answers: dict[str, Any],
) -> None:
    with contextlib.closing(RemoteFile(Url("odd://expired/x"))) as file:
        answers["read"] = RuntimeError("the token password=hunter2 has expired")
        with pytest.raises(
            OSError, match="RuntimeError: the token password=… has expired"
        ) as caught:
            file.read_at(0, 1)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "odd://expired/x")


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"LastModified": datetime.datetime.fromtimestamp(5, datetime.timezone.utc)}, 5),
        ({"mtime": 6, "created": 7}, 6),
        ({"mtime": "yesterday", "updated": "1970-01-01T00:00:08+00:00"}, 8),
        ({"mtime": None, "created": 9.5}, 9.5),
    ],
)
def test_stores_say_in_many_ways_when_a_file_was_modified(
    answers: dict[str, Any], about: Any, expected: float
) -> None:
    url = Url("odd://x")
    answers["find"] = {f"{url.connect(SOURCE)[1]}/file": {"size": 1, **about}}
    assert [entry.modified for entry in list_tree(url)] == [expected]


@pytest.mark.parametrize(
    ("source", "is_url"),
    [
        ("s3://bucket/x", True),
        ("hdfs://host:8020/x", True),
        ("memory://x", True),
        ("records", False),
        ("/a/b", False),
        ("./s3:/x", False),
        ("a: //b", False),
    ],
)
def test_urls_differ_from_paths(source: str, is_url: bool) -> None:
    assert isinstance(path_or_url(source), Url) is is_url
    assert path_or_url(source) == source


def test_file_urls_are_paths(tmp_path: Path) -> None:
    assert path_or_url(f"file://{tmp_path}") == str(tmp_path)
    assert path_or_url(tmp_path) == str(tmp_path)
    with pytest.raises(NotFoundError, match="an absolute path"):
        path_or_url("file://records")


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_segment(tmp_path / "home" / "records", event(1, scalar("loss", 1)))
    [run] = find_runs("~/records")
    assert run.path == str(tmp_path / "home" / "records")
    export_tensorboard("~/records", "~/logs")
    assert [*(tmp_path / "home" / "logs").rglob("*tfevents*")]
    assert os.listdir(tmp_path) == ["home"]


def test_a_url_without_a_slash_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for lost in (Path("s3://KEY:hunter2@bucket/x"), "S3:/KEY:hunter2@bucket/x"):
        with pytest.raises(NotFoundError, match=r"(?i)'s3:/…@bucket/x'.*as a str") as caught:
            path_or_url(lost)
        assert "hunter2" not in str(caught.value)
    (tmp_path / "s3:").mkdir()
    assert path_or_url("s3:/x") == "s3:/x"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://me:hunter2@host/x/", "ftp://…@host/x"),
        ("s3://AKIA:hunter2@bucket/x", "s3://…@bucket/x"),
        ("s3://AKIA:hun/ter2@bucket/x", "s3://…@bucket/x"),
        ("s3://AKIA:12/ter2@bucket/x", "s3://…@bucket/x"),
        ("s3://AKIA:hun@t/er2@bucket/x", "s3://…@bucket/x"),
        ("s3://AKIA:hun?ter2@bucket/x", "s3://…@bucket/x"),
        ("abfs://container@account/x", "abfs://container@account/x"),
        ("https://host/x?X-Amz-Signature=hunter2", "https://host/x?…"),
        ("s3://bucket/records/", "s3://bucket/records"),
        ("sftp://me@host/x", "sftp://me@host/x"),
        ("hdfs://host:8020/me@home", "hdfs://host:8020/me@home"),
        ("memory://", "memory://"),
        ("hdfs:///", "hdfs:///"),
        ("hdfs:///x//", "hdfs:///x"),
    ],
)
def test_passwords_and_queries_are_not_shown(url: str, expected: str) -> None:
    found = Url(url)
    assert found == expected
    assert found.base == url
    assert found.child("a/b") == os.path.join(expected, "a/b")


def test_what_file_systems_raise_names_the_url_and_no_secrets(answers: dict[str, Any]) -> None:
    answers["find"] = RuntimeError("login with password=hunter2 refused\nby host")
    with pytest.raises(SourceError) as caught:
        list_tree(Url("odd://x"))
    said = str(caught.value)
    assert "hunter2" not in said
    assert "Received: odd://x. Expected: a place that can be read from here" in said
    assert "RuntimeError: login with password=… refused by host" in said


@pytest.mark.parametrize("url", ["nothing://x", "simplecache::memory://x", "s3a::b://x"])
def test_urls_that_are_invalid(url: str) -> None:
    assert Url("memory://me:hunter2@x").connect(SOURCE)[1] == "/me:hunter2@x"  # it is no store
    with pytest.raises(NotFoundError, match="the source of records is invalid"):
        Url(url).connect(SOURCE)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/a/records/", "records"),
        ("s3://bucket", "bucket"),
        ("memory://", "root"),
        ("s3://b/..", "root"),
        ("s3://b/a\x1b[31m", "a__31m"),
    ],
)
def test_names_of_directories(url: str, expected: str) -> None:
    assert Url(url).name == expected


@pytest.mark.parametrize("url", ["memory://", "memory:///"])
def test_runs_in_the_root_of_a_file_system_have_their_names(url: str) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file(f"/root of it/{summary_name()}", b"")
    [run] = [run for run in find_runs(url) if run.name == "root of it"]
    assert run.path == f"{url}root of it"
    fs.rm("/root of it", recursive=True)


def test_directories_that_overlap(tmp_path: Path) -> None:
    assert overlap(Url("s3://b/x"), Url("s3://b/x/y"))
    assert overlap(Url("s3://b/x/y/"), Url("s3://b/x"))
    assert not overlap(Url("s3://b/x"), Url("s3://b/xy"))
    assert overlap(Url("memory://"), Url("memory://x"))
    assert not overlap(Url("s3://b/x"), os.getcwd())
    assert not overlap(os.getcwd(), Url("s3://b/x"))
    assert overlap(str(tmp_path), str(tmp_path / "y"))
