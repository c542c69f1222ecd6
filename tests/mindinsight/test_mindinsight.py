"""What MindInsight 2.3.1 makes of our records, over HTTP; everything real."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import find_runs
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from rec_summary.tables.frames import load
from tests.mindinsight import records
from tests.mindinsight.records import STEPS, points
from tests.mindinsight.server import MindInsightServer, is_installed
from tests.support.images import to_image
from tests.support.record_dirs import event, scalar

pytestmark = pytest.mark.skipif(
    not is_installed(),
    reason="MindInsight 2.3.1 is not installed: tools/check mindinsight makes .venv-mindinsight",
)

RunState = lineage_pb2.RunState
TRAINED_STEPS = 12


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that MindInsight is started on, with every run of `records`."""
    base = tmp_path_factory.mktemp("records")
    for name, write in records.RUNS.items():
        write(base / name)
    return base


@pytest.fixture(scope="module")
def server(base: Path) -> Iterator[MindInsightServer]:
    """MindInsight, as soon as it has read them all."""
    with MindInsightServer(base) as server:
        yield server


@pytest.fixture(scope="module")
def lineages(server: MindInsightServer) -> dict[str, dict[str, Any]]:
    """The model lineage of each run."""
    return {name: each["model_lineage"] for name, each in server.lineages().items()}


def test_every_run_is_listed_with_its_files(server: MindInsightServer) -> None:
    jobs = server.jobs()
    assert {f"./{name}" for name in records.RUNS} <= jobs.keys()
    everything = jobs["./everything"]
    assert (everything["summary_files"], everything["lineage_files"]) == (1, 1)
    assert everything["is_integrity"]
    assert everything["cache_status"] == "CACHED"


def test_scalars_keep_wall_time_step_and_value(server: MindInsightServer) -> None:
    assert server.scalars("./everything", "loss/scalar") == points(STEPS)


def test_histograms_keep_their_counts(server: MindInsightServer) -> None:
    answer = server.get("datavisual/histograms", train_id="./everything", tag="fc.weight/histogram")
    assert [each["step"] for each in answer["histograms"]] == [3, 4]
    for each, factor in zip(answer["histograms"], (1, 2), strict=True):
        # It draws all steps over one range, in bins of its own, and rounds what it shares out.
        left, width, counts = np.array(each["buckets"]).T
        expected, _ = np.histogram(records.WEIGHTS * factor, [*left, left[-1] + width[-1]])
        assert counts == pytest.approx(expected, abs=4)


def test_a_histogram_of_nan_and_infinity_shows_the_finite_values(
    server: MindInsightServer,
) -> None:
    answer = server.get("datavisual/histograms", train_id="./everything", tag="odd/histogram")
    [histogram] = answer["histograms"]
    assert histogram["buckets"] == [[1.0, 0.5, 1], [1.5, 0.5, 1]]


def test_an_image_comes_back_byte_for_byte(server: MindInsightServer) -> None:
    where = {"train_id": "./everything", "tag": "input/image"}
    [metadata] = server.get("datavisual/image/metadata", **where)["metadatas"]
    assert (metadata["step"], metadata["width"], metadata["height"]) == (6, 3, 2)
    content = server.get_bytes("datavisual/image/single-image", step=6, **where)
    assert content == to_image(records.PIXELS).encoded_image
    with Image.open(io.BytesIO(content)) as image:
        assert (np.asarray(image) == records.PIXELS[0]).all()


@pytest.mark.parametrize(
    ("tag", "array", "dims", "kind"),
    [("table", records.TABLE, "[:,:]", "DT_FLOAT32"), ("ids", records.IDS, "[:]", "DT_INT64")],
)
def test_a_tensor_comes_back_number_by_number(
    server: MindInsightServer, tag: str, array: npt.NDArray[Any], dims: str, kind: str
) -> None:
    """As float32, which is all that it reads: our exact 64-bit numbers do not disturb it."""
    where = {"train_id": "./everything", "tag": f"{tag}/tensor"}
    answer = server.get("datavisual/tensors", detail="data", step=5, dims=dims, **where)
    [tensor] = answer["tensors"]
    [point] = tensor["values"]
    assert point["step"] == 5
    assert point["value"]["data_type"] == kind
    assert point["value"]["dims"] == list(array.shape)
    assert point["value"]["data"] == array.astype(np.float32).tolist()
    assert point["value"]["statistics"]["max"] == np.float32(array.max())


def test_the_computation_graph_has_scopes_nodes_and_edges(server: MindInsightServer) -> None:
    [tag] = server.tags("./everything", "graph")
    where = {"train_id": "./everything", "tag": tag}
    [top] = server.get("datavisual/graphs/nodes", **where)["nodes"]
    assert (top["name"], top["type"]) == ("Default", "name_scope")
    nodes = server.get("datavisual/graphs/nodes/all", **where)["all_nodes_detail"]
    by_name = {node["name"]: node for node in nodes}
    assert by_name.keys() >= records.GRAPH_NODES
    product, relu = sorted(records.GRAPH_NODES)
    assert set(by_name[product]["input"]) == {
        f"Default/fc-Dense/{name}" for name in ("inputs0", "fc.weight", "cst1")
    }
    assert by_name[relu]["input"][product]["shape"] == [[4, 3]]
    assert by_name[relu]["type"] == "ReLU"


def test_lineage_has_hyper_parameters_metrics_and_custom_data(
    lineages: dict[str, dict[str, Any]],
) -> None:
    """Our run state and 64-bit sizes are in there too, and do no harm."""
    shown = lineages["./everything"]
    expected = {
        "optimizer": "Adam", "learning_rate": pytest.approx(0.001), "loss_function": "BCELoss",
        "epoch": 3, "batch_size": 64, "device_num": 1, "network": "DeepFM", "loss": 0.25,
        "train_dataset_path": "/data/clicks", "train_dataset_count": 6400, "model_size": 0,
        "test_dataset_count": 2**31 - 1,
        "metric": {"auc": 0.875}, "user_defined": {"team": "ads", "decay": 0.5},
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected


def test_the_dataset_graph_comes_back(server: MindInsightServer) -> None:
    answer = server.get("datasets/dataset_graph", train_id="./everything")
    assert answer["dataset_graph"] == {
        "op_type": "Batch", "batch_size": 64, "drop_remainder": True,
        "children": [{"op_type": "GeneratorDataset", "children": []}],
    }  # fmt: skip


def test_loss_landscapes_come_back_point_by_point(base: Path, server: MindInsightServer) -> None:
    recorded = {each.tag: each.landscape for each in load(base / "landscape").landscapes()}
    [interval] = server.get("datavisual/landscape/intervals", train_id="./landscape")["intervals"]
    assert interval["value"] == [1, 6]
    for kind, tag in (("interval", "landscape_[1, 6]"), ("final", "landscape_[6]")):
        [found] = server.get(
            "datavisual/landscape/landscapes",
            train_id="./landscape",
            type=kind,
            interval_id=interval["id"],
        )["landscapes"]
        expected = recorded[tag]
        for name in "xyz":
            array = np.array(found["points"][name])
            assert array == pytest.approx(getattr(expected, name), rel=1e-6, abs=1e-6)
        assert found["metadata"]["decomposition"] == expected.decomposition
        assert found["convergence_point"] == pytest.approx(expected.convergence, rel=1e-6)
    assert found["metadata"]["unit"] == "step"


def test_of_a_lineage_written_again_and_again_the_last_is_shown(
    lineages: dict[str, dict[str, Any]],
) -> None:
    """Each kind by itself: a later train lineage leaves the evaluation and custom data alone."""
    shown = lineages["./refreshed"]
    assert shown["loss"] == 0.125
    assert shown["metric"] == {"auc": 0.75}
    assert shown["user_defined"] == {"team": "ads"}


def test_of_several_lineage_files_the_last_training_is_shown(
    server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    """A file with a train lineage replaces all before it; one with only an evaluation adds to it.

    So custom data must be written again in each file with a training.
    """
    shown = lineages["./resumed"]
    assert shown["loss"] == 0.25
    assert shown["metric"] == {"auc": 0.75}
    assert shown["user_defined"] == {}


def test_a_resumed_run_replaces_the_steps_that_it_repeats(server: MindInsightServer) -> None:
    shown = server.scalars("./resumed", "loss/scalar")
    assert shown is not None
    assert shown[:7] == points(range(1, 8))
    assert [(step, value) for _, step, value in shown[7:]] == [(step, -1) for step in range(8, 13)]


def test_all_files_of_a_rotated_run_are_shown(
    base: Path, server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    summary, lineage = (records.stamps(base / "rotated", kind) for kind in Kind)
    assert len(summary) > 5
    assert lineage == summary[:1]
    assert server.scalars("./rotated", "loss/scalar") == points(STEPS)
    assert lineages["./rotated"]["loss"] == 0.25


def test_a_compacted_run_is_shown(
    base: Path, server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    [run] = find_runs(base / "compacted")
    found = finished_scalars(run, EVERYTHING, Report())
    kept = [step for _, columns in found for step in columns.steps.tolist()]
    assert kept[0] == 1
    assert kept[-1] == records.LONG
    assert len(kept) < records.LONG * 3 // 4
    assert server.scalars("./compacted", "loss/scalar") == points(kept)
    assert server.jobs()["./compacted"]["summary_files"] == 1
    assert lineages["./compacted"]["loss"] == 0.25


def test_a_lineage_outlives_its_summary_file(
    base: Path, server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    summary, lineage = (records.stamps(base / "dropped", kind) for kind in Kind)
    assert len(summary) == 2
    assert not set(lineage) & set(summary)
    shown = server.scalars("./dropped", "loss/scalar")
    assert shown
    assert shown == points(range(shown[0][1], 21))
    assert lineages["./dropped"]["loss"] == 0.25


def test_a_lineage_without_any_summary_file_is_shown(
    server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    assert server.jobs()["./lineage_alone"]["summary_files"] == 0
    assert lineages["./lineage_alone"]["loss"] == 0.25


@pytest.mark.parametrize(
    ("run", "wins"),
    [
        pytest.param("./ranks_together", 0, id="of one second, rank 0 wins"),
        pytest.param("./ranks_apart", 1, id="else the one that began last"),
    ],
)
def test_of_two_ranks_in_one_directory_one_wins(
    server: MindInsightServer, lineages: dict[str, dict[str, Any]], run: str, wins: int
) -> None:
    """It knows no ranks: a tag that both have shows one of them, as does the lineage."""
    shown = server.scalars(run, "loss/scalar")
    assert shown is not None
    assert [(step, value) for _, step, value in shown] == [(step, wins) for step in STEPS]
    assert lineages[run]["loss"] == 0.5 + wins
    for rank in (0, 1):
        alone = server.scalars(run, f"of rank {rank}/scalar")
        assert alone is not None
        assert [(step, value) for _, step, value in alone] == [(step, step) for step in STEPS]


def test_missing_steps_and_unknown_fields_do_no_harm(
    server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    stepless = server.scalars("./extended", "stepless/scalar")
    assert stepless is not None
    assert [(step, value) for _, step, value in stepless] == [(0, 1.5)]
    assert server.scalars("./extended", "loss/scalar") == points([1, 2, 5])
    assert server.tags("./extended", "scalar") == ["loss/scalar", "stepless/scalar"]
    assert server.jobs()["./extended"]["is_integrity"]
    assert lineages["./extended"]["loss"] == 0.25


def test_custom_data_needs_one_of_the_maps_of_mindspore(
    lineages: dict[str, dict[str, Any]],
) -> None:
    """Entries in our own maps alone are passed over; those around them are shown."""
    assert lineages["./custom_values"]["user_defined"] == {
        "small": 7, "large, twice": str(1 << 40), "flag, twice": 1, "nested": {"beta": 0.5},
        "after": "them",
    }  # fmt: skip


def test_a_torn_record_costs_nothing_but_itself(
    server: MindInsightServer, lineages: dict[str, dict[str, Any]]
) -> None:
    """Once it is ten minutes old, that is: until then MindInsight waits for the rest of it."""
    assert server.scalars("./torn", "loss/scalar") == points(STEPS)
    assert lineages["./torn"]["loss"] == 0.25


def test_a_run_is_followed_while_it_goes_on(base: Path, server: MindInsightServer) -> None:
    """Its status, its next files, and that its oldest are removed."""
    writer = RunWriter(base / "live", 0, records.ROTATED)
    records.write(writer, records.state(RunState.RUNNING, 0, 0.5), *records.losses(range(1, 11)))

    def last_step() -> int:
        return (server.scalars("./live", "loss/scalar") or [(0.0, 0, 0.0)])[-1][1]

    def shown_loss() -> float | None:
        return server.lineages().get("./live", {}).get("model_lineage", {}).get("loss")

    server.eventually(lambda: last_step() == 10 and shown_loss() == 0.5)
    for each in (*records.losses(range(11, 21)), records.state(RunState.FINISHED, 20, 0.25)):
        records.write(writer, each)
        records.drop_oldest(base / "live")
    writer.close()
    server.eventually(lambda: last_step() == 20 and shown_loss() == 0.25)
    shown = server.settled(lambda: server.scalars("./live", "loss/scalar"))
    assert shown == points(range(shown[0][1], 21))
    assert shown[0][1] > 10


def test_of_two_ranks_that_go_on_only_one_is_followed(
    base: Path, server: MindInsightServer, tmp_path: Path
) -> None:
    """MindInsight reads one file at a time and never goes back: each rank needs a directory."""
    run = tmp_path / "live_ranks"
    writers = [RunWriter(run, rank) for rank in (0, 1)]

    def write(steps: range) -> None:
        for rank, writer in enumerate(writers):
            records.write(writer, *(event(step, scalar(f"rank {rank}", step)) for step in steps))

    def last_steps() -> list[int]:
        tags = [server.scalars("./live_ranks", f"rank {rank}/scalar") for rank in (0, 1)]
        return sorted(shown[-1][1] for shown in tags if shown)

    write(range(1, 11))
    # It must meet both at once: had it read one to its end already, it might skip the other.
    run.rename(base / run.name)
    server.eventually(lambda: last_steps() == [10, 10])
    write(range(11, 21))
    for writer in writers:
        writer.close()
    server.eventually(lambda: 20 in last_steps())
    assert server.settled(last_steps) == [10, 20]


@pytest.mark.mindspore
def test_what_our_collector_records_is_shown(base: Path, server: MindInsightServer) -> None:
    pytest.importorskip("mindspore")
    from rec_summary import SummaryCollector
    from tests.support.nets import LEARNING_RATE, Journal, click_model, stream

    # an empty message among them would cost MindInsight the lineage of every run
    custom = {"team": "ads", "depth": 3, "empty": {}, "flag": True, "large": 2**40}
    collector = SummaryCollector(base / "trained", collect_freq=1, custom_lineage_data=custom)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=TRAINED_STEPS)])

    def losses() -> Any:
        return server.scalars("./trained", "loss/auto/scalar")

    shown = server.eventually(lambda: (found := losses()) and len(found) == TRAINED_STEPS and found)
    assert [step for _, step, _ in shown] == list(range(1, TRAINED_STEPS + 1))
    histograms = server.get(
        "datavisual/histograms",
        train_id="./trained", tag="table.embedding_table/auto/histogram",
    )["histograms"]  # fmt: skip
    assert histograms[-1]["step"] == TRAINED_STEPS

    def last_lineage() -> Any:  # the one of an earlier step may be shown first
        found = server.lineages().get("./trained", {}).get("model_lineage", {})
        return found if found.get("loss") == pytest.approx(shown[-1][2]) else None

    lineage = server.eventually(last_lineage)
    assert lineage["optimizer"] == "SGD"
    assert lineage["learning_rate"] == LEARNING_RATE
    assert lineage["network"] == "ClickNet"
    expected = {"team": "ads", "depth": 3, "empty": "{}", "flag": 1, "large": str(2**40)}
    assert lineage["user_defined"] == expected
