"""Whether the files of a run go on from what an earlier export has read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.runs import RecordFile, Run, list_files
from rec_summary.series.batch import Batch
from rec_summary.series.exports.reading import FileReader, FilesRead, continues, is_replaced
from rec_summary.series.new_records import NewRecords, ReadPosition
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writers
from tests.support.record_dirs import event, scalar


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


def read_of(names: list[RecordName], offset: int = 10) -> FilesRead:
    files = {str(each): ReadPosition(offset) for each in names}
    return FilesRead(files=files, writers=Writers([], {}), began=None)


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


class Reader(FileReader):
    """Reads the steps."""

    def __init__(self, run: Run, report: Report, records: NewRecords, state: FilesRead) -> None:
        super().__init__(run, report, records)
        self._state = state

    def read(self) -> list[int]:
        """Reads what is new."""
        self.steps: list[int] = []
        for _ in self._read_files(final=True):
            pass
        return self.steps

    def _take(self, file: RecordFile, batch: Batch) -> None:
        self.steps += batch.steps.tolist()


def test_files_with_something_new_are_counted(tmp_path: Path) -> None:
    """Not one that ends with damage, which is tried again."""
    first, second = (frame(event(n, scalar("loss", n)).SerializeToString()) for n in (1, 2))
    (tmp_path / str(FIRST)).write_bytes(first + b"no record: nothing behind it can be read")
    report, state = Report(), read_of([])
    records = NewRecords(report)
    for data, steps, count in ((first, [1, 1], 2), (first, [], 2), (first + second, [2], 3)):
        (tmp_path / str(SECOND)).write_bytes(data)
        run = Run("run", str(tmp_path), tuple(list_files(str(tmp_path))))
        assert Reader(run, report, records, state).read() == steps
        assert report.files == count
    assert [problem.offset for problem in report.problems] == [len(first)]
