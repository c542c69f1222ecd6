"""One coarser file of several files of one writer.

How coarse a piece of the records becomes depends on its age, by how much was recorded after it: of
a piece that is twice as old, half as many bytes stay. So the newest records stay complete, and
the bytes of the whole grow with the logarithm of its length.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary._pb.summary_pb2 import Compaction, Event
from rec_summary.compaction.thinning import Thinner, Widths
from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.format import framing
from rec_summary.records.reading.compacted import compaction_of
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.records.writing.run_writer import FILE_VERSION
from rec_summary.series.batch import SCALAR, SUMMARY, Batch
from rec_summary.series.event_reader import EventReader
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.history import History
from rec_summary.series.step_buffer import Restart, StepBuffer

_MOST: Final = 1 << 50  # bytes that a file may state for what it is made of
_PIECES: Final = 64
_LEAST_PIECE: Final = 1 << 13
_PER_BUCKET: Final = 4
_MOST_TRIES: Final = 6
_TOLERANCE: Final = 1.1
_BISECTIONS: Final = 60

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
class Piece:
    """A part of the records, of about equal size.

    Attributes:
        nbytes: Its size.
        weight: Its size when it was recorded.
        scalars: How many scalars there are.
        tags: The tags of scalars.
        steps: The lowest and the highest step of scalars.
    """

    nbytes: int = 0
    weight: float = 0.0
    scalars: int = 0
    tags: set[str] = field(default_factory=set)
    steps: tuple[int, int] | None = None

    def add(self, batch: Batch) -> None:
        """Adds a batch."""
        self.nbytes += batch.end_offset - batch.offset
        for (kind, tag), span in batch.series().items():
            if kind != SCALAR or tag.startswith(EVALUATION):
                continue
            self.scalars += span.values
            self.tags.add(tag)
            low, high = self.steps or (span.first_step, span.last_step)
            self.steps = min(low, span.first_step), max(high, span.last_step)

    def widths(self, reduction: float) -> Widths:
        """Returns the widths with which about one byte in `reduction` stays."""
        if reduction <= 1:
            return Widths()
        if self.steps is None:
            return Widths(0, reduction)
        low, high = self.steps
        shift = 0
        # One bucket holds all of its steps, or is so wide that it hardly ever cuts them.
        most = min((low ^ high).bit_length(), (high - low).bit_length() + 3, 62)
        most_buckets = self.scalars / reduction / (_PER_BUCKET * len(self.tags))
        while shift < most and ((high - low) >> shift) + 1 > most_buckets:
            shift += 1
        return Widths(shift, reduction)


@dataclass
class Measured:
    """What a first reading of the files found.

    Attributes:
        pieces: The records, in order.
        piece_bytes: The size of a piece.
        intervals: How many steps lie between two values of each series that is not of scalars.
        began: When the first file was begun, in seconds since the epoch.
        last_time: The latest wall time.
    """

    pieces: list[Piece]
    piece_bytes: int
    intervals: dict[tuple[str, str], float]
    began: float
    last_time: float


def weight_of(file: RecordFile) -> int:
    """Returns the size of the records of a file before any compaction."""
    compaction = compaction_of(file)
    # Anybody may have written the head.
    return file.nbytes if compaction is None else min(max(compaction.recorded_bytes, 0), _MOST)


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
    with EventReader(file, report) as reader:
        for batch in reader:
            parts = min(-(-(batch.end_offset - batch.offset) // most_bytes), len(batch))
            bounds = [len(batch) * number // parts for number in range(parts + 1)]
            for first, last in itertools.pairwise(bounds):
                yield batch.part(first, last)
            pace()
    if report.problem_count:
        problem = report.problems[0]
        raise UnfitFile(file.path, f"offset {problem.offset}: {problem.text}")


def measure(files: Sequence[RecordFile], pace: Pace) -> Measured:
    """Reads files to measure what they hold.

    Raises:
        UnfitFile: Something cannot be read.
    """
    total = sum(file.nbytes for file in files)
    measured = Measured([], max(total // _PIECES, _LEAST_PIECE), {}, math.inf, -math.inf)
    spans: dict[tuple[str, str], tuple[int, int, int]] = {}
    before = 0
    for file in files:
        ratio = weight_of(file) / max(file.nbytes, 1)
        for batch in batches(file, measured.piece_bytes, pace):
            number = (before + batch.offset) // measured.piece_bytes
            while len(measured.pieces) <= number:
                measured.pieces.append(Piece())
            piece, held = measured.pieces[number], measured.pieces[number].nbytes
            piece.add(batch)
            piece.weight += (piece.nbytes - held) * ratio
            measured.began = min(measured.began, float(batch.wall_times[0]))
            if batch.kind == SUMMARY:  # a file may be begun after its values were made
                measured.last_time = max(measured.last_time, float(batch.wall_times.max()))
            for series, span in batch.series().items():
                if series[0] != SCALAR:
                    count, low, high = spans.get(series, (0, span.first_step, span.last_step))
                    low, high = min(low, span.first_step), max(high, span.last_step)
                    spans[series] = count + span.values, low, high
        before += file.nbytes
    measured.intervals = {
        series: max((high - low) / max(count - 1, 1), 1.0)
        for series, (count, low, high) in spans.items()
    }
    return measured


def reductions(pieces: Sequence[Piece], target: float, newer: int) -> list[float]:
    """Returns by how much each piece is reduced so that all together have a size.

    Args:
        pieces: The pieces, from the oldest to the newest.
        target: The size, in bytes.
        newer: The size of what was recorded after them.
    """
    sizes = np.array([piece.nbytes for piece in pieces], np.float64)
    if sizes.sum() <= target:
        return [1.0] * len(pieces)
    weights = np.array([max(piece.weight, 1.0) for piece in pieces])
    ages = newer + weights[::-1].cumsum()[::-1] - weights / 2
    # The bytes that stay of each recorded byte are `complete / age`, and at most what there is.
    low, high = 0.0, float(ages.max())
    for _ in range(_BISECTIONS):
        complete = (low + high) / 2
        if np.minimum(sizes, weights * complete / ages).sum() > target:
            high = complete
        else:
            low = complete
    factors: list[float] = np.maximum(sizes * ages / (weights * max(low, 1e-9)), 1.0).tolist()
    return factors


def rewrite(
    run: Run, out: IO[bytes], target: int, newer: int, pace: Pace = lambda: None
) -> Compaction:
    """Writes the summary records of a run to one file, in about `target` bytes.

    Values that a restart supersedes are left out.

    Args:
        run: The run, with the summary files of one writer of one rank, none of which is damaged.
        out: An empty file.
        target: The size, in bytes. All of graphs, landscapes and evaluations stay, so that
            it may be larger.
        newer: The size of what the writer has recorded after these files.
        pace: Called after each portion of work.

    Returns:
        What the file is made of.

    Raises:
        UnfitFile: Something cannot be read.
        OSError: The file cannot be written.
    """
    history = History(run)
    measured = measure(run.files, pace)
    wanted = float(target)
    widest_before = _widest_bucket(run.files, measured.pieces)
    for _ in range(_MOST_TRIES):
        out.seek(0)
        out.truncate()
        pieces = measured.pieces
        widths = [
            piece.widths(reduction)
            for piece, reduction in zip(pieces, reductions(pieces, wanted, newer), strict=True)
        ]
        widest = max(1 << max((width.scalars for width in widths), default=0), widest_before)
        compaction = _write_head(out, run.files, measured.began, measured.last_time, widest)
        thinner = Thinner(measured.intervals)
        for batch, number in _in_force(run, history, measured.piece_bytes, pace):
            for payload in thinner.add(batch, widths[min(number, len(widths) - 1)]):
                out.write(framing.frame(payload))
        for payload in thinner.flush():
            out.write(framing.frame(payload))
        size = out.tell()
        if size <= target * _TOLERANCE:
            break
        wanted *= target / size * 0.9
    return compaction


def _in_force(
    run: Run, history: History, piece_bytes: int, pace: Pace
) -> Iterator[tuple[Batch, int]]:
    """Yields what counts, with the number of its piece; of equal graphs only the first."""
    buffer = StepBuffer(run.name, Report())
    graphs: set[int] = set()
    before = 0
    number = 0
    for file in run.files:
        for batch in batches(file, piece_bytes, pace):
            number = (before + batch.offset) // piece_bytes
            if batch.kind == SUMMARY:
                finished = buffer.add(history.in_force(batch).select(EVERYTHING))
                yield from ((value, number) for value in finished if not isinstance(value, Restart))
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
    yield from ((value, number) for value in buffer.end() if not isinstance(value, Restart))


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
    began, last_time = math.inf, -math.inf
    for file in files:
        refreshed = False
        for batch in batches(file, _LEAST_PIECE, pace):
            for record in batch.records():
                began = min(began, record.wall_time)
                if record.kind == "version":
                    continue
                last_time = max(last_time, record.wall_time)
                if refreshed and record.kind == "train_lineage":
                    payloads.pop()
                refreshed = record.event.train_lineage.run_state.status == RunState.RUNNING
                payloads.append(record.event.SerializeToString())
    compaction = _write_head(out, files, began, last_time)
    for payload in payloads:
        out.write(framing.frame(payload))
    return compaction


def _widest_bucket(files: Sequence[RecordFile], pieces: Sequence[Piece]) -> int:
    """Returns the widest bucket that files state, which is no wider than what holds all steps."""
    stated = [info.bucket_steps for info in map(compaction_of, files) if info is not None]
    steps = [step for piece in pieces for step in piece.steps or ()]
    held = 1 << (min(steps, default=0) ^ max(steps, default=0)).bit_length()
    return min(max(stated, default=1), held)


def _write_head(
    out: IO[bytes],
    files: Sequence[RecordFile],
    began: float,
    last_time: float,
    bucket_steps: int | None = None,
) -> Compaction:
    """Writes the first record, which says what the file is made of; returns that.

    Raises:
        UnfitFile: The name of a file cannot be stated.
    """
    compaction = Compaction(
        superseded=[_name_of(file) for file in files],
        recorded_bytes=sum(map(weight_of, files)),
        last_time=last_time,
        bucket_steps=bucket_steps,
    )
    # Files of writers that were killed before their first record have no time but in their names.
    wall_time = began if began < math.inf else float(files[0].name.stamp)
    head = Event(wall_time=wall_time, version=FILE_VERSION, compaction=compaction)
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
