"""Exported records in a real TensorBoard, with each of its loaders, against the records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from tools.checks.acceptance import (
    custom_scalars,
    distributions,
    graphs,
    histograms,
    hparams,
    images,
    meshes,
    pr_curves,
    records,
    runs,
    scalars,
    texts,
    time_series,
)
from tools.checks.acceptance.comparison import Comparison, compare, table
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

DASHBOARDS: Final = (
    *(runs, scalars, histograms, distributions, images, time_series),
    *(texts, graphs, hparams, meshes, custom_scalars, pr_curves),
)

# 0 stands for all in the loaders, but the pages take it for none.
_ALL: Final = 1_000_000
_PLUGINS: Final = ("scalars", "histograms", "images", "text", "mesh", "pr_curves")
KEEP_ALL: Final = "--samples_per_plugin=" + ",".join(f"{name}={_ALL}" for name in _PLUGINS)
_RELOAD_SECS: Final = 2.0  # TensorBoard looks for new events every second
_LOAD_SECS: Final = 60.0


def check(source: Path, logdir: Path, scratch: Path) -> int:
    """Prints a table for each loader; returns how many differences there are.

    Args:
        source: The records.
        logdir: What they were exported to.
        scratch: Where TensorBoard's logs go.
    """
    recorded, wrong = records.read(source), 0
    for loader, load_fast in (("data server", True), ("Python", False)):
        log = scratch / f"{loader}.log"
        with TensorBoardServer(logdir, log, load_fast=load_fast, arguments=(KEEP_ALL,)) as server:
            found = look(recorded, server)
        print(f"\nTensorBoard's {loader} loader\n{table(found)}")
        wrong += sum(len(each.differences) for each in found)
    return wrong


def look(recorded: Records, server: TensorBoardServer) -> list[Comparison]:
    """Compares all dashboards; one that differs is looked at again while it still changes."""
    found = [compare(dashboard, recorded, server) for dashboard in DASHBOARDS]
    changing = [index for index, each in enumerate(found) if each.differences]
    deadline = time.monotonic() + _LOAD_SECS
    while changing and time.monotonic() < deadline:
        time.sleep(_RELOAD_SECS)
        before = list(found)
        for index in changing:
            found[index] = compare(DASHBOARDS[index], recorded, server)
        changing = [index for index in changing if found[index] != before[index]]
    return found
