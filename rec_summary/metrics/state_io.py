"""Checks that the states of this room share: of settings, of stored arrays, of merging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.errors import three_part

Arrays = Mapping[str, npt.NDArray[Any]]

LARGEST: Final = 2**63 - 1


def check_int(what: str, value: object, low: int, high: int = LARGEST) -> int:
    """Returns `value` when it is an int from `low` to `high`.

    Raises:
        TypeError: It is no int.
        ValueError: It is out of range.
    """
    expected = f"an int from {low} to {high}" if high < LARGEST else f"an int of at least {low}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(three_part(what, value, expected))
    if not low <= value <= high:
        raise ValueError(three_part(what, value, expected))
    return int(value)


def check_seconds(what: str, value: object) -> float:
    """Returns `value` as a float when it is a finite number, not negative.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or not finite.
    """
    expected = "a finite number of seconds, at least 0"
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(three_part(what, value, expected))
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(three_part(what, value, expected))
    return float(value)


def check_same(what: str, ours: object, theirs: object) -> None:
    """Checks that two states to be merged have the same settings.

    Raises:
        ValueError: They differ.
    """
    if type(ours) is not type(theirs) or ours != theirs:
        raise ValueError(three_part(f"{what} of the state to be merged", theirs, repr(ours)))


def stored_array(
    arrays: Arrays, name: str, kinds: str, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """Returns an array that must be among the stored ones.

    Args:
        arrays: The stored arrays.
        name: Which one.
        kinds: The codes of numpy's kinds that are accepted, for example ``"iu"``.
        shape: Its shape; None stands for any size.

    Raises:
        ValueError: It is missing, or of another kind or shape.
    """
    expected = f"an array of kind {'|'.join(kinds)} and shape {shape}"
    if name not in arrays:
        raise ValueError(three_part(f"the stored array {name!r}", sorted(arrays), expected))
    found = np.asarray(arrays[name])
    fits = found.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, found.shape, strict=True)
    )
    if found.dtype.kind not in kinds or not fits:
        raise ValueError(
            three_part(f"the stored array {name!r}", f"{found.dtype} {found.shape}", expected)
        )
    return found


def stored_counts(arrays: Arrays, name: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """Returns a stored array of counts as a new int64 array.

    Raises:
        ValueError: It is missing, of another kind or shape, or a count is negative or beyond int64.
    """
    found = stored_array(arrays, name, "iu", shape)
    if found.size and not (int(found.min()) >= 0 and int(found.max()) <= LARGEST):
        raise ValueError(
            three_part(f"the stored array {name!r}", "a count out of range", "counts of int64")
        )
    return found.astype(np.int64)


def stored_int(arrays: Arrays, name: str, low: int = 0, high: int = LARGEST) -> int:
    """Returns a stored int.

    Raises:
        ValueError: It is missing, no int, or out of range.
    """
    return check_int(
        f"the stored array {name!r}", int(stored_array(arrays, name, "iu", ())), low, high
    )


def stored_float(arrays: Arrays, name: str) -> float:
    """Returns a stored float.

    Raises:
        ValueError: It is missing or no float.
    """
    return float(stored_array(arrays, name, "f", ()))


def maybe(value: int | None) -> npt.NDArray[Any]:
    """Returns how an int that may be absent is stored: as an array of one number or none."""
    return np.array([] if value is None else [value], np.int64)


def stored_maybe(arrays: Arrays, name: str) -> int | None:
    """Returns a stored int that may be absent.

    Raises:
        ValueError: It is missing, or no array of one int or none.
    """
    found = stored_array(arrays, name, "i", (None,))
    if found.size > 1:
        raise ValueError(
            three_part(f"the stored array {name!r}", found.tolist(), "one int or none")
        )
    return int(found[0]) if found.size else None


def with_prefix(prefix: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Returns the arrays of a part, named as they are in the arrays of the whole."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def of_prefix(prefix: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Returns the arrays of a part out of the arrays of the whole."""
    start = prefix + "."
    return {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}
