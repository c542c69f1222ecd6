"""TensorBoard on records as they are, beside TensorBoard's data server on exported event files."""

from __future__ import annotations

import http.client
import json
import statistics
import time
import urllib.parse
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from tools.tensorboard_pages.server import TensorBoardServer

from ..child import idle_share, peak_memory
from ..contest import Contestant, Rounds, Settings, alternate, call, column, temporary_directory
from ..results import Row, Target, cost
from ..synthetic_records import write_scalars
from . import readers

_TAGS = 4
_STEPS = 100
_PAGE_RUNS = 100
_BATCH = 100  # runs of one request while TensorBoard loads
_ANSWER_SECS = 600.0
_REST_SECS = 0.05  # between two requests while TensorBoard loads
_SETTLE_SECS = 5.0
_REST_OF_RUNS_SECS = 65  # then runs have rested, as those of a finished training have
_OURS, _PEER = "tensorboard, on records", "tensorboard --load_fast=true, on event files"
_WAYS = {_OURS: ("--rec_summary=on",), _PEER: ("--rec_summary=off",)}


def provider(settings: Settings) -> tuple[str, list[Row]]:
    """Measures time to load, memory, idle CPU and a page's request, at several shapes."""
    scale = settings.scale * settings.size(100, 1) / 100
    scalars, many = round(10_000_000 * scale), round(10_000 * scale)
    idle, page = settings.size(1_000, 50), settings.size(5_000, 1_500)
    seconds = settings.size(20, 2)
    rows: list[Row] = []
    shapes = {
        f"{scalars:,} scalars in 10 series": (1, 10, scalars // 10),
        f"{many:,} runs of {_STEPS} steps": (many, _TAGS, _STEPS),
    }
    for what, shape in shapes.items():
        rounds, export = _contest(settings, *shape, {"idle": seconds})
        ours, peers = (column(rounds, name) for name in (_OURS, _PEER))
        whole = [export + peer for peer in peers]
        last = f"{what}: last step shown"
        rows.append(cost(last, "s", ours, whole, "export, then rustboard", 1))
        rows.append(cost(last, "s", ours, peers, "rustboard alone"))
        every = (column(rounds, name, "whole") for name in (_OURS, _PEER))
        rows.append(cost(f"{what}: all shown", "s", *every, "rustboard alone"))
        rows.append(_memory(what, rounds))
        rows.append(_idle(what, rounds))
    settle = settings.size(_REST_OF_RUNS_SECS, 2)
    arguments = {"idle": seconds, "settle": settle}
    rounds, _ = _contest(settings, idle, _TAGS, _STEPS, arguments)
    rows.append(_idle(f"{idle:,} runs at rest", rounds, Target("ours", "<", 1)))
    rounds, _ = _contest(settings, _PAGE_RUNS, 1, page, {"requests": settings.size(10, 3)})
    answers = (column(rounds, name, "answer") for name in (_OURS, _PEER))
    what = f"1,000 points of {_PAGE_RUNS} runs"
    rows.append(cost(what, "s", *answers, "rustboard", 1.5))
    setting = (
        "`tensorboard --logdir` on records, with the plugin of this package, beside "
        "`tensorboard --load_fast=true` on the event files that were exported from them. Last step "
        "shown: from the start of the process until the last step of every run was in an answer "
        f"over HTTP. All shown: until no tenth of a run was left out. Runs of {_STEPS} steps have "
        f"{_TAGS} tags, one in a record. "
        "Memory is the most that TensorBoard and its data server had resident until then. Idle is "
        f"the CPU time of both in {seconds} s without writes and without an open page, from "
        f"{_SETTLE_SECS:.0f} s after that; of runs at rest, from {settle} s after that. The "
        f"request is that of the Time Series page for one tag of {_PAGE_RUNS} runs of {page:,} "
        "steps, the median of several."
    )
    return setting, rows


def _contest(
    settings: Settings, runs: int, series: int, steps: int, arguments: dict[str, Any]
) -> tuple[Rounds, float]:
    """Measures both on the same records; returns that, and the time of the export in seconds."""
    with temporary_directory() as base:
        records, logs = str(base / "records"), str(base / "logs")
        settings.say(f"making records: {runs:,} runs of {steps:,} steps of {series} tags")
        shape = {"runs": runs, "series": series, "steps": steps}
        call(make, folder=records, **shape)
        command = ["-m", "rec_summary", "export", "-q", records, logs]
        export = call(readers.run, command=command)["seconds"]
        contestants = [
            Contestant(name, load, {"logdir": logdir, "way": name, **shape, **arguments})
            for name, logdir in ((_OURS, records), (_PEER, logs))
        ]
        return alternate(contestants, settings), export


def make(work: str, folder: str, runs: int, series: int, steps: int) -> dict[str, float]:
    """Writes the records."""
    for name in _names(runs):
        write_scalars(Path(folder, name), series * steps, series)
    return {}


def load(
    work: str,
    logdir: str,
    way: str,
    runs: int,
    series: int,
    steps: int,
    idle: float = 0,
    settle: float = _SETTLE_SECS,
    requests: int = 0,
) -> dict[str, float]:
    """Starts TensorBoard and waits until every run is answered: its last step, then all of it."""
    began = time.monotonic()
    arguments = ("--reload_interval=5", *_WAYS[way])  # TensorBoard's default
    with TensorBoardServer(
        Path(logdir), Path(work, "log"), load_fast=True, arguments=arguments
    ) as server:
        process = psutil.Process(server.pid)
        address = server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=_ANSWER_SECS)
        names, tag = _names(runs), f"metric_{series - 1}/auto"  # what each run has recorded last
        measured = {}
        for what, gap in (("seconds", steps), ("whole", max(steps // 10, 1))):
            for batch in (names[at : at + _BATCH] for at in range(0, runs, _BATCH)):
                # Answers cost the same on both ways, but are not what is measured.
                while batch:
                    if not _complete(connection, tag, batch[:1], steps, gap):
                        time.sleep(_REST_SECS)
                        continue
                    known = _complete(connection, tag, batch, steps, gap)
                    batch = [name for name in batch if name not in known]
            measured[what] = time.monotonic() - began
        measured["memory"] = _peak(process)
        if requests:
            measured["answer"] = _page(connection, tag, requests)
            measured["memory"] = _peak(process)
        if idle:
            time.sleep(settle)
            measured["idle"] = idle_share(process, idle)
        return measured


def _complete(
    connection: http.client.HTTPConnection, tag: str, names: list[str], steps: int, gap: int
) -> set[str]:
    """Returns the runs whose last step is answered, with no more than `gap` steps left out."""
    body = urllib.parse.urlencode({"tag": tag, "runs": names}, doseq=True)
    answer = _ask(connection, "scalars/scalars_multirun", body) or {}
    return {name for name, points in answer.items() if points and _reaches(points, steps, gap)}


def _reaches(points: list[list[float]], steps: int, gap: int) -> bool:
    shown = [0, *(step for _, step, _ in points)]
    widest = max(after - before for before, after in pairwise(shown))
    return shown[-1] == steps and widest <= gap


def _ask(connection: http.client.HTTPConnection, path: str, body: str) -> Any:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", f"/data/plugin/{path}", body, headers)
    response = connection.getresponse()
    data = response.read()
    return json.loads(data) if response.status == 200 else None


def _page(connection: http.client.HTTPConnection, tag: str, requests: int) -> float:
    """Returns the median time of what the Time Series page asks for of a tag, in seconds."""
    body = urllib.parse.urlencode({"requests": json.dumps([{"plugin": "scalars", "tag": tag}])})
    times = []
    for _ in range(requests):
        began = time.monotonic()
        answer = _ask(connection, "timeseries/timeSeries", body)
        times.append(time.monotonic() - began)
        assert answer[0]["runToSeries"]
    return statistics.median(times)


def _peak(process: psutil.Process) -> float:
    """Returns the most memory that a process and its children had, in MB."""
    family = [process, *process.children(recursive=True)]
    return sum(peak_memory(member.pid) for member in family)


def _names(runs: int) -> list[str]:
    return [f"run_{number:05}" for number in range(runs)]


def _memory(what: str, rounds: Rounds) -> Row:
    ours, peers = (column(rounds, name, "memory") for name in (_OURS, _PEER))
    target = Target("ours", "<=", 300)
    return Row(f"{what}: memory", "MB", ours, peers, "rustboard", target=target)


def _idle(what: str, rounds: Rounds, target: Target | None = None) -> Row:
    ours, peers = (
        [100 * share for share in column(rounds, name, "idle")] for name in (_OURS, _PEER)
    )
    return Row(f"{what}: idle", "% of a core", ours, peers, "rustboard", target=target)
