"""One value for each tag and step: the last one."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from rec_summary.series.batch import Batch, Record, Recorded, Series
from rec_summary.series.cuts import Cut, Row
from rec_summary.series.limits import Checksum, Step
from rec_summary.series.report import Report

_HELD_VALUES: Final = 4096
_HELD_BYTES: Final = 1 << 24


class BufferState(Struct, forbid_unknown_fields=True):
    """What a later `StepBuffer` needs to continue where this one stopped.

    Attributes:
        step: The current step.
        passed: Kind, tag and checksum of the values that `flush` passed on.
        last: Kind, tag and last step of each series.
    """

    step: Step | None = None
    passed: list[tuple[str, str, Checksum]] = []
    last: list[tuple[str, str, Step]] = []


class StepBuffer:
    """Holds the values of the current step until the next step begins.

    MindSpore records a step twice when an epoch ends there. TensorBoard's default loader
    shows the later value, its other loader both; so here the later one wins before either
    sees them. Memory is bounded: a step with more than 4096 values or 16 MiB is passed on
    in parts, and repetitions across these are left for TensorBoard to settle.

    Of a batch of many records, those before its last step are passed on together.

    A live reader cannot wait for the next step: `flush` passes on what is held. Afterwards a value
    that comes again is dropped if it is the same, and passed on if it is not.

    Attributes:
        step: The current step; None before the first one.
    """

    def __init__(self, report: Report, state: BufferState | None = None) -> None:
        """Creates an empty buffer, or continues where another buffer stopped.

        Args:
            report: Takes the number of repetitions.
            state: Has the step and what was passed on of the other buffer.
        """
        state = state or BufferState()
        self._report = report
        self.step = state.step
        self._held: dict[Series, Recorded] = {}
        self._held_bytes = 0
        # Checksums of what `flush` passed on.
        self._passed = {(kind, tag): checksum for kind, tag, checksum in state.passed}
        # The records that may be of a new start, and where that began.
        self._new = Row(0, 0)
        self._recent: list[Record] = []
        self._recent_bytes = 0

    def add(self, batch: Batch, new: Row | None = None) -> list[Batch]:
        """Takes the next values; returns those of finished steps.

        Args:
            batch: The values.
            new: The `new` of `Cuts`: where it is given, the values are remembered for `again`.
        """
        if new is not None and new is not self._new:
            self.forget()
            self._new = new
        steps, first, last = batch.steps, 0, 0
        if len(steps) > 1 and new is None:
            first = int(steps.searchsorted(steps[0], "right")) if steps[0] == self.step else 0
            last = int(steps.searchsorted(steps[-1]))
        finished: list[Batch] = []
        for record in batch.part(0, first).records() if first else ():
            finished += self._hold(record)
        if first < last:
            finished += [*self.end(), batch.part(first, last)]
            self._passed.clear()  # the batch may end at the step that it began behind
        for record in batch.part(max(first, last), len(steps)).records():
            finished += self._hold(record)
            if new is not None:
                self._recent.append(record)
                self._recent_bytes += record.nbytes
                if self._recent_bytes > _HELD_BYTES:
                    self.forget()
        return finished

    def again(self, cut: Cut) -> list[Record]:
        """Returns values of a new start that were passed on, and forgets them."""
        values: dict[tuple[Series, int], Recorded] = {}
        for record in self._recent if self._new >= cut.row else ():
            for each in record.values if record.step >= cut.step else ():
                values.pop(key := (each[:2], record.step), None)
                values[key] = each
        for series in self._held:  # these are passed on later
            values.pop((series, self.step or 0), None)
        self.forget()
        return [*_records(values.values())]

    def forget(self) -> None:
        """Forgets what is remembered for `again`."""
        self._recent.clear()
        self._recent_bytes = 0

    def flush(self) -> list[Batch]:
        """Returns what is held, and remembers it."""
        for key, recorded in self._held.items():
            self._passed[key] = _checksum(recorded)
        return self.end()

    def end(self) -> list[Batch]:
        """Returns what is held; nothing of this step may be added after it."""
        finished: list[Batch] = [*_records(self._held.values())]
        self._held.clear()
        self._held_bytes = 0
        return finished

    def state(self, last: list[tuple[str, str, int]]) -> BufferState:
        """Returns what a later buffer, and `Cuts` with `last`, need. Call `flush` first."""
        passed = [(*series, checksum) for series, checksum in self._passed.items()]
        return BufferState(self.step, passed, last)

    def _hold(self, record: Record) -> list[Batch]:
        """Holds the values of a record; returns what is finished."""
        finished: list[Batch] = []
        if record.values and record.step != self.step:
            finished = self.end()
            self._passed.clear()
            self.step = record.step
        held = self._held
        for recorded in record.values:
            key = recorded[:2]
            if self._passed and self._comes_again(key, recorded):
                continue
            if held.pop(key, None) is not None:
                self._report.repeated += 1
            held[key] = recorded
        self._held_bytes += record.nbytes
        if len(held) > _HELD_VALUES or self._held_bytes > _HELD_BYTES:
            finished += self.end()
        return finished

    def _comes_again(self, key: tuple[str, str], recorded: Recorded) -> bool:
        """Whether a value has been passed on already; counts it if there was any."""
        checksum = self._passed.pop(key, None)
        if checksum is None:
            return False
        self._report.repeated += 1
        if checksum != _checksum(recorded):
            return False
        self._passed[key] = checksum
        return True


def _records(values: Iterable[Recorded]) -> Iterator[Record]:
    for record, group in itertools.groupby(values, lambda value: value.origin):
        yield record.of(list(group))


def _checksum(recorded: Recorded) -> int:
    return zlib.crc32(recorded.value.SerializeToString(deterministic=True))
