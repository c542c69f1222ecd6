"""Changing a running training's telemetry from outside.

The writer's thread looks for requests and checks them; the training thread applies them at a
step. Options are never changed: those in force are the options of the code with the changes that
last, one after another, and they are replaced as a whole.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rec_summary._pb import lineage_pb2
from rec_summary.records.control import FileVersion, Request, read_requests, version_of
from rec_summary.records.failures import Troubles
from rec_summary.training.session.options import SessionOptions

CONTROL: Final = "control"
"""The kind of a note that says what was changed from outside."""


@dataclass(frozen=True)
class ActiveSettings:
    """Settings that are in force.

    Attributes:
        settings: The new values, by name.
        until: The first step at which they are no longer in force; infinite for none.
    """

    settings: Mapping[str, Any]
    until: float


@dataclass(frozen=True)
class Applied:
    """What happens at a step: a request is applied or refused, or a change ends.

    Attributes:
        request: The request; None if a change ends.
        text: What was done, in a line.
        refusal: Why it was refused; None if it was not.
    """

    request: Request | None
    text: str
    refusal: str | None = None

    def note(self, step: int) -> lineage_pb2.LineageEvent:
        """Returns the record that says so in the lineage."""
        request = self.request
        text = self.text if self.refusal is None else f"refused: {self.refusal}"
        event = lineage_pb2.LineageEvent(wall_time=time.time(), step=step)
        event.note.text = text
        event.note.kind = CONTROL
        if request is not None:
            event.note.author = request.author
            event.note.request = request.id
            if request.note and self.refusal is None:
                event.note.kind = request.note_kind
                if request.note_step is not None:
                    event.step = request.note_step
        return event


class Control:
    """The requests to one training, and the options in force.

    Attributes:
        options: The options in force.
        requested_stop: A request to stop at the next step, if it has waited for a second.
    """

    def __init__(self, options: SessionOptions, troubles: Troubles) -> None:
        """Begins with the options of the code.

        Args:
            options: These options.
            troubles: Receives every file that cannot be used.
        """
        self.options = self._base = options
        self.requested_stop: Request | None = None
        self._troubles = troubles
        self._directory: str | None = None
        self._version: FileVersion | None = None
        self._known: set[str] = set()  # the ids of requests
        # The writer's thread appends to it, and the training thread takes from it.
        self._arrived: collections.deque[tuple[Request, str | None]] = collections.deque()
        self._waiting: list[tuple[Request, str | None]] = []  # until their step
        self._changes: list[ActiveSettings] = []
        self._next = math.inf  # the next step of a request, or at which a change is over

    def begin(self, directory: str) -> None:
        """Watches a directory from now on. The requests in it are for an earlier training."""
        self._directory = directory
        self._version = version_of(directory)
        if self._version is not None:
            with self._troubles.attempt("control"):
                self._known.update(request.id for request in read_requests(directory))

    def reset(self) -> None:
        """Returns to the options of the code: all requests so far were for an earlier training."""
        self.options = self._base
        self._arrived.clear()
        self._waiting, self._changes, self._next = [], [], math.inf

    def poll(self) -> None:
        """Checks for new requests; the writer's thread calls this."""
        # Ranks that stop at different steps would wait for each other for ever.
        stops = (
            request
            for request, refusal in list(self._arrived)
            if "stop" in request.actions and request.at_step is None and refusal is None
        )
        self.requested_stop = next(stops, None)
        if self._directory is None:
            return
        version = version_of(self._directory)
        if version == self._version:
            return
        self._version = version
        with self._troubles.attempt("control"):
            for request in read_requests(self._directory):
                if request.id not in self._known:
                    self._known.add(request.id)
                    self._arrived.append((request, self._refusal(request)))

    def _refusal(self, request: Request) -> str | None:
        """Returns why a request is refused."""
        try:
            self._base.changed(request.settings)
        except (TypeError, ValueError) as error:
            self._troubles.report("control", error)
            return str(error)
        return None

    def is_due(self, step: int) -> bool:
        """Whether `apply` has something to do at a step."""
        return bool(self._arrived) or step >= self._next

    def apply(self, step: int, is_first: bool = False) -> list[Applied]:
        """Applies what is due at a step, and replaces the options in force.

        Args:
            step: The step.
            is_first: Whether it is the first of its run, which is always recorded.

        Returns:
            What is done; the caller does the actions of its requests.
        """
        before, due = self.options.shown(), self._take_due(step)
        over = [change for change in self._changes if change.until <= step]
        self._changes = [change for change in self._changes if change.until > step]
        for request, refusal in due:
            if refusal is None and "reset" in request.actions:
                self._changes = []
            if refusal is None and request.settings:
                self._changes.append(ActiveSettings(request.settings, _until(request, step)))
        self.options = self._base
        for change in self._changes:
            self.options = self.options.changed(change.settings)
        freq = self.options.collect_freq
        recorded = step if is_first else step + -step % freq
        ends = (change.until for change in self._changes)
        begins = (request.at_step or 0 for request, _ in self._waiting)
        self._next = min([*ends, *begins], default=math.inf)
        return [
            *self._ended(over, before),
            *(
                Applied(request, _text(request, step, recorded, freq), refusal)
                for request, refusal in due
            ),
        ]

    def _take_due(self, step: int) -> list[tuple[Request, str | None]]:
        """Returns the requests that are due at a step; the others wait."""
        while self._arrived:
            self._waiting.append(self._arrived.popleft())
        due = [arrived for arrived in self._waiting if (arrived[0].at_step or 0) <= step]
        self._waiting = [arrived for arrived in self._waiting if arrived not in due]
        return due

    def _ended(self, over: list[ActiveSettings], before: dict[str, str]) -> list[Applied]:
        """Returns which options have another value than before, as changes are over."""
        shown = self.options.shown()
        values = [
            f"{name} is {shown[name]} again"
            for name in sorted({name for change in over for name in change.settings})
            if shown[name] != before[name]
        ]
        return [Applied(None, ", ".join(values))] if values else []

    def in_force(self) -> dict[str, str]:
        """Returns the values of all settings as text, and how long they last."""
        shown = self.options.shown()
        settings = dict(shown)
        for change in self._changes:
            lasting = f" until step {change.until:,.0f}" if change.until < math.inf else ""
            settings |= {name: f"{shown[name]}{lasting} (changed)" for name in change.settings}
        return settings


def _text(request: Request, step: int, recorded: int, freq: int) -> str:
    """Returns what a request does, in a line.

    Args:
        request: The request.
        step: The step at which it is applied.
        recorded: The first recorded step from there on.
        freq: The `collect_freq` in force.
    """
    parts = []
    if request.settings:
        words = {True: "on", False: "off"}
        settings = ", ".join(
            f"{name} {words[value] if isinstance(value, bool) else value}"
            for name, value in request.settings.items()
        )
        until = _until(request, step)
        parts = [settings if until == math.inf else f"until step {until:,.0f}: {settings}"]
        if {"histograms", "tensors"} & request.settings.keys() and recorded >= until:
            parts[0] += f" (none of these steps is recorded: collect_freq is {freq})"
    parts += [f"lineage {name}={value}" for name, value in request.lineage.items()]
    parts += [request.note] if request.note else []
    text = "; ".join([*parts, *request.actions])
    late = step - request.at_step if request.at_step is not None else 0
    return text if late <= 0 else f"{text} ({late} steps late: it was meant for all ranks)"


def _until(request: Request, step: int) -> float:
    """Returns the step at which the settings of a request are over; the same on all ranks."""
    first = step if request.at_step is None else request.at_step
    return math.inf if request.steps is None else first + request.steps
