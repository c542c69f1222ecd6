"""Strings from records and file names, made valid for their destination."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Final

from rec_summary.records.format.limits import LONGEST_TEXT

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def valid(text: str | bytes) -> str:
    """Returns `text` with invalid Unicode replaced, so that it can be serialised.

    Protobuf hands out a `bytes` for a string field that is not UTF-8; file names and JSON
    can bring lone surrogates.
    """
    if isinstance(text, str) and text.isascii():
        return text
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "replace")


def shown(text: str | bytes) -> str:
    """Returns the beginning of `text`, at most `LONGEST_TEXT` characters."""
    return valid(text[: 4 * LONGEST_TEXT])[:LONGEST_TEXT]


def printable(text: str) -> str:
    """Returns `text` for one line of a terminal: no control characters, no broken Unicode."""
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], valid(text))


def printable_lines(text: str) -> str:
    """Returns `text` for a terminal, in the lines that it has."""
    return "\n".join(map(printable, text.split("\n")))


def reason(error: Exception) -> str:
    """Returns why something cannot be done, in a few words."""
    if isinstance(error, UnicodeError):
        return "a name in it is not UTF-8"
    return str(error) or type(error).__name__


def moment(seconds: float) -> datetime | None:
    """Returns seconds since the epoch as date and time in UTC; None if beyond the calendar."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None


def utc(seconds: float, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Returns seconds since the epoch as date and time; beyond the calendar, as seconds.

    Args:
        seconds: Of any size, also infinite.
        form: As in `datetime.strftime`.
    """
    date = moment(seconds)
    return f"{seconds:.6g} seconds since 1970" if date is None else date.strftime(form)


def check_unicode(value: object) -> None:
    """Makes sure that protobuf can hold all strings in a value.

    Raises:
        ValueError: One of them has a lone surrogate.
    """
    json.dumps(value, ensure_ascii=False).encode()
