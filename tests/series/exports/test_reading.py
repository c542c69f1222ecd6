"""Whether the files of a run go on from what an earlier export has read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.runs import Run, list_files
from rec_summary.series.exports.reading import ReadingState, continues, is_replaced
from rec_summary.series.new_records import NewRecords, ReadPosition
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writers


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
