"""Checks of single arguments; each raises with the three-part text."""

from __future__ import annotations

import math
import os
import re
from typing import Any

from rec_summary.errors import three_part, verbatim
from rec_summary.records.files import make_directory


def check_type(name: str, value: object, types: Any, expected: str) -> None:
    """Raises TypeError if `value` is not one of `types`; a bool is no int here."""
    wanted = types if isinstance(types, tuple) else (types,)
    # to Python True is an int, but nobody who passes it means 1
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise TypeError(three_part(name, value, expected))


def check_positive_int(name: str, value: object) -> None:
    """Raises TypeError for what is no int, ValueError for less than 1."""
    check_type(name, value, int, "an int of at least 1")
    if isinstance(value, int) and value < 1:
        raise ValueError(three_part(name, value, "an int of at least 1"))


def check_seconds(name: str, value: float) -> float:
    """Returns a number of seconds as a float; raises if it is not finite and above 0."""
    check_type(name, value, (int, float), "a number of seconds")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(three_part(name, value, "a finite number of seconds above 0"))
    return float(value)


def check_pattern(name: str, value: str | None) -> re.Pattern[str] | None:
    """Returns a regular expression, compiled; raises if it is none."""
    check_type(name, value, (str, type(None)), "a str or None")
    if value is None:
        return None
    try:
        return re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        expected = f"a regular expression that compiles ({error})"
        raise ValueError(three_part(name, value, expected)) from error


def check_directory(name: str, path: str | os.PathLike[str]) -> str:
    """Returns a path as an absolute str; raises if it is none."""
    check_type(name, path, (str, os.PathLike), "a str or a path")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(three_part(name, path, "the path of a directory"))
    return os.path.abspath(text)


def made_directory(name: str, path: str) -> None:
    """Makes a record directory that an argument names.

    Raises:
        OSError: It cannot be made, or a file is in the way; with the number of the cause.
    """
    try:
        make_directory(path)
    except OSError as error:
        received = verbatim(f"{path!r} ({error.strerror or error})")
        expected = "a directory that can be made and written to, not a file"
        raise OSError(error.errno or 0, three_part(name, received, expected)) from error
