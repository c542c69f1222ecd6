"""Appending: bytes that are there already are compared, others are put in their place."""

from __future__ import annotations

import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.errors import DestinationError
from rec_summary.records.format.framing import frame
from rec_summary.tensorboard.event_files.append import AppendFile, is_intact
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name

NAME = event_file_name(1)


@pytest.fixture
def logdir(tmp_path: Path) -> Iterator[LogDir]:
    with LogDir(str(tmp_path)) as entered:
        yield entered


def append(logdir: LogDir, *parts: bytes, size: int = 0, settle: bool = True) -> AppendFile:
    """Writes parts behind `size` bytes; without `settle`, as an export that is killed."""
    file = AppendFile(logdir, "run", 1, size)
    for part in parts:
        file.write(part)
    (file.settle if settle else file.flush)()
    file.close()
    return file


def content(tmp_path: Path) -> bytes:
    return (tmp_path / "run" / NAME).read_bytes()


def test_what_is_flushed_is_in_the_file(logdir: LogDir, tmp_path: Path) -> None:
    file = AppendFile(logdir, "run", 1, 0)
    file.write(b"abc")
    assert content(tmp_path) == b""
    file.flush()
    assert content(tmp_path) == b"abc"
    file.write(b"de")
    file.settle()
    assert (content(tmp_path), file.size) == (b"abcde", 5)
    file.close()


def test_large_parts_do_not_wait_for_a_flush(logdir: LogDir, tmp_path: Path) -> None:
    file = AppendFile(logdir, "run", 1, 0)
    file.write(bytes(1 << 20))
    assert len(content(tmp_path)) == 1 << 20
    file.close()


def test_the_same_bytes_are_not_written_again(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abc", b"def")
    (tmp_path / "run" / NAME).chmod(0o444)
    before = (tmp_path / "run" / NAME).stat()
    file = append(logdir, b"ab", b"cdef")
    after = (tmp_path / "run" / NAME).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert (file.size, file.replaced) == (6, False)


def test_what_a_killed_export_wrote_beyond_is_gone_on_with(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abcdef", settle=False)
    file = append(logdir, b"defghi", size=3)
    assert (content(tmp_path), file.replaced) == (b"abcdefghi", False)


def test_a_torn_end_is_completed(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abcd")
    file = append(logdir, b"abcdefgh")
    assert (content(tmp_path), file.replaced) == (b"abcdefgh", False)


def test_other_bytes_are_replaced_from_there_on(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abc", b"dxf", b"ghi")
    file = append(logdir, b"abc", b"def")
    assert (content(tmp_path), file.replaced) == (b"abcdef", True)


def test_what_is_left_over_is_cut_off(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abcdef")
    file = append(logdir, b"abc")
    assert (content(tmp_path), file.replaced) == (b"abc", True)


def test_an_older_file_of_ours_makes_way(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abc")
    file = AppendFile(logdir, "run", 2, 0)
    file.close()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [event_file_name(2)]
    assert file.replaced


def test_a_full_disk_is_told_and_mended_later(logdir: LogDir, tmp_path: Path) -> None:
    """The limit on a file's size stands in for a disk that is full."""
    data = bytes(range(256)) * 4096
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    file = AppendFile(logdir, "run", 1, 0)
    try:
        with pytest.raises(DestinationError, match="File too large"):
            file.write(data)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
        file.close()
    assert len(content(tmp_path)) == 1 << 16
    assert not append(logdir, data).replaced
    assert content(tmp_path) == data


@given(st.lists(st.binary(max_size=20)), st.lists(st.binary(max_size=20)), st.integers(0, 60))
def test_the_file_becomes_what_it_should_be(old: list[bytes], new: list[bytes], size: int) -> None:
    kept = b"".join(old)[:size]
    with tempfile.TemporaryDirectory() as folder, LogDir(folder) as logdir:
        append(logdir, *old)
        append(logdir, *new, size=len(kept))
        assert content(Path(folder)) == kept + b"".join(new)


def test_intact_means_that_the_last_event_is_whole(logdir: LogDir, tmp_path: Path) -> None:
    first, second = frame(b"first"), frame(b"second")
    size, last = len(first) + len(second), len(first)
    assert not is_intact(logdir, "run", 1, size, last)
    append(logdir, first, second, b"torn")
    assert is_intact(logdir, "run", 1, size, last)
    assert not is_intact(logdir, "run", 2, size, last)
    assert not is_intact(logdir, "run", 1, size, last - 1)
    (tmp_path / "run" / NAME).write_bytes(first + second[:-1])
    assert not is_intact(logdir, "run", 1, size, last)
    (tmp_path / "run" / NAME).write_bytes(first + bytes(len(second)))
    assert not is_intact(logdir, "run", 1, size, last)
