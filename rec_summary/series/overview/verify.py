"""Verification of record files: which records are sound, what is damaged, and where."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rec_summary.records.format.bounds import MOST_PARTS
from rec_summary.records.format.names import Kind, RecordName, parse_name
from rec_summary.records.reading.reader import BadLength, LostRecord
from rec_summary.records.reading.runs import RecordFile
from rec_summary.series.batch import SUMMARY, UNKNOWN, Batch, Floats, Integers
from rec_summary.series.event_reader import Damage, EventReader, Flaw, hint
from rec_summary.series.report import Report

DAMAGE: Final = "damage"
WARNING: Final = "warning"
_VERSION: Final = "MindSpore.Event:"
_NO_VERSION: Final = "the first record does not state the version"
_UNNAMED: Final = RecordName(0, 0, "", Kind.SUMMARY)  # what a file of any other name holds
_KEPT: Final = 1000


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


@dataclass
class _Findings:
    """Collects findings, and what they are about."""

    found: list[Finding] = field(default_factory=list)

    def damage(self, offset: int, text: str) -> None:
        self._add(Finding(offset, DAMAGE, text))

    def warning(self, offset: int, text: str) -> None:
        self._add(Finding(offset, WARNING, text))

    def _add(self, finding: Finding) -> None:
        if len(self.found) < _KEPT:
            self.found.append(finding)


def verify_file(
    path: str | os.PathLike[str], advance: Callable[[int], None] = lambda nbytes: None
) -> FileReport:
    """Reads a record file from end to end.

    Checked are the checksums of lengths and data, whether each record is an event of the
    file's kind, the record of the version in front, and whether times and steps go on.

    Args:
        path: A record file, of any name; one that ends in `_lineage` holds lineage.
        advance: Called with the number of bytes after each record.

    Raises:
        OSError: The file cannot be read.
    """
    path = os.fspath(path)
    name = parse_name(os.path.basename(path)) or _UNNAMED
    findings, records = _Findings(), Counter[str]()
    steps, times = _Order("step"), _Order("wall time")
    sound_bytes = done = 0
    is_first = True
    with EventReader(RecordFile(path, name), Report()) as reader:
        for item in reader.items():
            if isinstance(item, Damage):
                _take_damage(item, name.kind, findings)
            else:
                sound_bytes += item.end_offset - item.offset
                records[item.kind] += len(item)
                _take_batch(item, steps, times, findings, is_first=is_first)
            is_first = False
            advance(reader.offset - done)
            done = reader.offset
        nbytes = reader.size
        torn = reader.unfinished is not None and nbytes > 0
        if torn:
            what = "the file ends in the middle of a record: a writer is at work, or was killed"
            findings.warning(reader.offset, what)
    if not nbytes:
        findings.warning(0, "the file is empty: a writer has just begun, or was killed")
    return FileReport(
        path=path,
        nbytes=nbytes,
        sound_bytes=sound_bytes,
        records=dict(sorted(records.items())),
        findings=tuple(findings.found),
        first_step=steps.least,
        last_step=steps.greatest,
        first_time=times.first,
        last_time=times.last,
        torn=torn,
    )


def _take_damage(damage: Damage, kind: Kind, findings: _Findings) -> None:
    error = damage.error
    if isinstance(error, OSError):
        raise error
    if isinstance(error, LostRecord):
        what = f"{error.reason}: this record is lost"
    elif isinstance(error, BadLength):
        what = f"{error.reason}: the records behind it cannot be found"
        what += f"{hint(error.offset)}; `rec-summary repair` searches for them"
    elif damage.flaw is Flaw.TOO_MANY_PARTS:
        what = f"more than {MOST_PARTS:,} parts: no reader takes it"
    else:
        what = f"not a {kind.name.lower()} record, though its checksums are right"
    findings.damage(damage.offset, what)


def _take_batch(
    batch: Batch, steps: _Order, times: _Order, findings: _Findings, *, is_first: bool
) -> None:
    if len(batch) > 1:  # scanned: these are summaries with finite times
        if is_first:
            findings.warning(batch.offset, _NO_VERSION)
        times.take_all(batch.wall_times, batch, findings)
        steps.take_all(batch.steps, batch, findings)
        return
    [record] = batch.records()
    if is_first and not str(record.event.version).startswith(_VERSION):
        findings.warning(batch.offset, _NO_VERSION)
    times.take(record.event.wall_time, batch.offset, findings)
    if batch.kind == SUMMARY:
        steps.take(record.step, batch.offset, findings)
    elif batch.kind == UNKNOWN:
        findings.warning(batch.offset, "a record of a kind that this release does not know")


class _Order:
    """Checks that numbers do not go back, and keeps their range."""

    def __init__(self, what: str) -> None:
        self.first: Any = None
        self.last: Any = None
        self.least: Any = None
        self.greatest: Any = None
        self._what = what
        self._has_gone_back = False

    def take(self, number: float, offset: int, findings: _Findings) -> None:
        if not math.isfinite(number):
            findings.warning(offset, f"the {self._what} is {number}")
            return
        if self.last is not None and number < self.last and not self._has_gone_back:
            self._has_gone_back = True
            what = f"the {self._what} goes back from {self.last} to {number}"
            findings.warning(offset, f"{what} (reported once)")
        if self.first is None:
            self.first = self.least = self.greatest = number
        self.last = number
        self.least, self.greatest = min(self.least, number), max(self.greatest, number)

    def take_all(self, numbers: Integers | Floats, batch: Batch, findings: _Findings) -> None:
        """Takes the finite numbers of a batch, one of each record."""
        self.take(numbers[0].item(), batch.offset, findings)
        if not self._has_gone_back:
            falls = np.flatnonzero(numbers[1:] < numbers[:-1])
            if len(falls):
                at = int(falls[0])
                self.last = numbers[at].item()
                place = batch.part(at + 1, at + 2).offset
                self.take(numbers[at + 1].item(), place, findings)
        self.last = numbers[-1].item()
        self.least = min(self.least, numbers.min().item())
        self.greatest = max(self.greatest, numbers.max().item())
