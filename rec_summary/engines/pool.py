"""What takes units, of whatever engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar


class Pool:
    """What takes units, once an engine has been reached.

    Attributes:
        workers: How many units it does at a time.
        submit: Takes a function and its arguments, and returns a future of `concurrent.futures`.
    """

    remedy: ClassVar[str]
    """What is expected where the engine cannot be used, or is lost."""

    tries: ClassVar[int] = 3
    """How often a unit is tried whose worker was killed; after the first time it runs alone."""

    workers: int
    submit: Callable[..., Future[Any]]

    def renew(self) -> bool:
        """Begins again; returns whether what it had is lost. Most engines replace one worker."""
        return False

    def is_alive(self) -> bool:
        """Whether there are workers, as far as is known."""
        return True
