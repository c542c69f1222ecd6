"""Every dashboard in a real browser: what a person sees of records, exported or read directly."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("selenium")

from PIL import Image

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.values.recommender import encode_columns
from rec_summary.values.tensor import to_tensor
from tests.support.graphs import GRAPH, dataset, operation
from tests.support.landscape_cases import landscape_value
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    scalar,
    train,
    write_segment,
)
from tests.support.tensorboard_servers import installed
from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser, available
from tools.tensorboard_pages.server import TensorBoardServer, ViewServer

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "dashboards"
ACTIVE = {
    *("timeseries", "scalars", "custom_scalars", "images", "graphs", "distributions"),
    *("histograms", "text", "pr_curves", "hparams", "mesh"),
}
LAST_STEP = 10
# Different colours of a page: with words and lines only, and with pictures.
_LINES = 50
_PICTURES = 500
_COLUMNS = (
    (
        *("pr_curve", "pr_curve"),
        ([50, 40, 20], [50, 20, 5], [0, 30, 45], [0, 10, 30], [0.5, 0.67, 0.8], [1, 0.8, 0.4]),
    ),
    ("reliability", "reliability", ([0.1, 0.5], [0.2, 0.7], [100, 40])),
    ("frequent", "top_ids", ([7, 3], [1500, 20], [1400, 20], [1600, 20])),
)


def write_everything(run: Path) -> None:
    """Writes a run with records of every kind."""
    random = np.random.default_rng(0)
    buffer = io.BytesIO()
    Image.fromarray(random.integers(0, 255, (24, 24, 3), np.uint8)).save(buffer, "PNG")
    image = summary_pb2.Summary.Image(
        height=24, width=24, colorspace=3, encoded_image=buffer.getvalue()
    )
    Value = summary_pb2.Summary.Value
    pipeline = dataset("Batch", dataset("Map", dataset("TFRecord"), operations=[operation("Hash")]))
    write_segment(
        run,
        summary_pb2.Event(wall_time=START, graph_def=GRAPH),
        *(
            event(
                step,
                scalar("loss/auto", 0.7 - step / 50),
                scalar("learning_rate/auto", 0.01),
                scalar("eval/auc", 0.5 + step / 40),
                histo("table.weight/auto", random.normal(step / 5, 1, 500)),
                Value(tag="input_data/auto", image=image),
                Value(tag="item_table", tensor=to_tensor(random.normal(size=(200, 8)))),
            )
            for step in range(1, LAST_STEP + 1)
        ),
        event(
            1,
            *(Value.FromString(encode_columns(*each)) for each in _COLUMNS),
        ),
        event(0, landscape_value("landscape_[1, 5]", rows=30, columns=30)),
        lineage(START, dataset_graph=pipeline),
        lineage(START + 9, train_lineage=train(status=lineage_pb2.RunState.FINISHED, step=10)),
        lineage(START + 9, user_defined_info=custom({"team": "ads"})),
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of every kind."""
    if not available():
        pytest.skip("Chromium and chromedriver are not installed: tools/test installs them")
    folder = tmp_path_factory.mktemp("records")
    write_everything(folder / "run")
    return folder


@pytest.fixture(scope="module", params=["exported", "tensorboard", "view"])
def server(
    request: pytest.FixtureRequest, records: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TensorBoardServer]:
    """TensorBoard with all records: of event files, and reading them in two ways."""
    base = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as stack:
        if request.param == "exported":
            report = export_tensorboard(records, base)
            assert (report.unknown, report.problems, report.notes) == ({}, [], [])
            started = TensorBoardServer(base, base / "log", load_fast=True)
        elif request.param == "tensorboard":
            stack.enter_context(installed(base / "site"))
            started = TensorBoardServer(records, base / "log", load_fast=True)
        else:
            started = ViewServer(records, base / "log")
        stack.enter_context(started)
        active = ACTIVE if request.param == "exported" else {*ACTIVE, "projector"}
        started.eventually(lambda: active <= _active(started))
        started.eventually(lambda: started.scalars("run", "loss/auto")[-1][1] == LAST_STEP)
        yield started


def _active(server: TensorBoardServer) -> set[str]:
    pages = server.get("plugins_listing")
    return {name for name in pages if pages[name]["enabled"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(width=1400, height=1000) as started:
        yield started


@pytest.mark.parametrize(
    ("page", "shows", "colours"),
    [
        (pages.time_series("^(loss|eval)"), ("loss/auto", "eval/auc"), _LINES),
        (pages.SCALARS, ("loss", "learning_rate", "eval"), _LINES),
        (pages.CUSTOM_SCALARS, ("Loss", "Learning rate", "Evaluation: auc"), _LINES),
        (
            pages.IMAGES,
            ("input_data", "item_table/heat_map", "landscape_[1, 5]", "reliability"),
            _PICTURES,
        ),
        (pages.GRAPHS, ("Main Graph", "Default", "inputs", "output"), _LINES),
        (pages.DISTRIBUTIONS, ("table.weight", "item_table"), _PICTURES),
        (pages.histograms("weight"), ("table.weight/auto",), _PICTURES),
        (pages.TEXT, ("lineage", "item_table/statistics", "standard deviation"), _LINES),
        (pages.PR_CURVES, ("pr_curve", "step 1"), _LINES),
        (pages.HPARAMS, ("optimizer", "Adam", "team"), _LINES),
        (pages.MESH, ("landscape_[1, 5]", "step 0"), _PICTURES),
        (pages.PROJECTOR, ("item_table", "Points: 200", "Dimension: 8"), _PICTURES),
    ],
    ids=lambda value: value.name if isinstance(value, pages.Page) else "",
)
def test_a_dashboard(
    request: pytest.FixtureRequest,
    server: TensorBoardServer,
    browser: Browser,
    page: pages.Page,
    shows: tuple[str, ...],
    colours: int,
) -> None:
    way = request.node.callspec.params["server"]
    if page is pages.PROJECTOR and way == "exported":
        pytest.skip("event files have no embedding tables")
    browser.open(f"{server.url}/?{page.query}#{page.fragment}", shows)
    browser.colourful(ARTIFACTS / way / f"{page.name}.png", colours)
