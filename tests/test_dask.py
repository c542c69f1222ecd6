"""The reader for Dask: its partitions, computed in this process; test_clusters.py has workers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")

import pandas as pd

import rec_summary.dask
from rec_summary import load
from rec_summary.errors import ArgumentError, SourceError
from tests.support.corpus import losses, put
from tests.support.scalar_rows import is_same, plain, several_runs


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return several_runs(tmp_path_factory.mktemp("engines"))


def compute(source: Path, **choice: Any) -> pd.DataFrame:
    frame: pd.DataFrame = rec_summary.dask.read_scalars(source, **choice).compute(
        scheduler="synchronous"
    )
    return frame


def test_partitions_are_the_rows_of_load_in_the_same_order(records: Path) -> None:
    assert rec_summary.dask.read_scalars(records).npartitions == 5
    rows = compute(records).reset_index(drop=True)
    pd.testing.assert_frame_equal(plain(rows), plain(load(records).scalars()))


def test_ranks_of_a_large_run_are_partitions_of_their_own(records: Path) -> None:
    parts = [part.scalars() for part in load(records).parts(0)]
    assert len(parts) == 7
    rows = pd.concat(map(plain, parts), ignore_index=True)
    pd.testing.assert_frame_equal(rows, plain(load(records).scalars()))


def test_runs_tags_steps_and_ranks_are_chosen(records: Path) -> None:
    chosen = {"runs": "group/*", "tags": "loss", "since": 3, "until": 20, "ranks": "1-2"}
    is_same(compute(records, **chosen), records, **chosen)


@pytest.mark.parametrize("package", ["dask.dataframe", "pyarrow"])
def test_a_package_that_is_missing_is_named(
    package: str, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"read_scalars needs \w+, which is not installed: pip"):
        rec_summary.dask.read_scalars(records)


def test_bad_input_is_an_error_where_it_is_asked_for(records: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        rec_summary.dask.read_scalars(tmp_path)
    with pytest.raises(ArgumentError):
        rec_summary.dask.read_scalars(records, runs="nothing*")
    with pytest.raises(ArgumentError):
        rec_summary.dask.read_scalars(records, ranks="x")


def test_a_damaged_run_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    put(tmp_path / "good", *losses(range(1, 9)))
    path = put(tmp_path / "bad", *losses(range(1, 9)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="problems"):
        counts = compute(tmp_path)["run"].value_counts()
    assert (0 < counts["bad"] < counts["good"], counts["good"]) == (True, 8)
