"""Mergeable states: the base class of all metrics, and the checks of stored arrays.

A rank updates a state with batches. States of several ranks or windows are merged, stored as named
arrays, and read by methods that change nothing. Merging is exact: the result does not depend on
the order of merging or on how the stream is split. There are three exceptions. `ScoreOrder` of more
scores than fit has an error, with a bound. The sample of `IdFrequency` depends on the split. The
sums of `Decayed` windows of different lengths are rounded. `RowNorms` is stored, and never merged.
A restarted run therefore continues where it stopped, and every rank that merges the same states
gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array, Arrays, Floats
from rec_summary.checks import LARGEST, check_int, plain_array
from rec_summary.errors import three_part

if TYPE_CHECKING:
    from typing_extensions import Self


_kinds: dict[str, type[State]] = {}  # by the names of the classes


class State:
    """A mergeable state, described by the names of its attributes.

    A subclass names its settings, its sums and its parts. Settings must be equal in states that
    are merged, and are the arguments of a restored state. Sums (ints and arrays of numbers of at
    least 0) are added. A part is a state, or states by key. An attribute is stored under its name
    without the leading underscore. A subclass with other contents extends the methods.
    """

    _settings: ClassVar[tuple[str, ...]] = ()
    _sums: ClassVar[tuple[str, ...]] = ()
    _parts: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, is_base: bool = False) -> None:
        """Lets `restore` find the class by its name, unless it is only a base of others."""
        super().__init_subclass__()
        if not is_base:
            _kinds[cls.__name__] = cls

    def merge(self, other: Self) -> None:
        """Adds the contents of `other` in place; exact, commutative and associative.

        Raises:
            ValueError: The settings of the two states differ. Nothing is changed.
        """
        self.check_mergeable(other)
        self._add(other)

    def check_mergeable(self, other: State) -> None:
        """Checks that `other` has the same class and settings.

        Raises:
            ValueError: The class or a setting differs.
        """
        check_same("The kind", type(self).__name__, type(other).__name__)
        for name in self._settings:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, np.ndarray):
                mine, theirs = mine.tolist(), theirs.tolist()
            check_same(f"The setting {name.lstrip('_')}", mine, theirs)
        for name in self._parts:
            mine, theirs = _by_key(getattr(self, name)), _by_key(getattr(other, name))
            for key in mine.keys() & theirs.keys():
                mine[key].check_mergeable(theirs[key])

    def copy(self) -> Self:
        """Returns an independent copy."""
        new = object.__new__(type(self))
        vars(new).update({name: _copied(value) for name, value in vars(self).items()})
        return new

    def arrays(self) -> dict[str, Array]:
        """Returns settings and contents as named arrays, to be stored."""
        arrays = {
            name.lstrip("_"): to_array(getattr(self, name)) for name in self._settings + self._sums
        }
        for name in self._parts:
            for key, part in _by_key(getattr(self, name)).items():
                arrays.update(nested(name.lstrip("_") + (key and f".{key}"), part.arrays()))
        return arrays

    def seal(self) -> None:
        """Makes the state as small as it can be, because no more examples are expected."""
        for part in self._states_of_parts():
            part.seal()

    def shorten(self) -> None:
        """Prepares a copy to be read: leaves out what would take long and changes nothing much."""
        for part in self._states_of_parts():
            part.shorten()

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the state that `arrays` returned these arrays for.

        Raises:
            ValueError: An array is missing, has another type or shape, or is impossible.
        """
        return cls._restored(Stored(arrays))

    @classmethod
    def _restored(cls, arrays: Stored) -> Self:
        """Returns the state of stored arrays; the class checks its settings."""
        settings = {name: arrays.setting(name) for name in (n.lstrip("_") for n in cls._settings)}
        try:
            state = cls(**settings)
        except TypeError as error:
            expected = "those of a stored state"
            raise ValueError(three_part("The settings of a state", settings, expected)) from error
        state._take_contents(arrays)
        return state

    def _add(self, other: Self) -> None:
        """Adds the contents of a state with the same settings."""
        for name in self._sums:
            total = getattr(self, name)
            total += getattr(other, name)
            setattr(self, name, total)
        for name in self._parts:
            join(_by_key(getattr(self, name)), _by_key(getattr(other, name)))

    def _states_of_parts(self) -> Iterator[Any]:
        """Yields the parts, and the states of those that are several."""
        for name in self._parts:
            yield from _by_key(getattr(self, name)).values()

    def _take_contents(self, arrays: Stored) -> None:
        """Replaces the sums and the parts of an empty state by stored ones."""
        for name in self._sums:
            stored, empty = name.lstrip("_"), getattr(self, name)
            if isinstance(empty, int):
                setattr(self, name, arrays.integer(stored))
            else:
                setattr(self, name, arrays.sums(stored, empty.dtype, empty.shape))
        for name in self._parts:
            part = arrays.part(name.lstrip("_"))
            setattr(self, name, type(getattr(self, name)).from_arrays(part))


@dataclass(frozen=True)
class Batch:
    """Examples of a batch, or rows of a sample: columns of one length.

    The fields of a subclass are the columns, each of shape (examples,). All but the first one may
    be None, where no example has a value.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(next(iter(self)))

    def cut(self, at: Any) -> Self:
        """Returns some of the examples: a slice, or their places."""
        return type(self)(*(None if column is None else column[at] for column in self))

    def copy(self) -> Self:
        """Returns an independent copy."""
        return type(self)(*(None if column is None else column.copy() for column in self))


class ColumnBatch(NamedTuple):
    """A batch for states that prepare nothing: the positional arguments of their ``update``.

    Attributes:
        columns: Arrays with one entry for each example along the first axis, or None.
    """

    columns: tuple[Array | None, ...]

    @classmethod
    def of(cls, *columns: Any) -> ColumnBatch:
        """Returns a batch.

        Raises:
            ValueError: The columns differ in length.
        """
        arrays = tuple(None if column is None else plain_array(column) for column in columns)
        sizes = {array.shape[:1] for array in arrays if array is not None}
        if len(sizes) != 1 or () in sizes:
            raise ValueError(three_part("columns", sorted(sizes), "arrays of one length"))
        return cls(arrays)

    @property
    def size(self) -> int:
        """The number of examples."""
        return next(len(column) for column in self.columns if column is not None)

    def cut(self, at: Any) -> ColumnBatch:
        """Returns some of the examples: a slice, or their places."""
        return ColumnBatch(tuple(None if column is None else column[at] for column in self.columns))


def split(batch: Any, starts: Sequence[int]) -> list[Any]:
    """Returns the parts of a batch for `count_part`.

    Args:
        batch: `ColumnBatch`, or what the ``prepare`` of a state returned.
        starts: Where each part begins, the first one at 0; none is empty.
    """
    if hasattr(batch, "split"):  # it does the work of all parts at once
        return list(batch.split(starts))
    ends = [*starts[1:], batch.size]
    return [batch.cut(slice(*part)) for part in zip(starts, ends, strict=True)]


def count_part(state: Any, part: Any) -> None:
    """Counts a part of a batch: `ColumnBatch`, or what the ``prepare`` of the state returned."""
    if isinstance(part, ColumnBatch):
        state.update(*part.columns)
    else:
        state.count(part)


class Scalable(State, is_base=True):
    """A state that is a sum over examples, so that the weight of every example can be scaled."""

    def scale(self, factor: float) -> None:
        """Multiplies the weight of every example by `factor`, above 0, in place."""
        for part in self._states_of_parts():
            part.scale(factor)


StateT = TypeVar("StateT", bound=State)

MOST_WEIGHT: Final = 2.0**20
"""The largest weight of an example."""

_WEIGHT_UNIT: Final = 2.0**-20
_DEEPEST: Final = 32  # dots in the name of an array; a state within states has a few


def kind_of(state: State) -> str:
    """Returns the name of the class of a state, for `restore`."""
    return type(state).__name__


def restore(kind: str, arrays: Arrays) -> State:
    """Returns a state of a kind from its arrays.

    Raises:
        ValueError: There is no such kind, or the arrays do not fit it.
    """
    depth = max((name.count(".") for name in arrays), default=0)
    if depth > _DEEPEST:  # it would recurse as deep
        what = "The depth of the parts of a state"
        raise ValueError(three_part(what, depth, f"at most {_DEEPEST}"))
    if kind not in _kinds:
        expected = "a kind that this version of rec_summary records"
        raise ValueError(three_part("The kind of a state", kind, expected))
    return _kinds[kind].from_arrays(arrays)


def check_same(what: str, mine: object, theirs: object) -> None:
    """Checks that two states to be merged agree.

    Raises:
        ValueError: They differ.
    """
    if type(mine) is not type(theirs) or mine != theirs:
        raise ValueError(three_part(f"{what} of a state to merge", theirs, f"{mine!r}"))


def on_weight_grid(weights: Floats) -> Floats:
    """Rounds weights to multiples of 2**-20, so that float64 adds them without rounding.

    Sums up to 2**33 are exact in any order.
    """
    rounded: Floats = np.rint(weights / _WEIGHT_UNIT) * _WEIGHT_UNIT
    return rounded


def join(states: dict[Any, StateT], others: Mapping[Any, StateT]) -> None:
    """Merges states into those of the same key, in place."""
    for key, other in others.items():
        if key in states:
            states[key]._add(other)
        else:
            states[key] = other.copy()


def _by_key(part: Any) -> dict[Any, Any]:
    """Returns the states of a part by key; a single state has the empty one."""
    return part if isinstance(part, dict) else {"": part}


_COPIED: Final = (State, np.ndarray, list)  # a union would be made for each value


def _copied(value: object) -> Any:
    """Returns an independent copy of the contents of a state; elements of lists never change."""
    if isinstance(value, _COPIED):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value


def to_array(value: object) -> Array:
    """Returns a setting or a sum as an array to be stored; ints become int64."""
    return np.array(value, np.int64 if isinstance(value, int) else None)


class Stored(dict[str, Array]):
    """The stored arrays of a state; what they give is checked."""

    def setting(self, name: str) -> Any:
        """Returns a number or a list of numbers, which the class of the state checks.

        Raises:
            ValueError: The array is missing, or has anything but finite numbers.
        """
        array = self._named(name)
        if array.dtype.kind not in "if" or not np.isfinite(array).all():
            raise ValueError(three_part(f"The array {name!r} of a state", array, "finite numbers"))
        return array.tolist()

    def take(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: tuple[int | None, ...] = (),
        *,
        finite: bool = True,
    ) -> Array:
        """Returns a copy of one of the arrays.

        Args:
            name: The name of the array.
            dtype: The required dtype; strings of any length are one dtype.
            shape: The required shape; None stands for any size.
            finite: Whether floats must be finite.

        Raises:
            ValueError: The array is missing, has another dtype or shape, or is not finite.
        """
        array = self._named(name)
        wanted = np.dtype(dtype)
        what = f"The array {name!r} of a state"
        same_type = array.dtype == wanted or array.dtype.kind == wanted.kind == "U"
        if not same_type or not (
            array.ndim == len(shape)
            and all(want in (None, size) for size, want in zip(array.shape, shape, strict=True))
        ):
            received = f"{array.dtype} of shape {array.shape}"
            raise ValueError(three_part(what, received, f"{wanted} of shape {shape}"))
        if finite and wanted.kind == "f" and not np.isfinite(array).all():
            raise ValueError(three_part(what, array, "finite numbers"))
        return array.copy()

    def sums(self, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]) -> Array:
        """Returns an array of counts or weights, none of them below 0.

        Raises:
            ValueError: The array is anything else.
        """
        array = self.take(name, dtype, shape)
        if (array < 0).any():
            raise ValueError(three_part(f"The array {name!r} of a state", array, "nothing below 0"))
        return array

    def integer(self, name: str, low: int = 0, high: int = LARGEST) -> int:
        """Returns an int from `low` to `high`.

        Raises:
            ValueError: The array is anything else.
        """
        return check_int(
            f"The array {name!r} of a state", int(self.take(name, np.int64)), low, high
        )

    def optional(self, name: str) -> int | None:
        """Returns an int that `optional_array` stored.

        Raises:
            ValueError: The array is anything else.
        """
        ints = self.take(name, np.int64, (None,)).tolist()
        if len(ints) > 1:
            raise ValueError(three_part(f"The array {name!r} of a state", ints, "one int or none"))
        return int(ints[0]) if ints else None

    def part(self, name: str) -> Stored:
        """Returns the arrays of a part, which `nested` put under `name`."""
        start = f"{name}."
        return Stored(
            {key[len(start) :]: array for key, array in self.items() if key.startswith(start)}
        )

    def _named(self, name: str) -> Array:
        if name not in self:
            raise ValueError(three_part("The arrays of a state", sorted(self), f"{name!r} in them"))
        return np.asarray(self[name])


def optional_array(value: int | None) -> Array:
    """Returns an optional int as an array of one number or none."""
    return np.array([] if value is None else [value], np.int64)


def nested(prefix: str, arrays: Arrays) -> dict[str, Array]:
    """Returns the arrays of a part, with `prefix` and a dot before every name."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}
