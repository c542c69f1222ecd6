"""The PR Curves dashboard: all numbers of every recorded curve."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tools.checks.acceptance import series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "pr curves"

_ROWS: Final = (
    *("true_positives", "false_positives", "true_negatives", "false_negatives"),
    *("precision", "recall"),
)


def expected(records: Records) -> Items:
    """Yields wall times and curves by run, tag and step."""
    for point in series.points(records, "pr_curves"):
        curve = point.value.message.pr_curve
        rows = [list(getattr(curve, name)) for name in _ROWS]
        yield point.key, (point.value.wall_time, _as_shown(np.array(rows, np.float32)))


def _as_shown(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The page counts in whole numbers, and ends before nothing is predicted any more."""
    rows[:4] = np.trunc(rows[:4])
    some = np.flatnonzero(rows[0] + rows[1])
    return rows[:, : some[-1] + 1 if some.size else 1]


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, tags in server.get("plugin/pr_curves/tags").items():
        for tag in tags:
            found = server.get("plugin/pr_curves/pr_curves", run=run, tag=tag)
            for each in found[run]:
                rows = [each[name] for name in _ROWS]
                yield (run, tag, each["step"]), (each["wall_time"], np.array(rows, np.float32))


def same(expected: Any, shown: Any) -> bool:
    """Whether time and numbers are the same."""
    return bool(expected[0] == shown[0] and np.array_equal(expected[1], shown[1]))
