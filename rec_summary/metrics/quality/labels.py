"""How many examples a task leaves out: those of other tasks, and those without a label."""

from __future__ import annotations

from typing import Any

import numpy as np

from rec_summary.metrics.state import State, register


@register
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

    def update(self, masked: Any, missing: Any) -> None:
        """Counts a batch: for each example, whether it is masked, and whether its label is missing.

        Args:
            masked: Bools, (examples,).
            missing: As many bools; none of them is set for a masked example.
        """
        self.masked += int(np.count_nonzero(masked))
        self.missing += int(np.count_nonzero(missing))
