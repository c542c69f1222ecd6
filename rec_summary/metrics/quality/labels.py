"""How many examples a task leaves out: those of other tasks, and those without a label."""

from __future__ import annotations

import numpy as np

from rec_summary.arrays import Flags
from rec_summary.metrics.state import State


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

    def update(self, masked: Flags, missing: Flags) -> None:
        """Counts a batch.

        Args:
            masked: Whether each example is masked, (examples,).
            missing: Whether its label is missing; it is not for a masked example.
        """
        self.masked += int(np.count_nonzero(masked))
        self.missing += int(np.count_nonzero(missing))
