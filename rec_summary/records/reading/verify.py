"""Checking record files: what is sound, what is damaged, and where."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.format.bounds import MOST_PARTS, UNDECODABLE, has_too_many_parts
from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.reading.reader import (
    BadLength,
    LostRecord,
    RecordReader,
    TruncatedRecord,
)

DAMAGE: Final = "damage"
WARNING: Final = "warning"
_VERSION: Final = "MindSpore.Event:"
_KEPT: Final = 1000


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

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
    name = parse_name(os.path.basename(path))
    lineage = name is not None and name.kind is Kind.LINEAGE
    message: Any = LineageEvent if lineage else Event
    findings, records = _Findings(), Counter[str]()
    steps, times = _Order("step"), _Order("wall time")
    sound_bytes, torn, is_first = 0, False, True
    with RecordReader(path) as reader:
        while True:
            start = reader.offset
            try:
                record = reader.read()
            except LostRecord as error:
                findings.damage(error.offset, f"{error.reason}: this record is lost")
                advance(reader.offset - start)
                is_first = False
                continue
            except BadLength as error:
                what = f"{error.reason}: the records behind it cannot be found"
                if error.offset == 0:
                    what += " (is this a record file?)"
                findings.damage(error.offset, f"{what}; `rec-summary repair` searches for them")
                break
            except TruncatedRecord as error:
                torn = True
                what = "the file ends in the middle of a record: a writer is at work, or was killed"
                findings.warning(error.offset, what)
                break
            if record is None:
                break
            advance(reader.offset - start)
            if has_too_many_parts(message, record.payload):
                findings.damage(start, f"more than {MOST_PARTS:,} parts: no reader takes it")
                is_first = False
                continue
            try:
                event = message.FromString(record.payload)
            except UNDECODABLE:
                event = None
            if event is None or not event.IsInitialized():
                kind = "lineage" if lineage else "summary"
                findings.damage(start, f"not a {kind} record, though its checksums are right")
                is_first = False
                continue
            sound_bytes += reader.offset - start
            kind = event.WhichOneof("what") or "unknown"
            records[kind] += 1
            if is_first and not str(event.version).startswith(_VERSION):
                findings.warning(start, "the first record does not state the version")
            is_first = False
            times.take(event.wall_time, start, findings)
            if kind == "summary":
                steps.take(event.step, start, findings)
            elif kind == "unknown":
                findings.warning(start, "a record of a kind that this release does not know")
        nbytes = os.path.getsize(path)
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


class _Order:
    """Watches numbers that should not go back."""

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
            findings.warning(offset, f"{what} (told the first time only)")
        if self.first is None:
            self.first = self.least = self.greatest = number
        self.last = number
        self.least, self.greatest = min(self.least, number), max(self.greatest, number)
