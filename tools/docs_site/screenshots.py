"""Takes pictures in TensorBoard: `… screenshots RECORDS TASKS FOLDER`.

RECORDS are the demo's, TASKS those of the demo with `--tasks`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from PIL import Image

from rec_summary.records.reading.runs import find_runs
from rec_summary.tensorboard import first_screen
from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser
from tools.tensorboard_pages.server import TensorBoardServer

_MODEL: Final = "Default/network-ClickEvaluation/scorer-WideDeep"
_SURFACE: Final = (340, 500, 985, 857)  # what is beside it is empty


def main(records: Path, tasks: Path, folder: Path) -> None:
    """Writes one picture for each page."""
    records, tasks, folder = records.resolve(), tasks.resolve(), folder.resolve()
    with _server(records) as server, Browser(width=1600, height=800) as browser:
        for page, shows in (
            (_first_screen(Path(records.name)), ("loss/auto", "auc last_20000", "Smoothed")),
            (
                pages.time_series(
                    "recommender/(gauc|calibration|normalised_entropy)/last", "recommender"
                ),
                ("recommender/gauc/last", "Smoothed"),
            ),
            (pages.PR_CURVES, ("recommender/pr_curve",)),
            (pages.GRAPHS, ("Default", "Gradients")),
            (pages.RECORDS_PROJECTOR, ("item_embedding", "Dimension: 16")),
        ):
            pages.photograph(browser, server, page, shows, folder)
            if page is pages.GRAPHS:
                for scope in ("Default", "Default/network-ClickEvaluation", _MODEL):
                    browser.double_click_node(scope)
                browser.picture(folder / f"{page.name}.png")
        with Browser(width=1100, height=1000) as square:  # a single mesh is as high as it is wide
            pages.photograph(square, server, pages.MESH, ("landscape_", "step 0"), folder)
        _cut(folder / f"{pages.MESH.name}.png", _SURFACE)
    with _server(tasks) as server, Browser(width=1600, height=1220) as browser:
        for page, shows in (
            (
                pages.time_series(r"gradients/(norm|update_ratio)(/|$)", "gradients"),
                ("norm/tables",),
            ),
            (
                pages.time_series(r"click/(\w+_at_10|gauc|auc)/last", "lists"),
                ("ndcg_at_10", "mrr_at_10"),
            ),
        ):
            pages.photograph(browser, server, page, shows, folder)
    with _server(tasks) as server, Browser(width=1250, height=800) as browser:
        page = pages.Page("slice_table", "text&tagFilter=click/slice/genre/table/lifetime")
        pages.photograph(browser, server, page, ("Documentary", "calibration"), folder)


@contextlib.contextmanager
def _server(records: Path) -> Iterator[TensorBoardServer]:
    """Yields TensorBoard on records, named without their path, as pages show the name."""
    os.chdir(records.parent)
    with (
        tempfile.TemporaryDirectory() as scratch,
        TensorBoardServer(Path(records.name), Path(scratch) / "log", load_fast=True) as server,
    ):
        server.eventually(lambda: server.get("plugins_listing")["rec_summary"]["enabled"])
        yield server


def _cut(path: Path, box: tuple[int, int, int, int]) -> None:
    """Leaves of a picture what is in a box: left, upper, right, lower."""
    with Image.open(path) as picture:
        picture.convert("RGB").crop(box).quantize(255, dither=Image.Dither.NONE).save(path)


def _first_screen(records: Path) -> pages.Page:
    """Returns the page that `rec-summary view` opens, with the noise of single batches smoothed."""
    tags = first_screen.pinned_tags(first_screen.recorded_tags(find_runs(records)))
    query = first_screen.page("", tags).removeprefix("?").removesuffix("#timeseries")
    return pages.Page("timeseries", "timeseries", f"{query}&smoothing=0.9")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
