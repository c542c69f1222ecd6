"""What commands cost on the runs of a team: thousands of runs, or hundreds of ranks."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from tests.support.ports import unused_port

from ..child import idle_share, peak_memory
from ..contest import (
    ROOT,
    Contestant,
    Measuring,
    Rounds,
    Settings,
    alternate,
    call,
    column,
    temporary_directory,
)
from ..plots import Panel, draw
from ..results import Row, Target, speed
from ..synthetic_records import write_fleet
from .readers import run

_STEPS = 100
_STARTS = 2  # of a run: two pairs of files for each rank
_COMMANDS = {
    "lineage": "lineage -q {} --format json",
    "export": "export -q {} {work}/logs",
}
_LASTING = {
    "view": "view -q --port {port} {}",
    "watch": "watch -q {}",
    "tail": "tail -q {}",
}
_ONE, _TWO = "one process", "two processes"
_ALL_DONE_SECS = 600.0
_STILL_SECS, _STILL = 2.0, 0.1  # a command has begun when it uses less of a core for so long
_SHARE = "% of a core"
_TARGETS = {
    ("lineage", "seconds"): Target("ours", "<", 10),
    ("lineage", "memory"): Target("ours", "<", 300),
    ("watch", "idle"): Target("ours", "<", 5),
}
_IMAGE = ROOT / "docs" / "images" / "performance-fleet.png"


def fleet(settings: Settings) -> tuple[str, list[Row]]:
    """Measures commands at several sizes, on several engines, and from a store."""
    repeated, settings = settings, settings.once()
    sizes = [settings.size(count, count // 20) for count in (1_000, 3_000, 10_000)]
    groups, ranks = settings.size(50, 3), settings.size(256, 16)
    idle = settings.size(10, 2)
    rows: list[Row] = []
    with temporary_directory() as base:
        rounds: Rounds = {}
        for size in sizes:
            settings.say(f"making records: {size:,} runs")
            records = str(base / f"runs_{size}")
            call(make, folder=records, runs=size, ranks=1, starts=_STARTS)
            here = _commands(settings, records, idle)
            rounds[str(size)] = [
                {f"{name} {what}": cost[what] for name, cost in here.items() for what in cost}
            ]
            rows += _rows(f"{size:,} runs", here, largest=size == sizes[-1])
        panels = [
            Panel(
                f"{name} ({unit})", [column(rounds, str(size), f"{name} {what}") for size in sizes]
            )
            for name in ("lineage", "export")
            for what, unit in (("seconds", "s"), ("memory", "MB"))
        ]
        if not settings.quick:
            draw(_IMAGE, "runs", sizes, panels)
        settings.say(f"making records: {groups} runs of {ranks} ranks")
        records = str(base / "ranks")
        call(make, folder=records, runs=groups, ranks=ranks, starts=1)
        rows += _rows(f"{groups} runs of {ranks} ranks", _commands(settings, records, idle))
        rows += _engines(repeated, str(base / f"runs_{sizes[1]}"), f"{sizes[1]:,} runs")
        stored = settings.size(300, 50)
        records = str(base / "stored")
        call(make, folder=records, runs=stored, ranks=1, starts=_STARTS)
        rows += _store(settings, records, stored, idle)
    setting = (
        f"Runs of {_STEPS} steps with four scalars, restarted once: four files a run; and runs of "
        "many ranks, with two files a rank. Each measurement is made once, those of engines in "
        "rounds, in a process of its own, imports included; memory is the most that it had "
        "resident. `view` is measured until its page and a list of runs were answered, `watch` "
        "and `tail` until they use less than a tenth of a core; idle is what they use in the next "
        f"{idle} s, in which nothing is written. Clusters have two workers of one thread, already "
        "started; their time is wall time. The store is moto's S3 server on this machine, whose "
        "own time is included."
    )
    return setting, rows


def _commands(settings: Settings, records: str, idle: float) -> dict[str, dict[str, float]]:
    """Measures each command once on some records."""
    costs = {}
    for name, words in {**_COMMANDS, **_LASTING}.items():
        settings.say(f"{name} of {Path(records).name}")
        costs[name] = _measure_in(settings, once, records=records, words=words, idle=idle)
    return costs


def _rows(what: str, costs: dict[str, dict[str, float]], *, largest: bool = False) -> list[Row]:
    rows = []
    for name, cost in costs.items():
        begun = {"view": ", first page", "watch": ", begun", "tail": ", begun"}.get(name, "")
        judged = _TARGETS if largest else {}
        for key, part, unit in (
            ("seconds", begun, "s"),
            ("memory", f"{begun}, memory", "MB"),
        ):
            row = f"{what}: {name}{part}"
            rows.append(Row(row, unit, [cost[key]], target=judged.get((name, key))))
        if "idle" in cost:
            target = judged.get((name, "idle"))
            rows.append(Row(f"{what}: {name}, idle", _SHARE, [100 * cost["idle"]], target=target))
    return rows


def _engines(settings: Settings, records: str, what: str) -> list[Row]:
    """Measures export and lineage in one process, in two, and on a Dask cluster of two workers."""
    rows = []
    for name, words in _COMMANDS.items():
        ways = {
            _ONE: Contestant(
                _ONE,
                run,
                {"command": _words(f"{words} --engine sequential", records)},
            ),
            _TWO: Contestant(_TWO, run, {"command": _words(f"{words} --jobs 2", records)}),
        }
        if importlib.util.find_spec("distributed") is None:
            settings.say("dask is left out: distributed is not installed")
        else:
            ways["dask"] = Contestant("dask", on_cluster, {"command": _words(words, records)})
        rounds = alternate(list(ways.values()), settings)
        one = column(rounds, _ONE)
        for way in list(ways)[1:]:
            called = way if way == _TWO else f"two workers of {way.capitalize()}"
            bound = 1.6 if name == "export" and way == _TWO else None
            rows.append(speed(f"{what}: {name}, {called}", column(rounds, way), one, _ONE, bound))
    return rows


def _store(settings: Settings, records: str, runs: int, idle: float) -> list[Row]:
    """Measures commands on records in a store, and what they ask of it."""
    if any(importlib.util.find_spec(name) is None for name in ("moto", "s3fs")):
        settings.say("the store is left out: moto or s3fs is not installed")
        return []
    rows = []
    for name, words in {**_COMMANDS, "watch": _LASTING["watch"]}.items():
        settings.say(f"{name} from a store")
        cost = _measure_in(settings, from_store, records=records, words=words, idle=idle)
        what = f"{runs:,} runs in a store"
        rows += _rows(what, {name: cost})
        rows.append(Row(f"{what}: {name}, requests", "", [cost["requests"]]))
    return rows


def make(work: str, folder: str, runs: int, ranks: int, starts: int) -> dict[str, float]:
    """Writes the records."""
    return {"bytes": write_fleet(Path(folder), runs, ranks, starts, _STEPS)}


def once(work: str, records: str, words: str, idle: float) -> dict[str, float]:
    """Runs a command on records; one that lasts is ended after some time of rest."""
    command = _words(words, records)
    return last(work, command, idle) if words in _LASTING.values() else run(work, command)


def last(work: str, command: list[str], idle: float) -> dict[str, float]:
    """Starts a command that lasts; waits until it has begun, and then until some time is over."""
    port = unused_port()
    words = [word.replace("{port}", str(port)) for word in command]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        known = psutil.Process(process.pid)
        shows_pages = "view" in words
        if shows_pages:
            _first_page(process, port)
        while not shows_pages and idle_share(known, _STILL_SECS) > _STILL:
            if time.monotonic() - began > _ALL_DONE_SECS:
                raise RuntimeError(f"{words} does not come to rest")
        seconds = time.monotonic() - began - (0 if shows_pages else _STILL_SECS)
        cost = {"seconds": seconds, "memory": peak_memory(process.pid)}
        return cost if shows_pages else {**cost, "idle": idle_share(known, idle)}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def on_cluster(work: str, command: list[str]) -> dict[str, float]:
    """Runs a command on two workers that have started before."""
    import distributed

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        return run(work, [*command, "--engine", address])


def from_store(work: str, records: str, words: str, idle: float) -> dict[str, float]:
    """Puts records into a store, and runs a command on them there."""
    port = unused_port()
    log = Path(work, "requests")
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=file, stderr=file
        )
    try:
        os.environ.update(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_ACCESS_KEY_ID="AKIA0123456789ABCDEF",
            AWS_SECRET_ACCESS_KEY="of-a-server-on-this-machine",
            AWS_DEFAULT_REGION="us-east-1",
        )
        _answer(server, f"http://127.0.0.1:{port}/")
        import s3fs

        store = s3fs.S3FileSystem()
        store.mkdir("fleet")
        store.put(records, "fleet/records", recursive=True)
        before = log.read_text().count("HTTP/1.1")
        cost = once(work, "s3://fleet/records", words, idle)
        return {**cost, "requests": log.read_text().count("HTTP/1.1") - before}
    finally:
        server.terminate()
        server.wait()


def _first_page(process: subprocess.Popen[bytes], port: int) -> None:
    """Waits until TensorBoard answers its page, and the names of runs."""
    address = f"http://127.0.0.1:{port}/"
    _answer(process, address)
    while len(_answer(process, f"{address}data/runs")) <= len(b"[]"):
        time.sleep(0.05)


def _answer(process: subprocess.Popen[bytes], address: str) -> bytes:
    deadline = time.monotonic() + _ALL_DONE_SECS
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no answer from {address}")
        try:
            with urllib.request.urlopen(address, timeout=_ALL_DONE_SECS) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            time.sleep(0.05)


def _words(words: str, records: str) -> list[str]:
    command = ["-m", "rec_summary", *words.split()]
    return [records if word == "{}" else word for word in command]


def _measure_in(settings: Settings, function: Measuring, **arguments: Any) -> dict[str, float]:
    cost = call(function, **arguments)
    settings.disturbance.append(cost["others"])
    return cost
