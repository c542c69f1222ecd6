"""What every metric of this room keeps: a small state that merges, separate from its reading.

A state is updated on one rank, merged over ranks or windows, stored as named arrays by somebody
else, and read by methods that change nothing. Merging is exact: the result does not
depend on the order or on how the data was split, so a restarted run goes on where it was and
every rank that merges the same states gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@runtime_checkable
class State(Protocol):
    """A mergeable state."""

    def merge(self, other: Self) -> None:
        """Adds what `other` has seen; exact, commutative and associative; in place.

        Raises:
            ValueError: The settings of the two differ.
        """

    def copy(self) -> Self:
        """Returns a state of its own with the same settings and contents."""

    def arrays(self) -> dict[str, Array]:
        """Returns settings and contents as named arrays, for storage by somebody else."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the state that `arrays` describes.

        Raises:
            ValueError: Something is missing, of a wrong shape, or impossible.
        """


@runtime_checkable
class Scalable(State, Protocol):
    """A state that is a sum over examples, so that every example can count less."""

    def scale(self, factor: float) -> None:
        """Multiplies the weight of everything seen by `factor`, which is above 0; in place."""


StateT = TypeVar("StateT", bound=State)
StateClass = TypeVar("StateClass", bound=type[State])

_kinds: dict[str, type[State]] = {}


def register(cls: StateClass) -> StateClass:
    """Makes a class of states known by its name, so that windows over it can be restored."""
    _kinds[cls.__name__] = cls
    return cls


def kind_of(state: State) -> str:
    """Returns the name under which the class of `state` is registered.

    Raises:
        ValueError: It is not registered.
    """
    name = type(state).__name__
    if _kinds.get(name) is not type(state):
        raise ValueError(three_part("The class of a state", name, "one marked with `register`"))
    return name


def restore(kind: str, arrays: Mapping[str, Array]) -> State:
    """Makes the state of the registered class `kind` that `arrays` describes.

    Raises:
        ValueError: No such class, or the arrays are not of it.
    """
    if kind not in _kinds:
        raise ValueError(three_part("The kind of a state", kind, f"one of {sorted(_kinds)}"))
    return _kinds[kind].from_arrays(arrays)


def same_settings(name: str, mine: object, other: object) -> None:
    """Refuses to merge states with different settings.

    Raises:
        ValueError: They differ.
    """
    if mine != other:
        raise ValueError(three_part(f"The {name} of a state to merge", other, f"{mine!r}"))


def positive_int(name: str, value: object, least: int = 1) -> int:
    """Returns `value` as an int of at least `least`.

    Raises:
        ValueError: It is not one.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(three_part(name, value, f"an int of at least {least}"))
    return int(value)


def checked_factor(factor: float) -> float:
    """Returns a factor to scale a state with.

    Raises:
        ValueError: It is not a finite number above 0.
    """
    if not 0 < factor < float("inf"):
        raise ValueError(three_part("factor", factor, "a finite number above 0"))
    return float(factor)


def take(
    arrays: Mapping[str, Array],
    name: str,
    dtype: npt.DTypeLike,
    shape: tuple[int | None, ...] = (),
) -> Array:
    """Returns a copy of one of the arrays of a state after checking it.

    Args:
        arrays: What `State.arrays` returned.
        name: Which.
        dtype: The dtype it must have; strings of any length are one dtype.
        shape: The shape that it must have, None where any size will do.

    Raises:
        ValueError: It is missing or of another dtype or shape, or a float is not finite.
    """
    if name not in arrays:
        raise ValueError(three_part("The arrays of a state", sorted(arrays), f"{name!r} in them"))
    array = np.asarray(arrays[name])
    wanted = np.dtype(dtype)
    fits = array.dtype == wanted or (array.dtype.kind == wanted.kind == "U")
    fits = fits and len(array.shape) == len(shape)
    fits = fits and all(
        want in (None, size) for size, want in zip(array.shape, shape, strict=False)
    )
    if not fits:
        received = f"{array.dtype} of shape {array.shape}"
        raise ValueError(
            three_part(f"The array {name!r} of a state", received, f"{wanted} of shape {shape}")
        )
    if wanted.kind == "f" and not np.isfinite(array).all():
        raise ValueError(three_part(f"The array {name!r} of a state", array, "finite numbers"))
    return array.copy()


def take_weights(
    arrays: Mapping[str, Array], name: str, shape: tuple[int | None, ...] = ()
) -> Floats:
    """Returns an array of float64 that are finite and at least 0.

    Raises:
        ValueError: It is anything else.
    """
    array = take(arrays, name, np.float64, shape)
    if (array < 0).any():
        raise ValueError(three_part(f"The array {name!r} of a state", array, "nothing below 0"))
    return array


def take_count(arrays: Mapping[str, Array], name: str, least: int = 0) -> int:
    """Returns one int64 of at least `least`.

    Raises:
        ValueError: It is anything else.
    """
    return positive_int(f"The array {name!r} of a state", int(take(arrays, name, np.int64)), least)


def nested(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Puts `prefix` and a dot before every name."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def unnested(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns what `nested` put under `prefix`."""
    start = f"{prefix}."
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}


def merged(states: Iterable[StateT], into: StateT) -> StateT:
    """Returns a copy of `into` with all `states` merged."""
    total = into.copy()
    for state in states:
        total.merge(state)
    return total
