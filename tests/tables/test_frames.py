"""`rec_summary.load`: what was recorded, as tables."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")

import pandas as pd

import rec_summary
from rec_summary._pb.lineage_pb2 import EvaluationLineage, RunState
from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import ArgumentError, SourceError
from rec_summary.tables.frames import load
from rec_summary.values.tensor import to_tensor
from tests.support import cases
from tests.support.damage import cut_off
from tests.support.landscape_cases import landscape_value
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    losses,
    scalar,
    train,
    write_segment,
)
from tests.support.recorded_streams import record_clicks


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two runs, one of them with two ranks."""
    metric = '{"auc": 0.75, "note": "x"}'
    write_segment(
        tmp_path / "a",
        event(1, scalar("loss", 0.5), histo("w", [1.0, 2.0, math.nan])),
        event(2, scalar("loss", 0.25), scalar("lr", 0.1)),
        event(2, scalar("loss", 0.125)),  # the end of an epoch
        lineage(START + 5, train_lineage=train(status=RunState.FINISHED, step=2)),
        lineage(START + 6, user_defined_info=custom({"team": "ads", "deep": {"x": 3}})),
        lineage(START + 7, evaluation_lineage=EvaluationLineage(metric=metric, train_step=2)),
    )
    for rank in (0, 1):
        write_segment(tmp_path / "b", event(7, scalar("loss", rank)), rank=rank)
    return tmp_path


def test_scalars_have_a_row_each(records: Path) -> None:
    table = rec_summary.load(records).scalars()
    assert list(table.columns) == ["run", "rank", "tag", "step", "wall_time", "value"]
    assert [tuple(row) for row in table.itertuples(index=False)] == [
        ("a", 0, "loss", 1, START + 0.25, 0.5),
        ("a", 0, "lr", 2, START + 0.5, float(np.float32(0.1))),
        ("a", 0, "loss", 2, START + 0.5, 0.125),
        ("b", 0, "loss", 7, START + 1.75, 0.0),
        ("b", 1, "loss", 7, START + 1.75, 1.0),
    ]
    assert table.dtypes["step"] == np.int64
    assert isinstance(table.dtypes["tag"], pd.CategoricalDtype)


def test_a_column_for_each_tag(records: Path) -> None:
    table = load(records).scalars(wide=True)
    assert list(table.columns) == ["loss", "lr"]
    assert table.loc[("a", 0, 2), "loss"] == 0.125
    assert math.isnan(table.loc[("a", 0, 1), "lr"])
    assert list(table.index.names) == ["run", "rank", "step"]


def test_what_a_restart_recorded_again_counts(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses((1, 2, 3)))
    write_segment(tmp_path / "run", *(event(s, scalar("loss", -s)) for s in (2, 3)))
    table = load(tmp_path).scalars().sort_values("step")
    assert list(table["value"]) == [1, -2, -3]


def test_histograms_have_their_buckets(records: Path) -> None:
    [row] = load(records).histograms().itertuples()
    assert (row.run, row.tag, row.step, row.count, row.nan_count) == ("a", "w", 1, 3, 1)
    assert (row.min, row.max, row.sum) == (1.0, 2.0, 3.0)
    assert row.counts.sum() == 2
    assert (row.left[0], row.right[-1]) == (1.0, 2.0)


def test_lineage_has_a_row_for_each_run(records: Path) -> None:
    table = load(records).lineage()
    row = table.loc["a"]
    assert (row["status"], row["optimizer"], row["learning_rate"]) == ("FINISHED", "Adam", 0.001)
    assert (row["team"], row["deep.x"], row["auc"], row["step"]) == ("ads", 3, 0.75, 2)
    assert table.loc["b"]["status"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((2**53 + 1, 2**53), "Int64"),
        ((2**53 + 1, None), "Int64"),  # a run without the entry
        ((1, 2), "Int64"),
        ((0.5, None), "float64"),
        ((0.5, 1), "float64"),
        ((True, None), "boolean"),
        (("a", None), "object"),
    ],
)
def test_types_of_lineage_are_exact_and_do_not_depend_on_the_values(
    tmp_path: Path, values: tuple[Any, Any], kind: str
) -> None:
    for name, value in zip("ab", values, strict=True):
        entry = {"other": 1} if value is None else {"entry": value}
        write_segment(tmp_path / name, lineage(START, user_defined_info=custom(entry)))
    column = load(tmp_path).lineage()["entry"]
    assert str(column.dtype) == kind
    assert [None if pd.isna(value) else value for value in column] == list(values)


def test_an_integer_that_has_to_be_rounded_is_reported(tmp_path: Path) -> None:
    for name, value in (("a", 2**53 + 1), ("b", 0.5)):
        write_segment(tmp_path / name, lineage(START, user_defined_info=custom({"seed": value})))
    with pytest.warns(UserWarning, match=f"seed has fractions .* {2**53 + 1} is rounded; record"):
        assert load(tmp_path).lineage()["seed"].dtype == np.float64


def test_evaluations_have_a_row_for_each_metric(records: Path) -> None:
    auc, note = load(records).evaluations().itertuples()
    assert (auc.run, auc.step, auc.metric, auc.value) == ("a", 2, "auc", 0.75)
    assert note.metric == "note"
    assert math.isnan(note.value)


def test_images_tensors_and_landscapes(tmp_path: Path) -> None:
    image = Summary.Image(height=2, width=3, colorspace=1, encoded_image=b"png")
    array = np.arange(6, dtype=np.int64).reshape(2, 3) + (1 << 40)
    values = Summary.Value(tag="i", image=image), Summary.Value(tag="t", tensor=to_tensor(array))
    write_segment(tmp_path / "run", event(4, *values), event(0, landscape_value("l")))
    records = load(tmp_path)
    [image_row] = records.images().itertuples()
    assert (image_row.height, image_row.width, image_row.encoded) == (2, 3, b"png")
    np.testing.assert_array_equal(records.tensors()["tensor"][0], array)
    [found] = records.landscapes()
    assert (found.run, found.tag, found.step) == ("run", "l", 0)
    assert found.landscape.z.shape == (12, 9)


def test_choices(records: Path) -> None:
    assert set(load(records, tags="lr").scalars()["tag"]) == {"lr"}
    assert set(load(records, runs="b").scalars()["run"]) == {"b"}
    assert set(load(records, since=2, until=5).scalars()["step"]) == {2}
    with pytest.raises(ArgumentError, match=r"Tags match it, not runs: lr\. Use --tags"):
        load(records, runs="lr")
    with pytest.raises(ArgumentError, match=r"found in a tag; there are: .*lr"):
        load(records, tags="nothing")
    with pytest.raises(SourceError):
        load(records / "nowhere")


def test_nothing_to_show_is_an_empty_table(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", lineage(user_defined_info=custom({"x": 1})))
    records = load(tmp_path)
    assert len(records.scalars()) == len(records.histograms()) == len(records.evaluations()) == 0
    assert list(records.scalars().columns)[-1] == "value"
    assert records.scalars(wide=True).empty


def test_chunks_are_never_larger_than_asked_for(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses(range(10)))
    records = load(tmp_path)
    assert [len(chunk) for chunk in records.iter_scalars(4)] == [4, 4, 2]
    with pytest.raises(ValueError, match="chunk is invalid"):
        next(records.iter_scalars(0))


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    peaks = []
    for name, count in (("few", 100_000), ("many", 300_000)):
        write_segment(tmp_path / name / "run", *losses(range(1, count + 1)))
        records = load(tmp_path / name)
        tracemalloc.start()
        total = sum(len(chunk) for chunk in records.iter_scalars(1000))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert total == count
    assert peaks[1] < peaks[0] * 1.5  # three times as many records


def test_damage_is_one_warning_and_kept(records: Path) -> None:
    for path in (records / "a").glob("*_MS"):
        cut_off(path, 3)
    found = load(records)
    with pytest.warns(UserWarning, match="1 problems in .*incomplete record at the end"):
        table = found.scalars()
    assert len(table) == 5
    [problem] = found.problems
    assert problem.offset > 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda found: found.scalars(),
        lambda found: list(found.iter_scalars()),
        lambda found: found.images(),
        lambda found: found.landscapes(),
        lambda found: found.evaluations(),
        lambda found: found.lineage(),
        lambda found: found.groups("team"),
    ],
)
def test_a_warning_is_of_the_line_that_asks_for_a_table(records: Path, ask: Any) -> None:
    for path in (records / "a").iterdir():
        cut_off(path, 3)
    with pytest.warns(UserWarning, match="problems in") as caught:
        ask(load(records))
    assert [warning.filename for warning in caught] == [__file__]


def test_all_cases_are_readable(tmp_path: Path) -> None:
    cases.write_all(tmp_path)
    found = load(tmp_path)
    assert set(found.runs) == set(cases.RUNS)
    assert len(found.scalars()) > 30
    assert len(found.lineage()) == len(cases.RUNS)
    assert repr(found).startswith(f"<Records of {len(cases.RUNS)} runs in ")


def test_neither_tensorboard_nor_mindspore_is_loaded(records: Path) -> None:
    code = (
        "import sys, rec_summary; rec_summary.load(sys.argv[1]).scalars(); "
        "print([name for name in ('tensorboard', 'mindspore') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(records)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_pandas_it_says_what_to_install(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'rec_summary\[tables\]'"):
        load(records)


@pytest.mark.parametrize("choice", [{"since": 10**6}, {"until": 1}])
def test_a_choice_may_leave_nothing_of_a_long_training(
    tmp_path: Path, choice: dict[str, object]
) -> None:
    write_segment(tmp_path / "a", *losses(range(2, 500)))
    records = rec_summary.load(tmp_path, **choice)
    assert len(records.scalars()) == 0
    assert list(records.iter_scalars()) == []


def test_slices_have_a_row_for_each_value_and_report(tmp_path: Path) -> None:
    for name, country in (("a", "DE"), ("b", "FR")):
        record_clicks(tmp_path / name, [0.25, 0.75], [0, 1], [country, "US"], steps=2)
    table = load(tmp_path).slices()
    assert list(table.columns) == [
        *("run", "task", "column", "value", "step", "wall_time"),
        *("examples", "weight", "clicks", "predicted", "loss"),
        *("normalised_entropy", "calibration", "auc", "auc_error"),
        *("served_examples", "ne_change", "ne_change_error"),
        *("served_calibration", "compared_calibration"),
    ]
    rows = table[table.run == "b"].set_index(["step", "column", "value"])
    assert rows.examples.to_dict() == {
        (step, column, value): count
        for step in (1, 2)
        for column, value, count in (("", "", 2), ("country", "FR", 1), ("country", "US", 1))
    }
    whole = rows.loc[1, "", ""]
    assert whole.loss == pytest.approx(-2 * math.log(0.75))
    assert whole.normalised_entropy == pytest.approx(-math.log(0.75) / math.log(2))
    assert whole.calibration == 1
    assert whole.auc == 1
    assert math.isnan(rows.loc[1, "country", "FR"].auc)
    total = load(tmp_path, runs="b").slices(total=True)
    assert total.examples.tolist() == [4, 2, 2]
    assert load(tmp_path, since=2).slices().step.unique().tolist() == [2]
