"""Which records become coarser next: the oldest of a tier.

At first, records are of tier 0: all stay. Those of tier 1, 2, 3, … are in buckets of 10, 100,
1,000, … steps. While the files are beyond their budget, the oldest records of one tier go to the
next tier: complete ones as long as they take more than half of the budget, and then those of a
coarser tier, each of which may take twice as much as the one before. So the records are the
coarser the older they are.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from rec_summary.records.reading.runs import RecordFile, compaction_of
from rec_summary.records.writing.retention import (
    MOST_FILES,
    MOST_SMALL,
    begin_bytes,
    segment_bytes,
    small_bytes,
)

MOST_TIER: Final = 9


class Segment(NamedTuple):
    """A complete file.

    Attributes:
        file: The file.
        nbytes: Its size.
        tier: The lowest tier of its records.
    """

    file: RecordFile
    nbytes: int
    tier: int


class FileGroup(NamedTuple):
    """Files next to each other that become one.

    Attributes:
        segments: The files, in order; all are of one tier.
        tier: The tier of the new file.
    """

    segments: tuple[Segment, ...]
    tier: int


def bucket_steps(tier: int) -> int:
    """Returns how many steps are in a bucket."""
    return int(10**tier)


def tier_of(file: RecordFile) -> int:
    """Returns the lowest tier of the records of a file."""
    compaction = compaction_of(file)
    # Anybody may have written the head; earlier ones do not state it.
    stated = 1 if compaction is None else max(compaction.least_bucket_steps, 1)
    return min(len(str(stated)) - 1, MOST_TIER)


def next_group(
    rows: Sequence[Sequence[Segment]], total_bytes: int, present: int
) -> FileGroup | None:
    """Returns the files to compact next; None if there is no need, or nothing helps.

    Args:
        rows: Complete files next to each other of one writer, in order.
        total_bytes: The budget.
        present: The size of all files of the rank, in bytes.
    """
    full = segment_bytes(total_bytes)
    segments = [segment for row in rows for segment in row]
    if present > begin_bytes(total_bytes):
        tier = next_tier(((each.tier, each.nbytes) for each in segments), total_bytes, full)
        if tier is not None:
            # While the new file is written, there has to be room for it beside them.
            groups = (group for group in _neighbours(rows, full) if group[0].tier == tier)
            return FileGroup(min(groups, key=lambda group: group[0].file.name.order), tier + 1)
    small = sum(each.nbytes <= small_bytes(total_bytes) for each in segments)
    if small > MOST_SMALL or len(segments) > MOST_FILES:
        most = max(_neighbours(rows, full), key=len)
        if len(most) > 1:
            return FileGroup(most, most[0].tier)
    return None


def next_tier(parts: Iterable[tuple[int, int]], total_bytes: int, least: int = 0) -> int | None:
    """Returns the tier whose oldest records become coarser next; None if nothing helps.

    Args:
        parts: The tiers of parts of the records, and their sizes in bytes.
        total_bytes: The budget.
        least: Tiers that do not take more bytes stay as they are.
    """
    taken = Counter[int]()
    for tier, nbytes in parts:
        taken[tier] += nbytes
    raised = {tier for tier, nbytes in taken.items() if nbytes > least and tier < MOST_TIER}
    coarser = raised - {0}
    if 0 in raised and (2 * taken[0] > total_bytes or not coarser):
        return 0
    return max(coarser, key=lambda tier: taken[tier] / 2**tier, default=None)


def tiers_within(sizes: Sequence[Sequence[int]], total_bytes: int) -> list[int]:
    """Returns the tier of each part of the records, so that all together have a size.

    Args:
        sizes: The size of each part in each tier, from the oldest part to the newest.
        total_bytes: The size in all, in bytes.
    """
    tiers = [0] * len(sizes)
    while True:
        parts = [(tier, part[tier]) for tier, part in zip(tiers, sizes, strict=True)]
        tier = next_tier(parts, total_bytes)
        if sum(nbytes for _, nbytes in parts) <= total_bytes or tier is None:
            return tiers
        tiers[tiers.index(tier)] += 1


def _neighbours(
    rows: Sequence[Sequence[Segment]], most_bytes: int
) -> Iterator[tuple[Segment, ...]]:
    """Yields files next to each other of one tier, up to a size; each file once."""
    for row in rows:
        for _, alike in itertools.groupby(row, key=attrgetter("tier")):
            group: list[Segment] = []
            for segment in alike:
                if group and sum(each.nbytes for each in group) + segment.nbytes > most_bytes:
                    yield tuple(group)
                    group = []
                group.append(segment)
            yield tuple(group)
