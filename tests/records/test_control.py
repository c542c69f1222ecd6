"""The file of requests: who may write it, and what it may hold."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from rec_summary.records.control import (
    MOST_BYTES,
    MOST_REQUESTS,
    NAME,
    FullError,
    Request,
    add_request,
    new_identity,
    read_requests,
    version_of,
)
from rec_summary.records.locks import ENVIRONMENT


def request(**what: object) -> Request:
    return Request(id=new_identity(), author="a@b", time=1.0, **what)  # type: ignore[arg-type]


def put(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / NAME
    path.write_text(text)
    path.chmod(mode)
    return path


def test_requests_are_read_as_they_were_added(tmp_path: Path) -> None:
    assert read_requests(str(tmp_path)) == ()
    assert version_of(str(tmp_path)) is None
    first = request(settings={"collect_freq": 1, "histograms": None}, steps=500, at_step=7)
    add_request(str(tmp_path), first)
    before = version_of(str(tmp_path))
    second = request(actions=("stop", "flush"), lineage={"who": "me", "rate": 0.5})
    add_request(str(tmp_path), second)
    assert read_requests(str(tmp_path)) == (first, second)
    assert version_of(str(tmp_path)) != before
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_no_request_is_dropped_before_it_is_done(tmp_path: Path) -> None:
    every = [request() for _ in range(MOST_REQUESTS + 1)]
    for each in every[:-1]:
        add_request(str(tmp_path), each)
    with pytest.raises(FullError, match=r"Received: 33 of .* Expected: at most 32, .* not sent"):
        add_request(str(tmp_path), every[-1])
    assert read_requests(str(tmp_path)) == tuple(every[:-1])
    add_request(str(tmp_path), every[-1], lambda each: each in every[3:5])
    assert read_requests(str(tmp_path)) == (*every[:3], *every[5:])


def test_few_requests_may_fill_the_file(tmp_path: Path) -> None:
    large = [request(lineage={f"{n}": "x" * 1000 for n in range(40)}) for _ in range(2)]
    add_request(str(tmp_path), large[0])
    with pytest.raises(FullError, match=r"the requests in .* Received: 2 of"):
        add_request(str(tmp_path), large[1])
    assert read_requests(str(tmp_path)) == (large[0],)
    add_request(str(tmp_path), large[1], large[0].__eq__)
    assert read_requests(str(tmp_path)) == (large[1],)


def test_a_request_that_is_too_large_is_not_added(tmp_path: Path) -> None:
    huge = request(lineage={f"{n}": "x" * 1000 for n in range(90)})
    with pytest.raises(ValueError, match="the size of the request is invalid"):
        add_request(str(tmp_path), huge)
    assert read_requests(str(tmp_path)) == ()


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    put(tmp_path, "{")
    mine = request()
    add_request(str(tmp_path), mine)
    assert read_requests(str(tmp_path)) == (mine,)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    put(tmp_path, '{"version": 1, "requests": []}', mode)
    with pytest.raises(ValueError, match=rf"the mode of .*Received: {mode:04o}\."):
        read_requests(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, '{"version": 1, "requests": []}')
    os.chown(path, 12345, 12345)
    with pytest.raises(ValueError, match="the owner of"):
        read_requests(str(tmp_path))
    assert read_requests(str(tmp_path), user=12345) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for another user")
@pytest.mark.parametrize("lock", ["flock", "soft"])
def test_a_request_of_root_belongs_to_the_owner_of_the_directory(
    tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, lock)
    os.chown(tmp_path, 12345, 12345)
    add_request(str(tmp_path), request())
    # So does the lock, if it stays: else the owner could not add another request.
    assert {path.stat().st_uid for path in tmp_path.iterdir()} == {12345}
    assert (tmp_path / NAME).exists()


def test_a_link_or_a_pipe_is_not_opened(tmp_path: Path) -> None:
    target = put(tmp_path, '{"version": 1, "requests": []}').rename(tmp_path / "elsewhere")
    (tmp_path / NAME).symlink_to(target)
    with pytest.raises(OSError, match="link"):
        read_requests(str(tmp_path))
    (tmp_path / NAME).unlink()
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(OSError, match="not a regular file"):
        read_requests(str(tmp_path))


VALID = {"id": "0" * 16, "author": "a", "time": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 5000,
        '"\\ud800"',
        json.dumps({"version": 2, "requests": []}),
        json.dumps({"version": 1, "requests": [], "more": 1}),
        json.dumps({"version": 1, "requests": [{**VALID, "id": "../x"}]}),
        json.dumps({"version": 1, "requests": [{**VALID, "actions": ["shell"]}]}),
        json.dumps({"version": 1, "requests": [{**VALID, "settings": {"x": [1]}}]}),
        json.dumps({"version": 1, "requests": [{**VALID, "steps": 0}]}),
        json.dumps({"version": 1, "requests": [{**VALID, "at_step": 1 << 70}]}),
        json.dumps({"version": 1, "requests": [VALID] * (MOST_REQUESTS + 1)}),
    ],
)
def test_other_content_is_refused(tmp_path: Path, text: str) -> None:
    put(tmp_path, text)
    with pytest.raises(ValueError, match=r"the content of .* is invalid"):
        read_requests(str(tmp_path))


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, " " * (MOST_BYTES + 1))
    with pytest.raises(ValueError, match=re.escape(f"at most {MOST_BYTES:,} bytes")):
        read_requests(str(tmp_path))


@pytest.mark.parametrize(
    "what",
    [
        {"settings": {"tensors": "x" * 1001}},
        {"lineage": {"k" * 201: 1}},
        {"lineage": {"k": "x" * 1001}},
        {"lineage": {"k\udce9": 1}},
        {"note": "caf\udce9"},
    ],
)
def test_a_request_that_no_training_could_read_is_not_added(
    tmp_path: Path, what: dict[str, object]
) -> None:
    mine = request(actions=("flush",))
    add_request(str(tmp_path), mine)
    with pytest.raises(ValueError, match=r"the request is invalid\. Received: .*Expected: one"):
        add_request(str(tmp_path), request(**what))
    assert read_requests(str(tmp_path)) == (mine,)
