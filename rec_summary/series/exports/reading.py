"""Reading the record files of a run from where an earlier export stopped."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import Batch
from rec_summary.series.limits import Seconds
from rec_summary.series.new_records import NewRecords, ReadPosition, behind
from rec_summary.series.options import EVERYTHING, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writers


class FilesRead(Struct, kw_only=True, forbid_unknown_fields=True):
    """How far the files of a run have been read; at the beginning, not at all.

    An unknown field is refused: it may be a damaged name of one that would then be missing.

    Attributes:
        files: How far each record file was read.
        writers: Who wrote which file.
        began: The time of the first record, in seconds since the epoch.
    """

    files: dict[str, ReadPosition] = {}
    writers: Writers = field(default_factory=Writers)
    began: Seconds | None = None


def continues(run: Run, state: FilesRead, records: NewRecords) -> bool:
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


def compacted(run: Run, state: FilesRead) -> set[str]:
    """Returns the names of files that were read and that compacted files have replaced."""
    made = [file.name for file in run.files if file.name.last is not None]
    return {
        name
        for name in state.files.keys() - {os.path.basename(file.path) for file in run.files}
        if (parsed := parse_name(name)) is not None and any(new.covers(parsed) for new in made)
    }


def _has_older(run: Run, state: FilesRead) -> bool:
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


def is_replaced(run: Run, state: FilesRead, records: NewRecords) -> bool:
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


class FileReader:
    """Reads what is new in the record files of a run."""

    _state: FilesRead  # how far it was read; a subclass sets it

    def __init__(
        self, run: Run, report: Report, records: NewRecords, selection: Selection = EVERYTHING
    ) -> None:
        """Opens nothing yet.

        Args:
            run: The run.
            report: Counts what is read, and takes problems.
            records: Reads the files.
            selection: Files without values of the selected times are not opened, apart from the
                first one of each rank.
        """
        self._run = run
        self._report = report
        self._records = records
        self._selection = selection

    @property
    def is_waiting(self) -> bool:
        """Whether reading stopped at damage that is soon to be tried again."""
        return self._records.is_waiting(self._run.files)

    def _begins(self) -> None:
        """Called before the first record is passed on."""

    def _take(self, file: RecordFile, batch: Batch) -> None:
        """Takes new records of a file."""
        raise NotImplementedError

    def _read_files(self, *, final: bool) -> Iterator[None]:
        """Reads what is new, rank after rank.

        Args:
            final: Whether an unfinished record is reported; if not, files that have not grown are
                not opened.

        Yields:
            Nothing, after each part. Reading can be stopped there.
        """
        for rank in self._run.ranks:
            for kind in (Kind.SUMMARY, Kind.LINEAGE):
                files = self._run.files_of(kind, rank)
                for file in files:
                    # The graph is in the first summary file.
                    is_read = kind is Kind.LINEAGE or file is files[0]
                    if not is_read and not self._selection.may_hold(file):
                        continue
                    yield from self._read(file, newest=file is files[-1], final=final)

    def _read(self, file: RecordFile, *, newest: bool, final: bool) -> Iterator[None]:
        name = os.path.basename(file.path)
        place = self._state.files.get(name)
        if place is None:
            # If it is a compacted file, it may be made of files that were read.
            place = ReadPosition(behind(file, self._last_time(file)))
            if place.offset:
                self._state.files[name] = place
        if (0 < place.offset == file.nbytes) or (not final and file.nbytes <= place.offset):
            return
        again = place.ended
        with contextlib.closing(
            self._records.read(file, place, newest=newest, final=final)
        ) as batches:
            for batch in batches:
                if self._state.began is None:
                    self._state.began = float(batch.wall_times[0])
                    self._begins()
                self._state.files[name] = place  # this batch is not passed on yet
                self._take(file, batch)
                place.offset = batch.end_offset
                yield
        self._state.files[name] = place
        self._report.files += not (again and place.ended)
        yield

    def _last_time(self, file: RecordFile) -> float:
        """Returns the time of the last record that was read of those that a file is made of."""
        writer = self._state.writers.continued(file)
        return writer.last if writer is not None else -math.inf
