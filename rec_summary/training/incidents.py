"""The batches that broke a training: the last ones are kept, and written when something happens.

The training thread keeps references to the Tensors of each batch. It looks at losses when a later
step has ended, so that it never waits. It reads and drops several at once: the first one takes ten
times as long as the next ones. Another thread reads the batches and writes them.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import math
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary.arrays import Array
from rec_summary.checks import check_elements, check_int, check_that, check_type
from rec_summary.errors import three_part, verbatim
from rec_summary.metrics.hashing import without_objects
from rec_summary.records.failures import Troubles
from rec_summary.records.incidents import (
    IncidentBatch,
    RecordedIncident,
    bytes_of_incidents,
    incident_path,
    write_incident,
)
from rec_summary.records.writing.background import Limits, TaskQueue
from rec_summary.records.writing.record import MessageRecord, Record, Task
from rec_summary.training.recorder import Recorder
from rec_summary.training.tensors import as_array, as_number

INCIDENT: Final = "incident"
"""The kind of a note that says where an incident was written, and of all failures."""

_TOGETHER: Final = 16  # losses that are judged at once
_LATE_SECS: Final = 0.05  # the longest time until then, where a step takes less
_PAST: Final = 512  # losses
_LEAST_PAST: Final = 128
_EVERY: Final = 64  # losses from one look at the past to the next
_DEVIATION: Final = 1.4826  # of a normal distribution, by its median absolute deviation
_LEAST_DEVIATION: Final = 1e-3  # of the median: a loss may hardly move

_SMALLEST: Final = 1e-300  # above 0

_LOSS: Final = "loss"
_SPIKE: Final = "spike"
_GRADIENTS: Final = "gradients"
_COLUMNS: Final = "a list of names of columns of the data set, or of their positions"

Column = str | int


@dataclass(frozen=True)
class Incident:
    """What is kept of the last batches, for `SummaryCollector(incident=Incident())`.

    They are written to `incidents/rank_<r>_step_<n>.npz` in the record directory when the loss is
    not finite, when it rises far above its own past, when a gradient is not finite (if
    `SummaryCollector(gradients=...)` measures the step), and when `rec-summary control --incident`
    asks for it. `rec_summary.load_incident` reads them. They are data of users: by default, a
    collector keeps and writes nothing.

    Attributes:
        batches: The number of batches that are written; at most 16 more are in memory.
        most_bytes: The most bytes of the batches in memory; the oldest are dropped. What is being
            written, and waits for it, takes at most twice as much besides.
        budget_bytes: The most bytes of all incident files in the record directory: those that are
            there when training begins, and those of this rank. Nothing is deleted.
        columns: The columns of the data set that are kept, by name or position; None for all.
        hashed: The columns of which only hashes are written, by name or position: equal values of
            a training have equal hashes. The key is random and is stored nowhere.
        loss_z: How many deviations a loss is above the median of the 512 before, from where on this
            is an incident. The deviation is the median absolute one, scaled to a normal
            distribution. None for never.
        least_steps: The least number of steps between two incidents of the same reason.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    batches: int = 50
    most_bytes: int = 256 << 20
    budget_bytes: int = 1 << 30
    columns: Sequence[Column] | None = None
    hashed: Sequence[Column] = ()
    loss_z: float | None = 12.0
    least_steps: int = 1000

    def __post_init__(self) -> None:
        """Checks the options."""
        for name in ("batches", "most_bytes", "budget_bytes", "least_steps"):
            check_int(name, getattr(self, name))
        for name in ("columns", "hashed"):
            if getattr(self, name) is not None:
                values = check_elements(name, getattr(self, name), (str, int), _COLUMNS)
                object.__setattr__(self, name, values)
        check_type("hashed", self.hashed, tuple, _COLUMNS)
        check_type("loss_z", self.loss_z, (int, float, type(None)), "a number or None")
        if self.loss_z is not None:
            check_that(0 < self.loss_z < math.inf, "loss_z", self.loss_z, "a number above 0")


class _Batch(NamedTuple):
    """A batch that is kept: Tensors that never change, or arrays with their own memory."""

    step: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    nbytes: int


class Incidents:
    """Keeps the last batches of a training, and writes them."""

    def __init__(
        self,
        options: Incident,
        names: Sequence[str],
        lasting: type | None,
        rank: int,
        recorder: Recorder,
        troubles: Troubles,
    ) -> None:
        """Begins with no batch; it starts no thread before the first incident.

        Args:
            options: What is kept.
            names: The names of the data set's columns; none if they are not available.
            lasting: The type of the values that never change; others are copied. None for none.
            rank: The rank of this process.
            recorder: Has the record directory, and receives the notes.
            troubles: Receives every failure.
        """
        self._options = options
        self._names = [*names]
        self._lasting = lasting
        self._rank = rank
        self._recorder = recorder
        self._troubles = troubles
        self._room = options.budget_bytes - bytes_of_incidents(recorder.directory)
        self._queued = 0  # bytes
        self._unused = 0  # of these; only the queue's thread changes it
        self._chosen: list[int] | None = None  # positions; None until the first batch
        self._hashed: list[int] = []
        self._key = secrets.token_bytes(32)
        self._is_off = False
        self._kept: collections.deque[_Batch] = collections.deque()
        self._nbytes = 0
        self._measured = self._unmeasured = 0  # bytes of a batch; batches until the next one
        self._losses: list[tuple[int, Any]] = []  # with their steps; not yet judged
        self._judged = 0.0  # when, in monotonic seconds
        self._past = _Past(options.loss_z)
        self._broken = dict.fromkeys((_LOSS, _GRADIENTS), False)  # is not finite at this time
        self._taken: dict[str, int] = {}  # the last step of each reason
        self._queue: TaskQueue | None = None

    def add(self, step: int, inputs: Any, outputs: Any) -> None:
        """Keeps the batch of a step that has ended, and judges earlier losses.

        Args:
            step: The step.
            inputs: Its columns, Tensors or arrays; None if they are not known.
            outputs: What the network has returned for it.
        """
        if self._is_off:
            return
        now = time.monotonic()
        if len(self._losses) >= _TOGETHER or now - self._judged >= _LATE_SECS:
            self._judged = now
            self.judge()
            while len(self._kept) > self._options.batches:
                self._drop()
        columns = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        if self._chosen is None and not self._choose(None if inputs is None else len(columns)):
            return
        assert self._chosen is not None
        chosen = self._own([columns[position] for position in self._chosen])
        results = self._own(outputs if isinstance(outputs, (list, tuple)) else (outputs,))
        nbytes = self._bytes_of(chosen, results)
        most = self._options.most_bytes
        if nbytes <= most:
            while self._nbytes + nbytes > most:
                if self._losses and self._kept[0].step >= self._losses[0][0]:
                    self.judge()
                self._drop()
            self._kept.append(_Batch(step, chosen, results, nbytes))
            self._nbytes += nbytes
        else:
            expected = f"at most most_bytes={most:,}, or fewer columns"
            self._troubles.report(INCIDENT, three_part("the bytes of a batch", nbytes, expected))
        if results:
            self._losses.append((step, results[0]))

    def judge(self) -> None:
        """Looks at all losses so far, once each; it waits for that of a step that is not done."""
        losses, self._losses = self._losses, []
        for step, value in losses:
            try:
                self._judge(step, as_number(value, "the loss"))
            except (TypeError, ValueError) as error:  # the network returns none
                self._troubles.report(INCIDENT, error)

    def _judge(self, step: int, loss: float) -> None:
        if math.isfinite(loss):
            self._broken[_LOSS] = False
            if (words := self._past.judged(loss)) is not None:
                self._take_once(_SPIKE, step, words)
            return
        # Gradients that are not finite break the loss of the next step.
        is_known = self._broken[_LOSS] or self._taken.get(_GRADIENTS, -2) >= step - 1
        self._broken[_LOSS] = True
        if not is_known:
            self._take_once(_LOSS, step, f"the loss is {loss}")

    def add_gradients(self, step: int, share: float) -> None:
        """Looks at the gradients of the last step.

        Args:
            step: The step.
            share: The share of their elements that is not finite.
        """
        if share > 0:
            self.judge()
        is_known = self._broken[_GRADIENTS] or self._broken[_LOSS]
        self._broken[_GRADIENTS] = share > 0
        if share > 0 and not is_known:
            self._take_once(_GRADIENTS, step, f"{100 * share:.3g} % of the gradients is not finite")

    def ask(self) -> None:
        """Writes the batches up to the last step, because somebody asks for it.

        Raises:
            ValueError: There are none, or no room for them.
        """
        self._take(self._kept[-1].step if self._kept else 0, "asked for")

    def close(self) -> None:
        """Waits until everything is written. Twice is allowed."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        self._kept.clear()
        self._losses.clear()
        self._nbytes, self._is_off = 0, True

    def _drop(self) -> None:
        self._nbytes -= self._kept.popleft().nbytes

    def _own(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns values that never change: Tensors on the host as they are, else copies."""
        lasting = self._lasting
        for value in values:
            if type(value) is not lasting:
                parts = _flat(values)
                return tuple([v if type(v) is lasting else _copy(v) for v in parts])
        return tuple(values)

    def _bytes_of(self, *values: tuple[Any, ...]) -> int:
        """Returns the bytes of a batch; of small ones, only each 16th is measured."""
        # A Tensor takes as long to say its size as all the rest.
        self._unmeasured -= 1
        if self._unmeasured < 0 or self._measured > self._options.most_bytes >> 8:
            self._unmeasured = _TOGETHER - 1
            self._measured = sum([value.nbytes for part in values for value in part])
        return self._measured

    def _take_once(self, kind: str, step: int, reason: str) -> None:
        if step - self._taken.get(kind, -math.inf) >= self._options.least_steps:
            self._taken[kind] = step
            with self._troubles.attempt(INCIDENT):
                self._take(step, reason)

    def _take(self, step: int, reason: str) -> None:
        """Queues the batches up to a step; raises ValueError without any, or without room."""
        batches = [batch for batch in self._kept if batch.step <= step][-self._options.batches :]
        nbytes = sum(batch.nbytes for batch in batches)
        expected = "at least one batch: it needs a step, without data sink"
        check_that(batches, "an incident", verbatim("no batch"), expected)
        room = max(self._room - self._queued + self._unused, 0)
        expected = f"at most {room:,}, the rest of budget_bytes: move older files away"
        check_that(nbytes <= room, "the bytes of an incident", nbytes, expected)
        self._queued += nbytes
        if self._queue is None:
            # What waits takes memory, and a training waits for no disk.
            limits = Limits(tasks=8, nbytes=2 * self._options.most_bytes, block_secs=0)
            self._queue = TaskQueue(self._troubles, limits, take=self._recorder.write)
        run = functools.partial(self._write, batches, nbytes, step, reason, time.time())
        self._queue.put(Task(INCIDENT, run, nbytes))

    def _choose(self, count: int | None) -> bool:
        """Finds the positions of the columns; returns whether all that are named exist."""
        options = self._options
        try:
            if count is None:
                received = verbatim("no batches")
                expected = "a training without data sink, with rec_summary.RecModel or Model"
                raise ValueError(three_part("what callbacks receive", received, expected))
            self._names = self._names if len(self._names) == count else [*map(str, range(count))]
            self._hashed = [self._position(column) for column in options.hashed]
            chosen = range(count) if options.columns is None else options.columns
            self._chosen = [self._position(column) for column in chosen]
        except ValueError as error:  # ids that are to be hashed must not be written as they are
            self._is_off = True
            self._troubles.report(INCIDENT, f"{error} No batches are kept")
        return not self._is_off

    def _position(self, column: Column) -> int:
        number = len(self._names)
        if column in self._names:
            return self._names.index(str(column))
        expected = f"one of {', '.join(self._names)}, or a position from 0 to {number - 1}"
        is_position = isinstance(column, int) and -number <= column < number
        check_that(is_position, "a column of incident", column, expected)
        return int(column) % number

    def _write(
        self, batches: Sequence[_Batch], nbytes: int, step: int, reason: str, wall_time: float
    ) -> Record | None:
        """Writes batches; returns the record of a note about it. The queue's thread calls this."""
        hashes: dict[Any, int] = {}
        path = incident_path(self._recorder.directory, self._rank, step)
        names = tuple(self._names[position] for position in self._hashed)
        content = tuple(self._read(batch, hashes) for batch in batches)
        facts = (names, wall_time, version("rec_summary"))
        self._unused += nbytes
        self._unused -= write_incident(RecordedIncident(path, step, reason, content, *facts))
        event = LineageEvent(wall_time=wall_time, step=step)
        name = os.path.relpath(path, self._recorder.directory)  # it may be moved with the records
        event.note.text, event.note.kind = f"{reason}: {name}", INCIDENT
        return MessageRecord(event)

    def _read(self, batch: _Batch, hashes: dict[Any, int]) -> IncidentBatch:
        assert self._chosen is not None
        inputs = {}
        for position, value in zip(self._chosen, batch.inputs, strict=True):
            name = self._names[position]
            with self._troubles.attempt(f"{INCIDENT}: column {name}"):
                array = without_objects(as_array(value, name))
                if position in self._hashed:
                    array = self._hashes_of(array, hashes)
                inputs[name] = array
        outputs = tuple(as_array(value, "an output") for value in batch.outputs)
        loss = math.nan
        with contextlib.suppress(TypeError, ValueError):  # reported when it was judged
            loss = as_number(outputs[0], "the loss") if outputs else loss
        return IncidentBatch(batch.step, inputs, outputs, loss)

    def _hashes_of(self, array: Array, known: dict[Any, int]) -> Array:
        """Returns a keyed hash of 64 bits of each value; equal values have equal ones."""
        values, places = np.unique(array, return_inverse=True)
        hashes = np.zeros(len(values), np.uint64)
        for number, value in enumerate(values.tolist()):
            text = repr(value)
            if text not in known:
                digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=8).digest()
                known[text] = int.from_bytes(digest, "little")
            hashes[number] = known[text]
        return hashes[places].reshape(array.shape)


class _Past:
    """The last losses, and how far the next one may be above them."""

    def __init__(self, most_z: float | None) -> None:
        self._most_z = most_z
        self._losses: collections.deque[float] = collections.deque(maxlen=_PAST)
        self._count = 0
        self._median = self._deviation = 0.0
        self._most = math.inf

    def judged(self, loss: float) -> str | None:
        """Adds a loss; returns words if it is far above those before it."""
        words = None
        if loss > self._most:
            z = (loss - self._median) / self._deviation
            words = (
                f"the loss is {loss:.4g}, {z:.0f} deviations above its median {self._median:.4g}"
            )
        self._losses.append(loss)
        self._count += 1
        if self._count >= _LEAST_PAST and not self._count % _EVERY and self._most_z is not None:
            losses = np.fromiter(self._losses, np.float64)
            self._median = _middle(losses)
            deviation = _DEVIATION * _middle(np.abs(losses - self._median))
            self._deviation = max(deviation, _LEAST_DEVIATION * abs(self._median), _SMALLEST)
            self._most = self._median + self._most_z * self._deviation
        return words


def _middle(values: Array) -> float:
    """Returns the upper median: `np.median` takes seven times as long."""
    middle = len(values) // 2
    return float(np.partition(values, middle)[middle])


def _copy(value: object) -> Array:
    return np.array(as_array(value, "a column or an output"))


def _flat(parts: Sequence[Any]) -> Iterator[Any]:
    """Yields the outputs of a network; those of a list or tuple among them one by one."""
    for part in parts:
        if isinstance(part, (list, tuple)):
            yield from _flat(part)
        elif part is not None:
            yield part
