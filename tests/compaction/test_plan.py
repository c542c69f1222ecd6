"""Which records become coarser next."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event
from rec_summary.compaction.plan import MOST_TIER, Segment, next_group, tier_of, tiers_within
from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.runs import RecordFile, list_files
from rec_summary.records.writing import retention
from rec_summary.records.writing.retention import MOST_FILES, MOST_SMALL
from tests.support.record_dirs import summary_name, write_payloads

TOTAL = 32 << 20
FULL, SMALL = retention.segment_bytes(TOTAL), retention.small_bytes(TOTAL)
MUCH = retention.begin_bytes(TOTAL) + 1


def row(*sizes: int, tiers: Sequence[int] | None = None, first: int = 0) -> list[Segment]:
    """Returns the files of a writer; complete ones, if nothing else is given."""
    names = [RecordName(first + stamp, 0, "host", Kind.SUMMARY) for stamp in range(len(sizes))]
    return [
        Segment(RecordFile(str(name), name), size, tier)
        for name, size, tier in zip(names, sizes, tiers or [0] * len(sizes), strict=True)
    ]


def chosen(*rows: list[Segment], nbytes: int) -> tuple[list[int], int] | None:
    """Returns the stamps of the files that are next, and the tier that they get."""
    group = next_group(list(rows), TOTAL, nbytes)
    return group and ([segment.file.name.stamp for segment in group.segments], group.tier)


def full(*tiers: int) -> list[Segment]:
    """Returns full files of these tiers."""
    return row(*[FULL] * len(tiers), tiers=tiers)


def test_the_oldest_complete_files_become_coarser_where_there_is_no_room() -> None:
    assert chosen(row(*[FULL] * 28), nbytes=MUCH - 1) is None
    assert chosen(row(*[FULL] * 28), nbytes=MUCH) == ([0], 1)
    assert chosen(row(*[FULL // 3] * 84), nbytes=MUCH) == ([0, 1, 2], 1)
    assert chosen(row(*[3 * FULL] * 9), nbytes=MUCH) == ([0], 1)


def test_half_of_the_budget_stays_complete() -> None:
    assert chosen(full(2, 2, 2, 1, 1, *[0] * 16), nbytes=MUCH) == ([3], 2)
    assert chosen(full(2, 2, 2, 1, 1, *[0] * 17), nbytes=MUCH) == ([5], 1)


def test_a_coarser_tier_may_take_twice_as_much() -> None:
    assert chosen(full(2, 2, 2, 1, 1), nbytes=MUCH) == ([3], 2)
    assert chosen(full(2, 2, 2, 2, 2, 1, 1), nbytes=MUCH) == ([0], 3)


def test_the_oldest_files_of_several_writers_come_first() -> None:
    rows = [row(*[FULL] * 9, first=first) for first in (100, 50)]
    assert chosen(*rows, nbytes=MUCH) == ([50], 1)


def test_what_takes_no_more_than_a_file_stays() -> None:
    """Damaged files may take the budget: the others do not become nothing."""
    assert chosen(full(4, 3, 2, 1, 0), nbytes=MUCH) is None
    assert chosen(full(0, 0), nbytes=MUCH) == ([0], 1)
    assert chosen(full(*[MOST_TIER] * 5), nbytes=MUCH) is None
    assert chosen(nbytes=MUCH) is None


def test_more_than_a_number_of_small_files_are_joined() -> None:
    assert chosen(row(*[SMALL] * MOST_SMALL), nbytes=0) is None
    small = [SMALL] * (MOST_SMALL + 1)
    assert chosen(row(*[FULL] * 9, *small), nbytes=0) == ([*range(9, 17)], 0)  # one full file
    assert chosen(row(*small, tiers=[2] * 7 + [1] * 10), nbytes=0) == ([*range(7, 15)], 1)


def test_more_than_a_number_of_files_are_joined() -> None:
    assert chosen(row(*[FULL // 2] * MOST_FILES), nbytes=0) is None
    assert chosen(row(*[FULL // 2] * (MOST_FILES + 1)), nbytes=0) == ([0, 1], 0)


def test_files_of_two_writers_never_become_one() -> None:
    rows = [row(SMALL, first=number) for number in range(MOST_FILES + 1)]
    assert chosen(*rows, nbytes=0) is None


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(0, 20_000))
def test_the_tiers_of_parts_meet_a_size_and_grow_with_age(sizes: list[int], total: int) -> None:
    table = [[size // 3**tier for tier in range(MOST_TIER + 1)] for size in sizes]
    tiers = tiers_within(table, total)
    assert tiers == sorted(tiers, reverse=True)
    size = sum(part[tier] for part, tier in zip(table, tiers, strict=True))
    assert size <= total or set(tiers) == {MOST_TIER}
    if sum(sizes) <= total:
        assert set(tiers) == {0}


def test_the_newest_parts_stay_complete() -> None:
    table = [[1000 // 4**tier for tier in range(MOST_TIER + 1)] for _ in range(64)]
    tiers = tiers_within(table, 16_000)
    assert tiers[-8:] == [0] * 8
    assert max(tiers) <= 3
    assert all(one - other <= 1 for one, other in itertools.pairwise(tiers))


@pytest.mark.parametrize(
    ("stated", "tier"),
    [(None, 0), (1, 0), (10, 1), (1000, 3), (-(1 << 63), 0), ((1 << 63) - 1, MOST_TIER)],
)
def test_a_file_states_its_tier(tmp_path: Path, stated: int | None, tier: int) -> None:
    head = Event(wall_time=1.0, version="MindSpore.Event:1")
    head.compaction.bucket_steps = 4096
    if stated is not None:
        head.compaction.least_bucket_steps = stated
    text = summary_name(10).replace("events.out", "events.compacted-20-0001.out")
    write_payloads(tmp_path / text, head.SerializeToString())
    [file] = list_files(str(tmp_path))
    assert tier_of(file) == tier
    write_payloads(tmp_path / "plain" / summary_name(10))
    [plain] = list_files(str(tmp_path / "plain"))
    os.unlink(plain.path)  # its name says that it has none
    assert tier_of(plain) == 0
