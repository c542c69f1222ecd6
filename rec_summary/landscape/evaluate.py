"""Losses at points of a plane, evaluated in this process, in worker processes or on a cluster."""

from __future__ import annotations

import functools
import socket
import threading
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from rec_summary.arrays import Array, Floats
from rec_summary.engines.engine import Engine
from rec_summary.engines.units import run_units
from rec_summary.errors import RecSummaryError, three_part, verbatim
from rec_summary.landscape.store import read_plane

_AT_ONCE: Final = 1 << 20  # numbers
_MOST_BLOCKS: Final = 128  # of points: none of them takes long


class ModelError(RecSummaryError):
    """The user's model cannot be created or evaluated."""


class Model(Protocol):
    """A model with a loss.

    Attributes:
        samples: How many samples the loss is of.
    """

    samples: int

    def set(self, name: str, value: Array) -> None:
        """Sets a parameter in place."""

    def loss(self) -> float:
        """Returns the mean loss over the samples, with the current parameters."""


class ModelFactory(Protocol):
    """Creates the model in each process."""

    @property
    def fingerprint(self) -> str:
        """A text that differs if the losses differ: for example of the samples."""

    def __call__(self, device: int | None) -> Model:
        """Returns the model, on a device; None stands for the default device."""


@dataclass(frozen=True)
class EvaluationTask:
    """The task of the workers.

    Attributes:
        make: Creates the model, once in each process.
        folder: The store with the plane. Workers on other machines must have access to it.
        devices: The devices for the workers, one each; empty on a CPU.
        token: Names the computation: a function that is sent by value never equals itself.
    """

    make: ModelFactory
    folder: str
    devices: tuple[int, ...] = ()
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


def evaluate(
    task: EvaluationTask,
    points: Floats,
    indices: Sequence[int],
    engine: Engine,
) -> Iterator[tuple[list[int], list[float], int]]:
    """Yields indices and losses of points in blocks, in any order, and the number of samples.

    The loss of a point does not depend on the engine, because points are evaluated one by one.

    Args:
        task: The model and the plane.
        points: The coordinates of all points, shape (points, 2).
        indices: The points to evaluate.
        engine: The engine.

    Raises:
        ModelError: The model cannot be created or evaluated.
        EngineError: The engine is not installed, or cannot be reached.
        WorkerError: Workers cannot do it, or were killed and killed again.
    """
    work = functools.partial(_evaluate_block, task)
    count = len(indices) if engine.name == "sequential" else min(len(indices), _MOST_BLOCKS)
    blocks = [block.tolist() for block in np.array_split(np.asarray(indices), max(count, 1))]
    units = [(block, points[block]) for block in blocks if block]
    shared = [("the directory of the landscape's points", task.folder)]
    kept = "points that are finished are kept"
    for outcome in run_units(engine, work, units, kept=kept, shared=shared):
        if outcome.error is not None:
            raise outcome.error
        yield outcome.result


def _evaluate_block(
    task: EvaluationTask, unit: tuple[list[int], Floats]
) -> tuple[list[int], list[float], int]:
    indices, points = unit
    with _lock:
        if not _evaluators or _evaluators[0].task.token != task.token:
            _evaluators.clear()
            _evaluators.append(_Evaluator(task))
        evaluator = _evaluators[0]
        return indices, [evaluator.at(float(x), float(y)) for x, y in points], evaluator.samples


_evaluators: list[_Evaluator] = []  # of this process: at most one, as a model may be large
_lock = threading.Lock()  # the threads of a worker share the model and its parameters


def forget() -> None:
    """Releases the model and the device that this process keeps for further points."""
    with _lock:
        _evaluators.clear()


class _Evaluator:
    """A model on a plane. The plane is memory-mapped; only the model is in memory."""

    def __init__(self, task: EvaluationTask) -> None:
        self.task = task
        self._origin, self._first, self._second = read_plane(task.folder)
        try:
            device, claim = _claim_device(task)
            if claim is not None:
                weakref.finalize(self, claim.close)
            self._model = task.make(device)
            for name, value in self._origin.items():
                self._model.set(name, np.asarray(value))
            self.samples = self._model.samples
        except RecSummaryError:
            raise
        except Exception as error:
            expected = "a function that returns a model with the checkpoints' parameters"
            raise _model_error("the model of the landscape", error, expected) from error

    def at(self, x: float, y: float) -> float:
        for name in self._first:
            self._model.set(name, self._point(name, x, y))
        try:
            return float(self._model.loss())
        except Exception as error:
            expected = "a model that can be evaluated on its data"
            raise _model_error(f"the loss at ({x:g}, {y:g})", error, expected) from error

    def _point(self, name: str, x: float, y: float) -> Array:
        """Returns a parameter at a point; only one chunk at a time is in float64."""
        origin, first, second = self._origin[name], self._first[name], self._second[name]
        value = np.empty(origin.shape, origin.dtype)
        flat = [array.reshape(-1) for array in (value, origin, first, second)]
        for start in range(0, origin.size, _AT_ONCE):
            here = slice(start, start + _AT_ONCE)
            part = flat[1][here].astype(np.float64)
            part += x * flat[2][here].astype(np.float64)
            part += y * flat[3][here].astype(np.float64)
            flat[0][here] = part
        return value


def _model_error(what: str, error: Exception, expected: str) -> ModelError:
    """Returns what to raise where the user's model has raised an error."""
    received = verbatim(f"{type(error).__name__}: {error}")
    return ModelError(three_part(what, received, expected))


def _claim_device(task: EvaluationTask) -> tuple[int | None, socket.socket | None]:
    """Returns a device of this host that no other worker has, and a socket that claims it.

    The socket has a name in the kernel (`man 7 unix`), which only one socket of a host can have. It
    is closed when its process ends, whatever ends it, and needs no file system with locks.

    Where there are fewer devices than workers, they share the first one.
    """
    for device in task.devices:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0rec_summary-{task.token}-{device}")
        except OSError:  # another worker has the device
            claim.close()
            continue
        return device, claim
    return task.devices[0] if task.devices else None, None
