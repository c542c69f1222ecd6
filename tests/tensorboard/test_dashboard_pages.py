"""Every dashboard in a real browser: what a person sees of records of every kind."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.projector import export_projector
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
from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser, available
from tools.tensorboard_pages.server import TensorBoardServer

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "dashboards"
_COLOURFUL = 500  # different colours; a page without a picture has a few dozen


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
            for step in range(1, 11)
        ),
        event(0, landscape_value("landscape_[1, 5]", rows=30, columns=30)),
        lineage(START, dataset_graph=pipeline),
        lineage(START + 9, train_lineage=train(status=lineage_pb2.RunState.FINISHED, step=10)),
        lineage(START + 9, user_defined_info=custom({"team": "ads"})),
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorBoardServer]:
    if not available():
        pytest.skip("Chromium and chromedriver are not installed: tools/test installs them")
    base = tmp_path_factory.mktemp("pages")
    write_everything(base / "records" / "run")
    report = export_tensorboard(base / "records", base / "logs")
    assert (report.unknown, report.problems, report.notes) == ({}, (), ())
    export_projector(base / "records", base / "logs", "item_table")
    with TensorBoardServer(base / "logs", base / "log", load_fast=True) as started:
        started.eventually(lambda: set(report.runs) <= set(started.get("runs")))
        started.settle()
        started.get("plugins_listing")  # the Projector is there from the second time on
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(width=1400, height=1000) as started:
        yield started


def colours(name: str) -> int:
    """Returns how many colours there are in a page's picture."""
    picture = np.asarray(Image.open(ARTIFACTS / f"{name}.png").convert("RGB"))
    return len(np.unique(picture[150:].reshape(-1, 3), axis=0))


@pytest.mark.parametrize(
    ("page", "shows", "colourful"),
    [
        (pages.time_series("^(loss|eval)"), ("loss/auto", "eval/auc"), False),
        (pages.SCALARS, ("loss", "learning_rate", "eval"), False),
        (pages.CUSTOM_SCALARS, ("Loss", "Learning rate", "Evaluation: auc"), False),
        (pages.IMAGES, ("input_data", "item_table/heat_map", "landscape_[1, 5]"), True),
        (pages.GRAPHS, ("Main Graph", "Default", "inputs", "output"), False),
        (pages.DISTRIBUTIONS, ("table.weight", "item_table"), True),
        (pages.histograms("weight"), ("table.weight/auto",), True),
        (pages.TEXT, ("lineage", "item_table/statistics", "standard deviation"), False),
        (pages.HPARAMS, ("optimizer", "Adam", "team"), False),
        (pages.MESH, ("landscape_[1, 5]", "step 0"), True),
        (pages.PROJECTOR, ("projector",), False),
    ],
    ids=lambda value: value.name if isinstance(value, pages.Page) else "",
)
def test_a_dashboard(
    server: TensorBoardServer,
    browser: Browser,
    page: pages.Page,
    shows: tuple[str, ...],
    colourful: bool,
) -> None:
    pages.photograph(browser, server, page, shows, ARTIFACTS)
    assert (ARTIFACTS / f"{page.name}.png").stat().st_size > 20_000  # an empty page is 9 kB
    if colourful:
        assert colours(page.name) > _COLOURFUL
