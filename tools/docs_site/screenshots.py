"""Takes pictures of the demo's records in TensorBoard: `… screenshots RECORDS FOLDER`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from rec_summary.records.reading.runs import find_runs
from rec_summary.tensorboard import first_screen
from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser
from tools.tensorboard_pages.server import TensorBoardServer

_MODEL: Final = "Default/network-ClickEvaluation/scorer-WideDeep"
# The settings of Time Series take a quarter of the page.
_WITHOUT_SETTINGS: Final = """
const toggle = document.querySelector('.settings-button.checked, settings-view-close');
if (toggle) toggle.click();
"""


def main(records: Path, folder: Path) -> None:
    """Writes one picture for each page."""
    folder = folder.resolve()
    os.chdir(records.parent)  # the pages name the directory as it is given
    records = Path(records.name)
    with (
        tempfile.TemporaryDirectory() as scratch,
        TensorBoardServer(records, Path(scratch) / "log", load_fast=True) as server,
        Browser(width=1600, height=800) as browser,
    ):
        for page, shows in (
            (_first_screen(records), ("loss/auto", "recommender/auc/last", "Smoothed")),
            (
                pages.time_series(
                    "recommender/(gauc|calibration|normalised_entropy)/last", "recommender"
                ),
                ("recommender/gauc/last", "Smoothed"),
            ),
            (pages.PR_CURVES, ("recommender/pr_curve",)),
            (pages.histograms("embedding"), ("embedding",)),
            (pages.HPARAMS, ("optimizer", "batch_size")),
            (pages.TEXT, ("lineage", "Hyper-parameters")),
            (pages.CUSTOM_SCALARS, ("Loss", "Learning rate")),
            (pages.GRAPHS, ("Default", "Gradients")),
            (pages.IMAGES, ("/contour",)),
            (pages.RECORDS_PROJECTOR, ("item_embedding", "Dimension: 16")),
        ):
            server.eventually(lambda: server.get("plugins_listing")["rec_summary"]["enabled"])
            browser.open(f"{server.url}/?{page.query}#{page.fragment}", shows)
            browser.run(_WITHOUT_SETTINGS)
            browser.picture(folder / f"{page.name}.png")
            if page is pages.GRAPHS:
                for scope in ("Default", "Default/network-ClickEvaluation", _MODEL):
                    browser.double_click_node(scope)
                browser.picture(folder / f"{page.name}.png")
            print(folder / f"{page.name}.png")
        with Browser(width=1100, height=1000) as square:  # a single mesh is as high as it is wide
            pages.photograph(square, server, pages.MESH, ("landscape_", "step 0"), folder)


def _first_screen(records: Path) -> pages.Page:
    """Returns the page that `rec-summary view` opens, with the noise of single batches smoothed."""
    tags = first_screen.pinned_tags(first_screen.recorded_tags(find_runs(records)))
    query = first_screen.page("", tags).removeprefix("?").removesuffix("#timeseries")
    return pages.Page("timeseries", "timeseries", f"{query}&smoothing=0.9")


if __name__ == "__main__":
    main(*(Path(each) for each in sys.argv[1:]))
