"""Columns of scalars as one pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.series.values import ScalarColumns

if TYPE_CHECKING:
    import pandas as pd

_NOTHING: Final = np.zeros(0)


def scalar_frame(parts: Sequence[ScalarColumns]) -> pd.DataFrame:
    """Returns a row for each value: `run`, `rank`, `tag`, `step`, `wall_time`, `value`."""
    import pandas as pd

    sizes = [len(part.steps) for part in parts]
    runs, run_codes = _coded(part.run for part in parts)
    tags, tag_codes = _tag_codes(parts)
    return pd.DataFrame(
        {
            "run": pd.Categorical.from_codes(np.repeat(run_codes, sizes), runs),
            "rank": np.repeat(np.array([part.rank for part in parts], np.int64), sizes),
            "tag": pd.Categorical.from_codes(tag_codes, tags),
            "step": _joined([part.steps for part in parts], np.int64),
            "wall_time": _joined([part.wall_times for part in parts], np.float64),
            "value": _joined([part.numbers for part in parts], np.float64),
        },
        copy=False,
    )


def goes_on(parts: Sequence[ScalarColumns]) -> bool:
    """Whether the steps of each series only rise, so that none can come twice."""
    if not parts:
        return True
    sizes = [len(part.steps) for part in parts]
    _, tag_codes = _tag_codes(parts)
    _, owners = _coded((part.run, part.rank) for part in parts)
    series = np.repeat(owners, sizes) * (tag_codes.max() + 1) + tag_codes
    steps = _joined([part.steps for part in parts], np.int64)
    order = np.argsort(series, kind="stable")
    series, steps = series[order], steps[order]
    return bool(((np.diff(steps) > 0) | (np.diff(series) != 0)).all())


def split(part: ScalarColumns, rows: int) -> tuple[ScalarColumns, ScalarColumns]:
    """Returns the first rows, and the rest."""
    return _rows(part, slice(rows)), _rows(part, slice(rows, None))


def _rows(part: ScalarColumns, rows: slice) -> ScalarColumns:
    return part._replace(
        codes=part.codes[rows],
        steps=part.steps[rows],
        wall_times=part.wall_times[rows],
        numbers=part.numbers[rows],
    )


def _tag_codes(parts: Sequence[ScalarColumns]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Returns all tags in order, and the number of each value's."""
    tags = sorted({tag for part in parts for tag in part.tags})
    numbers = {tag: number for number, tag in enumerate(tags)}
    codes = [np.array([numbers[tag] for tag in part.tags], np.int64)[part.codes] for part in parts]
    return tags, _joined(codes, np.int64)


def _coded(names: Iterable[Any]) -> tuple[list[Any], npt.NDArray[np.int64]]:
    every = list(names)
    known = sorted(set(every))
    numbers = {name: number for number, name in enumerate(known)}
    return known, np.array([numbers[name] for name in every], np.int64)


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate([_NOTHING.astype(dtype), *parts])
