"""One value for each tag and step: the last one."""

from __future__ import annotations

import bisect
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.series.batch import HISTOGRAM, SCALAR, Batch, Record, Recorded, Series
from rec_summary.series.limits import MOST_SERIES, Checksum, Step
from rec_summary.series.report import Report
from rec_summary.series.text import printable

_INFINITE: Final = 1 << 64  # more than any step
_HELD_VALUES: Final = 4096
_HELD_BYTES: Final = 1 << 24

STEADY: Final = frozenset((SCALAR, HISTOGRAM))
"""The kinds that are recorded step by step."""


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


class Restart(NamedTuple):
    """Steps went back: training was started again.

    Attributes:
        step: The step from which training went on.
        origin: The first record of the new start.
        again: Values of the new start that were passed on before it was recognised, such as images
            that were recorded before the first scalar. The restart does not supersede them.
    """

    step: int
    origin: Record
    again: Sequence[Record] = ()


Finished = Batch | Restart
"""What a buffer passes on: values of whole steps, or a restart that supersedes earlier ones."""


class StepBuffer:
    """Holds the values of the current step until the next step begins.

    MindSpore records a step twice when an epoch ends there. TensorBoard's default loader
    shows the later value, its other loader both; so here the later one wins before either
    sees them. Memory is bounded: a step with more than 4096 values or 16 MiB is passed on
    in parts, and repetitions across these are left for TensorBoard to settle.

    Of a batch of many records, those before its last step are passed on together.

    A live reader cannot wait for the next step: `flush` passes on what is held. Afterwards a value
    that comes again is dropped if it is the same, and passed on if it is not.

    A series of scalars or histograms whose steps go back means that training was started
    again, from a checkpoint or from the beginning: what was recorded from there on is
    superseded. Other kinds, such as landscapes, may be recorded at any time for any step.

    A record at step 0 with nothing but evaluations supersedes nothing: it is by a process that
    trained nothing and did not know the step. Its values are left out if their series have others.

    A new start may begin with values of other kinds. The buffer therefore remembers the values at
    the beginning of a file, or after a step back, until the next value of a known series of scalars
    or histograms. Values that are held at the step to which a series goes back belong to the new
    start.

    Attributes:
        step: The current step; None before the first one.
    """

    def __init__(
        self,
        run: str,
        report: Report,
        state: BufferState | None = None,
        most_series: int = MOST_SERIES,
    ) -> None:
        """Creates an empty buffer, or continues where another buffer stopped.

        Args:
            run: The run's name, for notes.
            report: Takes problems, and the number of repetitions.
            state: What `state` of the other buffer returned.
            most_series: How many series there may be; the values of others are skipped.
        """
        self._most_series = most_series
        state = state or BufferState()
        self._run = run
        self._report = report
        self.step = state.step
        # The last step of each series.
        self._last = {(kind, tag): step for kind, tag, step in state.last}
        self._since: dict[Series, int] = {}  # the restart before it, by number
        self._restarts: list[tuple[int, int]] = []  # number and step; both ascend
        self._has_gone_back = False
        self._held: dict[Series, Recorded] = {}
        self._held_bytes = 0
        # Checksums of what `flush` passed on.
        self._passed = {(kind, tag): checksum for kind, tag, checksum in state.passed}
        self._path = ""
        # The values, by series and step, since a new start may have begun; None if none has.
        self._recent: dict[tuple[str, str, int], Recorded] | None = None
        self._recent_bytes = 0
        self._finished: list[Finished] = []

    def add(self, batch: Batch) -> list[Finished]:
        """Takes the selected values of a batch; returns what is finished."""
        if batch.path != self._path:
            self._path = batch.path
            self._remember()
        while (count := len(batch)) > 1:
            single = self._single(batch)
            if not single:
                self._pass(batch)
                return self._take()
            for record in batch.part(0, single).records():
                self._add(record)
            batch = batch.part(single, count)
        for record in batch.records():
            self._add(record)
        return self._take()

    def flush(self) -> list[Finished]:
        """Returns what is held, and remembers it."""
        for key, recorded in self._held.items():
            self._passed[key] = _checksum(recorded)
        return self.end()

    def end(self) -> list[Finished]:
        """Returns what is held; nothing may be added after it."""
        self._release()
        return self._take()

    def _take(self) -> list[Finished]:
        finished, self._finished = self._finished, []
        return finished

    def _single(self, batch: Batch) -> int:
        """Returns how many of the first records have to be taken one by one."""
        steps = batch.steps
        if self.step is not None and steps[0] <= self.step:
            return int(np.searchsorted(steps, steps[0], "right"))
        series = {key: span for key, span in batch.series().items() if key[0] in STEADY}
        last = self._last
        if self._recent is not None:
            known = [span.first_row for key, span in series.items() if key in last]
            first = min(known, default=len(batch) - 1)
            if first or self._recent:
                return first + 1
            self._recent = None  # the first record decides
        if len(last) + sum(key not in last for key in series) > self._most_series:
            return len(batch)
        back = [
            span.first_row
            for key, span in series.items()
            if last.get(key, span.first_step) > span.first_step
        ]
        return max(back) + 1 if back else 0

    def _pass(self, batch: Batch) -> None:
        """Takes records after the current step in which no series goes back."""
        self._release()
        self._passed.clear()
        self.step = int(batch.steps[-1])
        for key, span in batch.series().items():
            if key[0] in STEADY:
                self._last[key] = span.last_step
                if self._restarts:
                    self._since[key] = self._restarts[-1][0]
        before = int(batch.steps.searchsorted(self.step))
        if before:
            self._finished.append(batch.part(0, before))
        for record in batch.part(before, len(batch)).records():
            self._hold(record, record.values)

    def _add(self, record: Record) -> None:
        """Takes the values of one record."""
        if not record.values:
            return
        step = record.step
        if step != self.step:
            self._release()
            self._passed.clear()
            if self._recent is None and self.step is not None and step < self.step:
                self._remember()
            self.step = step
        last = self._last
        taken = []
        is_known = False
        trained = step != 0 or not all(value.tag.startswith(EVALUATION) for value in record.values)
        for recorded in record.values:
            kind, tag, _, _ = recorded
            if len(tag) > LONGEST_TAG:
                self._report.problem(record.path, record.offset, _too_long(tag))
                continue
            if kind in STEADY:
                reached = last.get((kind, tag))
                if reached is None and len(last) >= self._most_series:
                    what = (
                        f"a tag beyond the first {self._most_series:,} of the run; skipped: {tag!r}"
                    )
                    self._report.problem(record.path, record.offset, what)
                    continue
                if not trained and reached is not None and reached > 0:
                    self._report.note(
                        f"run {printable(self._run)}: an evaluation is recorded at step 0, by a "
                        "process that trained nothing; it is left out of the series (`rec-summary "
                        "lineage` shows it)"
                    )
                    continue
                is_known |= reached is not None
                if reached is not None and reached > step and self._is_in_force(kind, tag, reached):
                    self._go_back(record)
                last[kind, tag] = step
                if self._restarts:
                    self._since[kind, tag] = self._restarts[-1][0]
            taken.append(recorded)
        if is_known:
            self._recent = None
        elif self._recent is not None:
            self._recent.update({(*value[:2], step): value for value in taken})
            self._recent_bytes += record.nbytes
            if self._recent_bytes > _HELD_BYTES:
                self._remember()
        self._hold(record, taken)

    def _hold(self, record: Record, values: Iterable[Recorded]) -> None:
        """Holds values of a record of the current step."""
        held = self._held
        for recorded in values:
            key = recorded[:2]
            if self._passed and self._comes_again(key, recorded):
                continue
            if held.pop(key, None) is not None:
                self._report.repeated += 1
            held[key] = recorded
        self._held_bytes += record.nbytes
        if len(held) > _HELD_VALUES or self._held_bytes > _HELD_BYTES:
            self._release()

    def state(self) -> BufferState:
        """Returns what a later buffer needs to continue. Call `flush` first."""
        passed = [(*series, checksum) for series, checksum in self._passed.items()]
        last = [
            (*series, step)
            for series, step in self._last.items()
            if self._is_in_force(*series, step)
        ]
        return BufferState(self.step, passed, last)

    def _go_back(self, record: Record) -> None:
        step = record.step
        if not self._has_gone_back:
            self._has_gone_back = True
            self._report.note(
                f"run {printable(self._run)}: steps go back (first from "
                f"{max(self._last.values())} to {step}); TensorBoard shows the later values from "
                "there on"
            )
        # What is held has this step too, so it was recorded after the steps went back.
        again = [
            value
            for value in (self._recent or {}).values()
            if value.origin.step >= step and self._held.get(value[:2]) is not value
        ]
        again.sort(key=lambda value: value.origin.offset)
        self._recent = None
        number = self._restarts[-1][0] + 1 if self._restarts else 1
        while self._restarts and self._restarts[-1][1] >= step:
            self._restarts.pop()  # this restart supersedes all that the earlier one does
        self._restarts.append((number, step))
        new = [*again, *self._held.values()]
        origin = new[0].origin if new else record
        self._finished.append(Restart(step, origin, list(_records(again))))

    def _is_in_force(self, kind: str, tag: str, reached: int) -> bool:
        """Whether no restart has superseded the last step of a series.

        Of the restarts since, the first one in the list went back furthest, so it alone is
        compared: a file may have very many series, and go back with every record.
        """
        since = self._since.get((kind, tag), 0)
        index = bisect.bisect_right(self._restarts, (since, _INFINITE))
        return index == len(self._restarts) or reached <= self._restarts[index][1]

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

    def _remember(self) -> None:
        """Begins to remember values, unless there are none that a restart could supersede."""
        self._recent = {} if self._last else None
        self._recent_bytes = 0

    def _release(self) -> None:
        self._finished.extend(_records(self._held.values()))
        self._held.clear()
        self._held_bytes = 0


def _records(values: Iterable[Recorded]) -> Iterator[Record]:
    for record, group in itertools.groupby(values, lambda value: value.origin):
        yield record.of(list(group))


def _too_long(tag: str) -> str:
    return f"a tag of {len(tag):,} characters; at most {LONGEST_TAG:,} can be shown; skipped"


def _checksum(recorded: Recorded) -> int:
    return zlib.crc32(recorded.value.SerializeToString(deterministic=True))
