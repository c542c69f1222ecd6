"""Reading the record files of a run from where an earlier reader stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rec_summary._pb.lineage_pb2 import EvaluationLineage
from rec_summary.compaction.directory import compact
from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import Kind, RecordName, parse_name
from rec_summary.records.reading.runs import Run, find_runs, list_files
from rec_summary.series.new_records import NewRecords, ReadPosition
from rec_summary.series.options import ExportOptions, Selection, Since
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writers
from rec_summary.tensorboard.provider.served_outputs import ServedRuns
from rec_summary.tensorboard.run_names import Names, TargetNames
from rec_summary.tensorboard.run_reader import ReadingState, RunReader, continues, is_replaced
from tests.support.record_dirs import START, event, lineage, scalar


def name(stamp: int, rank: int = 0, kind: Kind = Kind.SUMMARY) -> RecordName:
    return RecordName(stamp, rank, "host", kind)


FIRST, SECOND, THIRD = map(name, (1, 2, 3))
LINEAGE = name(1, kind=Kind.LINEAGE)
COMPACTED, NEXT = (
    RecordName(first, 0, "host", Kind.SUMMARY, last=first + 1, generation=1) for first in (1, 3)
)
ANOTHER_RANK = name(2, rank=1)


def run_of(path: Path, names: list[RecordName]) -> Run:
    for each in names:
        (path / str(each)).write_bytes(b"x" * 10)
    return Run("run", str(path), tuple(list_files(str(path))))


def read_of(names: list[RecordName], offset: int = 10) -> ReadingState:
    files = {str(each): ReadPosition(offset) for each in names}
    return ReadingState(files=files, writers=Writers([], {}), began=None)


@pytest.mark.parametrize(
    ("read", "there", "expected"),
    [
        pytest.param([FIRST], [FIRST, SECOND], True, id="a new one"),
        pytest.param([FIRST, SECOND], [SECOND, THIRD], True, id="without the oldest"),
        pytest.param([FIRST], [SECOND], False, id="none of them"),
        pytest.param([FIRST, LINEAGE, SECOND], [SECOND], False, id="without the lineage"),
        pytest.param([FIRST, THIRD], [SECOND, THIRD], False, id="another one in place of it"),
        pytest.param([FIRST, THIRD], [ANOTHER_RANK, THIRD], True, id="one of another rank"),
        pytest.param([THIRD], [SECOND, THIRD], True, id="an older one that came late"),
        pytest.param([FIRST, SECOND], [COMPACTED], True, id="compacted"),
        pytest.param([FIRST, SECOND, THIRD], [COMPACTED, THIRD], True, id="two of three compacted"),
        pytest.param([FIRST, SECOND, THIRD], [COMPACTED, NEXT], True, id="compacted to two"),
        pytest.param([FIRST, THIRD], [NEXT], True, id="compacted, without the oldest"),
        pytest.param([FIRST, THIRD], [COMPACTED, NEXT], True, id="compacted, and the oldest too"),
        pytest.param([FIRST, THIRD], [SECOND, NEXT], False, id="compacted, another one in place"),
        pytest.param([FIRST, LINEAGE], [COMPACTED], False, id="compacted, without the lineage"),
    ],
)
def test_the_files_go_on(
    tmp_path: Path, read: list[RecordName], there: list[RecordName], expected: bool
) -> None:
    run = run_of(tmp_path, there)
    assert continues(run, read_of(read), NewRecords(Report())) == expected


@pytest.mark.parametrize(("offset", "expected"), [(10, False), (11, True)])
def test_a_file_that_is_smaller_than_what_was_read_is_replaced(
    tmp_path: Path, offset: int, expected: bool
) -> None:
    """Also where the bytes cannot be compared, as behind a URL, and where others are gone."""
    run = run_of(tmp_path, [SECOND])
    state = read_of([FIRST, SECOND], offset)
    assert is_replaced(run, state, NewRecords(Report())) == expected
    assert continues(run, state, NewRecords(Report())) != expected


def read(
    path: Path, state: ReadingState, records: NewRecords | None = None, **options: Any
) -> list[int]:
    """Reads what is new, and returns the steps."""
    records, [run] = records or NewRecords(Report()), find_runs(path)
    outputs = ServedRuns(run, Names(), TargetNames(len(run.ranks) > 1, {}), records.report)
    reader, steps = RunReader(state, {}, outputs, records, **options), []
    for file, batch in reader.new(run, final=True):
        reader.take(file, batch)
        steps += batch.steps.tolist()
    return steps


def test_files_with_something_new_are_counted(tmp_path: Path) -> None:
    """Not one that ends with damage, which is tried again."""
    first, second = (frame(event(n, scalar("loss", n)).SerializeToString()) for n in (1, 2))
    (tmp_path / str(FIRST)).write_bytes(first + b"no record: nothing behind it can be read")
    report, state = Report(), ReadingState()
    records = NewRecords(report)
    for data, steps, count in ((first, [1, 1], 2), (first, [], 2), (first + second, [2], 3)):
        (tmp_path / str(SECOND)).write_bytes(data)
        assert read(tmp_path, state, records) == steps
        assert report.files == count
    assert [problem.offset for problem in report.problems] == [len(first)]


def segment(path: Path, name: RecordName, *steps: int) -> None:
    """Writes a file of one record for each step, which was last written at the last one."""
    records = (event(n, scalar("loss", n)) for n in steps)
    (path / str(name)).write_bytes(b"".join(frame(e.SerializeToString()) for e in records))
    os.utime(path / str(name), (START + steps[-1] / 4,) * 2)


def test_of_files_without_selected_times_the_first_one_of_a_rank_and_its_lineage_are_read(
    tmp_path: Path,
) -> None:
    """The graph is in the first file; lineage counts at any time."""
    for rank in (0, 1):
        for number in (1, 2, 3):
            segment(tmp_path, name(number, rank), 10 * rank + number)
    old = frame(lineage(START, evaluation_lineage=EvaluationLineage()).SerializeToString())
    for number in (1, 2):
        (tmp_path / str(name(number, kind=Kind.LINEAGE))).write_bytes(old)
        os.utime(tmp_path / str(name(number, kind=Kind.LINEAGE)), (START, START))
    since = Selection(ExportOptions(since=Since(wall_time=START + 1e6)))
    state = ReadingState()
    assert [step for step in read(tmp_path, state, selection=since) if step] == [1, 11]
    begun = {(each.rank, each.kind, each.stamp) for each in map(parse_name, state.files) if each}
    kinds = Kind.SUMMARY, Kind.LINEAGE
    assert begun == {(0, kinds[0], 1), (0, kinds[1], 1), (0, kinds[1], 2), (1, kinds[0], 1)}
    assert read(tmp_path, ReadingState()).count(0) == 2  # all, without a selection


def test_reading_begins_once_with_the_time_of_the_first_record(tmp_path: Path) -> None:
    state = ReadingState()
    for number in (1, 2):
        segment(tmp_path, name(number), number)
        assert read(tmp_path, state) == [number]
        assert state.began == START + 1 / 4


@pytest.mark.parametrize("read_before", [3, 8])
def test_of_a_compacted_file_what_was_read_before_is_not_read_again(
    tmp_path: Path, read_before: int
) -> None:
    state = ReadingState()
    for number in range(8):
        if number == read_before:
            read(tmp_path, state)
        segment(tmp_path, name(number + 1), *range(number * 250 + 1, number * 250 + 251))
    if read_before == 8:
        read(tmp_path, state)
    compact(tmp_path, 50_000)
    made = [file for file in list_files(str(tmp_path)) if file.name.last is not None]
    assert made
    steps = [step for step in read(tmp_path, state) if step]
    assert steps == sorted(set(steps))
    if read_before == 8:
        assert steps == []
        for file in made:
            assert state.files[os.path.basename(file.path)].offset == file.nbytes
    else:
        assert min(steps) > read_before * 250
        assert max(steps) == 2000
