"""One value for each tag and step: the last one."""

from __future__ import annotations

import bisect
import itertools
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from rec_summary.series.limits import LONGEST_TAG, MOST_SERIES
from rec_summary.series.report import Tally
from rec_summary.series.words import printable

_INFINITE: Final = 1 << 64  # more than any step
_HELD_VALUES: Final = 4096
_HELD_BYTES: Final = 1 << 24
_STEADY: Final = frozenset(("scalar_value", "histogram"))  # recorded step by step

State = dict[str, Any]
"""What a later export needs to go on where this one stopped; JSON can hold it."""


class Origin(NamedTuple):
    """The record that a value comes from.

    Attributes:
        path: The record file.
        offset: Where in it the record begins, in bytes.
        wall_time: When it was written, in seconds since the epoch; finite.
    """

    path: str
    offset: int
    wall_time: float


class Recorded(NamedTuple):
    """A value as it was recorded: its kind, its tag, the protobuf that holds it, its record."""

    kind: str
    tag: str
    value: Any
    origin: Origin


class StepBuffer:
    """Holds the values of the step at hand until the next step begins.

    MindSpore records a step twice when an epoch ends there. TensorBoard's default loader
    shows the later value, its other loader both; so here the later one wins before either
    sees them. Memory is bounded: a step with more than 4096 values or 16 MiB is passed on
    in parts, and repetitions across these are left for TensorBoard to settle.

    A live export cannot wait for the next step: `pause` passes on what is held, and what
    comes again afterwards is dropped if it is the same, and passed on if it is not.

    A series of scalars or histograms whose steps go back means that training was started
    again, from a checkpoint or from the beginning: what was recorded from there on is
    superseded. Other kinds, such as landscapes, may be recorded at any time for any step.
    """

    def __init__(
        self,
        run: str,
        tally: Tally,
        emit: Callable[[int, list[Recorded]], None],
        restart: Callable[[int, Origin], None],
    ) -> None:
        """Begins with no step.

        Args:
            run: The run's name, for the notes.
            tally: Told of repetitions.
            emit: Takes a step and values of one record of that step.
            restart: Told of a step from which training went on again, and of its record.
        """
        self._run = run
        self._tally = tally
        self._emit = emit
        self._restart = restart
        self._step: int | None = None
        self._last: dict[tuple[str, str], int] = {}  # the last step of each series
        self._since: dict[tuple[str, str], int] = {}  # the restart before it, by number
        self._restarts: list[tuple[int, int]] = []  # number and step; both ascend
        self._has_gone_back = False
        self._held: dict[tuple[str, str], Recorded] = {}
        self._held_bytes = 0
        self._passed: dict[tuple[str, str], int] = {}  # checksums of what `pause` passed on

    @property
    def step(self) -> int | None:
        """The step at hand."""
        return self._step

    def add(self, step: int, nbytes: int, values: list[Recorded]) -> None:
        """Takes the values of one record of `nbytes` bytes."""
        if step != self._step:
            self._flush()
            self._passed.clear()
            self._step = step
        last = self._last
        taken = []
        for recorded in values:
            kind, tag, _, origin = recorded
            if len(tag) > LONGEST_TAG:
                what = f"a tag of {len(tag):,} characters; at most {LONGEST_TAG:,} can be shown"
                self._tally.problem(origin.path, origin.offset, f"{what}; skipped")
                continue
            if kind in _STEADY:
                reached = last.get((kind, tag))
                if reached is None and len(last) >= MOST_SERIES:
                    what = f"a tag beyond the first {MOST_SERIES:,} of the run; skipped: {tag!r}"
                    self._tally.problem(origin.path, origin.offset, what)
                    continue
                if reached is not None and reached > step and self._is_in_force(kind, tag, reached):
                    self._go_back(step, origin)
                last[kind, tag] = step
                if self._restarts:
                    self._since[kind, tag] = self._restarts[-1][0]
            taken.append(recorded)
        held = self._held
        for recorded in taken:
            key = recorded[:2]
            if self._passed and self._comes_again(key, recorded):
                continue
            if held.pop(key, None) is not None:
                self._tally.repeated += 1
            held[key] = recorded
        self._held_bytes += nbytes
        if len(held) > _HELD_VALUES or self._held_bytes > _HELD_BYTES:
            self._flush()

    def leave_for(self, step: int) -> bool:
        """Passes on what is held if the next record is of a higher step; tells whether it is."""
        if self._step is None or step <= self._step:
            return False
        self._flush()
        return True

    def can_pass(self, firsts: Mapping[tuple[str, str], int]) -> bool:
        """Whether records that follow can be passed on without being looked at one by one.

        `leave_for` comes before it.

        Args:
            firsts: The first step of each of their series.
        """
        return all(
            self._last.get(series, _INFINITE) <= first
            for series, first in firsts.items()
            if series[0] in _STEADY
        )

    def pass_by(self, step: int, lasts: Mapping[tuple[str, str], int]) -> None:
        """Takes note of records that are passed on by somebody else, after `leave_for`.

        Args:
            step: The last step of them.
            lasts: The last step of each of their series.
        """
        self._passed.clear()
        self._step = step
        steady = {series: last for series, last in lasts.items() if series[0] in _STEADY}
        self._last.update(steady)
        if self._restarts:
            self._since.update(dict.fromkeys(steady, self._restarts[-1][0]))

    def pause(self) -> None:
        """Passes on what is held, and remembers it."""
        for key, recorded in self._held.items():
            self._passed[key] = _checksum(recorded)
        self._flush()

    def state(self) -> State:
        """Returns what `restore` needs. To be called after `pause`."""
        passed = [[*series, checksum] for series, checksum in self._passed.items()]
        last = [
            [*series, step]
            for series, step in self._last.items()
            if self._is_in_force(*series, step)
        ]
        return {"step": self._step, "passed": passed, "last": last}

    def restore(self, state: State) -> None:
        """Goes on where another buffer was."""
        self._step = state["step"]
        self._passed = {(kind, tag): checksum for kind, tag, checksum in state["passed"]}
        self._last = {(kind, tag): step for kind, tag, step in state["last"]}

    def _go_back(self, step: int, origin: Origin) -> None:
        if not self._has_gone_back:
            self._has_gone_back = True
            self._tally.note(
                f"run {printable(self._run)}: steps go back (first from "
                f"{max(self._last.values())} to {step}); TensorBoard shows the later values from "
                "there on"
            )
        self._flush()
        number = self._restarts[-1][0] + 1 if self._restarts else 1
        while self._restarts and self._restarts[-1][1] >= step:
            self._restarts.pop()  # what that one supersedes, this one does
        self._restarts.append((number, step))
        self._restart(step, origin)

    def _is_in_force(self, kind: str, tag: str, reached: int) -> bool:
        """Whether no restart has superseded the last step of a series.

        Of the restarts since, the first one listed went back furthest. Nothing is looked at but
        that one: a file may have very many series, and go back with every record.
        """
        since = self._since.get((kind, tag), 0)
        index = bisect.bisect_right(self._restarts, (since, _INFINITE))
        return index == len(self._restarts) or reached <= self._restarts[index][1]

    def _comes_again(self, key: tuple[str, str], recorded: Recorded) -> bool:
        """Whether a value has been passed on already; counts it if there was any."""
        checksum = self._passed.pop(key, None)
        if checksum is None:
            return False
        self._tally.repeated += 1
        if checksum != _checksum(recorded):
            return False
        self._passed[key] = checksum
        return True

    def _flush(self) -> None:
        held = self._held.values()
        for _, group in itertools.groupby(held, lambda recorded: recorded.origin):
            assert self._step is not None  # something is held
            self._emit(self._step, list(group))
        self._held.clear()
        self._held_bytes = 0


def too_long(tag: str) -> str:
    """Returns what is told of a tag that is too long."""
    return f"a tag of {len(tag):,} characters; at most {LONGEST_TAG:,} can be shown; skipped"


def _checksum(recorded: Recorded) -> int:
    return zlib.crc32(recorded.value.SerializeToString(deterministic=True))
