"""How far a run has been read, and whether its files go on from there."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct, field

from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.runs import Run
from rec_summary.series.limits import Rank, Seconds, Step
from rec_summary.series.new_records import NewRecords, ReadPosition
from rec_summary.series.ranks.merging import MergingState
from rec_summary.series.ranks.summary import RankSummary
from rec_summary.series.runs.writers import Writers


class ReadingState(Struct, kw_only=True, forbid_unknown_fields=True):
    """How far a run has been read; at the beginning, not at all.

    An unknown field is refused: it may be a damaged name of one that would then be missing.

    Attributes:
        files: How far each record file was read.
        writers: Who wrote which file.
        began: The time of the first record, in seconds since the epoch.
        merging: What is known of the states of metrics.
        reached: The highest step of a summary.
        furthest: The step that is furthest from zero.
        evaluating_rank: The rank whose evaluations are shown.
        ranks: What is known of all ranks together; None if that is not known.
    """

    files: dict[str, ReadPosition] = {}
    writers: Writers = field(default_factory=Writers)
    began: Seconds | None = None
    merging: MergingState = field(default_factory=MergingState)
    reached: Step = 0
    furthest: Step = 0
    evaluating_rank: Rank | None = None
    ranks: RankSummary | None = None


def continues(run: Run, state: ReadingState, records: NewRecords) -> bool:
    """Whether the files of a run go on from what was read of them."""
    known = state.files.keys() & {os.path.basename(file.path) for file in run.files}
    # The oldest summary files may be gone, to make room on the disk. A lineage file is
    # never removed alone: if one is gone, these are the records of another training.
    known |= compacted(run, state)  # compaction has kept what counts of them
    gone = state.files.keys() - known
    if not known or any(name.endswith(Kind.LINEAGE.value) for name in gone):
        return False
    if gone and _has_older(run, state):
        return False
    return not is_replaced(run, state, records)


def compacted(run: Run, state: ReadingState) -> set[str]:
    """Returns the names of files that were read and that compacted files have replaced."""
    made = [file.name for file in run.files if file.name.last is not None]
    return {
        name
        for name in state.files.keys() - {os.path.basename(file.path) for file in run.files}
        if (parsed := parse_name(name)) is not None and any(new.covers(parsed) for new in made)
    }


def _has_older(run: Run, state: ReadingState) -> bool:
    """Whether there are new files older than some that were read, and not made of them."""
    latest: dict[tuple[Kind, int], tuple[Any, ...]] = {}
    names = list(filter(None, map(parse_name, state.files)))
    for name in names:
        key = name.kind, name.rank
        latest[key] = max(latest.get(key, name.order), name.order)
    return any(
        os.path.basename(file.path) not in state.files
        and (file.name.kind, file.name.rank) in latest
        and file.name.order <= latest[file.name.kind, file.name.rank]
        and not any(map(file.name.covers, names))
        for file in run.files
    )


def is_replaced(run: Run, state: ReadingState, records: NewRecords) -> bool:
    """Whether record files have other bytes than those that were read, as far as is known."""
    places = {
        file: state.files[name]
        for file in run.files
        if (name := os.path.basename(file.path)) in state.files
    }
    if any(file.nbytes < place.offset for file, place in places.items()):
        return True
    # Other bytes are worth reading all again only if nothing is lost by it.
    return len(places) == len(state.files) and any(
        records.is_replaced(file, place) for file, place in places.items()
    )
