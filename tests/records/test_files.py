"""Files are opened, created and replaced without following links."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from rec_summary.records.files import (
    PlainFile,
    create_plain,
    make_directory,
    open_plain,
    read_plain,
    temporary_name,
    write_atomically,
)
from rec_summary.records.format.names import parse_name


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with write_atomically(path, 0o600) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("sync", [{}, {"sync": True}])
def test_a_file_is_forced_to_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: dict[str, bool]
) -> None:
    real, synced = os.fsync, []

    def fsync(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        assert synced[1:] or os.fstat(fd).st_size == 3  # all that was written
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)  # nobody can see what is on the disk
    with write_atomically(tmp_path / "file", **sync) as file:
        file.write(b"new")
    assert synced == ([temporary_name("file"), tmp_path.name] if sync else [])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with write_atomically(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_below_an_open_directory(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with write_atomically("file", dir_fd=directory) as file:
            file.write(b"new")
        with pytest.raises(ValueError, match="stop"), write_atomically("b", dir_fd=directory):
            raise ValueError("stop")
    finally:
        os.close(directory)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_process_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / temporary_name("file")).write_bytes(b"half of a file")
    with write_atomically(tmp_path / "file") as file:
        file.write(b"new")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("later_ends_first", [False, True])
def test_of_two_that_write_one_path_at_a_time_the_later_replaces_it(
    tmp_path: Path, later_ends_first: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    first, later = write_atomically(path), write_atomically(path)
    first.__enter__().write(b"first")
    file = later.__enter__()
    file.write(b"half")
    if later_ends_first:
        later.__exit__(None, None, None)
    with pytest.raises(OSError, match="another process has removed it while it was written"):
        first.__exit__(None, None, None)
    if not later_ends_first:
        assert path.read_bytes() == b"old"
        file.write(b" and half")
        later.__exit__(None, None, None)
    assert path.read_bytes() == (b"half" if later_ends_first else b"half and half")
    assert os.listdir(tmp_path) == ["file"]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    name = "x" * 255
    with write_atomically(tmp_path / name) as file:
        file.write(b"new")
    assert (tmp_path / name).read_bytes() == b"new"


def test_a_temporary_name_is_not_that_of_a_record_file() -> None:
    name = "events.out.events.summary.1700000000.0.host_MS"
    assert parse_name(name) is not None
    assert parse_name(temporary_name(name)) is None


@pytest.mark.parametrize("place", ["file", temporary_name("file")])
def test_nothing_is_written_through_a_link(tmp_path: Path, place: str) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / place).symlink_to(tmp_path / "victim")
    with write_atomically(tmp_path / "file") as file:
        file.write(b"new")
    with create_plain(tmp_path / place) as file:
        file.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_behind_the_last_data_is_the_end(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as hollow:
        hollow.write(b"data")
        hollow.truncate(1 << 24)
    with contextlib.closing(PlainFile(tmp_path / "file")) as file:
        assert file.next_data(2) == 2
        assert file.next_data(1 << 23) == 1 << 24


def test_where_holes_are_not_known_there_may_be_data_everywhere() -> None:
    path = "/proc/self/status"  # of a file system that does not know
    with contextlib.closing(PlainFile(path)) as file:
        with pytest.raises(OSError, match="Invalid argument"), open(path, "rb") as other:
            os.lseek(other.fileno(), 2, os.SEEK_DATA)
        assert file.next_data(2) == 2


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a link, which is not followed"):
        open_plain(tmp_path / "link")
    with pytest.raises(OSError, match="not a regular file"):
        open_plain(tmp_path / "pipe")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_plain(tmp_path / "file", 4)


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_directory(str(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("mine")
    with pytest.raises(NotADirectoryError):
        make_directory(str(tmp_path / "records"))
    assert (tmp_path / "records").read_text() == "mine"
