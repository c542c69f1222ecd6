"""Event files: what is written is read back, and bytes that are there already are compared."""

from __future__ import annotations

import copy
import math
import os
import resource
import signal
import struct
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import event_pb2

from rec_summary.errors import DestinationError
from rec_summary.records.format import framing
from rec_summary.records.format.framing import crc32c, frame
from rec_summary.series.report import Report
from rec_summary.tensorboard.dashboards.points import SCALARS
from rec_summary.tensorboard.dashboards.scalars import scalar
from rec_summary.tensorboard.event_files.event_file import (
    FILE_VERSION,
    EventFile,
    FilePosition,
    is_intact,
)
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name
from tests.support.growing_file import rewrite

NAME = event_file_name(1)
STEPS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
TAGS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=10)
NUMBERS = st.floats(width=32)
EVENTS = st.lists(st.tuples(STEPS, TIMES, st.lists(st.tuples(TAGS, NUMBERS), max_size=3)))


@pytest.fixture
def logdir(tmp_path: Path) -> Iterator[LogDir]:
    with LogDir(str(tmp_path)) as entered:
        yield entered


def opened(logdir: LogDir, size: int = 0, stamp: int = 1) -> EventFile:
    return EventFile(logdir, "run", FilePosition(stamp, size))


def append(
    logdir: LogDir, *parts: bytes, size: int = 0, stamp: int = 1, settle: bool = True
) -> EventFile:
    """Writes parts behind `size` bytes; without `settle`, as an export that is killed."""
    file = opened(logdir, size, stamp)
    file.write_framed(parts)
    (file.settle if settle else file.flush)()
    file.close(Report())
    return file


def content(tmp_path: Path) -> bytes:
    return (tmp_path / "run" / NAME).read_bytes()


def written(events: list[tuple[int, float, list[tuple[str, float]]]]) -> tuple[bytes, int]:
    with tempfile.TemporaryDirectory() as folder, LogDir(folder) as logdir:
        file = opened(logdir)
        for step, wall_time, points in events:
            values = []
            for tag, number in points:
                value = scalar(tag, number).value
                value.tag = tag
                value.metadata.CopyFrom(SCALARS.metadata)
                values.append(value)
            file.write(step, wall_time, values)
        file.settle()
        file.close(Report())
        return content(Path(folder)) if events else b"", file.bytes_written


def unframed(data: bytes) -> list[Any]:
    events = []
    while data:
        length = framing.unpack_header(data[: framing.HEADER_BYTES])
        assert length is not None
        payload, data = data[12 : 12 + length], data[12 + length :]
        assert framing.footer_matches(payload, data[:4])
        events.append(event_pb2.Event.FromString(payload))
        data = data[4:]
    return events


@given(EVENTS)
def test_what_is_written_is_read_back(
    events: list[tuple[int, float, list[tuple[str, float]]]],
) -> None:
    data, nbytes = written(events)
    assert len(data) == nbytes
    if not events:
        assert data == b""
        return
    version, start, *found = unframed(data)
    assert start.session_log.status == event_pb2.SessionLog.START
    assert (version.file_version, version.wall_time) == (FILE_VERSION, events[0][1])
    assert [(event.step, event.wall_time) for event in found] == [each[:2] for each in events]
    for event, (_, _, points) in zip(found, events, strict=True):
        for value, (tag, number) in zip(event.summary.value, points, strict=True):
            assert value.tag == tag
            assert value.metadata.plugin_data.plugin_name == "scalars"
            assert value.simple_value == number or math.isnan(number)


def test_tensorboards_own_loader_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(written([(1, 2.5, [("loss", 0.5)]), (2, 3.5, [("loss", math.nan)])])[0])
    version, _, first, second = EventFileLoader(str(path)).Load()
    assert version.file_version == "brain.Event:2"
    assert (first.step, first.wall_time, second.step) == (1, 2.5, 2)
    [number] = first.summary.value[0].tensor.float_val
    assert struct.pack("<f", number) == struct.pack("<f", 0.5)


def test_nothing_is_there_before_the_first_event(logdir: LogDir, tmp_path: Path) -> None:
    report = Report()
    file = opened(logdir)
    file.settle()
    assert not file.begun
    file.close(report)
    assert (report, list((tmp_path / "run").glob("*"))) == (Report(), [])


def test_where_the_last_event_begins(logdir: LogDir, tmp_path: Path) -> None:
    file = opened(logdir)
    for step in range(3):
        file.write(step, 1.0, [])
    file.flush()
    [event] = unframed(content(tmp_path)[file.position.last :])
    assert event.step == 2
    assert file.position.size == len(content(tmp_path)) == file.bytes_written
    file.close(Report())


def test_a_file_that_has_begun_gets_no_second_beginning(logdir: LogDir, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).write_bytes(bytes(1000))
    file = opened(logdir, size=1000)
    assert file.begun
    file.write(7, 1.0, [])
    file.settle()
    [event] = unframed(content(tmp_path)[1000:])
    assert (event.step, file.position.last) == (7, 1000)
    file.close(Report())


def test_a_graph_and_a_restart(logdir: LogDir, tmp_path: Path) -> None:
    file = opened(logdir)
    file.write_graph(2.5, b"graph")
    file.write_restart(5, 3.5)
    file.flush()
    file.close(Report())
    _, _, graph, restart = unframed(content(tmp_path))
    assert (graph.graph_def, graph.wall_time) == (b"graph", 2.5)
    assert (restart.step, restart.session_log.status) == (5, event_pb2.SessionLog.START)


def test_what_was_written_is_counted_when_the_file_is_closed(logdir: LogDir) -> None:
    append(logdir, b"abc")
    report, file = Report(), opened(logdir)
    file.write_framed([b"xy"])
    file.settle()
    file.close(report)
    file.close(report)
    assert (report.runs, report.replaced, report.bytes_written) == (["run"], ["run"], 2)


def test_a_file_that_was_discarded_is_gone(logdir: LogDir, tmp_path: Path) -> None:
    report, file = Report(), opened(logdir)
    file.write(1, 1.0, [])
    file.flush()
    file.write(2, 1.0, [])
    file.discard()
    file.flush()
    assert (file.begun, file.position) == (False, FilePosition(1))
    file.close(report)
    assert not (tmp_path / "run").exists()
    assert report == Report()


def test_what_is_flushed_is_in_the_file(logdir: LogDir, tmp_path: Path) -> None:
    file = opened(logdir)
    file.write_framed([b"abc"])
    assert not (tmp_path / "run").exists()
    file.flush()
    assert content(tmp_path) == b"abc"
    file.write_framed([b"de"])
    file.settle()
    assert (content(tmp_path), file.position.size) == (b"abcde", 5)
    file.close(Report())


def test_large_parts_do_not_wait_for_a_flush(logdir: LogDir, tmp_path: Path) -> None:
    file = opened(logdir)
    file.write_framed([bytes(1 << 20)])
    assert len(content(tmp_path)) == 1 << 20
    file.close(Report())


def test_the_same_bytes_are_not_written_again(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abc", b"def")
    (tmp_path / "run" / NAME).chmod(0o444)
    before = (tmp_path / "run" / NAME).stat()
    file = append(logdir, b"ab", b"cdef")
    after = (tmp_path / "run" / NAME).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert (file.position.size, file.replaced) == (6, False)


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
    file = append(logdir, b"abc", stamp=2)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [event_file_name(2)]
    assert file.replaced


def test_a_full_disk_is_reported_and_repaired_later(logdir: LogDir, tmp_path: Path) -> None:
    """The limit on a file's size stands in for a disk that is full."""
    data = bytes(range(256)) * 4096
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    file = opened(logdir)
    try:
        with pytest.raises(DestinationError, match="File too large"):
            file.write_framed([data])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
        file.close(Report())
    assert len(content(tmp_path)) == 1 << 16
    assert not append(logdir, data).replaced
    assert content(tmp_path) == data


@given(st.lists(st.binary(max_size=20)), st.lists(st.binary(max_size=20)), st.integers(0, 60))
def test_the_file_becomes_what_it_should_be(old: list[bytes], new: list[bytes], size: int) -> None:
    kept = b"".join(old)[:size]
    with tempfile.TemporaryDirectory() as folder, LogDir(folder) as logdir:
        append(logdir, b"", *old)
        append(logdir, b"", *new, size=len(kept))
        assert content(Path(folder)) == kept + b"".join(new)


def test_intact_means_that_the_last_event_is_whole(logdir: LogDir, tmp_path: Path) -> None:
    first, second = frame(b"first"), frame(b"second")
    size, last = len(first) + len(second), len(first)
    checksum = crc32c(first + second)
    position = FilePosition(1, size, last, checksum)
    assert not is_intact(logdir, "run", position)
    append(logdir, first, second, b"torn")
    assert not is_intact(logdir, "run", FilePosition(2, size, last, checksum))
    assert not is_intact(logdir, "run", FilePosition(1, size, last - 1, checksum))
    assert is_intact(logdir, "run", position)
    (tmp_path / "run" / NAME).write_bytes(first + second[:-1])
    assert not is_intact(logdir, "run", position)
    (tmp_path / "run" / NAME).write_bytes(torn := first + bytes(len(second)))
    # Also where the checksum is that of the file.
    assert not is_intact(logdir, "run", FilePosition(1, size, last, crc32c(torn)))


def test_a_hostile_cursor_asks_for_little_memory(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, frame(b"first"))
    size = (1 << 30) + 100
    os.truncate(tmp_path / "run" / NAME, size)  # a hole, which takes no room
    tracemalloc.start()
    try:
        assert not is_intact(logdir, "run", FilePosition(1, size, 10, 0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def bytes_read() -> int:
    """Returns how many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_all_bytes_are_compared_once_the_file_was_changed(logdir: LogDir, tmp_path: Path) -> None:
    file = append(logdir, frame(b"first"), frame(bytes(range(250)) * 9000), frame(b"last"))
    position = copy.copy(file.position)
    before = bytes_read()
    assert is_intact(logdir, "run", copy.copy(position))
    path = tmp_path / "run" / NAME
    assert bytes_read() - before < position.size // 2
    data = path.read_bytes()
    rewrite(path, data)  # by a copy, say
    touched = copy.copy(position)
    before = bytes_read()
    assert is_intact(logdir, "run", touched)
    assert is_intact(logdir, "run", touched)
    assert len(data) <= bytes_read() - before < 1.5 * len(data)  # once
    rewrite(path, data[:5000] + bytes(4096) + data[9096:])
    assert not is_intact(logdir, "run", touched)


def test_all_bytes_are_compared_after_a_restart_of_the_machine(
    logdir: LogDir, tmp_path: Path
) -> None:
    file = append(logdir, frame(b"first"), frame(b"last"))
    path = tmp_path / "run" / NAME
    status, data = path.stat(), path.read_bytes()
    with path.open("r+b") as opened:
        opened.write(bytes(8))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert is_intact(logdir, "run", file.position)  # nothing says that it was changed
    assert boot in file.position.mark
    file.position.mark = file.position.mark.replace(boot, "an earlier one")
    assert not is_intact(logdir, "run", file.position)
    path.write_bytes(data)
    assert is_intact(logdir, "run", file.position)


def test_no_file_stays_open_and_all_are_written(logdir: LogDir, tmp_path: Path) -> None:
    files = [EventFile(logdir, f"run_{number}", FilePosition(1)) for number in range(8)]
    before = len(os.listdir("/proc/self/fd"))
    for step in range(3):
        for file in files:
            file.write(step, 1.0, [])
            file.flush()
            assert len(os.listdir("/proc/self/fd")) == before
    for number, file in enumerate(files):
        file.settle()
        assert is_intact(logdir, f"run_{number}", file.position)
    report = Report()
    for file in files:
        file.close(report)
    assert report.runs == [f"run_{number}" for number in range(8)]
    contents = {path.read_bytes() for path in tmp_path.glob("*/*")}
    assert len(contents) == 1
    assert [len(unframed(each)) for each in contents] == [5]


def test_each_write_compares_with_what_is_there(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abcdefgh")
    file = opened(logdir, 2)
    for data in (b"cd", b"ef"):
        file.write_framed([data])
        file.flush()
        assert content(tmp_path) == b"abcdefgh"
    file.settle()
    assert content(tmp_path) == b"abcdef"
    file.close(Report())
    assert file.replaced


@pytest.mark.parametrize("size", [None, 2])
def test_a_file_that_another_program_has_shortened(
    logdir: LogDir, tmp_path: Path, size: int | None
) -> None:
    path = tmp_path / "run" / NAME
    file = opened(logdir)
    file.write_framed([b"abc"])
    file.flush()
    path.unlink() if size is None else os.truncate(path, size)
    file.write_framed([b"def"])
    with pytest.raises(DestinationError, match="another program has shortened it"):
        file.flush()
    assert path.stat().st_size == (size or 0)
    file.close(Report())


def test_closing_does_not_write_what_is_buffered(logdir: LogDir, tmp_path: Path) -> None:
    file = opened(logdir)
    file.write_framed([b"abc"])
    file.flush()
    file.write_framed([b"def", bytes(1000)])
    file.close(Report())
    del file
    assert content(tmp_path) == b"abc"


def test_a_full_disk_is_reported(logdir: LogDir) -> None:
    file = opened(logdir)
    file.write_framed([b"abc"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        with pytest.raises(DestinationError, match="the event file in"):
            file.flush()
    finally:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    file.close(Report())


def test_a_write_that_failed_is_done_again(logdir: LogDir, tmp_path: Path) -> None:
    append(logdir, b"abc", b"def", b"gh", settle=False)
    file = opened(logdir, 3)
    file.write_framed([b"def", b"ghi"])
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        with pytest.raises(DestinationError, match="the event file in"):
            file.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    file.flush()
    assert content(tmp_path) == b"abcdefghi"
    file.close(Report())
    assert not file.replaced
