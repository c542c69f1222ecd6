"""The errors of this package.

A message has three parts: what is invalid, what was received, and what was expected. If a file
is invalid, its path and the byte offset are in front.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any

from rec_summary.scrubbing import scrubbed

_LONGEST_REPR = 200  # a repr longer than this hides the rest of the message
_LONGEST_TEXT = 1_000  # a path and the reason behind it; paths are often longer than 200


def three_part(what: str, received: object, expected: str) -> str:
    """Returns the text of an error about a bad value.

    Args:
        what: What is invalid, for example ``"collect_freq"``.
        received: The value; its ``repr`` is shown, without credentials, cut in the middle
            when it is very long.
        expected: What is accepted, for example ``"an int of at least 1"``.
    """
    is_text = isinstance(received, _Verbatim)
    shown = scrubbed(str(received) if is_text else _shown(received))
    longest = _LONGEST_TEXT if is_text else _LONGEST_REPR
    if len(shown) > longest:
        # Both ends stay: the end of a path is the file, the end of a text the offset or reason.
        half = longest // 2
        shown = f"{shown[: half - 1]}…{shown[-half:]}"
    return f"{what} is invalid. Received: {shown}. Expected: {expected}."


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # an int of too many digits; whatever a user's class raises
        return f"a value of {type(value).__name__}"


class _Verbatim(str):
    """Text that `three_part` shows as it is, without quotation marks."""


def verbatim(text: str) -> str:
    """Marks `text` to be shown by `three_part` without quotation marks."""
    return _Verbatim(text)


@contextlib.contextmanager
def os_errors_as(kind: type[Exception], what: str, path: str, expected: str) -> Iterator[None]:
    """Turns an OSError of the block into an error of three parts that names a path.

    Args:
        kind: The class of the error.
        what: What is invalid.
        path: What was received; the reason is added.
        expected: What is accepted.
    """
    try:
        yield
    except OSError as error:
        received = verbatim(f"{path}: {error.strerror or error}")
        raise kind(three_part(what, received, expected)) from error


def required(module: str, what: str, extra: str) -> Any:
    """Returns a module that only some features need.

    Args:
        module: The module.
        what: What needs it.
        extra: The extra of this package that installs it.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{what} needs {package}, which is not installed: pip install 'rec_summary[{extra}]'"
        ) from error


class RecSummaryError(Exception):
    """The base class of the package's own errors.

    Mistakes in arguments raise Python's `TypeError` and `ValueError` with a three-part
    text; all other errors of this package are subclasses of this class.
    """


class ArgumentError(ValueError):
    """An argument is invalid. It is raised before any work begins."""


class SourceError(RecSummaryError):
    """A directory or file named as input cannot be used."""


class DestinationError(RecSummaryError):
    """A directory named as output cannot be used."""


class RecordError(RecSummaryError):
    """A record file is damaged, or not a record file.

    Attributes:
        path: The file.
        offset: Where in the file the record begins, in bytes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        offset: int,
        what: str,
        received: object,
        expected: str,
    ) -> None:
        self.path = os.fspath(path)
        self.offset = offset
        self.parts = (what, received, expected)
        super().__init__(f"{self.path}, offset {offset}: {three_part(what, received, expected)}")
