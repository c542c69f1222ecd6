"""What TensorBoard serves of an export: both of its loaders, over HTTP."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from rec_summary.tensorboard.tag_groups import BEST
from tests.support import cases
from tests.support.record_dirs import START
from tests.support.tensorboard_servers import Exported
from tools.tensorboard_pages.server import TensorBoardServer


def _float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _at(step: int) -> float:
    return START + step / 4


def test_every_run_is_there_and_nothing_else(exported: Exported, server: TensorBoardServer) -> None:
    # And what describes the metrics of HParams.
    assert set(server.get("runs")) == {*exported.report.runs, ".hparams/1"}
    assert set(exported.report.runs) == {
        *cases.RUNS,
        "finished/eval",
        "group/ranks/rank_0",
        "group/ranks/rank_1",
        "running/running",
        f"{cases.ODD_NAME}/running",
    }


def test_scalars_keep_steps_values_and_wall_times(server: TensorBoardServer) -> None:
    expected = [
        (_at(step), step, _float32(loss))
        for step, loss in zip(cases.STEPS, cases.LOSSES, strict=True)
    ]
    np.testing.assert_array_equal(server.scalars("finished", "loss/auto"), expected)


def test_steps_may_need_64_bits(server: TensorBoardServer) -> None:
    steps = [step for _, step, _ in server.scalars("long", "loss")]
    assert steps == cases.LONG_STEPS


@pytest.mark.parametrize("tag", ["", "üñí//°"])
def test_tags_may_be_anything(server: TensorBoardServer, tag: str) -> None:
    assert [point[1] for point in server.scalars("finished", tag)] == [1]


def test_wall_times_that_are_no_numbers_are_those_of_the_record_before(
    exported: Exported, server: TensorBoardServer
) -> None:
    first, second, third, fourth = server.scalars("times", "loss")
    assert [first[2], second[2], third[2], fourth[2]] == [1, 2, 3, 4]
    assert first[0] == second[0] == third[0] == _at(1)
    assert fourth[0] == _at(4)
    assert exported.report.wall_times_replaced == 2


def test_a_step_recorded_twice_is_shown_once_with_its_last_value(
    exported: Exported, server: TensorBoardServer
) -> None:
    assert server.scalars("repeats", "loss") == [
        (_at(1), 1, 1.0),
        (START + 7, 2, 2.5),
        (_at(3), 3, 3.0),
    ]
    assert [point[1:] for point in server.histograms("repeats", "w")] == [
        (1, [[1, 1, 1]]),
        (2, [[5, 5, 1]]),
    ]
    assert exported.report.repeated == 3  # and one in `segments`


def test_segments_are_joined_in_the_order_in_which_they_were_begun(
    server: TensorBoardServer,
) -> None:
    points = [point[1:] for point in server.scalars("segments", "loss")]
    assert points == [(1, 1), (2, 2), (3, 3), (4, -4), (5, -5)]


def test_ranks_are_sub_runs_and_groups_of_one_session(server: TensorBoardServer) -> None:
    for rank in (0, 1):
        [(_, step, value)] = server.scalars(f"group/ranks/rank_{rank}", "loss")
        assert (step, value) == (1, rank + 0.5)
    group = server.sessions()["group/ranks"]
    metrics = {(m["name"]["group"], m["name"]["tag"]): m["value"] for m in group["metricValues"]}
    assert metrics == {("rank_0", "loss"): 0.5, ("rank_1", "loss"): 1.5}


def test_the_buckets_of_a_histogram(server: TensorBoardServer) -> None:
    [(wall_time, step, buckets)] = server.histograms("finished", "fc.weight/auto")
    assert (wall_time, step) == (_at(1), 1)
    counts, edges = np.histogram(cases.WEIGHTS, bins=51)
    expected = np.stack([edges[:-1], edges[1:], counts], axis=1)
    np.testing.assert_allclose(buckets, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("constant", [[3, 3, 7]]),
        ("one", [[2, 2, 1]]),
        ("huge", [[-1e30, 0, 1], [0, 1e30, 1]]),
    ],
)
def test_histograms_of_awkward_arrays(
    server: TensorBoardServer, tag: str, expected: list[list[float]]
) -> None:
    [(_, _, buckets)] = server.histograms("histograms", tag)
    np.testing.assert_allclose(buckets, expected, rtol=1e-6)


def test_empty_buckets_between_filled_ones_stay(server: TensorBoardServer) -> None:
    [(_, _, buckets)] = server.histograms("histograms", "gap")
    assert [count for _, _, count in buckets] == [50, *[0] * 9, 50]
    assert (buckets[0][0], buckets[-1][1]) == (0, 10)


def test_a_histogram_of_nothing_finite_harms_no_other(server: TensorBoardServer) -> None:
    points = server.histograms("histograms", "sick")
    filled = [[1, 1.5, 1], [1.5, 2, 1]]
    assert [point[1:] for point in points] == [(1, filled), (2, []), (3, filled), (4, filled)]
    distributions = server.get("plugin/distributions/distributions", run="histograms", tag="sick")
    assert [point[1] for point in distributions] == [1, 2, 3, 4]


def test_values_that_are_not_finite_are_counted_from_their_first_step_on(
    server: TensorBoardServer,
) -> None:
    counts = {
        name: [point[1:] for point in server.scalars("histograms", f"sick/{name}")]
        for name in ("nan_count", "pos_inf_count", "neg_inf_count")
    }
    assert counts == {
        "nan_count": [(2, 2), (3, 1), (4, 0)],
        "pos_inf_count": [(2, 1), (3, 0), (4, 0)],
        "neg_inf_count": [(2, 1), (3, 0), (4, 0)],
    }
    tags = server.get("plugin/scalars/tags")["histograms"]
    assert set(tags) == {f"sick/{name}" for name in counts}


def test_kinds_that_share_a_tag_are_kept_apart(server: TensorBoardServer) -> None:
    assert [point[1:] for point in server.scalars("clash", "w")] == [(1, 1.0), (3, 3.0)]
    assert [point[1] for point in server.histograms("clash", "w/histograms")] == [2]
    assert [point[1:] for point in server.scalars("clash", "v/nan_count")] == [(1, -1.0)]
    assert [point[1:] for point in server.scalars("clash", "v/nan_count/scalars")] == [(2, 1.0)]
    assert [point[1:] for point in server.scalars("clash", "lineage")] == [(3, 4.0)]
    assert "DeepFM" in server.texts("clash", "lineage/text")[0]["text"]


def test_hyper_parameters_are_typed(server: TensorBoardServer) -> None:
    assert server.sessions()["finished"]["hparams"] == {
        "network": "DeepFM",
        "optimizer": "Adam",
        "learning_rate": 0.001,
        "loss_function": "BCELoss",
        "batch_size": 64,
        "epoch": 3,
        "parallel_mode": "stand_alone",
        "device_num": 1,
        "train_dataset_path": "/data/clicks",
        "train_dataset_size": 6400,
        "note": "a|b `c` <i>x</i>\nnext",
        "depth": 3,
        "on": True,
        "opt.beta": 0.5,
    }


def test_columns_are_inferred(server: TensorBoardServer) -> None:
    experiment = server.post("plugin/hparams/experiment", {"experimentName": ""})
    types = {info["name"]: info["type"] for info in experiment["hparamInfos"]}
    assert types["depth"] == "DATA_TYPE_FLOAT64"
    assert types["on"] == "DATA_TYPE_BOOL"
    assert types["note"] == "DATA_TYPE_STRING"
    assert "learning_rate" not in types  # it is the same in all runs
    assert {"tag": "auc", "group": "eval"} in [m["name"] for m in experiment["metricInfos"]]


@pytest.mark.parametrize(
    ("run", "status", "ended"),
    [
        ("finished", "STATUS_SUCCESS", START + 90),
        ("stopped", "STATUS_SUCCESS", START),
        ("failed", "STATUS_FAILURE", START),
        ("clash", "STATUS_SUCCESS", START),  # as MindSpore writes it: without a state
        # TensorBoard knows no other word for a session that has begun and not ended.
        ("running", "STATUS_RUNNING", 0),
        (cases.ODD_NAME, "STATUS_RUNNING", 0),
    ],
)
def test_the_status_of_a_session(
    server: TensorBoardServer, run: str, status: str, ended: float
) -> None:
    sessions = server.sessions()[run]["sessions"]
    assert sessions[0]["name"] == run
    assert (sessions[-1]["status"], sessions[-1]["endTimeSecs"]) == (status, ended)


def test_a_session_begins_when_its_run_began(server: TensorBoardServer) -> None:
    [session] = server.sessions()["finished"]["sessions"]
    assert session["startTimeSecs"] == START - 5


def test_a_run_with_steps_that_hparams_cannot_bear_is_left_out_of_it(
    exported: Exported, server: TensorBoardServer
) -> None:
    assert "long" not in server.sessions()
    assert "DeepFM" in server.texts("long", "lineage")[0]["text"]
    [note] = [note for note in exported.report.notes if "run long" in note]
    assert str(2**53) in note


def test_evaluations_are_scalars_and_metrics(server: TensorBoardServer) -> None:
    auc = server.scalars("finished/eval", "auc")
    assert auc == [(START + 92, 8, 0.75), (START + 93, 10, 0.875)]
    metrics = {
        (metric["name"]["group"], metric["name"]["tag"]): metric["value"]
        for metric in server.sessions()["finished"]["metricValues"]
    }
    assert metrics["eval", "auc"] == metrics["eval", f"{BEST}auc"] == 0.875
    assert metrics["eval", "logloss"] == "NaN"
    assert "curve" not in server.get("plugin/scalars/tags")["finished/eval"]


def test_the_text_has_everything(server: TensorBoardServer) -> None:
    [point] = server.texts("finished", "lineage")
    text = point["text"]
    for cells in (
        ("status", "FINISHED"),
        ("reason", "all epochs done"),
        ("samples", str(1 << 40)),
        ("start", "2023-11-14 22:13:15 UTC"),
        ("trouble: write", "2"),
        ("training samples", "6400"),
        ("network", "DeepFM"),
        ("opt.beta", "0.5"),
        ("auc (step 10)", "0.875"),
    ):
        assert "<td>{}</td>\n<td>{}</td>".format(*cells) in text
    assert "<td>curve (step 8)</td>\n<td>&#91;1, 2&#93;</td>" in text
    assert "a&#124;b &#96;c&#96; &#60;i&#62;x&#60;/i&#62;<br>next" in text
    assert point["wall_time"] == START + 93


def test_every_kind_is_exported(exported: Exported) -> None:
    assert exported.report.unknown == {}
    assert exported.report.problems == []
