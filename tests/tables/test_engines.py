"""Readers for Dask, Ray and Spark: what they send to workers; test_clusters.py runs them."""

from __future__ import annotations

import functools
import pickle
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import rec_summary.dask
import rec_summary.ray
import rec_summary.spark
from rec_summary import load
from rec_summary.errors import ArgumentError, SourceError
from rec_summary.tables import arrow
from tests.support.corpus import losses, put
from tests.support.scalar_rows import is_same, plain, several_runs

READERS = (
    rec_summary.dask.read_scalars,
    rec_summary.ray.read_scalars,
    functools.partial(rec_summary.spark.read_scalars, None),
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return several_runs(tmp_path_factory.mktemp("engines"))


@pytest.mark.parametrize("large", [0, 1 << 30])
def test_parts_are_the_rows_of_load_in_the_same_order(records: Path, large: int) -> None:
    found = [pickle.loads(pickle.dumps(each)) for each in load(records).parts(large)]
    assert len(found) == (7 if large == 0 else 5)
    tables = [arrow.read(each) for each in found]
    assert {each.schema for each in tables} == {arrow.schema()}
    rows = pd.concat([each.to_pandas() for each in tables], ignore_index=True)
    pd.testing.assert_frame_equal(plain(rows), plain(load(records).scalars()))


def test_spark_gets_batches_of_whole_parts(records: Path) -> None:
    """What `mapInArrow` calls, where no Spark is installed."""
    rows = [pickle.dumps(part) for part in arrow.parts(records)]
    batches = [pa.RecordBatch.from_arrays([pa.array(rows[:2])], ["part"])]
    batches += [pa.RecordBatch.from_arrays([pa.array(rows[2:])], ["part"])]
    found = pa.Table.from_batches(list(rec_summary.spark._read(batches)), arrow.schema())
    is_same(found.to_pandas(), records)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("package", ["dask", "ray", "pyspark"])
def test_a_package_that_is_missing_is_named(
    reader: Any, package: str, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dask", "dask.dataframe", "ray", "ray.data", "pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"read_scalars needs \w+, which is not installed: pip"):
        reader(records)


def test_bad_input_is_an_error_where_it_is_asked_for(records: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        arrow.parts(tmp_path)
    with pytest.raises(ArgumentError):
        arrow.parts(records, runs="nothing*")
    with pytest.raises(ArgumentError):
        arrow.parts(records, ranks="x")


def test_a_damaged_run_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    put(tmp_path / "good", *losses(range(1, 9)))
    path = put(tmp_path / "bad", *losses(range(1, 9)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="problems"):
        rows = [arrow.read(each) for each in arrow.parts(tmp_path)]
    bad, good = (each.num_rows for each in rows)
    assert (0 < bad < good, good) == (True, 8)
