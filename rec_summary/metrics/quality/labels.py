"""How many examples a task leaves out: those of other tasks, and those without a label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rec_summary.metrics.quality.clicks import Labels
from rec_summary.metrics.state import State


class LabelBatch(NamedTuple):
    """Examples of which `LabelCounts.count` counts parts.

    Attributes:
        masked: Whether each is masked, (examples,).
        missing: Whether its label is missing; it is not for a masked example.
    """

    masked: Labels
    missing: Labels

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.masked)

    def cut(self, at: slice) -> tuple[int, int]:
        """Returns the numbers of masked and of missing ones among some of the examples."""
        return int(np.count_nonzero(self.masked[at])), int(np.count_nonzero(self.missing[at]))


class LabelCounts(State):
    """Examples that a task leaves out before it judges predictions; a mergeable state.

    Attributes:
        masked: The number of examples that the mask leaves out.
        missing: The number of examples of the task without a label.
    """

    _sums = ("masked", "missing")

    def __init__(self) -> None:
        """Starts empty."""
        self.masked = 0
        self.missing = 0

    def count(self, part: tuple[int, int]) -> None:
        """Counts a part of a `LabelBatch`."""
        masked, missing = part
        self.masked += masked
        self.missing += missing
