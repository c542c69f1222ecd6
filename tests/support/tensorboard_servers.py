"""What the export's tests share: one tree of records, exported once, served twice."""

from __future__ import annotations

import configparser
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support import cases
from tests.support.waiting import eventually
from tools.tensorboard_pages.server import TensorBoardServer

_ROOT: Final = Path(__file__).parents[2]


@contextlib.contextmanager
def installed(site: Path) -> Iterator[None]:
    """Lets a TensorBoard find the plugin of this checkout, as `pip install` does."""
    config = configparser.ConfigParser()
    config.read(_ROOT / "setup.cfg")
    points = config["options.entry_points"]["tensorboard_plugins"].strip()
    folder = site / "rec_summary_here-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: rec-summary-here\nVersion: 0")
    (folder / "entry_points.txt").write_text(f"[tensorboard_plugins]\n{points}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{site}:{_ROOT}")
        yield


# Its pages are served when the log directory is loaded; nothing is loaded later.
_LOADED_FIRST = ("--reload_interval=0", "--reload_task=blocking")


@dataclass(frozen=True)
class Exported:
    """A source, what was made of it, and what was said about it."""

    source: Path
    logdir: Path
    report: Report


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The tree of all cases, exported."""
    base = tmp_path_factory.mktemp("export")
    cases.write_all(base / "records")
    report = export_tensorboard(base / "records", base / "logs")
    return Exported(base / "records", base / "logs", report)


@contextlib.contextmanager
def serving(
    logdir: Path, runs: Iterable[str], logs: Path
) -> Iterator[dict[str, TensorBoardServer]]:
    """Serves a log directory with both of TensorBoard's loaders, once they have loaded it."""
    fast = TensorBoardServer(logdir, logs / "rust.log", load_fast=True)
    slow = TensorBoardServer(logdir, logs / "python.log", load_fast=False, arguments=_LOADED_FIRST)
    with fast, slow:
        assert set(runs) <= slow.runs()
        eventually(lambda: _loaded(fast), _loaded(slow).__eq__)
        yield {"rust": fast, "python": slow}


def _loaded(server: TensorBoardServer) -> Any:
    """Returns all runs, tags, graphs and sessions. A run is listed long before its values."""
    tags = {
        name: {run: set(found) for run, found in (server.get(f"plugin/{name}/tags") or {}).items()}
        for name in ("scalars", "histograms", "images", "text")
    }
    graphs = {
        run: (found["run_graph"], set(found["tags"]))
        for run, found in (server.get("plugin/graphs/info") or {}).items()
    }
    sessions = {
        name: [each["status"] for each in group["sessions"]]
        for name, group in server.sessions().items()
    }
    return server.runs(), tags, graphs, sessions


@pytest.fixture(scope="session")
def servers(
    exported: Exported, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TensorBoardServer]]:
    """Both of TensorBoard's loaders on the exported tree, with everything loaded."""
    logs = tmp_path_factory.mktemp("tensorboard")
    with serving(exported.logdir, exported.report.runs, logs) as both:
        yield both


@pytest.fixture(params=["rust", "python"])
def server(
    request: pytest.FixtureRequest, servers: dict[str, TensorBoardServer]
) -> TensorBoardServer:
    """A TensorBoard on the exported tree: with its default loader, then with the other one."""
    return servers[request.param]
