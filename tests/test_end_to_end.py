"""From a training step to what a person sees: everything real, nothing in between skipped."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("selenium")

from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser, available
from tools.tensorboard_pages.server import TensorBoardServer

pytestmark = pytest.mark.mindspore
pytest.importorskip("mindspore")

ARTIFACTS = Path(__file__).parent.parent / "artifacts" / "pages"
STEPS = 40


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """An online training on an endless stream, recorded; the losses as they really were."""
    from mindspore.train import Callback

    from rec_summary import SummaryCollector
    from tests.support.nets import Journal, click_model, stream

    class Losses(Callback):
        def __init__(self):
            super().__init__()
            self.values = []

        def on_train_step_end(self, run_context):
            self.values.append(float(run_context.original_args().net_outputs.asnumpy()))

    base = tmp_path_factory.mktemp("end_to_end")
    collector = SummaryCollector(
        base / "records" / "ads" / "first", collect_freq=1, custom_lineage_data={"team": "ads"}
    )
    losses = Losses()
    model = click_model()
    model.online_train(stream(), callbacks=[losses, collector, Journal(stop_after=STEPS)])
    return base, [float(np.float32(loss)) for loss in losses.values]


@pytest.fixture(scope="module")
def logdir(training):
    base, _ = training
    command = [sys.executable, "-m", "rec_summary", "export", base / "records", base / "logs"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return base / "logs"


@pytest.mark.parametrize("load_fast", [True, False])
def test_tensorboard_returns_what_happened(training, logdir, load_fast):
    base, losses = training
    log = base / f"tensorboard-{load_fast}.log"
    with TensorBoardServer(logdir, log, load_fast=load_fast) as server:
        server.eventually(lambda: len(server.scalars("ads/first", "loss/auto")) == STEPS)
        points = server.scalars("ads/first", "loss/auto")
        assert [(step, value) for _, step, value in points] == list(enumerate(losses, start=1))
        histograms = server.histograms("ads/first", "table.embedding_table/auto")
        assert all(
            sum(count for _, _, count in buckets) == pytest.approx(20 * 4)
            for _, _, buckets in histograms
        )
        session = server.eventually(server.sessions)["ads/first"]
        assert session["hparams"]["optimizer"] == "SGD"
        assert session["hparams"]["team"] == "ads"
        [text] = server.texts("ads/first", "lineage")
        assert "STOPPED" in text["text"]
        assert "unbounded stream" in text["text"]


@pytest.mark.browser
def test_a_person_sees_loss_histograms_and_hyper_parameters(training, logdir):
    if not available():
        pytest.skip("Chromium and chromedriver are not installed: tools/test installs them")
    base, _ = training
    with (
        TensorBoardServer(logdir, base / "browser.log", load_fast=True) as server,
        Browser() as browser,
    ):
        for page, shows in (
            (
                pages.time_series("^(loss|learning_rate)"),
                ("ads/first", "loss/auto", "learning_rate/auto", "Smoothed"),
            ),
            (pages.histograms("table"), ("table.embedding_table/auto",)),
            (pages.HPARAMS, ("optimizer", "SGD", "team")),
            (pages.TEXT, ("lineage", "STOPPED", "BCEWithLogitsLoss")),
        ):
            pages.photograph(browser, server, page, shows, ARTIFACTS)
            assert (ARTIFACTS / f"{page.name}.png").stat().st_size > 20_000  # an empty page is 9 kB
