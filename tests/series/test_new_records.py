from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import Run, list_files
from rec_summary.series.new_records import NewRecords, ReadPosition, newest_part
from rec_summary.series.report import Report
from tests.support.calls import calls_of
from tests.support.growing_file import rewrite
from tests.support.record_dirs import event, scalar, summary_name, write_segment
from tests.support.waiting import Clock

BYTES = [frame(event(step, scalar("loss", step)).SerializeToString()) for step in range(1, 6)]
DATA = b"".join(BYTES)
THIRD = len(BYTES[0]) * 2


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "records"


def steps(records: NewRecords, path: Path, **options: float) -> list[int]:
    files = [file for file in list_files(str(path)) if file.name.kind is Kind.SUMMARY]
    batches = records.batches(files, **options)
    return [step for batch in batches if batch.count for step in batch.steps.tolist()]


def test_new_records_are_read_once(source: Path) -> None:
    path, _ = write_segment(source, *(event(step, scalar("loss", 1)) for step in range(1, 40)))
    data, report = path.read_bytes(), Report()
    path.chmod(0o600)
    records = NewRecords(report)
    seen = []
    for end in (len(data) // 3, len(data) // 2, len(data) - 1, len(data)):
        path.write_bytes(data[:end])
        seen += steps(records, source)
        assert steps(records, source) == []
    assert seen == list(range(1, 40))
    assert steps(NewRecords(report), source, changed_after=time.time() + 60) == []
    assert report.problems == []


@pytest.mark.parametrize("cut", [0, 1, 14, 30])
def test_records_that_are_there_can_be_skipped_but_not_what_is_incomplete(
    source: Path, cut: int
) -> None:
    path, _ = write_segment(source, *(event(step, scalar("loss", 1)) for step in (1, 2, 3, 4)))
    data, report = path.read_bytes(), Report()
    first = data.index(b"loss")
    size = data.index(b"loss", first + 1) - first
    path.chmod(0o600)
    path.write_bytes(data[: len(data) - size - cut])
    records = NewRecords(report)
    for file in list_files(str(source)):
        records.skip(file)
    assert steps(records, source) == []
    path.write_bytes(data)
    assert steps(records, source) == ([4] if cut == 0 else [3, 4])
    assert report.problems == []


@pytest.mark.parametrize("end", [-1, -(1 << 14), -(1 << 18), 1 << 17])
def test_where_a_follower_begins_in_a_large_file(source: Path, end: int) -> None:
    """Also within a record that is larger than what is searched, and before and behind it."""
    events = [event(step, scalar("x" * 100, 1)) for step in range(1, 3001)]
    large = event(3001, *(scalar(f"{number}", 1) for number in range(20_000)))
    path, _ = write_segment(source, *events, large, event(3002, scalar("loss", 1)))
    with RecordReader(path) as reader:
        _, *offsets = (raw.offset for raw in reader)
    data, found = path.read_bytes(), []
    path.chmod(0o600)
    path.write_bytes(data[:end])
    records = NewRecords(Report())
    for file in list_files(str(source)):
        records.skip(file)
    path.write_bytes(data)
    ends = [*offsets[1:], len(data)]
    size = end % len(data)
    calls = calls_of(lambda: found.extend(steps(records, source)))
    assert found == [step for step, each in enumerate(ends, 1) if each > size]
    is_in_the_large_one = offsets[-2] < size - (1 << 16) < size < offsets[-1]
    assert (calls["unpack_header"] > 2000) == is_in_the_large_one


def test_the_newest_part_of_a_run(source: Path) -> None:
    for first in (1, 21, 41):
        for rank in (0, 1):
            events = (event(step, scalar("loss", 1)) for step in range(first, first + 20))
            path, _ = write_segment(source, *events, rank=rank)
    size, files = path.stat().st_size, list_files(str(source))
    run = Run("run", str(source), files)
    for nbytes, least, most in ((0, 0, 0), (2, 20, 20), (3, 25, 35), (6, 60, 60), (99, 60, 60)):
        begins = newest_part(run, nbytes * size)
        assert sum(begins.values()) == max(6 - nbytes, 0) * size
        records = NewRecords(Report())
        for file, begin in begins.items():
            records.skip(file, begin)
        for rank in (0, 1):
            batches = records.batches(run.files_of(Kind.SUMMARY, rank))
            found = [step for batch in batches if batch.count for step in batch.steps.tolist()]
            assert found == list(range(61 - len(found), 61))
            assert least <= len(found) <= most


def zeroed(first: int, last: int) -> bytes:
    return DATA[:first] + bytes(last - first) + DATA[last:]


LATE = {
    "header": zeroed(THIRD, THIRD + 12),
    "data": zeroed(THIRD + 20, THIRD + 24),
    "the rest": zeroed(THIRD, len(DATA)),
}


@pytest.mark.parametrize("late", LATE)
def test_bytes_may_come_later_than_the_size_of_the_file(source: Path, late: str) -> None:
    """On a network file system; neither the time nor the size need change with them."""
    source.mkdir()
    path, report, clock = source / summary_name(), Report(), Clock()
    records = NewRecords(report, clock=clock)
    path.write_bytes(LATE[late])
    times = path.stat().st_mtime_ns
    assert steps(records, source) == [1, 2]
    assert records.is_waiting(list_files(str(source)))
    clock.now += 9
    assert steps(records, source) == []
    path.write_bytes(DATA)
    os.utime(path, ns=(times, times))
    assert steps(records, source) == [3, 4, 5]
    assert not records.is_waiting(list_files(str(source)))
    assert report.problems == []


@pytest.mark.parametrize("late", LATE)
def test_damage_that_stays_is_waited_for_once_and_reported_once(source: Path, late: str) -> None:
    source.mkdir()
    path, report, clock = source / summary_name(), Report(), Clock()
    records = NewRecords(report, clock=clock)
    data = LATE[late]
    later = frame(event(6, scalar("loss", 6)).SerializeToString())
    path.write_bytes(data[:-5] + b"\1" + data[-4:])  # the last record is damaged as well
    assert steps(records, source) == [1, 2]
    clock.now += 11
    rest = [4] if late == "data" else []
    assert steps(records, source) == rest
    assert not records.is_waiting(list_files(str(source)))
    assert len(report.problems) == (2 if rest else 1)
    with path.open("ab") as file:
        file.write(later)
    assert steps(records, source) == ([6] if rest else [])
    assert len(report.problems) == (2 if rest else 1)
    if not rest:  # nothing behind it could be read: it is tried again when the file changes
        rewrite(path, DATA + later)
        assert steps(records, source) == [3, 4, 5, 6]


@pytest.mark.parametrize("count", [8, 2])
def test_another_file_with_the_same_name_is_read_from_its_beginning(
    source: Path, count: int
) -> None:
    source.mkdir()
    path, records = source / summary_name(), NewRecords(Report())
    path.write_bytes(DATA)
    assert steps(records, source) == [1, 2, 3, 4, 5]
    new = range(21, 21 + count)
    other = [event(step, scalar("loss", step)).SerializeToString() for step in new]
    rewrite(path, b"".join(map(frame, other)))
    if count > 5:  # a smaller one is known by its size
        assert steps(records, source) == []
        assert records.is_waiting(list_files(str(source)))  # so the run is asked for again
    assert steps(records, source) == list(new)
    assert not records.is_waiting(list_files(str(source)))


def test_a_file_with_damage_is_another_one_when_other_bytes_are_there(source: Path) -> None:
    """Neither when it has grown, nor when it was gone for a while; the last read waits for none."""
    source.mkdir()
    path, report, place = source / summary_name(), Report(), ReadPosition()
    records, away = NewRecords(report), path.with_name("away")
    path.write_bytes(LATE["data"])
    [file] = list_files(str(source))
    batches = records.read(file, place, newest=True, final=True)
    assert [batch.steps.tolist() for batch in batches] == [[1], [2], [4], [5]]
    path.rename(away)
    assert list(records.read(file, place, newest=True)) == []
    assert [problem.offset for problem in report.problems] == [THIRD, len(DATA)]
    away.rename(path)
    for data, is_another in ((LATE["data"] + BYTES[0], False), (DATA + BYTES[0], True)):
        rewrite(path, data)
        [file] = list_files(str(source))
        assert records.is_replaced(file, place) == is_another


@pytest.mark.parametrize(("at", "remembered"), [(0, 0), (20, 8)], ids=["length", "data"])
def test_the_bytes_of_a_few_skipped_records_are_remembered(
    source: Path, at: int, remembered: int
) -> None:
    source.mkdir()
    path, place = source / summary_name(), ReadPosition()
    path.write_bytes(DATA + 10 * (BYTES[0][:at] + b"?" + BYTES[0][at + 1 :]) + BYTES[1])
    [file] = list_files(str(source))
    assert list(NewRecords(Report()).read(file, place, newest=False))
    assert len(place.lost) == remembered


def test_each_damage_is_waited_for_also_in_the_first_record_and_behind_what_has_settled(
    source: Path,
) -> None:
    source.mkdir()
    path, report, clock = source / summary_name(), Report(), Clock()
    records = NewRecords(report, clock=clock)
    damaged = BYTES[0][:-5] + b"\1" + BYTES[0][-4:]
    path.write_bytes(damaged + BYTES[1])
    for content, expected in ((b"", [2]), (damaged + BYTES[4], [5])):
        with path.open("ab") as file:
            file.write(content)
        assert steps(records, source) == []
        assert records.is_waiting(list_files(str(source)))
        clock.now += 11
        assert steps(records, source) == expected
    assert [problem.offset for problem in report.problems] == [0, len(damaged + BYTES[1])]


def test_only_the_newest_file_is_waited_for_and_only_while_it_is_new(source: Path) -> None:
    source.mkdir()
    old, new = source / summary_name(100), source / summary_name(200)
    old.write_bytes(LATE["data"])
    new.write_bytes(LATE["data"])
    assert steps(NewRecords(Report()), source) == [1, 2, 4, 5, 1, 2]
    assert steps(NewRecords(Report(), patience=0), source) == [1, 2, 4, 5] * 2
    os.utime(new, (1e9, 1e9))
    assert steps(NewRecords(Report()), source) == [1, 2, 4, 5] * 2
