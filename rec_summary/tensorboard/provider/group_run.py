"""Groups of runs as TensorBoard runs: the mean of their scalars, the least and the greatest value.

Their tags are those of the members, so that a page draws them in the same charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Floats, Integers
from rec_summary.series.comparison.curves import Curve
from rec_summary.series.comparison.groups import band
from rec_summary.tensorboard.dashboards.points import SCALARS
from rec_summary.tensorboard.provider.served_run import KEPT_SCALARS, ScalarSeries, ServedRun
from rec_summary.tensorboard.tag_groups import BEST, TELEMETRY

STATISTICS: Final = {"mean": "mean", "min": "least", "max": "greatest"}
"""Each statistic of a group that is shown, with its name in `Together`."""


class Together(NamedTuple):
    """Series of several runs at the same places, each array of shape (n,).

    Attributes:
        places: Where one of them has a point.
        wall_times: Those of the first run, as if all runs had begun with it.
        mean: The mean of the finite values; NaN where there is none, like the others.
        least: The least.
        greatest: The greatest.
    """

    places: Integers
    wall_times: Floats
    mean: Floats
    least: Floats
    greatest: Floats


def together(members: Sequence[tuple[ServedRun, Any]]) -> Together:
    """Returns the series of runs at the same places.

    Args:
        members: Runs, each with a `ScalarSeries` of it.
    """
    values, times, began = [], [], []
    for run, series in members:
        with run.lock:
            points = series.points(KEPT_SCALARS)
        if len(points):
            places = run.shown(points["step"])
            values.append(Curve(places, points["value"]))
            times.append(Curve(places, points["wall_time"] - points["wall_time"][0]))
            began.append(float(points["wall_time"][0]))
    if not values:
        return Together(np.zeros(0, np.int64), *(np.zeros(0) for _ in range(4)))
    found, elapsed = band(values), band(times)
    known = np.isin(elapsed.places, found.places)
    statistics = []
    for name in STATISTICS.values():
        shown = np.full(len(elapsed.places), np.nan)
        shown[known] = getattr(found, name)
        statistics.append(shown)
    return Together(elapsed.places, min(began) + elapsed.mean, *statistics)


class MeanSeries:
    """A statistic of series of several runs.

    Attributes:
        plugin: Whose series it is.
    """

    plugin = SCALARS

    def __init__(self, statistic: str, members: Sequence[tuple[ServedRun, Any]]) -> None:
        """Takes the members.

        Args:
            statistic: A field of `Together`, such as `mean`.
            members: Runs, each with a `ScalarSeries` of it.
        """
        self._statistic = statistic
        self._members = members

    def last(self) -> tuple[int, float] | None:
        """Returns the highest step and the latest wall time; None if there are no points."""
        lasts = [(run, last) for run, series in self._members if (last := series.last())]
        if not lasts:
            return None
        steps, wall_times = zip(
            *((run.shown(step), time) for run, (step, time) in lasts), strict=True
        )
        return int(max(steps)), max(wall_times)

    def points(self, most: int) -> Array:
        """Returns at most so many points, as `ScalarSeries.points`."""
        every, result = together(self._members), ScalarSeries()
        result.extend(every.places, every.wall_times, getattr(every, self._statistic))
        return result.points(most)


class GroupRun(ServedRun):
    """A statistic of the scalars of several runs, made when it is asked for."""

    def __init__(self, name: str, members: Sequence[Sequence[ServedRun]], statistic: str) -> None:
        """Takes the members as they are now.

        Args:
            name: The run's name.
            members: For each recorded run, its TensorBoard runs; of a tag, the first one with it
                counts.
            statistic: A field of `Band`.
        """
        super().__init__(name)
        self._members = members
        self._statistic = statistic
        started = [run.started for runs in members for run in runs if run.started is not None]
        self.started = min(started, default=None)

    def plugins(self) -> list[str]:
        """Returns the names of the plugins that have series."""
        return [SCALARS.name]

    def series(self, plugin_name: str, data_class: int) -> list[tuple[str, Any]]:
        """Returns the tags and the series of a plugin that have values."""
        if (plugin_name, data_class) != (SCALARS.name, SCALARS.metadata.data_class):
            return []
        members: dict[str, list[tuple[ServedRun, Any]]] = {}
        for runs in self._members:
            own: dict[str, tuple[ServedRun, Any]] = {}
            for run in runs:
                with run.lock:
                    for tag, series in run.series(plugin_name, data_class):
                        own.setdefault(tag, (run, series))
            for tag, member in own.items():
                if not tag.startswith((BEST, TELEMETRY)):
                    members.setdefault(tag, []).append(member)
        return [(tag, MeanSeries(self._statistic, of_tag)) for tag, of_tag in members.items()]
