"""A year of one training under a budget of bytes: what stays, and how soon it is shown.

The steps are made fast; the writer, compaction and the readers are real. A recorded step has the
values of a collector: loss and learning rate, at each 100th metrics, at each 1,000th histograms and
the counters of the telemetry itself. `--size` scales the steps and the budget alike: the same share
of bytes stays, but how coarse each part is differs a little.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..child import Stopwatch, peak_memory
from ..contest import ROOT, Contestant, Settings, alternate, call, column, temporary_directory
from ..plots import INK, tidied
from ..results import Row, Target

_STEPS = 1_000_000_000
_BUDGET = 1 << 30
_INTERVAL = 10  # steps between two records, as the collector's default
_YEAR_SECS = 365 * 86_400.0
_BLOCK = 10_000  # records that are made together
_EVERY_METRICS, _EVERY_HISTOGRAMS = 100, 1_000
_PIXELS = 1_000
_TENTHS = 10
_SAMPLES = 200  # of bytes on disk, over the run
_POLL_SECS = 0.02
_ROWS = 400  # of pixels
_LOSS = "loss/auto"
_PALE, _BOUND = "#c9d9ea", "#a33b20"
_PICTURE = ROOT / "docs" / "images" / "operations-year.png"
_LIMIT_SECS = 600.0
_MB = 1e6
_COMPACTION = "compaction, share of a core at 1,000 steps a second"
_LOAD = 'load(tags="loss").scalars()'
_MOVED = "pixels that a column is moved by, of ten tenths"
_TARGETS = {
    "on disk, most, of budget and a file": Target("worst", "<=", 1),
    _COMPACTION: Target("ours", "<=", 1),
    "failures of telemetry": Target("ours", "<=", 0),
    "last point in view": Target("ours", "<", 10),
    _LOAD: Target("ours", "<", 5),
    "tail --once --since 1d": Target("ours", "<", 1),
    "least and greatest loss, difference": Target("ours", "<=", 0),
    _MOVED: Target("worst", "<=", 1),
}


class _Disk(NamedTuple):
    """What was on disk when so many records had been written."""

    record: int
    nbytes: int
    files: int


def soak(settings: Settings) -> tuple[str, list[Row]]:
    """Writes a year once, and reads it as often as there are rounds."""
    scale = settings.scale * settings.size(1_000_000, 300) / 1_000_000
    records, budget = round(_STEPS // _INTERVAL * scale), max(round(_BUDGET * scale), 1 << 20)
    with temporary_directory() as base:
        folder = str(base / "records" / "year")
        arguments = {"folder": folder, "records": records}
        settings.say(f"writing {records:,} records under {budget / _MB:,.0f} MB")
        written = call(write, **arguments, budget=budget)
        settings.disturbance.append(written["others"])
        checked = call(check, **arguments)
        readers = [
            Contestant("view", view, arguments),
            Contestant("load", load, arguments),
            Contestant("tail", tail, arguments),
            Contestant("tail --since 1d", tail, {**arguments, "since": "1d"}),
        ]
        read = alternate(readers, settings)
        if not settings.quick:
            _draw(base / "records", records, budget)
    simulated = records * _INTERVAL / 1_000
    numbers: dict[str, tuple[str, list[float]]] = {
        "written": ("GB", [written["written"] / 1e9]),
        "on disk at the end": ("MB", [written["bytes"] / _MB]),
        "on disk, most, of budget and a file": ("of it", [written["most"] / (budget * 33 / 32)]),
        "files, most": ("files", [written["files"]]),
        "writer, peak memory": ("MB", [written["memory"]]),
        "writer, CPU a record": ("µs", [written["cpu"] / records * 1e6]),
        _COMPACTION: ("%", [100 * written["compaction"] / simulated]),
        "failures of telemetry": ("counted", [written["troubles"]]),
        "last point in view": ("s", column(read, "view")),
        "all points in view": ("s", column(read, "view", "all")),
        "all points in view, CPU": ("s", column(read, "view", "cpu")),
        _LOAD: ("s", column(read, "load")),
        f"{_LOAD}, CPU": ("s", column(read, "load", "cpu")),
        "points of the loss that stay": ("points", [checked["points"]]),
        "tail --once --since 1d": ("s", column(read, "tail --since 1d")),
        "tail --once, all records": ("s", column(read, "tail")),
        "least and greatest loss, difference": ("in all", [checked["extremes"]]),
        _MOVED: ("pixels", [checked["moved"]]),
        "columns of the coarsest tenth": ("columns", [checked["columns"]]),
        "columns with a difference of more than a pixel in 400": ("%", [checked["different"]]),
    }
    rows = [
        Row(what, unit, values, target=_TARGETS.get(what))
        for what, (unit, values) in numbers.items()
    ]
    setting = (
        f"A year of {records * _INTERVAL:,} steps, of which each {_INTERVAL}th is recorded, "
        f"under a budget of {budget / _MB:,.0f} MB. The steps are made fast; the writer, its "
        "compaction and the readers are the real ones. A record has the loss and the learning "
        f"rate, each {_EVERY_METRICS}th also metrics, each {_EVERY_HISTOGRAMS}th histograms and "
        "counters. Compaction's share is its CPU time, divided by the time of a training at "
        "1,000 steps a second. Pixels moved: in a picture of a tenth of the year, with 1,000 "
        "columns or fewer if a bucket is wider, nothing is drawn that was not recorded, and "
        "what was recorded in a column is within the range drawn in it and its neighbours. "
        "Times are without imports, of `tail` with them."
    )
    return setting, rows


def losses(records: int) -> Iterator[Any]:
    """Yields the losses of all records, in blocks of shape [block]; the same each time."""
    for first in range(0, records, _BLOCK):
        random = np.random.default_rng((7, first))
        indices = np.arange(first, min(first + _BLOCK, records))
        part = indices / records
        values = 0.35 + 0.4 * np.exp(-30 * part) + 0.05 * np.sin(40 * part)
        values += random.normal(0, 0.02, len(indices))
        peaks = random.random(len(indices)) < 2e-5
        values[peaks] += random.exponential(0.5, int(peaks.sum()))
        yield values.astype(np.float32)


def write(work: str, folder: str, records: int, budget: int) -> dict[str, float]:
    """Writes the run, and measures this process and its directory on the way."""
    import resource

    from rec_summary.records.failures import Troubles
    from rec_summary.records.writing.record import Record
    from rec_summary.records.writing.retention import CompactorSettings, Retention
    from rec_summary.records.writing.run_writer import Rotation, RunWriter

    troubles = Troubles()
    rotation = Rotation(retention=Retention(total_bytes=budget))
    settings = CompactorSettings(room_secs=60.0)  # no training writes as fast
    writer = RunWriter(folder, rotation=rotation, troubles=troubles, compactor=settings)
    most = _Most(folder)
    samples: list[_Disk] = []
    block, written = 0, 0
    every = max(records // _SAMPLES, 1)
    with Stopwatch() as watch:
        for payload in payloads(records, time.time() - _YEAR_SECS):
            writer.write(Record(lambda payload=payload: payload, len(payload)))
            written += len(payload) + 16
            block += 1
            if block % every == 0:
                samples.append(_Disk(block, *most.look()))
        writer.close()
    most.end()
    nbytes, _ = most.look()
    Path(folder).with_suffix(".json").write_text(json.dumps(samples))
    _age(folder)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "written": written,
        "bytes": nbytes,
        "most": most.nbytes,
        "files": max(sample.files for sample in samples),
        "memory": peak_memory(),
        "cpu": watch.cpu,
        "seconds": watch.seconds,
        "compaction": children.ru_utime + children.ru_stime,
        "troubles": float(sum(troubles.counts.values())),
    }


class _Most:
    """Looks at a directory again and again, in a thread; knows the most bytes there were."""

    def __init__(self, folder: str) -> None:
        self.nbytes = 0
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self) -> tuple[int, int]:
        """Returns the bytes of all files, those for a moment included, and how many there are."""
        sizes = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                try:
                    sizes.append(entry.stat().st_size)
                except FileNotFoundError:
                    continue
        self.nbytes = max(self.nbytes, sum(sizes))
        return sum(sizes), len(sizes)

    def end(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECS):
            self.look()


def payloads(records: int, began: float) -> Iterator[bytes]:
    """Yields the serialised events, made field by field: messages would take most of the time."""
    from rec_summary._pb.summary_pb2 import Event, Summary
    from rec_summary.records.format import wire
    from rec_summary.values.histogram import histogram

    event = wire.Fields(Event)

    def serialised(**values: float) -> bytes:
        scalars = [Summary.Value(tag=tag, scalar_value=value) for tag, value in values.items()]
        return Summary(value=scalars).SerializeToString()

    random = np.random.default_rng(0)
    weights = [random.normal(0, 0.1 + n, 1_000).astype(np.float32) for n in range(16)]
    rate = serialised(**{"learning_rate/auto": 1e-3})
    head = serialised(**{_LOSS: 1.0})[:-4]
    metrics = serialised(**{"recommender/auc/auto": 0.75, "recommender/calibration/auto": 1.01})
    counters = serialised(
        **{f"rec_summary/{name}": 1.0 for name in ("records", "bytes", "dropped")}
    )
    layers = [
        Summary(
            value=[
                Summary.Value(tag=f"layer_{layer}.weight/auto", histogram=histogram(array))
                for layer in range(2)
            ]
        ).SerializeToString()
        for array in weights
    ]
    index = 0
    for block in losses(records):
        data = block.tobytes()
        for at in range(0, len(data), 4):
            values = head + data[at : at + 4] + rate
            if index % _EVERY_METRICS == 0:
                values += metrics
            if index % _EVERY_HISTOGRAMS == 0:
                values += layers[index // _EVERY_HISTOGRAMS % len(layers)] + counters
            wall_time = began + _YEAR_SECS * index / records
            index += 1
            yield event(wall_time=wall_time, step=index * _INTERVAL, summary=values)


def _age(folder: str) -> None:
    """Gives files the names and the times that they would have had if they had taken a year."""
    before = 0
    for file, (_, begin), (_, last) in _summaries(folder):
        first = before = max(int(begin), before + 1)
        name = dataclasses.replace(
            file.name, stamp=first, last=None if file.name.last is None else int(last)
        )
        path = os.path.join(folder, str(name))
        os.rename(file.path, path)
        os.utime(path, (last, last))


def view(work: str, folder: str, records: int) -> dict[str, float]:
    """Reads as TensorBoard does: until the last point, and until all points are served."""
    from tensorboard.data.provider import RunTagFilter

    from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
    from rec_summary.tensorboard.provider.run_index import RunIndex

    began, cpu = time.perf_counter(), time.process_time()
    index = RunIndex(folder)
    provider = RecordDataProvider(index)
    index.start()
    end, served = began + _LIMIT_SECS, {}
    try:
        while "all" not in served and time.perf_counter() < end:
            series = provider.read_scalars(
                experiment_id="",
                plugin_name="scalars",
                downsample=_PIXELS,
                run_tag_filter=RunTagFilter(tags=[_LOSS]),
            )
            now = time.perf_counter() - began
            points = [list(tags[_LOSS]) for tags in series.values() if _LOSS in tags]
            if points and points[0] and points[0][-1].step == records * _INTERVAL:
                served.setdefault("seconds", now)
                if points[0][0].step == _INTERVAL:
                    served |= {"all": now, "cpu": time.process_time() - cpu}
            time.sleep(_POLL_SECS)
    finally:
        index.close()
    return served


def load(work: str, folder: str, records: int) -> dict[str, float]:
    """Reads the losses as a DataFrame."""
    import pandas  # noqa: F401

    import rec_summary

    with Stopwatch() as watch:
        table = rec_summary.load(folder, tags="loss").scalars()
    assert table["step"].iloc[-1] == records * _INTERVAL
    return watch.result()


def tail(work: str, folder: str, records: int, since: str = "") -> dict[str, float]:
    """Prints the last loss with the command."""
    more = ["--since", since] if since else []
    command = [sys.executable, "-m", "rec_summary", "tail", folder, "--once", "--tags", "loss"]
    with Stopwatch() as watch:
        done = subprocess.run([*command, *more], check=True, capture_output=True, text=True)
    assert f"step {records * _INTERVAL}" in done.stdout, done.stdout
    return watch.result()


def check(work: str, folder: str, records: int) -> dict[str, float]:
    """Compares what stays of the loss with all that was recorded."""
    import rec_summary

    everything = np.concatenate(list(losses(records)))
    table = rec_summary.load(folder, tags="loss").scalars()
    indices = table["step"].to_numpy() // _INTERVAL - 1
    values = table["value"].to_numpy().astype(np.float32)
    np.savez(Path(folder).with_suffix(".npz"), indices=indices, values=values)
    assert (everything[indices] == values).all()
    extremes = abs(float(values.min()) - float(everything.min()))
    extremes += abs(float(values.max()) - float(everything.max()))
    moved, different, fewest = 0, 0.0, _PIXELS
    for tenth in range(_TENTHS):
        first, last = records * tenth // _TENTHS, records * (tenth + 1) // _TENTHS
        part = slice(*np.searchsorted(indices, (first, last)))
        widest = _widest(folder, first, last)
        columns = min((last - first) * _INTERVAL // widest, _PIXELS)
        if columns < 2:
            raise RuntimeError(
                f"buckets of {widest:,} steps in tenth {tenth} leave {columns} columns to compare"
            )
        full = extents(np.arange(last - first), everything[first:last], last - first, columns)
        drawn = extents(indices[part] - first, values[part], last - first, columns)
        moved = max(moved, columns_moved(full, drawn))
        height = (full[1].max() - full[0].min()) / _ROWS
        apart = np.maximum(abs(full[0] - drawn[0]), abs(full[1] - drawn[1]))
        different = max(different, 100 * float((apart > height).mean()))
        fewest = min(fewest, columns)
    return {
        "points": len(values),
        "extremes": extremes,
        "moved": moved,
        "different": different,
        "columns": fewest,
    }


def _widest(folder: str, first: int, last: int) -> int:
    """Returns the width of the widest bucket of the files with some records, in steps."""
    from rec_summary.records.reading.runs import compaction_of

    widest = _INTERVAL
    for file, (begin, _), (end, _) in _summaries(folder):
        compaction = compaction_of(file)
        if compaction is not None and begin <= last * _INTERVAL and end >= first * _INTERVAL:
            widest = max(widest, compaction.bucket_steps)
    return widest


def _summaries(folder: str) -> Iterator[tuple[Any, tuple[int, float], tuple[int, float]]]:
    """Yields the summary files, each with step and time of its first and its last record."""
    from rec_summary.records.format.names import Kind
    from rec_summary.records.reading.runs import list_files
    from rec_summary.series.batch import SUMMARY
    from rec_summary.series.event_reader import EventReader
    from rec_summary.series.report import Report

    for file in list_files(folder):
        if file.name.kind is Kind.SUMMARY:
            with EventReader(file, Report(), steps_only=True) as reader:
                parts = [batch for batch in reader if batch.kind == SUMMARY]
            if parts:
                first, last = parts[0], parts[-1]
                begin = int(first.steps[0]), float(first.wall_times[0])
                yield file, begin, (int(last.steps[-1]), float(last.wall_times[-1]))


def extents(indices: Any, values: Any, span: int, columns: int) -> tuple[Any, Any]:
    """Returns the least and the greatest value of each column of a picture."""
    least, greatest = np.full(columns, np.inf), np.full(columns, -np.inf)
    column = indices * columns // span
    np.minimum.at(least, column, values)
    np.maximum.at(greatest, column, values)
    return least, greatest


def columns_moved(full: tuple[Any, Any], drawn: tuple[Any, Any]) -> int:
    """Returns by how many columns a picture's extremes are moved; more than 1 is not looked for."""
    if (drawn[0] < full[0]).any() or (drawn[1] > full[1]).any():
        return 2  # something is drawn that was not recorded there
    if (drawn[0] == full[0]).all() and (drawn[1] == full[1]).all():
        return 0
    least, greatest = (np.pad(bound, 1, mode="edge") for bound in drawn)
    least = np.minimum(np.minimum(least[:-2], least[1:-1]), least[2:])
    greatest = np.maximum(np.maximum(greatest[:-2], greatest[1:-1]), greatest[2:])
    return 1 if (least <= full[0]).all() and (greatest >= full[1]).all() else 2


def _draw(base: Path, records: int, budget: int) -> None:
    """Draws the year: bytes on disk, what stays of the loss, and how far apart it is."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    samples = [_Disk(*sample) for sample in json.loads((base / "year.json").read_text())]
    stayed = np.load(base / "year.npz")
    days = 365 / records
    figure = Figure(figsize=(8.4, 6.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    disk, loss, apart = figure.subplots(3, 1, sharex=True)
    when = [sample.record * days for sample in samples]
    disk.plot(when, [sample.nbytes / _MB for sample in samples], color=INK)
    disk.axhline(budget / _MB, color=_BOUND, linestyle="--", linewidth=1)
    disk.annotate("budget", (1, budget / _MB), xytext=(0, 3), textcoords="offset points")
    disk.set_ylim(0, 1.2 * budget / _MB)
    disk.set_title("record files on disk (MB)", fontsize=10, loc="left")
    everything = np.concatenate(list(losses(records)))
    edges = np.arange(_PIXELS) * (365 / _PIXELS)
    for (least, greatest), colour, label in (
        (extents(np.arange(records), everything, records, _PIXELS), _PALE, "all points"),
        (extents(stayed["indices"], stayed["values"], records, _PIXELS), INK, "points that stay"),
    ):
        edge = {"facecolor": "none", "edgecolor": colour, "linewidth": 0.7}
        style = edge if colour == INK else {"facecolor": colour, "linewidth": 0}
        loss.fill_between(edges, least, greatest, step="post", label=label, **style)
    loss.legend(fontsize=8, frameon=False, loc="upper right")
    loss.set_title("loss, least and greatest of each pixel", fontsize=10, loc="left")
    counts = np.bincount(stayed["indices"] * _PIXELS // records, minlength=_PIXELS)
    apart.step(
        edges, records * _INTERVAL / _PIXELS / np.maximum(counts, 1), color=INK, where="post"
    )
    apart.set_yscale("log")
    apart.set_title("steps for each point of the loss that stays", fontsize=10, loc="left")
    apart.set_xlabel("day")
    for plot in (disk, loss, apart):
        plot.set_xlim(0, 365)
        tidied(plot)
    figure.savefig(_PICTURE, metadata={"Software": None})
