"""Failures that must not stop training: each kind is logged once, all are counted."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from rec_summary.checks import valid_unicode

NO_GRAPH: Final = "no graph in PyNative mode"
"""The kind of the one limit that there is; see `Troubles.limit`."""

logger = logging.getLogger("rec_summary")

_lock = threading.RLock()  # a signal handler may interrupt its holder, and report
# A child that is forked while another thread holds the lock would wait for ever.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class Troubles:
    """Counts telemetry failures by kind. Thread-safe.

    Only the first failure of a kind is logged: a full disk fails at every step, and its
    messages would hide those of the training.

    Attributes:
        first: With `keep_first`, the kind of the first failure of these kinds, and what happened.
            Set it to None to get the next one.
    """

    def __init__(self, keep_first: Callable[[str], bool] | None = None) -> None:
        self.first: tuple[str, BaseException | str] | None = None
        self._keep_first = keep_first
        self._counts: dict[str, int] = {}
        self._limits: set[str] = set()

    def report(self, kind: str, error: BaseException | str, count: int = 1) -> None:
        """Counts a failure, and logs it if it is the first of its kind.

        Args:
            kind: A short stable name, for example `"write"` or `"histogram fc.weight/auto"`.
            error: What happened.
            count: How many of its kind have failed at once.
        """
        kind = valid_unicode(kind)  # it may name a path or a tag that is not UTF-8
        with _lock:
            first = kind not in self._counts
            if self._keep_first is not None and self._keep_first(kind):
                self.first = self.first or (kind, error)
            self._counts[kind] = self._counts.get(kind, 0) + count
        if first:
            detail = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
            logger.warning(
                "rec_summary: %s: %s (the program goes on; further ones are only counted)",
                kind,
                valid_unicode(detail),
            )

    def limit(self, kind: str, text: str) -> None:
        """Counts and logs what cannot be recorded here, although nothing has failed.

        Args:
            kind: As of `report`, but a kind of its own.
            text: What is missing and why, as a sentence.
        """
        with _lock:
            first = kind not in self._counts
            self._limits.add(kind)
            self._counts[kind] = self._counts.get(kind, 0) + 1
        if first:
            logger.warning("rec_summary: %s", text)

    def attempt(self, kind: str) -> Attempt:
        """Returns a context that reports an exception of its body, and does not raise it.

        KeyboardInterrupt and SystemExit pass through.
        """
        return Attempt(self, kind)

    @property
    def counts(self) -> dict[str, int]:
        """How often each kind has happened so far, with the limits."""
        with _lock:
            return dict(self._counts)

    @property
    def failures(self) -> dict[str, int]:
        """How often each kind has happened so far, without the limits."""
        with _lock:
            return {kind: n for kind, n in self._counts.items() if kind not in self._limits}


class Attempt:
    """A block of code that may fail; see `Troubles.attempt`."""

    __slots__ = ("_kind", "_troubles")

    def __init__(self, troubles: Troubles, kind: str) -> None:
        self._troubles = troubles
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._troubles.report(self._kind, error)
        return True
