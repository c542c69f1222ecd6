from __future__ import annotations

import contextlib
import math
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rec_summary._pb.lineage_pb2 import EvaluationLineage, RunState
from rec_summary._pb.summary_pb2 import LossLandscape, Summary
from rec_summary.records.format.names import this_host
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.best_values import best_place
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.overview.rows import rows, shows_life
from rec_summary.series.report import Report
from tests.support.corpus import evaluation, finished, losses, put
from tests.support.record_dirs import START, custom, event, lineage, scalar, train, write_segment

AUC = "recommender/auc/lifetime"


def row_of(source: Path) -> dict[str, Any]:
    [row] = rows(find_runs(source), Report())
    return row


def test_metrics_have_their_last_and_their_best_value(tmp_path: Path) -> None:
    values = {AUC: (0.5, 0.75, 0.625), "recommender/log_loss/last_100": (0.5, 0.25, 0.375)}
    values["recommender/calibration/lifetime"] = (2.0, 1.25, 0.5)
    values["recommender/table/item/ids"] = (1, 2, 3)
    values["recommender/loss_of_goods/auc/lifetime"] = (0.5, 0.75, 0.25)
    for step in range(3):
        write_segment(
            tmp_path, event(step + 1, *(scalar(tag, each[step]) for tag, each in values.items()))
        )
    row = row_of(tmp_path)
    assert (row[AUC], row[f"best/{AUC}"], row[f"best_step/{AUC}"]) == (0.625, 0.75, 2)
    assert row["best/recommender/log_loss/last_100"] == 0.25
    assert row["best/recommender/calibration/lifetime"] == 1.25
    assert row["best/recommender/loss_of_goods/auc/lifetime"] == 0.75
    assert "recommender/table/item/ids" not in row


OWN: dict[str, tuple[float, ...]] = {
    "val/ndcg@10": (0.5, 0.75, 0.625),
    "brier": (0.5, 0.25, 0.375),
    "my_score": (3.0, 1.0, 2.0),
    "my_gain/auto": (1.0, 3.0, 2.0),
}


def test_metrics_of_ones_own_are_columns_if_their_name_is_known_or_their_direction_is_stated(
    tmp_path: Path,
) -> None:
    others = ("country=DE/auc", "val_loss", "lr", "rec_summary/errors", "country=DE/my_score", "f")
    for step in range(3):
        values = [scalar(tag, each[step]) for tag, each in OWN.items()]
        write_segment(tmp_path, event(step + 1, *values, *(scalar(tag, step) for tag in others)))
    row = row_of(tmp_path)
    assert [name for name in row if row[name] in (0.625, 0.375)] == ["val/ndcg@10", "brier"]
    assert (row["best/val/ndcg@10"], row["best_step/val/ndcg@10"]) == (0.75, 2)
    assert (row["best/brier"], row["best_step/brier"]) == (0.25, 2)
    assert not row.keys() & {*others, "my_score", "my_gain/auto"}
    stated = {"my_score": "less", "my_gain": "greater", "brier": "greater", "f": "other"}
    described = train(status=RunState.FINISHED, directions=stated)
    write_segment(tmp_path, lineage(train_lineage=described))
    row = row_of(tmp_path)
    best = {name.removeprefix("best/"): row[name] for name in row if name.startswith("best/")}
    assert best == {"val/ndcg@10": 0.75, "brier": 0.5, "my_score": 1.0, "my_gain/auto": 3.0}
    assert row["my_score"] == 2.0
    assert not row.keys() & set(others)


def test_each_run_states_which_values_are_better_also_from_another_process(tmp_path: Path) -> None:
    for run, direction in (("a", "less"), ("b", "greater"), ("c", "")):
        values = (event(step, scalar("auc", step), scalar("s", step)) for step in (1, 2))
        stated = train(directions={"auc": direction, "s": direction})
        write_segment(tmp_path / run, lineage(train_lineage=stated), *values)
    found = rows(find_runs(tmp_path), Report())
    assert [(row["best/auc"], row.get("best/s")) for row in found] == [(1, 1), (2, 2), (2, None)]
    again = pickle.loads(pickle.dumps(found))
    assert [(row.directions["auc"], row.directions.get("s")) for row in again] == [
        ("less", "less"),
        ("greater", "greater"),
        ("", None),
    ]


def test_what_is_stated_counts_for_evaluations_and_for_losses(tmp_path: Path) -> None:
    stated = {"eval/my_score": "less", "loss": "greater"}
    write_segment(
        tmp_path,
        *(event(step, scalar("loss/deep/loss", step)) for step in (1, 2)),
        lineage(train_lineage=train(directions=stated)),
        evaluation(START, '{"my_score": 0.75}', 1),
        evaluation(START, '{"my_score": 1.5}', 2),
    )
    row = row_of(tmp_path)
    assert (row["my_score"], row["best/my_score"], row["best_step/my_score"]) == (1.5, 0.75, 1)
    assert row["loss"] == 2


def test_evaluations_have_their_best_value_and_are_there_once(tmp_path: Path) -> None:
    write_segment(
        tmp_path,
        event(1, scalar("eval/auc", 0.75), scalar("eval/own", 0.5)),
        evaluation(START, '{"auc": 0.75, "Loss": 1}', 1),
        evaluation(START, '{"auc": 0.5, "Loss": 2}', 2),
    )
    row = row_of(tmp_path)
    assert (row["auc"], row["best/auc"], row["best_step/auc"]) == (0.5, 0.75, 1)
    assert (row["Loss"], row["best/Loss"]) == (2, 1)
    assert (row["eval/own"], "eval/auc" in row) == (0.5, False)


@pytest.mark.parametrize(
    ("metrics", "columns"),
    [
        ('{"loss": 2.0}', {"eval/loss": 2.0, "best/eval/loss": 2.0}),
        ('{"eval/loss": 1.0, "loss": 2.0}', {"eval/loss": 1.0, "eval/eval/loss": 2.0}),
    ],
    ids=["takes its best value along", "does not replace another metric"],
)
def test_a_metric_with_the_name_of_another_column(
    tmp_path: Path, metrics: str, columns: dict[str, float]
) -> None:
    evaluated = lineage(evaluation_lineage=EvaluationLineage(metric=metrics))
    write_segment(tmp_path, lineage(train_lineage=train()), evaluated)
    row = row_of(tmp_path)
    assert {name: row[name] for name in ("loss", *columns)} == {"loss": 0.25, **columns}


def test_loss_and_step_come_from_the_records(tmp_path: Path) -> None:
    values = [event(step, scalar("loss/auto", step)) for step in range(1, 61)]
    described = train(status=RunState.RUNNING, step=1)
    write_segment(tmp_path, lineage(START, train_lineage=described), *values)
    row = row_of(tmp_path)
    assert (row["loss"], row["step"]) == (sum(range(55, 61)) / 6, 60)
    assert row["last_record"] == row["silent_since"] == START + 15


def test_samples_that_belong_to_an_earlier_step_are_not_shown(tmp_path: Path) -> None:
    described = train(status=RunState.RUNNING, step=2, samples=200)
    values = [event(step, scalar("loss/auto", step)) for step in (1, 2, 60)]
    for name, kept in (("same", values[:2]), ("later", values)):
        write_segment(tmp_path / name, lineage(START, train_lineage=described), *kept)
    later, same = rows(find_runs(tmp_path), Report())
    assert ((same["step"], same["samples"]), (later["step"], "samples" in later)) == (
        (2, 200),
        (60, False),
    )
    inspected = {each.run: each.samples for run in find_runs(tmp_path) for each in inspect_run(run)}
    assert inspected == {"same": 200, "later": None}


def test_a_landscape_that_is_computed_afterwards_is_no_step(tmp_path: Path) -> None:
    write_segment(tmp_path, *losses(range(1, 4)))
    landscape = Summary.Value(tag="landscape", loss_landscape=LossLandscape())
    write_segment(tmp_path, event(0, landscape))
    assert row_of(tmp_path)["step"] == 3


def test_a_later_lineage_knows_a_later_step(tmp_path: Path) -> None:
    last = lineage(START + 99, train_lineage=train(status=RunState.FINISHED, step=65))
    write_segment(tmp_path, event(60, scalar("loss", 1.0)), last)
    row = row_of(tmp_path)
    assert (row["step"], row["last_record"], "silent_since" in row) == (65, START + 99, False)


def test_a_loss_that_is_nan_is_shown(tmp_path: Path) -> None:
    write_segment(tmp_path, *(event(n, scalar("loss", math.nan)) for n in range(1, 3)))
    assert math.isnan(row_of(tmp_path)["loss"])


@pytest.mark.filterwarnings("error")
def test_the_mean_of_losses_of_both_infinities_is_nan(tmp_path: Path) -> None:
    values = [event(n, scalar("loss", math.inf if n % 2 else -math.inf)) for n in range(1, 41)]
    write_segment(tmp_path, *values)
    assert math.isnan(row_of(tmp_path)["loss"])


def test_what_a_restart_supersedes_does_not_count(tmp_path: Path) -> None:
    write_segment(tmp_path, *(event(n, scalar(AUC, n / 8)) for n in range(1, 8)))
    write_segment(tmp_path, *(event(n, scalar(AUC, 0.25), at=START + 99) for n in range(2, 5)))
    row = row_of(tmp_path)
    assert (row[AUC], row[f"best/{AUC}"], row["step"]) == (0.25, 0.25, 4)


def test_an_evaluation_that_a_restart_supersedes_is_not_the_best(tmp_path: Path) -> None:
    put(tmp_path, *(evaluation(START + n, f'{{"auc": 0.{n}}}', 10 * n) for n in (7, 8, 9)))
    again = (
        evaluation(START + 90 + n, f'{{"auc": 0.{n}}}', step) for n, step in ((5, 80), (6, 90))
    )
    put(tmp_path, *again, stamp=1)
    row = row_of(tmp_path)
    assert (row["auc"], row["best/auc"], row["best_step/auc"]) == (0.6, 0.7, 70)


def test_of_evaluations_without_a_step_all_count(tmp_path: Path) -> None:
    put(tmp_path, *(evaluation(START + n, f'{{"auc": 0.{n}}}', 0) for n in (7, 9, 8)))
    row = row_of(tmp_path)
    assert (row["auc"], row["best/auc"], "best_step/auc" in row) == (0.8, 0.9, False)


def test_a_second_writer_has_a_row_with_its_own_lineage(tmp_path: Path) -> None:
    put(tmp_path / "run", *losses(range(1, 200)), finished(50, 199))
    put(tmp_path / "run", *losses(range(1, 99), salt=1, after=0.5), finished(51, 98), stamp=1)
    found = rows(find_runs(tmp_path), Report())
    assert [(row["run"], row["step"]) for row in found] == [("run", 199), ("run/writer_2", 98)]


def test_the_lowest_rank_stands_for_the_run(tmp_path: Path) -> None:
    for rank in (1, 0):
        write_segment(tmp_path, event(1, scalar(AUC, rank / 2)), rank=rank)
    assert row_of(tmp_path)[AUC] == 0


@pytest.mark.parametrize("others", [0, 1])
def test_a_file_without_a_readable_value_is_a_problem(tmp_path: Path, others: int) -> None:
    damaged, _ = write_segment(tmp_path, event(1, scalar("loss", 1)), rank=0)
    damaged.write_bytes(b"these are no records" * 10)
    for rank in range(1, 1 + others):
        write_segment(tmp_path, event(1, scalar("loss", 1)), rank=rank)
    report = Report()
    rows(find_runs(tmp_path), report)
    assert [problem.path for problem in report.problems] == [str(damaged)]


@pytest.mark.parametrize(
    ("metric", "best"),
    [("auc", 4.0), ("Loss", -3.0), ("rmse", -3.0), ("ne", -3.0), ("calibration", 0.5)],
)
def test_what_is_best_depends_on_the_name(metric: str, best: float) -> None:
    values = [4.0, math.nan, 0.5, -3.0, math.inf]
    assert best_place(metric, values) == values.index(best)
    assert best_place(metric, [math.nan]) is None


def test_the_program_of_a_run_has_columns_unless_custom_data_has_them(tmp_path: Path) -> None:
    described = train(git_commit="c" * 40, git_dirty=True, command=["python", "a b.py"])
    described.run_state.packages.update({"numpy": "2.0", "jax": "0.4"})
    write_segment(tmp_path / "run", lineage(START, train_lineage=described))
    ours = {"commit": "c" * 40 + "-dirty", "command": "python 'a b.py'"}
    ours["packages"] = "jax 0.4, numpy 2.0"
    assert {name: row_of(tmp_path)[name] for name in ours} == ours
    own = lineage(START, user_defined_info=custom({"commit": "theirs"}))
    write_segment(tmp_path / "run", own)
    row = row_of(tmp_path)
    assert (row["commit"], row["packages"]) == ("theirs", ours["packages"])
    assert "custom.commit" not in row


def state(status: Any = RunState.RUNNING, host: str = "", pid: int | None = None) -> RunState:
    return RunState(status=status, host=host or this_host(), pid=pid)


def test_signs_of_life(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    now = time.time()
    directory = Run("run", str(tmp_path), ())
    assert shows_life(directory, state(pid=os.getpid()), now - 60)
    assert not shows_life(directory, state(pid=os.getpid()), 0.0)  # the number is another's by now
    assert not shows_life(directory, state(pid=gone.pid), now)
    assert shows_life(directory, state(pid=gone.pid, host="elsewhere"), now - 60)
    assert not shows_life(directory, state(host="elsewhere"), now - 3600)
    assert shows_life(directory, state(RunState.FINISHED, host="elsewhere"), now - 3600)
    with contextlib.closing(RunWriter(tmp_path)):
        [alive] = find_runs(tmp_path)
        assert shows_life(alive, state(pid=gone.pid, host="elsewhere"), 0.0)


def test_a_killed_writer_shows_no_life_though_another_of_its_rank_does(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    running = train(status=RunState.RUNNING, host=this_host(), pid=gone.pid)
    killed, alive = RunWriter(tmp_path), RunWriter(tmp_path)
    with contextlib.closing(alive):
        # Their records come in turn, so they are two writers.
        for second in range(6):
            writer = (killed, alive)[second % 2]
            record = event(1 + second // 2, scalar("loss", 1), at=START + second)
            writer.write(MessageRecord(record))
            writer.write(MessageRecord(lineage(START + second, train_lineage=running)))
            writer.flush()
        killed.close()
        found = rows(find_runs(tmp_path), Report())
        assert ["silent_since" in row for row in found] == [True, False]
        inspected = inspect_run(*find_runs(tmp_path))
        assert [each.silent_since is None for each in inspected] == [False, True]
