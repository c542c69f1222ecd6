"""CSV, JSON Lines and Parquet: the same values in each."""

from __future__ import annotations

import csv
import gc
import json
import math
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pandas as pd
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary import load
from rec_summary._pb.lineage_pb2 import EvaluationLineage
from rec_summary.errors import ArgumentError, DestinationError, SourceError
from rec_summary.tables.formats import FORMATS, export_tables
from tests.support.landscape_cases import landscape_value
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    scalar,
    train,
    tree,
    write_segment,
)
from tests.support.recorded_streams import record_clicks

ODD = 'comma, "quote"\nline é'


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a table, all values as JSON has them."""
    if path.suffix == ".parquet" and not path.exists():
        path = path.with_suffix("")  # a dataset
        return pd.read_parquet(path).astype({"run": str}).to_dict("records")
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return pd.read_parquet(path).to_dict("records")


def exported(base: Path, form: str, *names: str, **options: Any) -> list[list[dict[str, Any]]]:
    """Exports what is in `records`; returns the rows of these tables."""
    export_tables(base / "records", base / "out", form=form, **options)
    return [read(base / "out" / f"{name}.{form}") for name in names]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    metric = '{"auc": 0.75, "best": "yes"}'
    write_segment(
        tmp_path / "records" / "run",
        event(1, scalar("loss", 0.1), scalar(ODD, math.nan), histo("w", [1.0, 2.0, math.inf])),
        event(2, scalar("loss", -math.inf)),
        event(0, landscape_value("l", rows=3, columns=2, path=4)),
        lineage(START, train_lineage=train(status=2, step=2)),
        lineage(START, user_defined_info=custom({"mixed": 1})),
        lineage(START + 1, evaluation_lineage=EvaluationLineage(metric=metric, train_step=2)),
    )
    write_segment(
        tmp_path / "records" / "second",
        event(1, scalar("loss", 0.5)),
        lineage(START, user_defined_info=custom({"mixed": "text", "only": 2})),
    )
    return tmp_path / "records"


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_values_in_every_format(records: Path, tmp_path: Path, form: str) -> None:
    report = export_tables(records, tmp_path / "out", form=form)
    suffix = "" if form == "parquet" else f".{form}"
    counts = {Path(path).name: count for path, count in report.tables.items()}
    assert counts == {
        **{f"{name}{suffix}": count for name, count in (("scalars", 4), ("histograms", 1))},
        **{f"{name}.{form}": 2 for name in ("evaluations", "lineage")},
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(counts)
    names = ("scalars", "histograms", "lineage")
    rows, [histogram], lineages = (read(tmp_path / "out" / f"{name}.{form}") for name in names)
    assert [(row["run"], row["tag"], int(row["step"])) for row in rows] == [
        *(("run", "loss", 1), ("run", ODD, 1), ("run", "loss", 2), ("second", "loss", 1)),
    ]
    values = [np.float32(float(row["value"])) for row in rows]
    np.testing.assert_array_equal(values, np.float32([0.1, math.nan, -math.inf, 0.5]))
    if form == "jsonl":  # which has no such numbers
        assert [row["value"] for row in rows] == [0.1, "NaN", "-Infinity", 0.5]
    assert float(rows[0]["wall_time"]) == START + 0.25
    parts = [histogram[name] for name in ("left", "right", "counts")]
    left, right, buckets = (json.loads(each) if form == "csv" else list(each) for each in parts)
    assert sum(buckets) == 2
    assert (left[0], right[-1], int(histogram["pos_inf_count"])) == (1.0, 2.0, 1)
    # The lineage has all columns of all runs.
    first, second = lineages
    assert (first["status"], first["optimizer"], str(first["mixed"])) == ("FINISHED", "Adam", "1")
    assert (second["mixed"], float(second["only"])) == ("text", 2)
    assert not second.get("optimizer") or pd.isna(second["optimizer"])


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_without_lineage_has_its_row_as_in_load(tmp_path: Path, form: str) -> None:
    write_segment(tmp_path / "records" / "plain", event(7, scalar("loss", 0.5)))
    [[row]] = exported(tmp_path, form, "lineage")
    expected = load(tmp_path / "records").lineage().loc["plain"]
    assert row["run"] == "plain"
    assert float(row["loss"]) == expected["loss"] == 0.5
    assert int(row["step"]) == expected["step"] == 7


def test_choices_and_what_has_no_table(records: Path, tmp_path: Path) -> None:
    choice = {"tags": "loss", "runs": "run", "since": 2, "until": 2}
    report = export_tables(records, tmp_path / "out", form="csv", **choice)
    counts = {Path(path).name: count for path, count in report.tables.items()}
    assert counts == {"scalars.csv": 1, "evaluations.csv": 2, "lineage.csv": 1}


def test_a_second_export_replaces_the_first(records: Path, tmp_path: Path) -> None:
    export_tables(records, tmp_path / "out", form="csv")
    before = tree(tmp_path / "out")
    (tmp_path / "out" / "theirs.csv").write_text("x")
    export_tables(records, tmp_path / "out", form="csv")
    assert tree(tmp_path / "out") == {**before, "theirs.csv": b"x"}


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("form", FORMATS)
def test_an_interrupted_export_leaves_nothing_half_made(
    records: Path, tmp_path: Path, form: str
) -> None:
    export_tables(records, tmp_path / "out", form=form)
    before = tree(tmp_path / "out")
    write_segment(records / "third", event(1, scalar("loss", 9)))

    def interrupt(run: str, done: int, total: int) -> None:
        if run == "third":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        export_tables(records, tmp_path / "out", form=form, progress=interrupt)
    assert tree(tmp_path / "out") == before
    del interrupted
    gc.collect()  # a writer that is thrown away raises nothing that Python would print


def test_mistakes_are_reported(records: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="one of csv, jsonl, parquet"):
        export_tables(records, tmp_path / "out", form="xlsx")
    with pytest.raises(ArgumentError, match="the directory of the tables"):
        export_tables(records, records / "out", form="csv")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DestinationError, match="one that can be written to"):
        export_tables(records, tmp_path / "file", form="csv")
    for path in records.rglob("events*"):
        path.chmod(0o600)
        path.write_bytes(b"no record")
    with pytest.raises(SourceError, match="without a readable record"):
        export_tables(records, tmp_path / "out", form="csv")
    assert not (tmp_path / "out").exists() or not tree(tmp_path / "out")


def test_csv_and_json_need_nothing_else(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    for form in ("csv", "jsonl"):
        assert export_tables(records, tmp_path / form, form=form).tables
    with pytest.raises(ImportError, match=r"pip install 'rec_summary\[tables\]'"):
        export_tables(records, tmp_path / "parquet", form="parquet")


def test_nul_is_replaced_in_csv_which_no_python_3_10_could_write(tmp_path: Path) -> None:
    described = lineage(START, user_defined_info=custom({"k\0": "v\0"}))
    write_segment(tmp_path / "records" / "run", event(1, scalar("a\0b", 1.0)), described)
    scalars, [row] = exported(tmp_path, "csv", "scalars", "lineage")
    assert [row["tag"] for row in scalars] == ["a\ufffdb"]
    assert [row[name] for name in row if "k" in name] == ["v\ufffd"]


def test_the_texts_of_numbers(tmp_path: Path) -> None:
    numbers = [1e-4, -1e-4, 1e-5, 0.1, 1 / 3, 1.0, 16777216.0, 123456789.0, 1e16, -0.0, 1e-45]
    events = [event(1 + step, scalar("x", number)) for step, number in enumerate(numbers)]
    write_segment(tmp_path / "records" / "run", *events)
    expected = [float(str(np.float32(number))) for number in numbers]
    [rows], _ = exported(tmp_path, "csv", "scalars"), exported(tmp_path, "jsonl")
    assert [row["value"] for row in rows] == [repr(number) for number in expected]
    places = [{"run": "run", "rank": 0, "tag": "x", "step": step} for step in range(1, 12)]
    assert (tmp_path / "out" / "scalars.jsonl").read_text().splitlines() == [
        json.dumps({**place, "wall_time": START + place["step"] / 4, "value": number})
        for place, number in zip(places, expected, strict=True)
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_many_rows_are_the_rows_of_the_values(tmp_path: Path, form: str) -> None:
    for rank in (0, 1):
        events = [
            event(step, scalar("a", step), scalar("b", rank), histo("w", [step, step + 1.0]))
            for step in range(1, 100)
        ]
        write_segment(tmp_path / "records" / "run", *events, rank=rank)
    rows, histograms = exported(tmp_path, form, "scalars", "histograms", part_bytes=500)
    expected = [
        (rank, tag, step, float(rank if tag == "b" else step))
        for rank in (0, 1)
        for step in range(1, 100)
        for tag in "ab"
    ]
    kinds = {"rank": int, "tag": str, "step": int, "value": float}
    assert [tuple(kind(row[name]) for name, kind in kinds.items()) for row in rows] == expected
    assert [(int(row["step"]), float(row["min"])) for row in histograms] == [
        (step, float(step)) for _ in "ab" for step in range(1, 100)
    ]


TAGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.dictionaries(TAGS, st.floats(width=32), min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=30)
@given(SCALARS.map(lambda found: list(found.items())), st.sampled_from(FORMATS))
def test_any_scalar_comes_back(values: list[tuple[str, float]], form: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorded = event(1, *(scalar(*each) for each in values))
        write_segment(Path(folder, "records", "run"), recorded)
        [found] = exported(Path(folder), form, "scalars")
    tags = [row["tag"] for row in found]
    if form == "csv":  # line ends within a cell are what the csv module makes of them
        assert len(tags) == len(values)
    else:
        assert tags == [tag for tag, _ in values]
    numbers = [np.float32(float(row["value"])) for row in found]
    np.testing.assert_array_equal(numbers, np.float32([number for _, number in values]))


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_edges_of_histograms_are_exact(tmp_path: Path, form: str) -> None:
    edges = [-0.0, 0.0, 0.1, 0.1 + 0.2, 1e300, -math.inf, math.inf, math.nan, 0.1, -0.0]
    value = histo("w", [1.0])
    del value.histogram.buckets[:]
    for edge in edges:
        value.histogram.buckets.add(left=edge, width=0.0, count=1)
    write_segment(tmp_path / "records" / "run", event(1, value), event(2, value))
    [rows] = exported(tmp_path, form, "histograms")
    assert len(rows) == 2
    for row in rows:
        left = json.loads(row["left"]) if form == "csv" else row["left"]
        assert list(map(repr, map(float, left))) == list(map(repr, edges))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_histograms_of_many_steps_are_those_of_load(tmp_path: Path, form: str) -> None:
    values = [histo("w", np.arange(10 + 400 * (step % 3)) / 7) for step in range(40)]
    values[8].histogram.buckets[0].left = -math.inf
    values[9].histogram.buckets[2].count = -1
    values[10].histogram.buckets[2].count = 1 << 40
    del values[11].histogram.buckets[:]
    values[12].histogram.population = 1 << 50
    events = (event(step, value) for step, value in enumerate(values, start=1))
    write_segment(tmp_path / "records" / "run", *events)
    [rows] = exported(tmp_path, form, "histograms")
    expected = load(tmp_path / "records").histograms().to_dict("records")
    assert len(rows) == len(expected) == 40
    for row, other in zip(rows, expected, strict=True):
        for name, cell in other.items():
            if isinstance(cell, np.ndarray):
                np.testing.assert_array_equal(np.array(row[name], cell.dtype), cell)
            else:
                assert row[name] == cell


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((2**60 + 1, 2**60 + 3), "int64"),
        ((2**60 + 1, 0.5), "double"),  # the type does not depend on the value
        ((2**53, 0.5), "double"),
        ((True, 1), "string"),
    ],
)
def test_a_column_of_parquet_holds_all_of_its_values(
    tmp_path: Path, values: tuple[Any, ...], kind: str
) -> None:
    for name, value in zip("ab", values, strict=True):
        seed = lineage(START, user_defined_info=custom({"seed": value}))
        write_segment(tmp_path / "records" / name, event(1, scalar("loss", 1)), seed)
    report = export_tables(tmp_path / "records", tmp_path / "out", form="parquet")
    rounded = kind == "double" and values[0] != float(values[0])
    assert [str(values[0]) in problem.text for problem in report.problems] == [True] * rounded
    seeds = pq.read_table(tmp_path / "out" / "lineage.parquet")["seed"]
    assert str(seeds.type) == kind
    expected = map(float, values) if kind == "double" else values
    assert list(map(str, seeds.to_pylist())) == list(map(str, expected))


@pytest.mark.parametrize("form", FORMATS)
def test_slices_are_those_of_load(tmp_path: Path, form: str) -> None:
    record_clicks(tmp_path / "run", [0.25, 0.75, 0.5], [0, 1, 1], ["DE", "a,b", "DE"])
    tables = export_tables(tmp_path / "run", tmp_path / "out", form=form).tables
    (path,) = (path for path in tables if Path(path).stem == "slices")
    reads = {
        "csv": partial(pd.read_csv, keep_default_na=False, na_values=["nan"]),
        "jsonl": partial(pd.read_json, lines=True),
        "parquet": pd.read_parquet,
    }
    found = reads[form](path)
    expected = load(tmp_path / "run").slices()
    assert tables[path] == len(found) == len(expected) == 3
    for name in ("column", "value"):
        assert found[name].tolist() == expected[name].tolist()
    for name in ("examples", "clicks", "loss", "calibration", "auc"):
        numbers = found[name].astype(float)
        # pandas reads a CSV with a last bit less.
        np.testing.assert_allclose(numbers, expected[name], rtol=1e-12)
