"""Waiting for a condition; a test never waits for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

# Only what hangs takes as long: a test must pass where every process is slow.
PATIENCE_SECS = 120.0
_REST_SECS = 0.02

Seen = TypeVar("Seen")


def eventually(
    ask: Callable[[], Seen],
    until: Callable[[Seen], object] = bool,
    *,
    despite: type[Exception] | tuple[type[Exception], ...] = (),
    rest_secs: float = _REST_SECS,
) -> Seen:
    """Asks until the answer is right, and returns it.

    Args:
        ask: Returns what there is now.
        until: Whether that is enough; by default, whether it is true. Use `>=`, `in` and subset
            with `<=`: what comes next may come between two questions.
        despite: Errors of `ask` and `until` that may be over the next time.
        rest_secs: The time between two questions; longer for one that costs whom it asks.

    Raises:
        AssertionError: It never was; the message has what there was in the end.
    """
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        seen: object
        try:
            seen = answer = ask()
            if until(answer):
                return answer
        except despite as error:
            seen = error
        assert time.monotonic() < deadline, f"waited in vain; in the end there was {seen!r}"
        time.sleep(rest_secs)


def next_second() -> None:
    """Waits for the next second: of two files that MindSpore begins in one, the first is lost."""
    second = int(time.time())
    eventually(lambda: int(time.time()) != second)


class Clock:
    """A clock that stands where it is put."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
