"""Checks of single arguments. Each raises with the three-part text and returns the valid value."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.errors import three_part, verbatim

LARGEST: Final = 2**63 - 1


def check_that(
    holds: object, name: str, value: object, expected: str, error: type[Exception] = ValueError
) -> None:
    """Raises an error of three parts unless a condition holds.

    Args:
        holds: The condition.
        name: What is invalid otherwise.
        value: What was received.
        expected: What is accepted.
        error: The class of the error.
    """
    if not holds:
        raise error(three_part(name, value, expected))


def check_type(name: str, value: object, types: Any, expected: str) -> Any:
    """Returns the value; raises TypeError if it is not one of `types`. A bool is not an int."""
    wanted = types if isinstance(types, tuple) else (types,)
    # True is an int to Python, but a caller that passes True does not mean 1.
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise TypeError(three_part(name, value, expected))
    return value


def check_optional(name: str, value: object, kind: type) -> Any:
    """Returns an object of a public class of this package, or None.

    Raises:
        TypeError: It has another type.
    """
    expected = f"a rec_summary.{kind.__name__} or None"
    return check_type(name, value, (kind, type(None)), expected)


def check_entries(
    name: str, value: object, checks: Mapping[str, Callable[[str, Any], Any]]
) -> dict[str, Any]:
    """Returns the checked entries of a dictionary; none for None.

    Args:
        name: The name of the argument.
        value: The dictionary.
        checks: For each key, the function that checks a value. It receives the entry's name.

    Raises:
        TypeError: It is not a dictionary, or a key is not a str.
        ValueError: A key is unknown.
        Exception: Whatever a check raises.
    """
    entries = check_type(name, value, (Mapping, type(None)), "a dict or None") or {}
    for key in entries:
        check_type(f"a key of {name}", key, str, "a str")
        check_that(key in checks, f"a key of {name}", key, f"one of {', '.join(checks)}")
    return {key: checks[key](f"{name}[{key!r}]", entry) for key, entry in entries.items()}


def check_bool(name: str, value: object) -> bool:
    """Returns a bool.

    Raises:
        TypeError: It is not a bool.
    """
    return bool(check_type(name, value, bool, "a bool"))


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Returns a str that is one of `choices`.

    Raises:
        TypeError: It is not a str.
        ValueError: It is another one.
    """
    expected = f"one of {', '.join(map(repr, choices))}"
    check_that(check_type(name, value, str, expected) in choices, name, value, expected)
    return str(value)


def check_choice_or_none(name: str, value: object, choices: Sequence[str]) -> str | None:
    """Returns a str that is one of `choices`, or None; raises as `check_choice` does."""
    return None if value is None else check_choice(name, value, choices)


def check_elements(name: str, values: Any, types: Any, expected: str) -> tuple[Any, ...]:
    """Returns a list or tuple as a tuple; raises TypeError if an element is not one of `types`."""
    for element in check_type(name, values, (list, tuple), expected):
        check_type(name, element, types, expected)
    return tuple(values)


def check_part_of_tag(name: str, value: str) -> None:
    """Raises ValueError if a str cannot be one part of a tag."""
    expected = "letters, digits, '_', '-' and '.', the first one a letter, a digit or '_'"
    check_that(re.fullmatch(r"\w[\w.-]*", value), name, value, expected)


def check_int(name: str, value: object, least: int = 1, most: int = LARGEST) -> int:
    """Returns an int from `least` to `most`, both included, as an int of Python.

    Raises:
        TypeError: It is not an int.
        ValueError: It is out of bounds.
    """
    span = f"of at least {least:,}" if most == LARGEST else f"from {least} to {most}"
    expected = f"an int {span}"
    number: int = check_type(name, value, (int, np.integer), expected)
    check_that(least <= number <= most, name, value, expected)
    return int(number)


def check_int_or_none(name: str, value: object) -> int | None:
    """Returns an int of at least 1, or None; raises as `check_int` does."""
    return None if value is None else check_int(name, value)


def check_name(name: str, value: object) -> str:
    """Returns a str that is not empty.

    Raises:
        TypeError: It is not a str.
        ValueError: It is empty.
    """
    expected = "a non-empty str"
    check_that(check_type(name, value, str, expected), name, value, expected)
    return str(value)


def valid_unicode(text: str) -> str:
    """Returns a str with "?" in the place of each lone surrogate, which no record can store."""
    return text.encode("utf-8", "replace").decode()


def check_unicode(name: str, text: str) -> None:
    """Raises ValueError if a str has a lone surrogate."""
    check_that(valid_unicode(text) == text, name, text, "text that is valid Unicode")


def check_seconds(name: str, value: float) -> float:
    """Returns a number of seconds as a float.

    Raises:
        TypeError: It is not a number.
        ValueError: It is not finite, or not above 0.
    """
    check_type(name, value, (int, float), "a number of seconds")
    check_that(0 < value < math.inf, name, value, "a finite number of seconds above 0")
    return float(value)


def check_pattern(name: str, value: str | None) -> re.Pattern[str] | None:
    """Returns a compiled regular expression, or None.

    Raises:
        TypeError: It is not a str.
        ValueError: It does not compile.
    """
    check_type(name, value, (str, type(None)), "a str or None")
    if value is None:
        return None
    try:
        return re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        expected = f"a regular expression that compiles ({error})"
        raise ValueError(three_part(name, value, expected)) from error


def check_directory(name: str, path: str | os.PathLike[str]) -> str:
    """Returns the path of a directory as an absolute str.

    Raises:
        TypeError: It is not a path.
        ValueError: It is empty, is a URL, or has a null character.
    """
    check_type(name, path, (str, os.PathLike), "a str or a path")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(three_part(name, path, "the path of a directory"))
    slashes = "//" if isinstance(path, str) else "/"  # `pathlib` removes one
    if re.match(rf"[A-Za-z][\w+.-]+:{slashes}", text):  # else a directory `s3:` would be made
        raise ValueError(three_part(name, path, "the path of a local directory, not a URL"))
    return os.path.abspath(os.path.expanduser(text))


def plain_array(values: object) -> Array:
    """Returns an array-like as an array, with NaN in place of masked elements.

    Raises:
        TypeError: Elements are masked, and they are not real numbers.
    """
    if not (isinstance(values, np.ma.MaskedArray) and values.mask.any()):
        return np.asarray(values)
    if values.dtype.kind not in "fiub":
        received = verbatim(f"masked elements of {values.dtype}")
        raise TypeError(three_part("an array", received, "real numbers, or nothing masked"))
    return np.where(values.mask, np.float16(np.nan), values.data)
