"""URLs: which are, how they are shown, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from rec_summary.errors import SourceError
from rec_summary.records.remote.mirror import fetched
from rec_summary.records.remote.places import (
    SOURCE,
    NoSuchPlace,
    base_name,
    clean,
    connect,
    is_url,
    local_path,
    scrubbed,
    talking,
)


@pytest.mark.parametrize(
    ("place", "expected"),
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
def test_urls_are_told_from_paths(place: str, expected: bool) -> None:
    assert is_url(place) is expected


def test_file_urls_are_paths(tmp_path: Path) -> None:
    assert local_path(f"file://{tmp_path}") == str(tmp_path)
    assert fetched(f"file://{tmp_path}") == str(tmp_path)
    assert fetched(tmp_path) == str(tmp_path)
    with pytest.raises(NoSuchPlace, match="an absolute path"):
        local_path("file://records")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://me:hunter2@host/x/", "ftp://…@host/x"),
        ("https://host/x?X-Amz-Signature=hunter2", "https://host/x?…"),
        ("s3://bucket/records/", "s3://bucket/records"),
        ("sftp://me@host/x", "sftp://me@host/x"),
    ],
)
def test_passwords_and_queries_are_not_shown(url: str, expected: str) -> None:
    assert clean(url) == expected


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key=hunter2",
        "{'secret': 'hunter2', 'key': 'x'}",
        "Authorization: Bearer hunter2",
        'SessionToken="hunter2"',
        "GET https://host/a?token=hunter2 failed",
        "cannot connect to ftp://me:hunter2@host",
        "password: hunter2, again",
    ],
)
def test_what_looks_like_credentials_is_taken_out(text: str) -> None:
    assert "hunter2" not in scrubbed(text)


def test_other_text_stays() -> None:
    text = "OSError: the file run/events.out.events.summary.1.0.host_MS is gone: try s3://b/c"
    assert scrubbed(text) == text


def test_what_others_raise_names_the_url_and_no_secrets() -> None:
    with (
        pytest.raises(SourceError) as caught,
        talking("ftp://me:hunter2@host/x", SOURCE),
    ):
        raise RuntimeError("login with password=hunter2 refused\nby host")
    said = str(caught.value)
    assert "hunter2" not in said
    assert "Received: ftp://…@host/x. Expected: a place that can be read from here" in said
    assert "RuntimeError: login with password=… refused by host" in said


@pytest.mark.parametrize("url", ["nothing://x", "simplecache::memory://x", "s3a::b://x"])
def test_urls_that_cannot_be_meant(url: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(NoSuchPlace, match="the source of records is invalid"):
        connect(url, SOURCE)


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
def test_names_of_copies(url: str, expected: str) -> None:
    assert base_name(url) == expected
