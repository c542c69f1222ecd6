"""Which files become one next."""

from __future__ import annotations

from collections.abc import Sequence

from rec_summary.compaction.plan import REDUCTION, FileGroup, Segment, next_group
from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.runs import RecordFile
from rec_summary.records.writing.retention import (
    MOST_FILES,
    MOST_SMALL,
    begin_bytes,
    segment_bytes,
    small_bytes,
)

TOTAL = 32 << 20
FULL, SMALL = segment_bytes(TOTAL), small_bytes(TOTAL)
MUCH = begin_bytes(TOTAL) + 1


def row(*sizes: int, weights: Sequence[int] | None = None) -> list[Segment]:
    """Returns the files of a writer; as many bytes were recorded, if nothing else is given."""
    names = [RecordName(stamp, 0, "host", Kind.SUMMARY) for stamp in range(len(sizes))]
    recorded = sizes if weights is None else weights
    return [
        Segment(RecordFile(str(name), name), size, weight)
        for name, size, weight in zip(names, sizes, recorded, strict=True)
    ]


def chosen(group: FileGroup | None) -> list[int]:
    """Returns the numbers of the files of a group in their row."""
    assert group is not None
    return [segment.file.name.stamp for segment in group.segments]


def test_the_oldest_files_become_a_quarter_where_there_is_no_room() -> None:
    segments = row(*[FULL] * 12)
    assert next_group([segments], TOTAL, MUCH - 1) is None
    group = next_group([segments], TOTAL, MUCH)
    assert group is not None
    assert chosen(group) == list(range(REDUCTION))
    assert (group.target, group.newer) == (FULL, 8 * FULL)
    large = next_group([row(*[3 * FULL] * 12)], TOTAL, MUCH)
    assert large is not None
    assert (large.target, large.newer) == (3 * FULL, 8 * 3 * FULL)


def test_files_that_cover_little_for_their_age_come_first() -> None:
    weights = [64 * FULL] * 4 + [FULL] * 8
    assert chosen(next_group([row(*[FULL] * 12, weights=weights)], TOTAL, MUCH)) == [4, 5, 6, 7]


def test_the_age_of_files_is_what_was_recorded_after_them() -> None:
    old = row(*[FULL // 4] * 4, 2 * FULL, weights=[1] * 4 + [400])
    many = row(*[FULL // 32] * (MOST_SMALL + 1), 2 * FULL, weights=[1] * (MOST_SMALL + 2))
    group = next_group([many, old], TOTAL, 0)
    assert group is not None
    assert group.segments == tuple(old[:4])


def test_what_gives_no_room_is_not_joined_for_room() -> None:
    assert next_group([row(*[FULL // 3] * 6)], TOTAL, MUCH) is None
    assert next_group([row(FULL)], TOTAL, MUCH) is None
    assert next_group([], TOTAL, MUCH) is None
    assert chosen(next_group([row(*[FULL * 2 // 5] * 4)], TOTAL, MUCH)) == [0, 1, 2, 3]


def test_more_than_a_number_of_small_files_are_joined() -> None:
    assert next_group([row(*[SMALL] * MOST_SMALL)], TOTAL, 0) is None
    group = next_group([row(*[SMALL] * (MOST_SMALL + 1))], TOTAL, 0)
    assert group is not None
    assert sum(segment.nbytes for segment in group.segments) <= FULL
    mixed = next_group([row(*[FULL] * 20, *[SMALL] * (MOST_SMALL + 1))], TOTAL, 0)
    assert min(chosen(mixed)) >= 20


def test_more_than_a_number_of_files_are_joined_whatever_their_size() -> None:
    assert next_group([row(*[FULL] * MOST_FILES)], TOTAL, 0) is None
    assert chosen(next_group([row(*[FULL] * (MOST_FILES + 1))], TOTAL, 0)) == [0, 1, 2, 3]
    assert chosen(next_group([row(FULL, FULL)] * MOST_FILES, TOTAL, 0)) == [0, 1]


def test_files_that_become_one_without_loss_come_first_where_they_are_many() -> None:
    mixed = next_group([row(*[FULL] * MOST_FILES, *[FULL // 5] * 5)], TOTAL, 0)
    assert min(chosen(mixed)) >= MOST_FILES


def test_no_more_than_a_number_of_files_become_one() -> None:
    assert chosen(next_group([row(*[1] * 300)], TOTAL, 0)) == list(range(256))


def test_files_of_two_writers_never_become_one() -> None:
    rows = [row(FULL), row(FULL)]
    assert next_group(rows, TOTAL, MUCH) is None
