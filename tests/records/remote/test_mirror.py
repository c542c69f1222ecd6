"""Mirroring what is at a URL: every kind of change, from a real S3 server and from memory."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from rec_summary.errors import DestinationError, SourceError
from rec_summary.records.remote import fetch as fetch_module
from rec_summary.records.remote.mirror import Mirror, fetched
from rec_summary.records.remote.places import NoSuchPlace
from tests.support.record_dirs import summary_name, tree

fsspec = pytest.importorskip("fsspec")

FIRST = f"run/{summary_name(1)}"
SECOND = f"run/{summary_name(2)}"


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest, cache: Path) -> tuple[str, Any, str]:
    """Gives a URL, its file system, and the path there."""
    if request.param == "s3":
        root = f"{request.getfixturevalue('bucket')}/a tree/records"
    else:
        root = f"/{request.node.name}/records"
    fs = fsspec.filesystem(request.param)
    return f"{request.param}://{root.strip('/')}", fs, root


def put(place: tuple[str, Any, str], name: str, data: bytes) -> None:
    _, fs, root = place
    fs.pipe_file(f"{root}/{name}", data)
    fs.invalidate_cache()


class Reads:
    """Counts what is read of a file system."""

    def __init__(self, fs: Any) -> None:
        self.ranges: list[tuple[str, int, int]] = []
        self._read = fs.cat_file

    def __call__(self, path: str, start: int, end: int) -> Any:
        self.ranges.append((path.rpartition("/")[2], start, end))
        return self._read(path, start=start, end=end)


def counted(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads(mirror._fs)
    monkeypatch.setattr(mirror._fs, "cat_file", reads, raising=False)
    return reads


def test_only_record_files_are_fetched_and_only_once(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, FIRST, b"one")
    put(place, SECOND, b"")
    put(place, "run/ckpt_dir/big.ckpt", b"x" * 1000)
    mirror = Mirror(place[0])
    reads = counted(mirror, monkeypatch)
    assert mirror.refresh() == 3
    assert tree(Path(mirror.path)) == {FIRST: b"one", SECOND: b""}
    assert Path(mirror.path).name == "records"  # runs are called after it
    reads.ranges.clear()
    assert mirror.refresh() == 0
    assert Mirror(place[0]).refresh() == 0
    assert reads.ranges == []


def test_of_a_file_that_grew_only_the_new_part_is_fetched(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "_COMPARED", 16)
    old, new = os.urandom(10_000), os.urandom(500)
    put(place, FIRST, old)
    mirror = Mirror(place[0])
    mirror.refresh()
    put(place, FIRST, old + new)
    reads = counted(mirror, monkeypatch)
    assert mirror.refresh() == 500
    assert tree(Path(mirror.path)) == {FIRST: old + new}
    name = summary_name(1)
    assert reads.ranges == [(name, 0, 16), (name, 9984, 10_000), (name, 10_000, 10_500)]


@pytest.mark.parametrize("changed", ["beginning", "end", "all", "shorter", "as long"])
def test_a_replaced_file_is_fetched_anew(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setattr(fetch_module, "_COMPARED", 16)
    old = os.urandom(1000)
    new = {
        "beginning": os.urandom(16) + old[16:] + b"more",
        "end": old[:-16] + os.urandom(16) + b"more",
        "all": os.urandom(2000),
        "shorter": os.urandom(10),
        "as long": os.urandom(1000),
    }[changed]
    put(place, FIRST, old)
    mirror = Mirror(place[0])
    mirror.refresh()
    put(place, FIRST, new)
    assert mirror.refresh() == len(new)
    assert tree(Path(mirror.path)) == {FIRST: new}


def test_what_is_deleted_there_is_deleted_here_and_nothing_else(
    place: tuple[str, Any, str],
) -> None:
    put(place, FIRST, b"one")
    put(place, f"other/{summary_name()}", b"two")
    mirror = Mirror(place[0])
    mirror.refresh()
    Path(mirror.path, "note of mine").write_text("x")
    place[1].rm_file(f"{place[2]}/{FIRST}")
    mirror.refresh()
    assert sorted(tree(Path(mirror.path))) == ["note of mine", f"other/{summary_name()}"]
    assert not Path(mirror.path, "run").exists()


def test_a_list_that_lacks_a_file_deletes_nothing(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, FIRST, b"one")
    put(place, SECOND, b"two")
    mirror = Mirror(place[0])
    mirror.refresh()
    whole = mirror._fs.find
    monkeypatch.setattr(
        mirror._fs,
        "find",
        lambda *a, **k: {p: i for p, i in whole(*a, **k).items() if not p.endswith(FIRST)},
        raising=False,
    )
    mirror.refresh()
    assert tree(Path(mirror.path)) == {FIRST: b"one", SECOND: b"two"}


def test_a_single_file_can_be_mirrored(place: tuple[str, Any, str]) -> None:
    put(place, FIRST, b"one")
    path = fetched(f"{place[0]}/{FIRST}")
    assert Path(path).name == summary_name(1)
    assert Path(path).read_bytes() == b"one"


def test_a_fetch_that_breaks_off_leaves_nothing_to_be_seen(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "_CHUNK", 100)
    old, new = os.urandom(50), os.urandom(1000)
    put(place, FIRST, old)
    mirror = Mirror(place[0])
    mirror.refresh()
    put(place, FIRST, old + new)
    put(place, SECOND, new)
    whole = mirror._fs.cat_file

    def broken(path: str, start: int, end: int) -> Any:
        if start >= 300:
            raise OSError("the cable was cut")
        return whole(path, start=start, end=end)

    monkeypatch.setattr(mirror._fs, "cat_file", broken, raising=False)
    with pytest.raises(SourceError, match="the cable was cut"):
        mirror.refresh()
    assert tree(Path(mirror.path)) == {FIRST: old}
    monkeypatch.setattr(mirror._fs, "cat_file", whole, raising=False)
    assert mirror.refresh() == 2000
    assert tree(Path(mirror.path)) == {FIRST: old + new, SECOND: new}
    names = set(os.listdir(Path(mirror.path).parents[1]))
    assert names - {"lock"} == {"records", "state.json"}


def test_what_a_killed_process_has_left_is_mended(place: tuple[str, Any, str]) -> None:
    put(place, FIRST, b"0123456789")
    mirror = Mirror(place[0])
    mirror.refresh()
    put(place, FIRST, b"0123456789 and more")
    with open(Path(mirror.path, FIRST), "ab") as file:
        file.write(b" an")  # an addition that was not noted down
    Path(mirror.path).parents[1].joinpath("part-123").write_bytes(b"half")
    mirror.refresh()
    assert tree(Path(mirror.path)) == {FIRST: b"0123456789 and more"}
    assert not Path(mirror.path).parents[1].joinpath("part-123").exists()


def test_a_copy_that_was_touched_or_forgotten_is_fetched_again(
    place: tuple[str, Any, str],
) -> None:
    put(place, FIRST, b"0123456789")
    mirror = Mirror(place[0])
    mirror.refresh()
    Path(mirror.path, FIRST).write_bytes(b"012")
    mirror.refresh()
    assert tree(Path(mirror.path)) == {FIRST: b"0123456789"}
    Path(mirror.path).parents[1].joinpath("state.json").write_text("{damaged")
    mirror.refresh()
    assert tree(Path(mirror.path)) == {FIRST: b"0123456789"}


def test_names_that_lead_elsewhere_are_left_out(
    place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(place, FIRST, b"one")
    mirror = Mirror(place[0])
    root = mirror._root
    whole = mirror._fs.find
    hostile = [f"{root}/../../{summary_name()}", f"{root}/run//{summary_name()}", "/etc/passwd"]
    about = {"size": 3, "type": "file"}
    monkeypatch.setattr(
        mirror._fs,
        "find",
        lambda *a, **k: {**whole(*a, **k), **dict.fromkeys(hostile, about)},
        raising=False,
    )
    with caplog.at_level(logging.WARNING, logger="rec_summary"):
        mirror.refresh()
    assert tree(Path(mirror.path).parent) == {f"records/{FIRST}": b"one"}
    assert "no name for a file" in caplog.text


def test_an_empty_place_is_an_error_unless_it_is_awaited(place: tuple[str, Any, str]) -> None:
    mirror = Mirror(place[0])
    with pytest.raises(NoSuchPlace, match="a URL of record files, or of a tree of them"):
        mirror.refresh()
    assert mirror.refresh(must_exist=False) == 0
    put(place, FIRST, b"one")
    assert mirror.refresh(must_exist=False) == 3


def test_it_is_for_this_user_only(place: tuple[str, Any, str], cache: Path) -> None:
    put(place, FIRST, b"one")
    Mirror(place[0]).refresh()
    [room] = (cache / "mirrors").iterdir()
    assert [path.stat().st_mode & 0o077 for path in (room, room.parent, cache)] == [0, 0, 0]


def test_a_cache_that_cannot_be_written_is_told(place: tuple[str, Any, str]) -> None:
    with pytest.raises(DestinationError, match="the cache is invalid"):
        Mirror(place[0], "/dev/null/x")


def test_progress_adds_up(place: tuple[str, Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "_CHUNK", 100)
    put(place, FIRST, b"x" * 250)
    put(place, SECOND, b"x" * 50)
    told: list[tuple[str, int, int]] = []
    Mirror(place[0]).refresh(lambda *each: told.append(each))
    assert told[0] == (place[0], 0, 300)
    assert told[-1] == (place[0], 300, 300)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_load_takes_urls(place: tuple[str, Any, str], tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    import rec_summary
    from tests.support.record_dirs import event, scalar, write_segment

    local, _ = write_segment(tmp_path / "r", event(1, scalar("loss", 2.0)))
    put(place, f"run/{local.name}", local.read_bytes())
    assert list(rec_summary.load(place[0]).scalars()["value"]) == [2.0]
