"""Records in a real TensorBoard, exported for each of its loaders and read directly."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any, Final

from rec_summary.series.ranks import summary
from rec_summary.tensorboard.event_files.experiment import EXPERIMENT_RUN
from rec_summary.tensorboard.first_screen import metric_rank
from rec_summary.tensorboard.tag_groups import BEST
from tests.support.tensorboard_servers import installed
from tools.tensorboard_pages.server import TensorBoardServer

from . import recorded, shown
from .comparison import Comparison, compare, table
from .expected import Items, expected

FILE: Final = Path(__file__).parent / "dashboards.json"
DASHBOARDS: Final = {**shown.VALUES, **shown.MAPPED}

# 0 means all to the loaders, but none to the pages.
_ALL: Final = 1_000_000
_PLUGINS: Final = ("scalars", "histograms", "images", "text", "mesh", "pr_curves")
KEEP_ALL: Final = "--samples_per_plugin=" + ",".join(f"{name}={_ALL}" for name in _PLUGINS)
_RELOAD_SECS: Final = 2.0  # TensorBoard looks for new events every second
_SETTLED: Final = 4  # comparisons with the same result: a slow machine loads with pauses
_LOAD_SECS: Final = 120.0


def check(source: Path, logdir: Path, scratch: Path, items: Items) -> int:
    """Prints a table for each loader; returns how many differences there are.

    Args:
        source: The records.
        logdir: The log directory that they were exported to.
        scratch: A folder for TensorBoard's output.
        items: What the mapped dashboards must show. Those that are missing here are added from
            the first loader, and compared with the second.
    """
    items |= expected(recorded.read(source))
    wrong = 0
    with contextlib.ExitStack() as stack:  # the second loads while the first is compared
        servers = {
            loader: stack.enter_context(
                TensorBoardServer(
                    logdir, scratch / f"{loader}.log", load_fast=fast, arguments=(KEEP_ALL,)
                )
            )
            for loader, fast in (("data server", True), ("Python", False))
        }
        stack.enter_context(installed(scratch / f"{source.name}-site"))
        servers["records"] = stack.enter_context(
            TensorBoardServer(
                source, scratch / "records.log", load_fast=True, arguments=(KEEP_ALL,)
            )
        )
        for loader, server in servers.items():
            shown_here = with_metrics_that_matter(items)
            is_direct = loader == "records"
            results = look(
                directly(shown_here) if is_direct else in_event_files(shown_here), server
            )
            dashboards = DASHBOARDS if is_direct else in_event_files(DASHBOARDS)
            for name in dashboards.keys() - items.keys():
                items[name] = _seen(name, server)
            way = "read directly" if loader == "records" else f"in TensorBoard's {loader} loader"
            print(f"\n{source.name} {way}\n{table(results)}")
            wrong += sum(len(result.differences) for result in results)
    return wrong


def directly(items: Items) -> Items:
    """Returns what is shown of records directly, where no sub-run is needed to change a status."""
    running = ["STATUS_RUNNING", "STATUS_UNKNOWN"]
    sub_runs = {(f"{run}/running",) for (run,), _ in items["runs"]}
    return items | {
        "runs": [item for item in items["runs"] if item[0] not in sub_runs],
        "hparams": [
            (key, ["STATUS_RUNNING"] if value == running else value)
            for key, value in items["hparams"]
        ],
    }


def in_event_files(dashboards: dict[str, Any]) -> dict[str, Any]:
    """Returns those dashboards that event files have: they have no embedding tables."""
    return {name: each for name, each in dashboards.items() if name != "projector"}


def with_metrics_that_matter(items: Items) -> Items:
    """Returns what is shown without the metrics that HParams leaves out."""
    if "hparams" not in items:  # they are taken from what is shown
        return items
    metrics = {key for key, _ in items["hparams"] if key[1] == "metric"}
    chosen = {key for key in metrics if metric_rank(key[3], key[2]) is not None} or metrics
    left_out = metrics - chosen
    return items | {"hparams": [item for item in items["hparams"] if item[0] not in left_out]}


def store(items: Items) -> None:
    """Writes dashboards.json, one entry a line."""
    parts = []
    for name in shown.MAPPED:
        lines = [json.dumps(item, ensure_ascii=False) for item in sorted(items[name], key=repr)]
        parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(lines) + "\n]")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def stored() -> Items:
    """Returns what dashboards.json says about the fixed records."""
    dashboards = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: [(tuple(key), value) for key, value in items] for name, items in dashboards.items()
    }


def _seen(name: str, server: TensorBoardServer) -> list[tuple[Any, Any]]:
    return [(key, value) for key, value in DASHBOARDS[name](server) if not _is_made(key)]


def _is_made(key: tuple[object, ...]) -> bool:
    """Whether something is shown beside the records; tests of its own modules check it.

    That is what is made for HParams, and what all ranks have in common.
    """
    made = (BEST, f"{EXPERIMENT_RUN}/", summary.PREFIX)
    return any(isinstance(part, str) and part.startswith(made) for part in key)


def look(items: Items, server: TensorBoardServer) -> list[Comparison]:
    """Compares dashboards; one that differs is compared again while it still changes."""

    def compared(name: str) -> Comparison:
        return compare(name, items[name], _seen(name, server))

    results = {name: compared(name) for name in DASHBOARDS if name in items}
    same = {name: 1 for name in results if results[name].differences}  # how often, by dashboard
    deadline = time.monotonic() + _LOAD_SECS
    while same and time.monotonic() < deadline:
        time.sleep(_RELOAD_SECS)
        again = {name: compared(name) for name in same}
        counts = {name: same[name] + 1 if again[name] == results[name] else 1 for name in same}
        results |= again
        same = {
            name: count
            for name, count in counts.items()
            if results[name].differences and count < _SETTLED
        }
    return list(results.values())
