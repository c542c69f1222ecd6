"""One coarser file of several files of one writer.

It has the records of one tier or of several (see `plan`): the older a part, the coarser it is.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary._pb.summary_pb2 import Compaction, Event
from rec_summary.compaction.plan import MOST_TIER, bucket_steps, tier_of
from rec_summary.compaction.thinning import Thinner
from rec_summary.records.format import framing
from rec_summary.records.reading.runs import RecordFile, Run, compaction_of, head_of
from rec_summary.records.writing.run_writer import FILE_VERSION
from rec_summary.series.batch import SUMMARY, Batch
from rec_summary.series.event_reader import EventReader
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.history import History
from rec_summary.series.runs.values import WriterValues

_MOST_PARTS: Final = 64
_LEAST_PART: Final = 1 << 13

Pace = Callable[[], None]


class UnfitFile(Exception):
    """A file is damaged or being written, or has no valid name, so it is left as it is.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str, why: str) -> None:
        """Takes the file, and what is wrong with it."""
        super().__init__(why)
        self.path = path


@dataclass
class _Times:
    """Wall times of records, in seconds since the epoch.

    Attributes:
        began: That of the first record.
        last: The latest one of a value; a file may be begun after its values were made.
    """

    began: float = math.inf
    last: float = -math.inf


def batches(file: RecordFile, most_bytes: int, pace: Pace) -> Iterator[Batch]:
    """Yields the batches of a complete file; an unfinished record at its end is passed over.

    Args:
        file: The file.
        most_bytes: About how large a batch of many records may be.
        pace: Called after each batch.

    Raises:
        UnfitFile: Something in it cannot be read.
    """
    report = Report()
    with EventReader(file, report, messages=True) as reader:
        for batch in reader:
            parts = min(-(-(batch.end_offset - batch.offset) // most_bytes), len(batch))
            bounds = [len(batch) * number // parts for number in range(parts + 1)]
            for first, last in itertools.pairwise(bounds):
                yield batch.part(first, last)
            pace()
    if report.problem_count:
        problem = report.problems[0]
        raise UnfitFile(file.path, f"offset {problem.offset}: {problem.text}")


def rewrite(
    run: Run, out: IO[bytes], tiers: Sequence[int], pace: Pace = lambda: None
) -> Compaction:
    """Writes the summary records of a run to one file.

    Values that a restart supersedes are left out. Records that are coarser already stay as they
    are.

    Args:
        run: The run, with the summary files of one writer of one rank, none of which is damaged.
        out: An empty file.
        tiers: The tiers of equal parts of the bytes, from the oldest to the newest.
        pace: Called after each portion of work.

    Returns:
        What the file is made of.

    Raises:
        UnfitFile: Something cannot be read.
        OSError: The file cannot be written.
    """
    stated = [info.bucket_steps for info in map(compaction_of, run.files) if info is not None]
    widest = max(bucket_steps(max(tiers)), *stated, 1)
    least = bucket_steps(max(min(tiers), min(map(tier_of, run.files))))
    times = _Times()
    _write_head(out, run.files, times, widest, least)  # its size does not depend on the times
    thinner = Thinner()
    for batch, number in _in_force(run, len(tiers), times, pace):
        for payload in thinner.add(batch, bucket_steps(tiers[number])):
            out.write(framing.frame(payload))
    for payload in thinner.flush():
        out.write(framing.frame(payload))
    out.seek(0)
    compaction = _write_head(out, run.files, times, widest, least)
    out.seek(0, os.SEEK_END)
    return compaction


def sizes(run: Run, pace: Pace) -> list[list[int]]:
    """Returns about how large each of equal parts of the bytes is in each tier.

    The head of the new file is in the first part.

    Args:
        run: As of `rewrite`.
        pace: Called after each portion of work.

    Raises:
        UnfitFile: Something cannot be read.
    """
    count = min(max(run.nbytes // _LEAST_PART, 1), _MOST_PARTS)
    head = io.BytesIO()
    widest = bucket_steps(MOST_TIER)
    _write_head(head, run.files, _Times(), widest, widest)
    found = [[head.tell() if not number else 0] * (MOST_TIER + 1) for number in range(count)]
    thinners = [Thinner() for _ in range(MOST_TIER)]
    of_part = itertools.groupby(_in_force(run, count, _Times(), pace), lambda item: item[1])
    for number, part in of_part:
        for batch, _ in part:
            found[number][0] += batch.end_offset - batch.offset
            for tier, thinner in enumerate(thinners, 1):
                found[number][tier] += _framed(thinner.add(batch, bucket_steps(tier)))
        for tier, thinner in enumerate(thinners, 1):
            found[number][tier] += _framed(thinner.flush())
    return found


def _framed(payloads: Iterator[bytes]) -> int:
    return sum(len(payload) + framing.OVERHEAD_BYTES for payload in payloads)


def _in_force(run: Run, parts: int, times: _Times, pace: Pace) -> Iterator[tuple[Batch, int]]:
    """Yields what counts, with the number of its part; of equal graphs only the first."""
    history = History(run)
    values = WriterValues(run.name, Report(), EVERYTHING)
    graphs: set[int] = set()
    total = max(run.nbytes, 1)
    before = 0
    number = 0
    for file in run.files:
        for batch in batches(file, -(-total // parts), pace):
            number = min((before + batch.offset) * parts // total, parts - 1)
            times.began = min(times.began, float(batch.wall_times[0]))
            if batch.kind == SUMMARY:
                times.last = max(times.last, float(batch.wall_times.max()))
                yield from ((history.in_force(part), number) for part in values.take(batch))
                continue
            for record in batch.records():
                if record.kind == "version":
                    continue
                content = getattr(record.event, record.kind, record.event)
                checksum = zlib.crc32(content.SerializeToString(deterministic=True))
                if checksum not in graphs:
                    graphs.add(checksum)
                    yield record, number
        before += file.nbytes
    yield from ((history.in_force(part), number) for part in values.buffer.end())


def rewrite_lineage(
    files: Sequence[RecordFile], out: IO[bytes], pace: Pace = lambda: None
) -> Compaction:
    """Writes the lineage records of several files to one file.

    All stay but train lineages of a training that goes on, where the next record of the same file
    is a later one of them.

    Raises:
        UnfitFile: Something cannot be read.
        OSError: The file cannot be written.
    """
    payloads: list[bytes] = []
    times = _Times()
    for file in files:
        refreshed = False
        for batch in batches(file, _LEAST_PART, pace):
            for record in batch.records():
                times.began = min(times.began, record.wall_time)
                if record.kind == "version":
                    continue
                times.last = max(times.last, record.wall_time)
                if refreshed and record.kind == "train_lineage":
                    payloads.pop()
                refreshed = record.event.train_lineage.run_state.status == RunState.RUNNING
                payloads.append(record.event.SerializeToString())
    compaction = _write_head(out, files, times)
    for payload in payloads:
        out.write(framing.frame(payload))
    return compaction


def _write_head(
    out: IO[bytes],
    files: Sequence[RecordFile],
    times: _Times,
    widest: int | None = None,
    least: int | None = None,
) -> Compaction:
    """Writes the first record, which says what the file is made of; returns that.

    Raises:
        UnfitFile: The name of a file cannot be stated.
    """
    compaction = Compaction(
        superseded=[_name_of(file) for file in files],
        last_time=times.last,
        bucket_steps=widest,
        least_bucket_steps=least,
    )
    # Files of writers that were killed before their first record have no time but in their names.
    wall_time = times.began if times.began < math.inf else float(files[0].name.stamp)
    head = Event(wall_time=wall_time, version=FILE_VERSION, compaction=compaction)
    if writer := head_of(files[-1]).writer:  # the files that follow continue this one
        head.writer = writer
    out.write(framing.frame(head.SerializeToString()))
    return compaction


def _name_of(file: RecordFile) -> str:
    name = os.path.basename(file.path)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UnfitFile(file.path, "its name is not UTF-8") from error
    return name


def compacted_name(files: Sequence[RecordFile]) -> str:
    """Returns the name of the file that replaces others, which are in order."""
    last = max(file.name.end for file in files)
    generation = 1 + max(file.name.generation for file in files)
    return str(dataclasses.replace(files[0].name, last=last, generation=generation))
