"""The metrics of recommenders in a loop of your own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import metrics

from rec_summary import (
    EmbeddingTable,
    RecommenderMetrics,
    SummaryRecord,
    export_tensorboard,
    load,
)
from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.control import Request, add_request
from tests.support import event_files
from tests.support.programs import observe_clicks
from tests.support.programs.observe_clicks import COUNTRIES, STEPS, batch_of
from tests.support.training_records import lineage, scalars, statuses
from tests.support.waiting import PATIENCE_SECS

ROOT = Path(__file__).parents[3]
CLICKS = RecommenderMetrics(
    predictions="score", labels="click", report_steps=2, throughput=False, host=False
)
ALL = "recommender/"


def started(folder: Path, *arguments: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", observe_clicks.__name__, str(folder), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> int:
    _, errors = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode in (0, -9), errors
    return process.returncode


def everything(ranks: int = 1) -> dict[str, Any]:
    """Returns the columns of all batches."""
    batches = [batch_of(step, rank) for rank in range(ranks) for step in range(1, STEPS + 1)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def shown(folder: Path, run: str) -> dict[str, float]:
    """Returns the last value of each scalar of a run."""
    table = load(folder).scalars()
    table = table[table["run"] == run]
    return dict(zip(table["tag"], table["value"], strict=True))


def gauc(columns: dict[str, Any]) -> float:
    """Returns the mean of the users' AUC, weighted by their examples; one class has none."""
    areas = []
    for user in np.unique(columns["user"]):
        mine = columns["user"] == user
        click = columns["click"][mine]
        if 0 < click.mean() < 1:
            area = metrics.roc_auc_score(click, columns["score"][mine])
            areas.append((area, int(mine.sum())))
    values, weights = zip(*areas, strict=True)
    return float(np.average(values, weights=weights))


def assert_true(values: dict[str, float], columns: dict[str, Any]) -> None:
    """Asserts that the metrics of all examples are those of scikit-learn."""
    click, score = columns["click"], columns["score"]
    every = f"{ALL}{{}}/lifetime"
    assert values[every.format("examples")] == len(click)
    auc = metrics.roc_auc_score(click, score)
    assert values[every.format("auc")] == pytest.approx(auc, abs=1e-4)
    loss = metrics.log_loss(click, score)
    assert values[every.format("log_loss")] == pytest.approx(loss, rel=1e-5)
    assert values[every.format("gauc")] == pytest.approx(gauc(columns), abs=1e-3)
    for country in COUNTRIES:
        mine = columns["country"] == country
        area = metrics.roc_auc_score(click[mine], score[mine])
        tag = every.format(f"slice/country={country}/auc")
        assert values[tag] == pytest.approx(area, abs=1e-3), country


def test_metrics_go_on_after_a_kill_and_equal_scikit_learns(tmp_path: Path) -> None:
    assert ended(started(tmp_path, 0, 1, 1, STEPS // 2, 1)) == -9
    assert statuses(tmp_path) == ["RUNNING"]
    assert ended(started(tmp_path, 0, 1, STEPS // 2 + 1, STEPS, 0)) == 0
    assert statuses(tmp_path)[-1] == "FINISHED"
    assert_true(shown(tmp_path, tmp_path.name), everything())
    [row] = load(tmp_path).lineage().to_dict("records")
    assert (row["status"], row["step"], row["samples"]) == ("FINISHED", STEPS, STEPS * 250)


def test_metrics_of_two_ranks_are_merged(tmp_path: Path) -> None:
    ranks = [started(tmp_path / "run", rank, 2, 1, STEPS, 0) for rank in range(2)]
    assert [ended(each) for each in ranks] == [0, 0]
    export_tensorboard(tmp_path / "run", tmp_path / "logs")
    merged = {
        value.tag.replace("recommender_detail/", ALL): value.simple_value
        for _, _, value in event_files.values(tmp_path / "logs" / "run")
        if value.HasField("simple_value")
    }
    assert_true(merged, everything(2))


def test_the_same_stream_gives_a_collectors_numbers_to_the_last_bit(tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    from mindspore import Parameter, Tensor, nn
    from mindspore.dataset import GeneratorDataset

    from rec_summary import RecModel, SummaryCollector

    class Loss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.scale = Parameter(Tensor(np.float32(1)), name="scale")

        def construct(self, score: Any, click: Any, user: Any, country: Any) -> Any:
            return ((self.scale * score - click) ** 2).mean()

    def batches() -> Iterable[tuple[Any, ...]]:
        for step in range(1, STEPS + 1):
            yield tuple(batch_of(step).values())

    network, names = Loss(), [*batch_of(1)]
    names_of = observe_clicks.options()
    data = GeneratorDataset(batches, names, shuffle=False)
    optimizer = nn.SGD(network.trainable_params())
    collector = SummaryCollector(tmp_path / "collector", recommender=names_of)
    with collector:
        RecModel(network, optimizer=optimizer).train(1, data, callbacks=[collector])
    with SummaryRecord(tmp_path / "loop", recommender=names_of) as record:
        for step in range(1, STEPS + 1):
            record.observe(**batch_of(step))
            record.record(step)
    ours, theirs = (
        {tag: value for tag, value in shown(tmp_path, run).items() if "recommender" in tag}
        for run in ("loop", "collector")
    )
    assert len(ours) > 20
    assert ours == pytest.approx(theirs, rel=0, abs=0, nan_ok=True)


def test_texts_may_be_objects_as_in_pandas(tmp_path: Path) -> None:
    options = RecommenderMetrics(
        predictions="score", labels="click", slices={"country": "country"}, report_steps=1
    )
    countries = np.array(["de", "fr"], object)
    with SummaryRecord(tmp_path, recommender=options) as record:
        for step in range(1, 4):
            batch = batch_of(step)
            record.observe(
                score=batch["score"], click=batch["click"], country=countries[batch["user"] % 2]
            )
            record.record(step)
        assert record.troubles == {}
    assert "recommender/slice/country=fr/auc/last_100000" in shown(tmp_path, tmp_path.name)


def test_several_batches_before_a_record_are_one_step(tmp_path: Path) -> None:
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    with SummaryRecord(parts, recommender=CLICKS) as record:
        for step in range(1, 5):
            for part in range(2):
                batch = batch_of(step)
                record.observe(**{n: batch[n][part * 100 :][:100] for n in ("score", "click")})
            record.record(step)
    with SummaryRecord(whole, recommender=CLICKS) as record:
        for step in range(1, 5):
            record.observe(**{n: batch_of(step)[n][:200] for n in ("score", "click")})
            record.record(step)
    tag = "recommender/log_loss/last_100000"
    assert scalars(parts, tag) == scalars(whole, tag)
    assert [each.run_state.samples for each in lineage(parts, "train_lineage")][-1] == 800


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (
            {"score": np.ones(3)},
            ValueError,
            "Received: columns score. Expected: columns click, score",
        ),
        (
            {"score": np.ones(3), "click": np.ones(3), "clcik": np.ones(3)},
            ValueError,
            "Received: columns clcik, click, score",
        ),
        ({"score": np.ones(3), "click": np.ones(2)}, ValueError, "score 3, click 2"),
        ({"score": np.ones(3), "click": object()}, TypeError, "the column click is invalid"),
        ({"score": np.ones(3), "click": np.float32(1)}, ValueError, "one row per example"),
    ],
)
def test_a_wrong_first_batch_is_an_error_and_a_later_one_is_counted(
    tmp_path: Path, columns: dict[str, Any], error: type[Exception], text: str
) -> None:
    with SummaryRecord(tmp_path, recommender=CLICKS) as record:
        with pytest.raises(error, match=text.replace(".", r"\.")):
            record.observe(**columns)
        record.observe(**columns)
        assert record.troubles == {"observe": 1}
        record.observe(score=np.array([0.2, 0.7]), click=np.array([0, 1]))
        assert record.record(2)
    assert scalars(tmp_path, "recommender/examples/last_100000") == {2: 2.0}
    assert statuses(tmp_path)[-1] == "FINISHED"


class OnDevice:
    """A tensor in the memory of a device, as PyTorch refuses it."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class WithGradient:
    """A tensor that must be detached, as PyTorch's."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def detach(self) -> Any:
        return self._values

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class Capsule:
    """An array that has DLPack and nothing else."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._values.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


def test_arrays_of_any_framework_are_taken_and_those_of_a_device_refused(tmp_path: Path) -> None:
    score, click = np.array([0.2, 0.7], np.float32), np.array([0.0, 1.0], np.float32)
    with SummaryRecord(tmp_path, recommender=CLICKS) as record:
        record.observe(score=WithGradient(score), click=Capsule(click))
        record.add_value("scalar", "loss", WithGradient(np.float32(0.25)))
        score[:], click[:] = 0.5, 0.0  # the loop uses its memory again
        record.record(2)
        record.observe(score=OnDevice(), click=click)
        assert record.troubles == {"observe": 1}
    assert scalars(tmp_path, "recommender/auc/last_100000") == {2: 1.0}
    assert scalars(tmp_path, "loss") == {2: 0.25}
    with (
        SummaryRecord(tmp_path / "first", recommender=CLICKS) as record,
        pytest.raises(TypeError, match=r"cuda:0.*Expected: an array in the memory of the host"),
    ):
        record.observe(score=OnDevice(), click=click)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"recommender": RecommenderMetrics(predictions=1, labels=2)}, ValueError, "predictions"),
        ({"recommender": {"predictions": "score"}}, TypeError, "rec_summary.RecommenderMetrics"),
        ({"recommender": CLICKS, "tables": {"item": EmbeddingTable(len)}}, ValueError, "tables"),
        ({"rank": 2, "rank_size": 2}, ValueError, "rank"),
        ({"hyper_parameters": {"rate": object()}}, TypeError, "hyper_parameters"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_made(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        SummaryRecord(tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_without_metrics_nothing_can_be_observed(tmp_path: Path) -> None:
    with (
        SummaryRecord(tmp_path) as record,
        pytest.raises(TypeError, match="recommender=RecommenderMetrics"),
    ):
        record.observe(score=np.ones(2))


def test_tables_have_norms_of_the_rows_that_a_function_reads(tmp_path: Path) -> None:
    weights = np.full((50, 4), 0.5, np.float32)
    options = RecommenderMetrics(ids={"item": "item", "user": "user"}, report_steps=1, detail=True)
    tables = {"item": EmbeddingTable(lambda rows: weights[rows], size=50)}
    with SummaryRecord(tmp_path, recommender=options, tables=tables) as record:
        for step in (1, 2):
            ids = np.arange(20).reshape(10, 2)
            record.observe(item=ids, user=ids[:, 0])
            record.record(step)
        assert record.troubles == {}
    found = shown(tmp_path, tmp_path.name)
    norms = {tag: value for tag, value in found.items() if "table/item/" in tag and "norm" in tag}
    assert 1.0 in norms.values(), found.keys()
    assert not [tag for tag in found if "table/user/" in tag and "norm" in tag]


def test_a_request_to_stop_is_seen_by_the_loop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rec_summary", "control", str(tmp_path), "--stop"]
    with SummaryRecord(tmp_path, hyper_parameters={"rate": 0.1}) as record:
        record.record(1)
        record.flush()
        asked = subprocess.Popen(command, cwd=ROOT)
        end = time.monotonic() + PATIENCE_SECS
        for step in range(2, 1_000_000):
            time.sleep(0.01)
            record.add_value("scalar", "loss", 1 / step)
            record.record(step)
            if record.should_stop or time.monotonic() > end:
                break
        record.flush()
        assert asked.wait(PATIENCE_SECS) == 0
    state = lineage(tmp_path, "train_lineage")[-1].run_state
    assert state.status == RunState.STOPPED
    assert state.reason.startswith("rec-summary control, ")
    [row] = load(tmp_path).lineage().to_dict("records")
    assert row["rate"] == 0.1


def test_waiting_for_data_is_measured_where_the_loop_reads_through_batches(tmp_path: Path) -> None:
    options = RecommenderMetrics(
        predictions="score", labels="click", report_steps=2, host=False, detail=True
    )

    def slow() -> Iterable[int]:
        for step in range(1, 9):
            time.sleep(0.05)
            yield step

    tag = "recommender/throughput/input_stall_share"
    for name, wrapped in (("measured", True), ("unknown", False)):
        with SummaryRecord(tmp_path / name, recommender=options) as record:
            for step in record.batches(slow()) if wrapped else slow():
                record.observe(score=np.array([0.2, 0.7]), click=np.array([0, 1]))
                record.record(step)
    assert 0.5 < scalars(tmp_path / "measured", tag)[8] <= 1
    assert scalars(tmp_path / "unknown", tag) == {}


@pytest.mark.parametrize("action", ["checkpoint", "incident"])
def test_a_request_that_a_loop_cannot_fulfil_raises_nothing(tmp_path: Path, action: Any) -> None:
    with SummaryRecord(tmp_path, recommender=CLICKS, raise_exception=True) as record:
        record.record(1)
        record.observe(score=np.array([0.2, 0.7]), click=np.array([0, 1]))
        record.observe(score=np.ones(1), click=np.ones(2))  # is counted
        add_request(str(tmp_path), Request(id="0" * 16, author="me", time=1.0, actions=[action]))
        for step in range(2, 1000):
            assert record.record(step)
            if "control" in record.troubles:
                break
            time.sleep(0.01)
        assert record.troubles == {"observe": 1, "control": 1}


def test_a_large_number_of_steps_at_once_takes_no_memory(tmp_path: Path) -> None:
    options = RecommenderMetrics(predictions="score", labels="click", report_steps=1, host=False)
    with SummaryRecord(tmp_path, recommender=options) as record:
        for step in (1, 2, 1 << 60):
            record.observe(score=np.array([0.2, 0.7]), click=np.array([0, 1]))
            record.record(step, samples=1000)
        assert record.troubles == {}
    assert scalars(tmp_path, "recommender/examples/last_100000")[1 << 60] == 6


def test_examples_beside_those_observed_count_for_the_speed(tmp_path: Path) -> None:
    options = RecommenderMetrics(
        predictions="score", labels="click", report_steps=4, host=False, detail=True
    )
    with SummaryRecord(tmp_path, recommender=options) as record:
        for step in range(1, 9):
            if step % 2 == 0:
                record.observe(score=np.array([0.2, 0.7]), click=np.array([0, 1]))
            record.record(step, samples=1000)
    pace, speed = (
        scalars(tmp_path, f"recommender/throughput/{what}_per_second")[8]
        for what in ("steps", "samples")
    )
    assert speed == pytest.approx(1000 * pace, rel=1e-5)


def test_batches_of_a_step_may_have_different_widths(tmp_path: Path) -> None:
    options = RecommenderMetrics(
        ids={"item": "item"}, report_steps=1, throughput=False, host=False, detail=True
    )
    with SummaryRecord(tmp_path, recommender=options) as record:
        record.observe(item=np.zeros((4, 2), int))
        record.observe(item=np.zeros((4, 3), int))
        record.record(1)
        record.observe(item=np.arange(6).reshape(3, 2))
        record.record(2)
        record.observe(item=np.zeros((2, 2), int))
        assert record.troubles == {"recommender metrics": 1}  # integers cannot be padded
    assert record.troubles["recommender metrics: examples not counted"] == 2
    assert scalars(tmp_path, "recommender/table/item/ids") == {2: 6.0}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise AttributeError("no text")


def test_an_exception_without_a_text_is_how_it_has_ended(tmp_path: Path) -> None:
    record = SummaryRecord(tmp_path)
    record.record(1)
    with pytest.raises(Unspeakable), record:
        raise Unspeakable
    assert statuses(tmp_path)[-1] == "FAILED"


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, {}, (1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "3"}, {"rank": 2}, (2, 3)),
        ({"RANK": "1", "WORLD_SIZE": "1"}, {}, (0, 1)),  # of a launcher that counts from 1
        ({"RANK": "x"}, {"rank": 1, "rank_size": 4}, (1, 4)),
    ],
)
def test_ranks_are_those_of_a_launcher_unless_the_loop_says_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    arguments: dict[str, int],
    expected: tuple[int, int],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with SummaryRecord(tmp_path, **arguments) as record:
        record.record(1)
    state = lineage(tmp_path, "train_lineage")[-1].run_state
    assert (state.rank, state.rank_size) == expected


@pytest.mark.parametrize("where", ["in C", "in a thread"])
def test_an_interrupt_ends_a_loop_as_it_would_without_records(tmp_path: Path, where: str) -> None:
    code = """
import functools, hashlib, os, signal, sys, threading, time
from rec_summary import SummaryRecord
work = functools.partial(hashlib.pbkdf2_hmac, "sha256", b"", b"")
kill = lambda: os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
with SummaryRecord(sys.argv[1]) as record:
    record.record(1)
    try:
        if sys.argv[2] == "in C":
            threading.Timer(0.5, kill).start()
            begun = time.perf_counter()
            work(100_000)
            work(int(400_000 / (time.perf_counter() - begun)))  # one call, of 4 s
            time.sleep(10)
        else:
            run = lambda: [record.record(step) for step in range(2, 100_000)]
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            time.sleep(0.5)
            kill()
            time.sleep(10)
    except KeyboardInterrupt:
        print("saved")
"""
    command = [sys.executable, "-c", code, str(tmp_path), where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECS)
    assert (done.returncode, done.stdout) == (0, "saved\n"), done.stderr
    assert statuses(tmp_path)[-1] == "FINISHED"
