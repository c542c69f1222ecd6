"""Records of several runs, and whether a table has the rows that `load` reads from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rec_summary import load
from tests.support import corpus
from tests.support.corpus import event, losses, put, scalar
from tests.support.many_ranks import many_ranks


def several_runs(folder: Path) -> Path:
    """Writes five runs, one of them without scalars, and returns the folder."""
    many_ranks(folder / "group" / "ranks", 3, range(1, 40))
    corpus.two_writers(folder / "two_writers")
    corpus.restart_in_file(folder / "restart")
    put(folder / "empty", event(1))
    put(folder / "späte läufe", *losses(range(1, 9)), event(10, scalar("größe", float("nan"))))
    return folder


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with Python's texts, in the order of `load`."""
    return frame.astype({"run": object, "tag": object}).reset_index(drop=True)


def is_same(found: pd.DataFrame, source: Path, **choice: Any) -> None:
    """Makes sure that a table has the rows of `load`, in whatever order."""
    expected = plain(load(source, **choice).scalars())
    order = ["run", "rank", "tag", "step", "wall_time"]
    both = (plain(each).sort_values(order, ignore_index=True) for each in (found, expected))
    pd.testing.assert_frame_equal(*both)
