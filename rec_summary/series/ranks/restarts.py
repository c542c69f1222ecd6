"""When the training of several ranks began again.

All ranks begin again together, but not all of them go back by a step: one that was killed before it
recorded its last values goes on where its records end. So restarts are known by their times.
"""

from __future__ import annotations

import bisect

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rec_summary.arrays import Integers
from rec_summary.series.limits import Count, Seconds, Step

Place = tuple[Count, Step]
"""How often training had begun again before, and the step."""

Restarts = list[tuple[Seconds, Seconds]]
"""When training began again: the times of the last record before that and of the first one after
it, ascending."""


class Reached(Struct):
    """How far a rank is.

    Attributes:
        step: Its last step.
        wall_time: When it recorded that, in seconds since the epoch.
    """

    step: Step
    wall_time: Seconds


def find_restart(restarts: Restarts, last: Reached, first: Reached) -> bool:
    """Compares a record of a rank with its next one, and adds a restart that was not known.

    Returns:
        Whether training began again between them, and this was not known: the numbers of restarts
        before other records change.
    """
    if place_of(restarts, last) <= place_of(restarts, first):
        return False
    before, after = last.wall_time, first.wall_time
    # Ranks stop and begin again at slightly different times: spans that overlap are one restart.
    same = [span for span in restarts if span[0] < after and before < span[1]]
    for span in same:
        restarts.remove(span)
        before, after = max(before, span[0]), min(after, span[1])
    bisect.insort(restarts, (before, after))
    return True


def place_of(restarts: Restarts, reached: Reached) -> Place:
    """Returns the number of restarts before a record, and its step."""
    return int(starts_at(restarts, reached.wall_time)), reached.step


def starts_at(restarts: Restarts, wall_times: npt.ArrayLike) -> Integers:
    """Returns how often training had begun again before each of these times."""
    # In the middle: one rank may have ended long before the others, or begun before them.
    return np.searchsorted([(before + after) / 2 for before, after in restarts], wall_times)
