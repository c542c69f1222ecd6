"""Which records become coarser next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event
from rec_summary.compaction.plan import (
    MOST_TIER,
    FileGroup,
    Segment,
    next_group,
    tier_of,
    tiers_within,
)
from rec_summary.records.format.names import Kind, RecordName, parse_name
from rec_summary.records.reading.runs import RecordFile
from rec_summary.records.writing.retention import (
    MOST_FILES,
    MOST_SMALL,
    begin_bytes,
    segment_bytes,
    small_bytes,
)
from tests.support.record_dirs import summary_name, write_payloads

TOTAL = 32 << 20
FULL, SMALL = segment_bytes(TOTAL), small_bytes(TOTAL)
MUCH = begin_bytes(TOTAL) + 1


def row(*sizes: int, tiers: Sequence[int] | None = None, first: int = 0) -> list[Segment]:
    """Returns the files of a writer; complete ones, if nothing else is given."""
    names = [RecordName(first + stamp, 0, "host", Kind.SUMMARY) for stamp in range(len(sizes))]
    return [
        Segment(RecordFile(str(name), name), size, tier)
        for name, size, tier in zip(names, sizes, tiers or [0] * len(sizes), strict=True)
    ]


def chosen(group: FileGroup | None) -> tuple[list[int], int]:
    """Returns the stamps of the files of a group, and the tier that they get."""
    assert group is not None
    return [segment.file.name.stamp for segment in group.segments], group.tier


def test_the_oldest_complete_files_become_coarser_where_there_is_no_room() -> None:
    segments = row(*[FULL] * 28)
    assert next_group([segments], TOTAL, MUCH - 1) is None
    assert chosen(next_group([segments], TOTAL, MUCH)) == ([0], 1)
    thirds = row(*[FULL // 3] * 84)
    assert chosen(next_group([thirds], TOTAL, MUCH)) == ([0, 1, 2], 1)
    large = row(*[3 * FULL] * 9)
    assert chosen(next_group([large], TOTAL, MUCH)) == ([0], 1)


def test_half_of_the_budget_stays_complete() -> None:
    tiers = [2, 2, 2, 1, 1, *[0] * 16]
    assert chosen(next_group([row(*[FULL] * 21, tiers=tiers)], TOTAL, MUCH)) == ([3], 2)
    tiers.append(0)
    assert chosen(next_group([row(*[FULL] * 22, tiers=tiers)], TOTAL, MUCH)) == ([5], 1)


@pytest.mark.parametrize(("tiers", "oldest"), [([2] * 3 + [1] * 2, 3), ([2] * 5 + [1] * 2, 0)])
def test_a_coarser_tier_may_take_twice_as_much(tiers: list[int], oldest: int) -> None:
    group = next_group([row(*[FULL] * len(tiers), tiers=tiers)], TOTAL, MUCH)
    assert chosen(group) == ([oldest], tiers[oldest] + 1)


def test_the_oldest_files_of_several_writers_come_first() -> None:
    rows = [row(*[FULL] * 9, first=100), row(*[FULL] * 9, first=50)]
    assert chosen(next_group(rows, TOTAL, MUCH)) == ([50], 1)


def test_what_takes_no_more_than_a_file_stays() -> None:
    """Damaged files may take the budget: the others do not become nothing."""
    tiers = [4, 3, 2, 1, 0]
    assert next_group([row(*[FULL] * 5, tiers=tiers)], TOTAL, MUCH) is None
    assert chosen(next_group([row(FULL, FULL)], TOTAL, MUCH)) == ([0], 1)
    assert next_group([row(*[FULL] * 5, tiers=[MOST_TIER] * 5)], TOTAL, MUCH) is None
    assert next_group([], TOTAL, MUCH) is None


def test_more_than_a_number_of_small_files_are_joined() -> None:
    assert next_group([row(*[SMALL] * MOST_SMALL)], TOTAL, 0) is None
    mixed = row(*[FULL] * 9, *[SMALL] * (MOST_SMALL + 1))
    numbers, tier = chosen(next_group([mixed], TOTAL, 0))
    assert (numbers, tier) == (list(range(9, 17)), 0)  # one full file of them
    coarse = row(*[SMALL] * (MOST_SMALL + 1), tiers=[2] * 7 + [1] * 10)
    assert chosen(next_group([coarse], TOTAL, 0)) == (list(range(7, 15)), 1)


def test_more_than_a_number_of_files_are_joined() -> None:
    size = FULL // 2
    assert next_group([row(*[size] * MOST_FILES)], TOTAL, 0) is None
    assert chosen(next_group([row(*[size] * (MOST_FILES + 1))], TOTAL, 0)) == ([0, 1], 0)


def test_files_of_two_writers_never_become_one() -> None:
    rows = [row(SMALL, first=number) for number in range(MOST_FILES + 1)]
    assert next_group(rows, TOTAL, 0) is None


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
    path = write_payloads(tmp_path / text, head.SerializeToString())
    name = parse_name(text)
    assert name is not None
    assert tier_of(RecordFile(str(path), name)) == tier
    plain = parse_name(summary_name(10))
    assert plain is not None
    assert tier_of(RecordFile(summary_name(10), plain)) == 0
