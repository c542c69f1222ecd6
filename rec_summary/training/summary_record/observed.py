"""The columns that a loop of your own shows to the metrics of recommenders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import check_that
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.importance import Importance, Predict
from rec_summary.training.recommender.inputs import Roles, concatenated
from rec_summary.training.tensors import as_array

_OBSERVE: Final = "observe"
_ARRAY: Final = "an array in the memory of the host, such as a NumPy array or a CPU tensor"

_MOST_BYTES: Final = 64 << 20  # of the batches of a step

Batch = tuple[dict[str, Array], int]
"""Columns by name, and the number of examples."""

Step = tuple[list[Batch], int]
"""The batches of a step, and the number of examples that were trained since the last such step."""


class Observed:
    """Checks and copies columns, and passes them on by place."""

    def __init__(self, roles: Roles, importance: Importance | None, troubles: Troubles) -> None:
        """Prepares.

        Args:
            roles: The inputs of the metrics.
            importance: What predicts batches; None for nothing.
            troubles: Receives the mistakes of all batches but the first.

        Raises:
            ValueError: An input has another place than the name of a column, or nothing predicts.
        """
        self._troubles = troubles
        self._roles = roles
        self._predict = None if importance is None else importance.predict
        if importance is not None:
            expected = "a function that predicts, in a loop of your own"
            check_that(self._predict is not None, "predict of importance", None, expected)
        self._is_checked = False
        for role, (place, _) in roles.of.items():
            expected = "the name of a column that `observe` is called with"
            check_that(place[0] == "name", f"recommender: {role}", place[1], expected)
        self._names = frozenset(where for _, where in roles.places)

    def copied(self, columns: Mapping[str, Any]) -> Batch | None:
        """Returns a batch with its own memory; None if it has a mistake, which is counted.

        Raises:
            TypeError, ValueError: The first batch has a mistake.
        """
        is_first, self._is_checked = not self._is_checked, True
        try:
            return self._copied(columns)
        except Exception as error:  # another framework's array may raise anything
            if is_first:
                raise
            self._troubles.report(_OBSERVE, error)
            return None

    def _copied(self, columns: Mapping[str, Any]) -> Batch:
        # Further columns are for passes.
        is_complete = columns.keys() >= self._names if self._predict else False
        if not is_complete and columns.keys() != self._names:
            received = verbatim(f"columns {', '.join(sorted(columns)) or 'none'}")
            expected = f"columns {', '.join(sorted(self._names))}"
            raise ValueError(three_part("a batch of observe", received, expected))
        values = {name: value for name, value in columns.items() if name in self._names}
        copies = {
            name: value.copy() if type(value) is np.ndarray and value.ndim else _copy(name, value)
            for name, value in values.items()
        }
        lengths = {name: len(array) for name, array in copies.items()}
        if len({*lengths.values()}) > 1:
            received = verbatim(", ".join(f"{name} {n}" for name, n in lengths.items()))
            expected = "as many rows as examples in each"
            raise ValueError(three_part("a batch of observe", received, expected))
        return copies, next(iter(lengths.values()), 0)

    def has_room(self, batches: list[Batch], batch: Batch) -> bool:
        """Returns whether a step can have a further batch; reports it if not."""
        nbytes = sum(array.nbytes for array in batch[0].values())
        if (len(batches) + 1) * nbytes <= _MOST_BYTES or not batches:
            return True
        text = "a step has too many batches to hold: call `record` after each step"
        self._troubles.report("recommender metrics: examples not counted", text, batch[1])
        return False

    def examples(self, step: Step) -> int:
        """Returns the number of examples of a step."""
        return sum(count for _, count in step[0])

    def trained(self, step: Step) -> int:
        """Returns the number of examples since the last step that had batches."""
        return step[1]

    def take(self, step: Step) -> dict[Any, Array]:
        """Returns the columns of all batches of a step, by place.

        Raises:
            ValueError: The rows of a column differ in shape.
        """
        values = {}
        for name in self._names:
            column, _ = concatenated([columns[name] for columns, _ in step[0]], True)
            # Texts of pandas are objects.
            values["name", name] = column.astype(str) if column.dtype.hasobject else column
        return values

    def batch(self, columns: Mapping[str, Any]) -> ObservedBatch:
        """Returns a batch for passes.

        Raises:
            TypeError: A column is no array.
        """
        assert self._predict is not None
        arrays = {name: as_array(value, f"the column {name}") for name, value in columns.items()}
        return ObservedBatch(arrays, self._predict, self._roles, self._names)

    def close(self) -> None:
        """Does nothing: nothing is held."""


class ObservedBatch:
    """A batch of a loop of your own, for `Passes`."""

    shapes = None

    def __init__(
        self, arrays: dict[str, Array], predict: Predict, roles: Roles, named: frozenset[str]
    ) -> None:
        """Takes a batch.

        Args:
            arrays: All columns by name.
            predict: Predicts them.
            roles: The inputs of the metrics.
            named: The columns that the metrics have.
        """
        self._arrays = arrays
        self._predict = predict
        self._roles = roles
        self.columns = {name: name for name in arrays if name not in named}

    def find(self, place: int | str) -> str:
        """Returns the name of a column.

        Raises:
            ValueError: There is no such column.
        """
        if not isinstance(place, str) or place not in self._arrays:
            expected = f"a column that `observe` is called with: {', '.join(self._arrays)}"
            raise ValueError(three_part("a feature of importance", place, expected))
        return place

    def read(self, column: str) -> Array:
        """Returns the values of a column."""
        return self._arrays[column]

    def score(self, replaced: Mapping[str, Array]) -> dict[Any, Array]:
        """Returns predictions, labels, weights and masks by place.

        Raises:
            TypeError: The function returns no array.
            ValueError: It does not return the predictions of each task.
        """
        arrays = {**self._arrays, **replaced}
        predictions = self._roles.predictions
        found = self._predict(arrays)
        if not isinstance(found, Mapping):
            found = {predictions[0][1]: found}
        needed = dict.fromkeys(where for _, where in predictions)
        if not found.keys() >= needed.keys():
            names = ", ".join(needed)
            received = verbatim(", ".join(map(str, found)) or "nothing")
            raise ValueError(three_part("what predict returns", received, f"a dict with {names}"))
        scored = {place: as_array(found[place[1]], "predictions") for place in predictions}
        return {place: arrays[place[1]] for place in self._roles.passed} | scored


def _copy(name: str, value: Any) -> Array:
    """Returns a copy of an array of any framework, of at least one dimension."""
    try:
        if not (hasattr(value, "asnumpy") or hasattr(value, "__array__")):
            value = np.from_dlpack(value)
        array = np.array(as_array(value, name))
    except Exception as error:
        received = verbatim(f"{type(value).__name__} ({error})")
        raise TypeError(three_part(f"the column {name}", received, _ARRAY)) from error
    check_that(array.ndim, f"the column {name}", verbatim("one number"), "one row per example")
    return array
