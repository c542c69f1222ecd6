"""Parquet: a dataset by run and day, which other tools read and a second export replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rec_summary.errors import DestinationError
from rec_summary.tables.formats import export_tables
from rec_summary.tables.frames import load
from tests.support.corpus import losses, put, two_writers
from tests.support.record_dirs import START, event, histo, scalar, tree, write_segment

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

DAY = 86_400
COLUMNS = ["run", "rank", "tag", "step", "wall_time", "value"]

Row = tuple[Any, ...]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def export(records: Path, out: Path, **options: Any) -> None:
    export_tables(records, out, form="parquet", **options)


def rows_of(frame: Any) -> list[Row]:
    return sorted(frame[COLUMNS].astype({"run": str}).itertuples(index=False, name=None))


def with_pandas(dataset: Path) -> list[Row]:
    return rows_of(pandas.read_parquet(dataset))


def with_duckdb(dataset: Path) -> list[Row]:
    duckdb = pytest.importorskip("duckdb")
    query = f"""
        SELECT run, rank, tag, step, wall_time, value
        FROM read_parquet('{dataset}/*/*/*.parquet', hive_types = {{'run': VARCHAR, 'day': DATE}})
    """
    return sorted(duckdb.sql(query).fetchall())


def with_polars(dataset: Path) -> list[Row]:
    polars = pytest.importorskip("polars")
    types = {"run": polars.String, "day": polars.Date}
    found = polars.scan_parquet(f"{dataset}/", hive_schema=types).select(COLUMNS)
    return sorted(found.collect().rows())


@pytest.mark.parametrize("read", [with_pandas, with_duckdb, with_polars])
def test_other_tools_read_what_load_returns(
    records: Path, out: Path, read: Callable[[Path], list[Row]]
) -> None:
    for name in ("a=b", "..%2F%", "ü n*[?", "7", "day=2026-01-01"):
        write_segment(records / name / "x", event(1, scalar("loss", 0.1)), rank=1)
    two_writers(records / "run")
    put(records / "again", *losses(range(1, 10)))
    put(records / "again", *losses(range(5, 8), after=50), stamp=50, at=50)
    export(records, out)
    assert read(out / "scalars") == rows_of(load(records).scalars())


def test_a_partition_is_a_run_and_a_day(records: Path, out: Path) -> None:
    days = (event(n, scalar("loss", n), histo("w", [n]), at=START + n * DAY) for n in (1, 2))
    write_segment(records / "a" / "b", *days)
    export(records, out)
    partitions = [f"run=a%2Fb/day=2023-11-{day}/part-00000.parquet" for day in (15, 16)]
    assert set(tree(out)) == {
        "lineage.parquet",
        *(f"{table}/{part}" for table in ("scalars", "histograms") for part in partitions),
    }


def test_a_second_export_replaces_all_parts_and_nothing_else(records: Path, out: Path) -> None:
    put(records / "run", *losses(range(1, 50)))
    write_segment(records / "run", event(1, scalar("loss", 1)), rank=1)
    put(records / "gone", *losses(range(1, 5)))
    export(records, out, part_bytes=500)
    assert len(list(out.glob("scalars/run=run/*/*"))) > 1
    theirs = (
        *("mine.txt", "scalars/mine.parquet", "scalars/run=gone/mine.txt"),
        "scalars/run=run/day=2023-11-14/mine.parquet",
        "else/run=a/day=2026-01-01/part-00000.parquet",
    )
    for name in theirs:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("theirs")
    for file in (records / "gone").iterdir():
        file.unlink()
    export(records, out)
    assert {name for name, data in tree(out).items() if data == b"theirs"} == set(theirs)
    parts = list(out.glob("scalars/*/*/part-*"))
    assert parts == [out / "scalars/run=run/day=2023-11-14/part-00000.parquet"]
    assert len(pandas.read_parquet(parts[0])) == 50


def test_what_a_killed_export_leaves_is_removed(records: Path, out: Path) -> None:
    put(records / "run", *losses((1, 2)))

    staged: list[Path] = []

    def interrupt(run: str, done: int, total: int) -> None:
        staged.extend(out.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(records, out, progress=interrupt)
    [folder] = staged
    (folder / "scalars" / "run=x").mkdir(parents=True)  # as after a kill
    export(records, out)
    assert sorted(path.name for path in out.iterdir()) == ["lineage.parquet", "scalars"]
    assert with_pandas(out / "scalars") == rows_of(load(records).scalars())


def test_a_link_in_the_place_of_a_partition_is_not_followed(records: Path, out: Path) -> None:
    put(records / "run", *losses((1, 2)))
    victim = out.parent / "victim" / "day=2023-11-14" / "part-00000.parquet"
    victim.parent.mkdir(parents=True)
    victim.write_text("precious")
    (out / "scalars").mkdir(parents=True)
    (out / "scalars" / "run=run").symlink_to(victim.parents[1])
    with pytest.raises(DestinationError, match="a link, which is not followed"):
        export(records, out)
    assert victim.read_text() == "precious"


def test_a_name_that_is_too_long_for_a_directory_is_an_error(records: Path, out: Path) -> None:
    put(records / ("\u6a21" * 30), *losses((1, 2)))
    with pytest.raises(DestinationError, match="274 bytes"):
        export(records, out)
    assert list(out.iterdir()) == []
