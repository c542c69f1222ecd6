"""Verification of record files: which records are sound, what is damaged, and where."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Floats, Integers
from rec_summary.records.format.bounds import MOST_PARTS
from rec_summary.records.format.names import Kind, RecordName, parse_name
from rec_summary.records.reading.reader import BadLength, LostRecord
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, UNKNOWN, Batch, Record
from rec_summary.series.event_reader import Damage, EventReader, Flaw, hint
from rec_summary.series.report import Report

DAMAGE: Final = "damage"
WARNING: Final = "warning"
_VERSION: Final = "MindSpore.Event:"
_VERSION_RECORD: Final = "version"
_UNNAMED: Final = RecordName(0, 0, "", Kind.SUMMARY)
"""What a file of any other name holds."""

_KEPT: Final = 1000
_OUT_OF_ORDER_SECS: Final = 60.0
"""MindSpore's collector writes what several processes have made, seconds out of order."""


@dataclass(frozen=True)
class Finding:
    """A fault of a record file.

    Attributes:
        offset: Where in the file, in bytes.
        severity: `damage` if something is lost, `warning` if it is only unusual.
        text: What it is.
    """

    offset: int
    severity: str
    text: str


@dataclass(frozen=True)
class FileReport:
    """What is in a record file.

    Attributes:
        path: The file.
        nbytes: Its size.
        sound_bytes: The size of its sound records.
        records: How many sound records it has, by kind: fields of the event, or `unknown`.
        findings: What is wrong, in the order of the file; at most a thousand.
        first_step: The lowest step of a summary; None if there is none.
        last_step: The highest step of a summary; None if there is none.
        first_time: The first record's time, in seconds since the epoch; None without records.
        last_time: The last record's time.
        torn: Whether it ends in the middle of a record, as a writer at work leaves it.
    """

    path: str
    nbytes: int
    sound_bytes: int
    records: Mapping[str, int]
    findings: tuple[Finding, ...]
    first_step: int | None
    last_step: int | None
    first_time: float | None
    last_time: float | None
    torn: bool

    @property
    def damaged(self) -> bool:
        """Whether something is lost."""
        return any(finding.severity == DAMAGE for finding in self.findings)


def verify_run(run: Run, report: Report) -> Iterator[FileReport | tuple[str, str]]:
    """Yields what is in each record file of a run; of one that cannot be read, its path and why."""
    for file in run.files:
        try:
            yield verify_file(file.path, report)
        except OSError as error:
            yield file.path, error.strerror or str(error)


def verify_file(path: str | os.PathLike[str], report: Report | None = None) -> FileReport:
    """Reads a record file from end to end.

    Checked are the checksums of lengths and data, whether each record is an event of the
    file's kind, the record of the version in front, and whether times and steps go on.

    Args:
        path: A record file, of any name; one that ends in `_lineage` holds lineage.
        report: Counts what is read.

    Raises:
        OSError: The file cannot be read.
    """
    path = os.fspath(path)
    name = parse_name(os.path.basename(path)) or _UNNAMED
    check = _Check(name.kind)
    report = Report() if report is None else report
    with EventReader(RecordFile(path, name), report, messages=True) as reader:
        for item in reader.items():
            check.take(item)
        nbytes = reader.size
        torn = reader.unfinished is not None and nbytes > 0
        if reader.unfinished is not None:
            check.find(reader.offset, WARNING, reader.unfinished)
    return FileReport(
        path=path,
        nbytes=nbytes,
        sound_bytes=check.sound_bytes,
        records=dict(sorted(check.records.items())),
        findings=tuple(check.findings),
        first_step=check.steps.least,
        last_step=check.steps.greatest,
        first_time=check.times.first,
        last_time=check.times.last,
        torn=torn,
    )


class _Check:
    """Collects what is found in a file; see `FileReport`."""

    def __init__(self, kind: Kind) -> None:
        self.findings: list[Finding] = []
        self.records: Counter[str] = Counter()
        self.sound_bytes = 0
        self.steps, self.times = _Order("step"), _Order("wall time", _OUT_OF_ORDER_SECS)
        self._kind = kind
        self._is_first = True

    def find(self, offset: int, severity: str, text: str) -> None:
        """Adds a finding unless there are very many already."""
        if len(self.findings) < _KEPT:
            self.findings.append(Finding(offset, severity, text))

    def take(self, item: Batch | Damage) -> None:
        """Checks what comes next in the file."""
        if isinstance(item, Damage):
            self.find(item.offset, DAMAGE, _loss(item, self._kind))
        else:
            self._take_batch(item)
        self._is_first = False

    def _take_batch(self, batch: Batch) -> None:
        self.sound_bytes += batch.end_offset - batch.offset
        self.records[batch.kind] += len(batch)
        version, times = "", batch.wall_times
        if isinstance(batch, Record):  # its time as recorded may not be finite
            version, times = str(batch.event.version), np.array([batch.event.wall_time])
        # MindSpore's lineage files have no version.
        if self._is_first and self._kind is Kind.SUMMARY and not version.startswith(_VERSION):
            self.find(batch.offset, WARNING, "the first record does not state the version")
        # A file may be begun after its first values were made.
        findings = list(self.times.take(times, in_order=batch.kind != _VERSION_RECORD))
        if batch.kind == SUMMARY:
            findings += self.steps.take(batch.steps)
        elif batch.kind == UNKNOWN:
            findings.append((0, "a record of a kind that this release does not know"))
        for place, text in findings:
            self.find(batch.part(place, place + 1).offset, WARNING, text)


def _loss(damage: Damage, kind: Kind) -> str:
    error = damage.error
    if isinstance(error, OSError):
        raise error
    if isinstance(error, LostRecord):
        return f"{error.reason}: this record is lost"
    if isinstance(error, BadLength):
        what = f"{error.reason}: the records after it cannot be found{hint(error.offset)}"
        return f"{what}; `rec-summary repair` searches for them"
    if damage.flaw is Flaw.TOO_MANY_PARTS:
        return f"more than {MOST_PARTS:,} parts: no reader takes it"
    return f"not a {kind.name.lower()} record, though its checksums are right"


class _Order:
    """Checks that numbers do not go back, and keeps their range."""

    def __init__(self, what: str, slack: float = 0) -> None:
        self.first: Any = None
        self.last: Any = None
        self.least: Any = None
        self.greatest: Any = None
        self._what, self._slack = what, slack
        self._before: Any = None  # the next number must not be lower
        self._has_gone_back = False

    def take(
        self, numbers: Integers | Floats, *, in_order: bool = True
    ) -> Iterator[tuple[int, str]]:
        """Takes the numbers of a batch; yields what is wrong, and the record's place in it.

        Args:
            numbers: The numbers.
            in_order: Whether the numbers after them must not be lower.
        """
        if not np.isfinite(numbers).all():  # only a single record can have such a number
            yield 0, f"the {self._what} is {numbers[0]}"
            return
        if self.first is None:
            self.first = self.last = self.least = self.greatest = numbers[0].item()
        if not self._has_gone_back:
            before = numbers[0] if self._before is None else self._before
            known = np.concatenate([[before], numbers])
            falls = np.flatnonzero(numbers < known[:-1] - self._slack)
            if len(falls):
                self._has_gone_back = True
                at = int(falls[0])
                what = f"the {self._what} goes back from {known[at]} to {known[at + 1]}"
                yield at, f"{what} (reported once)"
        self.last = numbers[-1].item()
        self._before = self.last if in_order else None
        self.least = min(self.least, numbers.min().item())
        self.greatest = max(self.greatest, numbers.max().item())
