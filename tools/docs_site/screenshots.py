"""Takes pictures in TensorBoard: `… screenshots RECORDS TASKS FOLDER`.

RECORDS are the demo's, TASKS those of the demo with `--tasks`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from PIL import Image

from tools.docs_site.blocks import blocks
from tools.tensorboard_pages import pages
from tools.tensorboard_pages.browser import Browser
from tools.tensorboard_pages.server import TensorBoardServer, ViewServer

_MODEL: Final = "Default/network-ClickEvaluation/scorer-WideDeep"
_SURFACE: Final = (340, 500, 985, 857)  # what is beside it is empty
_IMPORTANCE: Final = (324, 170, 1246, 500)
_SERVED: Final = (374, 183, 1410, 418)
_PAGE: Final = (1360, 1190)
_FRAME: Final = 9  # pixels: the red frame of the node that was opened last

# Curves are drawn whole: TensorBoard cuts off outliers by default.
_STORED: Final = {
    "_tb_global_settings": '{"ignoreOutliers": false}',  # of Time Series
    "_ignoreYOutliers": "false",
}
_TUTORIAL: Final = Path("docs/tutorials/two_heads.md")
_TRAIN: Final = """
import itertools
import sys
sys.path.insert(0, '')
import model
from tools.docs_site.ended import ended
batches = itertools.islice(model.impressions(), 800)
model.stream = ended(batches, ['ids', 'click', 'purchase'])
import train
"""
_SMOOTH: Final = "smoothing=0.9"  # single batches are noisy

# TensorBoard keeps most of its pages in shadow roots.
_NODES: Final = """
const nodes = [];
const walk = (node) => {
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.children) walk(child);
  nodes.push(node);
};
walk(document.body);
const box = (node) => {
  const {left, top, right, bottom} = node.getBoundingClientRect();
  return [left, top, right, bottom];
};
"""
_FIT_GRAPH: Final = """
for (const node of nodes)
  if (['tf-graph-info', 'tf-graph-minimap'].includes(node.localName)) node.style.display = 'none';
nodes.find((node) => node.textContent.trim() === 'Fit to screen').click();
"""
_OPEN_FINDING: Final = """
const finding = document.querySelector('[data-finding]');
if (finding) finding.click();
return Boolean(finding);
"""
_OPENED: Final = "return document.querySelector('[data-curve] path')"
_MODEL_BOX: Final = """
const name = `g.node[data-name="${arguments[0]}"]`;
return box(nodes.find((node) => node.matches && node.matches(name)));
"""


def main(records: Path, tasks: Path, folder: Path) -> None:
    """Writes one picture for each page."""
    records, tasks, folder = records.resolve(), tasks.resolve(), folder.resolve()
    _recommender(folder)
    with _server(records) as server, Browser(width=1600, height=800) as browser:
        browser.store(server.url, _STORED)
        for page, shows in (
            (pages.PR_CURVES, ("recommender/pr_curve",)),
            (pages.PROJECTOR, ("item_embedding", "Dimension: 16")),
        ):
            pages.photograph(browser, server, page, shows, folder)
        with Browser(width=1100, height=1000) as square:  # a single mesh is as high as it is wide
            pages.photograph(square, server, pages.MESH, ("landscape_", "step 0"), folder)
        _cut(folder / f"{pages.MESH.name}.png", _SURFACE)
        with Browser(width=3000, height=1700) as large:
            _graph(large, server, folder)
    with _server(tasks) as server, Browser(width=1600, height=1220) as browser:
        browser.store(server.url, _STORED)
        page = pages.time_series(r"gradients/(norm|update_ratio)(/|$)", "gradients")
        page = dataclasses.replace(page, query=f"{page.query}&{_SMOOTH}")
        pages.photograph(browser, server, page, ("norm/tables",), folder)
    with _server(tasks) as server, Browser(width=1250, height=900) as browser:
        features = pages.Page("importance", "text&tagFilter=click/importance/table")
        pages.photograph(browser, server, features, ("occupation", "passes"), folder)
    _cut(folder / f"{features.name}.png", _IMPORTANCE)
    with _server(tasks) as server, Browser(width=1750, height=700) as browser:
        browser.store(server.url, _STORED)
        tags = "click/served_(ne_change|auc_gain|calibration)/last"
        served = pages.Page("served", f"scalars&_smoothingWeight=0&tagFilter={tags}")
        pages.photograph(browser, server, served, ("served_ne_change", "served_auc_gain"), folder)
    _cut(folder / f"{served.name}.png", _SERVED)


@contextlib.contextmanager
def _server(records: Path) -> Iterator[TensorBoardServer]:
    """Yields TensorBoard on records, named without their path, as pages show the name."""
    os.chdir(records.parent)
    with (
        tempfile.TemporaryDirectory() as scratch,
        TensorBoardServer(Path(records.name), Path(scratch) / "log", load_fast=True) as server,
    ):
        server.eventually(lambda: server.get("plugins_listing")["scalars"]["enabled"])
        yield server


def _graph(browser: Browser, server: TensorBoardServer, folder: Path) -> None:
    """Takes the graph of the model, cut from the page."""
    path = folder / f"{pages.GRAPHS.name}.png"
    browser.open(f"{server.url}/#{pages.GRAPHS.fragment}", ("Default", "Gradients"))
    for scope in ("Default", "Default/network-ClickEvaluation", _MODEL):
        browser.double_click_node(scope)
    browser.run(_NODES + _FIT_GRAPH)
    browser.picture(path)
    left, upper, right, lower = browser.run(_NODES + _MODEL_BOX, _MODEL)
    _cut(path, (left + _FRAME, upper + _FRAME // 2, right - _FRAME, lower - _FRAME))


def _cut(path: Path, box: tuple[float, float, float, float]) -> None:
    """Leaves of a picture what is in a box: left, upper, right, lower."""
    with Image.open(path) as picture:
        picture.convert("RGB").crop(box).quantize(255, dither=Image.Dither.NONE).save(path)


def _two_heads(folder: Path) -> None:
    """Trains the model of the tutorial, whose stream breaks at step 300, until step 800."""
    for block in blocks(_TUTORIAL.resolve()):
        if (name := block.marks.get("file")) in ("model.py", "train.py"):
            (folder / name).write_text(block.text)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", _TRAIN], cwd=folder, env=environment, check=True)


def _recommender(folder: Path) -> None:
    """Takes the page Recommender with the curve of what moved."""
    name = pages.RECOMMENDER.name
    with tempfile.TemporaryDirectory() as scratch:
        _two_heads(Path(scratch))
        log = Path(scratch, "log")
        with ViewServer(Path(scratch, "records"), log) as server, Browser(1360, 1440) as browser:
            browser.open(f"{server.url}/#{pages.RECOMMENDER.fragment}", ())
            server.eventually(lambda: browser.run("return document.querySelector('iframe')"))
            with browser.within("iframe"):
                server.eventually(lambda: browser.run(_OPEN_FINDING))
                server.eventually(lambda: browser.run(_OPENED))
                browser.run("scrollTo(0, 0); document.activeElement.blur()")
            browser.picture(folder / f"{name}.png")
    _cut(folder / f"{name}.png", (0, 0, *_PAGE))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
