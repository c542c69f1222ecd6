"""What the metrics of recommenders take from a step, on the training thread: copies, no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from mindspore import Tensor

from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.training.operators import Mailbox
from rec_summary.training.recommender.config import RecommenderMetrics, Source
from rec_summary.training.step_view import StepView
from rec_summary.training.tensors import Array, as_array, copy_of

PREDICTIONS: Final = "predictions"
LABELS: Final = "labels"
WEIGHTS: Final = "weights"
USERS: Final = "users"
EVENT_TIMES: Final = "event_times"
IDS: Final = "ids/"
FEATURES: Final = "features/"

_OF_OUTPUTS: Final = (PREDICTIONS, LABELS, WEIGHTS)
_TENSOR: Final = "tensor"
_SMALL: Final = 1 << 14  # bytes of a Tensor; a larger one is better read without a copy

NO_IDS: Final = np.zeros(0, np.int64)


class Batch:
    """One step.

    Attributes:
        values: What was taken, by place: arrays of its own, or Tensors that nobody changes.
        samples: How many examples it had.
        seconds: From the end of the step before to its end.
        waited: How much of that was waiting for data.
        now: When it was trained, in seconds since 1970.
        nbytes: About how much memory it holds.
    """

    __slots__ = ("nbytes", "now", "samples", "seconds", "values", "waited")

    def __init__(
        self, values: dict[Any, Any], samples: int, seconds: float, waited: float, now: float
    ) -> None:
        self.values = values
        self.samples = samples
        self.seconds = seconds
        self.waited = waited
        self.now = now
        self.nbytes = 512 + sum([value.nbytes for value in values.values()])

    def own(self) -> None:
        """Copies small outputs of a step that has ended, and lets go of their Tensors.

        A microsecond each; hundreds that are kept alive cost the network's memory, and a step
        time. What comes from the data set is not in that memory.
        """
        for place, value in self.values.items():
            small = place[0] == "output" and type(value) is Tensor and value.nbytes < _SMALL
            if small and value.is_contiguous():
                copy = copy_of(value)
                if copy is not None:
                    self.values[place] = copy

    def settle(self, troubles: Troubles) -> dict[Any, Array]:
        """Returns what was taken as arrays, which may be views of it."""
        found = {}
        for place, value in self.values.items():
            try:
                found[place] = value if type(value) is np.ndarray else as_array(value, "a value")
            except Exception as error:  # noqa: BLE001  # one place must not cost the others
                troubles.report(f"recommender metrics: {_name(place)}", error)
        return found


class Steps(NamedTuple):
    """Several steps, as arrays; those of `lengths` and what follows have one entry for a step.

    Attributes:
        arrays: What was taken, by place, all steps in a row. Not to be changed.
        lengths: How much of an array is of which step, by place.
        samples: How many examples it had.
        seconds: From the end of the step before to its end.
        waited: How much of that was waiting for data.
        now: When it was trained, in seconds since 1970.
    """

    arrays: dict[Any, Array]
    lengths: dict[Any, list[int]]
    samples: list[int]
    seconds: list[float]
    waited: list[float]
    now: list[float]


def join(batches: Sequence[Batch], places: Iterable[Any], troubles: Troubles) -> Steps:
    """Returns several steps, one or more; places that one of them lacks are left out."""
    arrays, lengths = {}, {}
    for place in places:
        values = [batch.values[place] for batch in batches if place in batch.values]
        if len(values) == len(batches):
            try:
                arrays[place], lengths[place] = _in_a_row(values)
            except Exception as error:  # noqa: BLE001  # one place must not cost the others
                troubles.report(f"recommender metrics: {_name(place)}", error)
    return Steps(
        arrays,
        lengths,
        [batch.samples for batch in batches],
        [batch.seconds for batch in batches],
        [batch.waited for batch in batches],
        [batch.now for batch in batches],
    )


def _in_a_row(values: list[Any]) -> tuple[Array, list[int]]:
    """Returns arrays or Tensors as one array, and how long each was."""
    last = as_array(values[-1], "a value")
    if len(values) > 1 and last.ndim and last.nbytes < _SMALL and type(values[0]) is Tensor:
        found = _small_tensors(values, last)
        if found is not None:
            return found
    several = [
        value if type(value) is np.ndarray else as_array(value, "a value") for value in values
    ]
    several = [each if each.ndim else each.reshape(1) for each in several]
    return np.concatenate(several), [len(each) for each in several]


def _small_tensors(tensors: list[Any], last: Array) -> tuple[Array, list[int]] | None:
    """Returns small Tensors that are alike as one array; None if they are not alike.

    numpy takes several microseconds for each Tensor, most of them for the name of its type, and
    their bytes a fraction of one. What computes them need not be waited for: it has ended, as
    the last one was read before.
    """
    shape, dtype = tensors[-1].shape, tensors[-1].dtype
    for each in tensors:
        alike = type(each) is Tensor and each.shape == shape and each.dtype is dtype
        if not alike or not each.is_contiguous():
            return None
    data = b"".join([each.get_bytes() for each in tensors])
    if len(data) != len(tensors) * last.nbytes:  # such as of bfloat16: numpy has no type for it
        return None
    found = np.frombuffer(data, last.dtype).reshape(-1, *last.shape[1:])
    return found, [len(last)] * len(tensors)


class Roles:
    """Which role of the metrics is at which place, and in which column there."""

    def __init__(self, options: RecommenderMetrics) -> None:
        """Reads the options."""
        self.of: dict[str, tuple[Any, int | None]] = {
            role: _split(source, role in _OF_OUTPUTS) for role, source in _sources(options)
        }
        self.places = list(dict.fromkeys(place for place, _ in self.of.values()))

    def column(self, role: str, arrays: dict[Any, Array]) -> Array | None:
        """Returns the array of a role; None if there is none.

        Raises:
            ValueError: The array has no such column.
        """
        if role not in self.of:
            return None
        place, column = self.of[role]
        array = arrays.get(place)
        if array is None or column is None:
            return array
        if array.ndim < 2 or not -array.shape[-1] <= column < array.shape[-1]:
            shape = verbatim(f"column {column} of shape {array.shape}")
            raise ValueError(three_part(role, shape, "a column of a matrix"))
        return array[..., column]


class Reader:
    """Finds the places in callback arguments."""

    def __init__(
        self, roles: Roles, columns: Sequence[str], troubles: Troubles, *, on_host: bool
    ) -> None:
        """Prepares the reading of a run.

        Args:
            roles: What is wanted.
            columns: The names of the data set's columns.
            troubles: Told of what cannot be read.
            on_host: Whether Tensors are in the memory of the host. Each step has new ones there,
                so they are kept as they are: to read one would wait for the step's end, and
                the training thread has better to do. What a device holds is copied at once.
        """
        self._on_host = on_host
        self._places = roles.places
        self._columns = {name: index for index, name in enumerate(columns)}
        self._troubles = troubles
        named = [name for kind, name in self._places if kind == "name"]
        # Only if it is wanted: it keeps a reference to the latest value of every operator.
        wanted = any(name not in self._columns for name in named)
        self._mailbox = Mailbox() if wanted else None

    def take(self, view: StepView) -> dict[Any, Any]:
        """Returns what can be read of the step that has ended, for a `Batch`."""
        inputs = _parts(view.get("train_dataset_element"))
        outputs = _parts(view.get("net_outputs"))
        operators = self._mailbox.take() if self._mailbox is not None else {}
        found = {}
        for place in self._places:
            kind, where = place
            try:
                if kind == "output":
                    value = _at(outputs, where, "outputs of the training network")
                elif kind == "input":
                    value = _at(inputs, where, "columns of the batch")
                elif kind == "call":
                    value = where(inputs, outputs)
                elif where in self._columns:
                    value = _at(inputs, self._columns[where], "columns of the batch")
                else:
                    value = self._operator(operators, where)
                if not (self._on_host and type(value) is Tensor):
                    # A copy: the array of a Parameter is a view of its live memory.
                    value = np.array(as_array(value, _name(place)))
                found[place] = value
            except Exception as error:  # noqa: BLE001  # one place must not cost the others
                self._troubles.report(f"recommender metrics: {_name(place)}", error)
        return found

    def close(self) -> None:
        """Leaves summary operators to others."""
        if self._mailbox is not None:
            self._mailbox.close()

    def _operator(self, operators: Any, tag: str) -> Any:
        value = operators.get((_TENSOR, tag))
        if value is None:
            tags = sorted(tag for kind, tag in operators if kind == _TENSOR)
            there = ", ".join([*self._columns, *tags]) or "there are none"
            expected = f"a column of the data set or the tag of a TensorSummary ({there})"
            raise ValueError(three_part("a name", tag, expected))
        return value


def column_names(dataset: Any) -> list[str]:
    """Returns the names of a data set's columns; none where they are not to be had."""
    try:
        return [str(name) for name in dataset.get_col_names()]
    except Exception:  # noqa: BLE001  # then places can be told by number
        return []


def _sources(options: RecommenderMetrics) -> Iterator[tuple[str, Source]]:
    for role in (PREDICTIONS, LABELS, WEIGHTS, USERS, EVENT_TIMES):
        source = getattr(options, role)
        if source is not None:
            yield role, source
    for start, sources in ((IDS, options.ids), (FEATURES, options.features)):
        for name, source in sources.items():
            yield start + name, source


def _split(source: Source, of_outputs: bool) -> tuple[Any, int | None]:
    place, column = source if isinstance(source, tuple) else (source, None)
    if isinstance(place, int):
        return ("output" if of_outputs else "input", place), column
    return ("name" if isinstance(place, str) else "call", place), column


def _parts(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _at(parts: tuple[Any, ...], index: int, what: str) -> Any:
    if not -len(parts) <= index < len(parts):
        expected = f"a position among the {len(parts)} {what}"
        if what.startswith("outputs"):
            expected += "; RecModel(..., keep_outputs=True) makes it return all of the network's"
        raise ValueError(three_part("a position", index, expected))
    return parts[index]


def _name(place: Any) -> str:
    kind, where = place
    return f"{kind} {getattr(where, '__name__', where)}"
