"""Takes pictures of the demo in TensorBoard: `… screenshots LOGDIR FOLDER`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser
from tools.tensorboard_pages.server import TensorBoardServer

_MODEL: Final = "Default/network-ClickLoss/scorer-WideDeep"


def main(logdir: Path, folder: Path) -> None:
    """Writes one picture for each page."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        TensorBoardServer(logdir, Path(scratch) / "log", load_fast=True) as server,
        Browser(height=800) as browser,
    ):
        for page, shows in (
            (pages.time_series("^(loss|user_emb)"), ("loss/auto", "Smoothed", "user_embedding")),
            (
                pages.time_series("recommender/(auc|calibration)/last", "recommender"),
                ("recommender/auc/last", "Smoothed"),
            ),
            (pages.PR_CURVES, ("recommender/pr_curve",)),
            (pages.histograms("embedding"), ("embedding",)),
            (pages.HPARAMS, ("optimizer", "batch_size")),
            (pages.TEXT, ("lineage", "Hyper-parameters")),
            (pages.CUSTOM_SCALARS, ("Loss", "Learning rate")),
            (pages.GRAPHS, ("Default", "Gradients")),
            (pages.IMAGES, ("/contour",)),
        ):
            pages.photograph(browser, server, page, shows, folder)
            if page is pages.GRAPHS:
                for scope in ("Default", "Default/network-ClickLoss", _MODEL):
                    browser.double_click_node(scope)
                browser.picture(folder / f"{page.name}.png")
            print(folder / f"{page.name}.png")
        with Browser(width=1100, height=1000) as square:  # a single mesh is as high as it is wide
            pages.photograph(square, server, pages.MESH, ("landscape_", "step 0"), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
