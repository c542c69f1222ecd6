"""Children that are forked from the test's process."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(action: Callable[[], object]) -> int:
    """Runs an action in a forked child, which ends with exit code 0 if it raises nothing.

    Returns:
        The number of the process.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)  # pytest's own cleaning up is the parent's
    return child
