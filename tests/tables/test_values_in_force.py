"""Every table has the values that count: none that a restart supersedes, writers told apart."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rec_summary.tables.formats import export_tables
from rec_summary.tables.frames import Records, load
from tests.support.corpus import event, floats, histo, image, put, scalar

START = 1_700_000_000.125
TABLES = ("scalars", "histograms", "images", "tensors")


def write(run: Path, *steps: int, after: float = 0, stamp: int = 0, host: str = "a") -> None:
    """Records a value of each kind at each step."""
    events = []
    for step in steps:
        values = scalar("loss", step), histo("weights", [1, 2]), image("input")
        at = START + after + step / 4
        events.append(event(step, *values, floats("embedding", 2), at=at))
    put(run, *events, stamp=stamp, host=host)


def steps_of(records: Records, table: str) -> dict[str, list[int]]:
    found = getattr(records, table)().groupby("run", observed=True)
    return {str(run): sorted(rows["step"].tolist()) for run, rows in found}


@pytest.fixture
def restarted(tmp_path: Path) -> Path:
    write(tmp_path / "records" / "run", 1, 2, 3, 4, 5, 6)
    write(tmp_path / "records" / "run", 4, 8, after=60, stamp=60)
    return tmp_path / "records"


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    write(tmp_path / "records" / "run", *range(1, 101))
    write(tmp_path / "records" / "run", *range(1, 50), after=0.5, stamp=1, host="b")
    return tmp_path / "records"


@pytest.mark.parametrize("table", TABLES)
def test_no_table_has_what_a_restart_supersedes(restarted: Path, table: str) -> None:
    assert steps_of(load(restarted), table) == {"run": [1, 2, 3, 4, 8]}


@pytest.mark.parametrize("table", TABLES)
def test_every_table_tells_two_writers_apart(doubled: Path, table: str) -> None:
    expected = {"run": list(range(1, 101)), "run/writer_2": list(range(1, 50))}
    assert steps_of(load(doubled), table) == expected


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_no_file_has_what_a_restart_supersedes(restarted: Path, tmp_path: Path, form: str) -> None:
    export_tables(restarted, tmp_path / "out", form=form)
    for table in TABLES[:2]:
        with open(tmp_path / "out" / f"{table}.{form}", newline="") as file:
            rows = list(csv.DictReader(file) if form == "csv" else map(json.loads, file))
        assert [int(row["step"]) for row in rows] == [1, 2, 3, 4, 8]


def test_files_and_the_lineage_tell_two_writers_apart(doubled: Path, tmp_path: Path) -> None:
    export_tables(doubled, tmp_path / "out", form="csv")
    for table in TABLES[:2]:
        with open(tmp_path / "out" / f"{table}.csv", newline="") as file:
            assert {row["run"] for row in csv.DictReader(file)} == {"run", "run/writer_2"}
    assert load(doubled).lineage()["step"].to_dict() == {"run": 100, "run/writer_2": 49}
