"""The interface of an engine's workers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar


class Pool:
    """The workers of an engine that has been reached.

    Attributes:
        workers: How many units they process at a time.
        submit: Takes a function and its arguments, and returns a future of `concurrent.futures`.
    """

    remedy: ClassVar[str]
    """What an error expects if the engine cannot be used, or is lost."""

    tries: ClassVar[int] = 3
    """How often a unit is tried if its worker is killed; from the second time on it runs alone."""

    workers: int
    submit: Callable[..., Future[Any]]

    def renew(self) -> bool:
        """Replaces lost workers; returns whether pending units are lost.

        Most engines replace a killed worker by themselves.
        """
        return False

    def is_alive(self) -> bool:
        """Whether there are workers, as far as is known."""
        return True
