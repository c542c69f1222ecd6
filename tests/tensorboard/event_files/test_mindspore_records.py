"""Record directories that MindSpore's own `SummaryCollector` has written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rec_summary._pb import summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import find_runs
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support import forkserver
from tests.support.programs import PROGRAMS
from tests.support.tensorboard_servers import Exported, serving
from tests.support.versions import skip_without_their_collector
from tools.tensorboard_pages.server import TensorBoardServer

pytestmark = pytest.mark.mindspore

PROGRAM = PROGRAMS / "mindspore_training.py"
RECORDED_STEPS = [1, 2, 4, 6, 8, 10]


@pytest.fixture(scope="session")
def mindspore_export(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A small training and an evaluation under MindSpore's collector, exported."""
    skip_without_their_collector()
    base = tmp_path_factory.mktemp("mindspore")
    run = base / "records" / "original"
    command = [sys.executable, str(PROGRAM), str(run)]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[3])}
    done = forkserver.run(command, cwd=base, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    report = export_tensorboard(base / "records", base / "logs")
    return Exported(base / "records", base / "logs", report)


@pytest.fixture(scope="session")
def mindspore_servers(
    mindspore_export: Exported, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TensorBoardServer]]:
    """Both of TensorBoard's loaders on that export."""
    logs = tmp_path_factory.mktemp("tensorboard")
    with serving(mindspore_export.logdir, mindspore_export.report.runs, logs) as both:
        yield both


@pytest.fixture(params=["rust", "python"])
def server(
    request: pytest.FixtureRequest, mindspore_servers: dict[str, TensorBoardServer]
) -> TensorBoardServer:
    return mindspore_servers[request.param]


@pytest.fixture
def recorded(mindspore_export: Exported) -> dict[int, Any]:
    """The recorded events by step, the last one of each, read without the export."""
    [run] = find_runs(mindspore_export.source)
    [file] = run.files_of(Kind.SUMMARY, 0)
    found = {}
    with RecordReader(file.path) as reader:
        for record in reader:
            event = summary_pb2.Event.FromString(record.payload)
            if event.HasField("summary"):
                found[event.step] = event
    return found


def test_scalars(server: TensorBoardServer, recorded: dict[int, Any]) -> None:
    points = server.scalars("original", "loss/auto")
    assert points == [
        (event.wall_time, step, value.scalar_value)
        for step, event in recorded.items()
        for value in event.summary.value
        if value.tag == "loss/auto"
    ]
    assert [step for _, step, _ in points] == RECORDED_STEPS


@pytest.mark.parametrize(("tag", "size"), [("weight/auto", 3), ("bias/auto", 1)])
def test_histograms(
    server: TensorBoardServer, recorded: dict[int, Any], tag: str, size: int
) -> None:
    points = server.histograms("original", tag)
    assert [step for _, step, _ in points] == RECORDED_STEPS
    for wall_time, step, buckets in points:
        [value] = [value for value in recorded[step].summary.value if value.tag == tag]
        assert wall_time == recorded[step].wall_time
        assert sum(count for _, _, count in buckets) == size
        bounds = (buckets[0][0], buckets[-1][1])
        np.testing.assert_allclose(bounds, (value.histogram.min, value.histogram.max), rtol=1e-6)


def test_lineage(server: TensorBoardServer) -> None:
    group = server.sessions()["original"]
    assert group["hparams"] == {
        "network": "Dense",
        "optimizer": "Momentum",
        "learning_rate": 0.01,
        "loss_function": "MSELoss",
        "epoch": 2,
        "parallel_mode": "stand_alone",
        "device_num": 1,
        "batch_size": 4,
        "train_dataset_size": 20,
        "team": "ads",
        "trial": 7,
    }
    assert group["sessions"][0]["status"] == "STATUS_SUCCESS"
    [text] = server.texts("original", "lineage")
    assert "<td>team</td>\n<td>ads</td>" in text["text"]


def test_the_evaluation_is_a_metric_at_the_last_step(server: TensorBoardServer) -> None:
    [(_, step, value)] = server.scalars("original/eval", "mae")
    assert step == 10
    names = [metric["name"] for metric in server.sessions()["original"]["metricValues"]]
    assert {"group": "eval", "tag": "mae"} in names
    assert value > 0


def test_the_report_of_the_export(mindspore_export: Exported) -> None:
    report = mindspore_export.report
    assert report.problems == []
    assert report.unknown == {}
    assert (report.exported["dataset_graph"], report.exported["graph_def"]) == (1, 1)
    assert report.repeated == 3  # step 10 was recorded again at the end of its epoch
