"""The inputs of a recommender's metrics: which there are, those of a step, and of several steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.columns import Feature, Source, columns_of
from rec_summary.training.recommender.config import RecommenderMetrics, slices_of, tasks_of
from rec_summary.training.recommender.importance import Visit
from rec_summary.training.tensors import as_array, small_copy

PREDICTIONS: Final = "predictions"
LABELS: Final = "labels"
WEIGHTS: Final = "weights"
USERS: Final = "users"
MASK: Final = "mask"
LISTS: Final = "lists"
SERVED: Final = "served"
EVENT_TIMES: Final = "event_times"
LABEL_TIMES: Final = "label_times"
IDS: Final = "ids/"
FEATURES: Final = "features/"
SLICES: Final = "slices/"

OF_TASK: Final = (PREDICTIONS, LABELS, WEIGHTS, USERS, LISTS, SERVED, MASK)
"""The inputs of each task."""

_OF_LABELS: Final = (LABELS, WEIGHTS, MASK)
_OF_OUTPUTS: Final = (PREDICTIONS, *_OF_LABELS)
_SMALL: Final = 1 << 14  # bytes of a Tensor; reading a larger one in place is faster than a copy

NO_IDS: Final = np.zeros(0, np.int64)


class StepInputs(NamedTuple):
    """The inputs of one step.

    Attributes:
        values: The inputs by place: arrays with their own memory, or Tensors that never change.
        samples: The number of examples in `values`.
        seconds: From the end of the previous step to the end of this one; NaN for the first step.
        waited: The part of `seconds` in which training waited for data; 0 if it is unknown.
        now: The time of the step, in seconds since 1970.
        steps: How many steps these are in all: with data sink, one call trains several, and the
            values are those of the last one.
        trained: The number of examples of all these steps; None if each has `samples`.
        visit: What passes before the step have predicted; None without passes.
    """

    values: dict[Any, Any]
    samples: int
    seconds: float
    waited: float
    now: float
    steps: int = 1
    trained: int | None = None
    visit: Visit | None = None

    @property
    def nbytes(self) -> int:
        """About how much memory the inputs take."""
        visited = 0 if self.visit is None else self.visit.nbytes
        return 512 + visited + sum([value.nbytes for value in self.values.values()])

    def own(self) -> None:
        """Replaces the small output Tensors of a finished step by copies, and releases them.

        Hundreds of live Tensors occupy the memory of the network, and slow down a step. Columns of
        the data set are in other memory.
        """
        for place, value in self.values.items():
            copy = small_copy(value, _SMALL) if place[0] == "output" else None
            if copy is not None:
                self.values[place] = copy


class Steps(NamedTuple):
    """The inputs of several steps.

    Attributes:
        arrays: The inputs by place, all steps concatenated. Do not change them.
        lengths: The length of each step's part of an array, by place.
        batches: The steps.
    """

    arrays: dict[Any, Array]
    lengths: dict[Any, list[int]]
    batches: Sequence[StepInputs]


def join(batches: Sequence[StepInputs], places: Iterable[Any], troubles: Troubles) -> Steps:
    """Returns steps. It leaves out a place that is missing in one of them."""
    arrays, lengths = {}, {}
    for place in places:
        values = [batch.values[place] for batch in batches if place in batch.values]
        if values and len(values) == len(batches):
            with troubles.attempt(trouble_kind(place)):
                arrays[place], lengths[place] = concatenated(values, place[0] != "input")
    return Steps(arrays, lengths, batches)


def concatenated(values: list[Any], may_be_outputs: bool) -> tuple[Array, list[int]]:
    """Returns arrays or Tensors as one array, and the length of each.

    Args:
        values: The arrays or Tensors.
        may_be_outputs: Whether rows may be padded, as those of the scores of all pairs of a batch.

    Raises:
        ValueError: Their rows differ in shape.
    """
    last = as_array(values[-1], "a value")  # waits until all of them are computed
    several = [*map(_read, values[:-1]), last]
    several = [array if array.ndim else array.reshape(1) for array in several]
    widths = {array.shape[1:] for array in several}
    if len(widths) > 1:
        if not may_be_outputs or any(a.ndim != 2 or a.dtype.kind != "f" for a in several):
            shapes = verbatim(" and ".join(map(str, sorted(widths))))
            expected = "the same in each step: pad the rows, or let a function return one dimension"
            raise ValueError(three_part("the shape of an example", shapes, expected))
        # The scores of all pairs of a batch, of which the last one may be smaller.
        (widest,) = max(widths)
        several = [
            np.pad(array, ((0, 0), (0, widest - array.shape[1])), constant_values=np.nan)
            for array in several
        ]
    return np.concatenate(several), [len(array) for array in several]


def _read(value: Any) -> Array:
    if type(value) is np.ndarray:
        return value
    copy = small_copy(value, _SMALL)
    return as_array(value, "a value") if copy is None else copy


class Roles:
    """The place of each input of the metrics, and its column there.

    Attributes:
        of: The place of each role, and its column or None.
        places: The places.
        predictions: Those of predictions.
        passed: Those of predictions, labels, weights and masks, which a pass without training has.
    """

    def __init__(self, options: RecommenderMetrics) -> None:
        """Reads the options."""
        self.of = dict(_places(options))
        self.places = list(dict.fromkeys(place for place, _ in self.of.values()))
        judged = [name for name, task in tasks_of(options).items() if task.kind != "retrieval"]
        self.predictions = [self.of[role_of(name, PREDICTIONS)][0] for name in judged]
        needed = [role_of(name, role) for name in judged for role in (PREDICTIONS, *_OF_LABELS)]
        self.passed = list(dict.fromkeys(self.of[role][0] for role in needed if role in self.of))

    def column(self, role: str, arrays: dict[Any, Array]) -> Array | None:
        """Returns the array of a role; None if there is none.

        Raises:
            ValueError: The array does not have the column.
        """
        if role not in self.of:
            return None
        place, column = self.of[role]
        array = arrays.get(place)
        if array is None or column is None:
            return array
        if array.ndim < 2 or not -array.shape[-1] <= column < array.shape[-1]:
            shape = verbatim(f"column {column} of shape {array.shape}")
            columns = f"from 0 to {array.shape[-1] - 1}" if array.ndim > 1 else "of a matrix"
            raise ValueError(three_part(role, shape, f"a column {columns}"))
        return array[..., column]

    def lengths(self, role: str, steps: Steps) -> list[int]:
        """Returns the length of each step's part of the array of a role."""
        return steps.lengths[self.of[role][0]]


def role_of(task: str, role: str) -> str:
    """Returns the role of a task's input; those of the unnamed task (empty) are plain."""
    return f"{role} of {task}" if task else role


def _places(options: RecommenderMetrics) -> Iterator[tuple[str, tuple[Any, int | None]]]:
    """Yields the place and the column of each role."""
    for name, task in tasks_of(options).items():
        for role in OF_TASK:
            source = getattr(task, role)
            if source is not None:
                yield role_of(name, role), _split(source, role in _OF_OUTPUTS)
    for role in (EVENT_TIMES, LABEL_TIMES):
        if getattr(options, role) is not None:
            yield role, _split(getattr(options, role), False)
    slices = {name: slice_.column for name, slice_ in slices_of(options).items()}
    features = {
        name: feature.column
        for name, feature in columns_of("features", options.features, Feature).items()
    }
    for start, sources in ((IDS, options.ids), (FEATURES, features), (SLICES, slices)):
        for name, source in sources.items():
            yield start + name, _split(source, False)


def _split(source: Source, of_outputs: bool) -> tuple[Any, int | None]:
    place, column = source if isinstance(source, tuple) else (source, None)
    if isinstance(place, int):
        return ("output" if of_outputs else "input", place), column
    return ("name" if isinstance(place, str) else "call", place), column


def name_of(place: Any) -> str:
    """Returns what a place is called in a message, such as `input 0`."""
    kind, where = place
    name = getattr(where, "__name__", where)
    code = getattr(where, "__code__", None)
    if name == "<lambda>" and code is not None:  # there may be several
        name += f" in line {code.co_firstlineno}"
    return f"{kind} {name}"


def trouble_kind(place: Any) -> str:
    """Returns the kind of the troubles of a place."""
    return f"recommender metrics: {name_of(place)}"
