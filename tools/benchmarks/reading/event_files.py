"""The contestants that write event files; each function runs in a process of its own.

All are warmed up with a few values before, so that imports are not counted, and what was
written is counted afterwards, outside the time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c

from rec_summary.records.reading.reader import RecordReader

from .. import synthetic_records
from ..child import Stopwatch, peak_memory

_WARM_UP = 8  # values


def frames(path: Path) -> int:
    """Returns how many framed messages a file has."""
    with RecordReader(path) as reader:
        return sum(1 for _ in reader)


def events(logdir: Path) -> int:
    """Returns how many events a log directory has, without the version of each file."""
    return sum(frames(path) - 1 for path in logdir.rglob("*tfevents*"))


def check(written: int, expected: int) -> None:
    """Checks that a contestant did all of its work.

    Raises:
        RuntimeError: It did less.
    """
    if written < expected:
        raise RuntimeError(f"{written} events were written, not {expected}")


def ours(work: str, records: str, count: int, warm_up: str | None = None) -> dict[str, float]:
    """Exports a record directory, or a tree of them, with `rec_summary.export_tensorboard`."""
    import rec_summary

    if warm_up is not None:
        rec_summary.export_tensorboard(warm_up, Path(work, "warm-up"))
    logs = Path(work, "logs")
    with Stopwatch() as watch:
        rec_summary.export_tensorboard(records, logs)
    memory = peak_memory()
    check(events(logs), count)
    return {**watch.result(), "memory": memory}


def floor(work: str, records: str, count: int) -> dict[str, float]:
    """Reads, converts and writes scalars in a bare loop that checks nothing.

    The least that such a conversion does in Python: read a frame, parse the record, build
    TensorBoard's event, serialise it, write it with its checksums.
    """
    from tensorboard.compat.proto.event_pb2 import Event as TensorBoardEvent

    from rec_summary._pb.summary_pb2 import Event
    from rec_summary.records.format.framing import frame

    def convert(source: Path, destination: Path) -> None:
        with source.open("rb") as reader, destination.open("wb") as writer:
            while header := reader.read(12):
                event = Event.FromString(reader.read(int.from_bytes(header[:8], "little")))
                reader.read(4)
                made = TensorBoardEvent(wall_time=event.wall_time, step=event.step)
                for value in event.summary.value:
                    made.summary.value.add(tag=value.tag, simple_value=value.scalar_value)
                writer.write(frame(made.SerializeToString()))

    [source] = Path(records).glob("*_MS")
    destination = Path(work, "events.out.tfevents.0.floor")
    with Stopwatch() as watch:
        convert(source, destination)
    check(events(Path(work)), count)
    return watch.result()


def peer_scalars(work: str, records: str, count: int, package: str) -> dict[str, float]:
    """Writes the same scalars with `add_scalar` of another package."""
    writer_class = _writer_class(package)

    def write(folder: Path, values: list[synthetic_records.Scalar]) -> None:
        writer = writer_class(str(folder))
        for tag, number, step, wall_time in values:
            writer.add_scalar(tag, number, step, walltime=wall_time)
        writer.close()

    return _peer(write, list(synthetic_records.scalars(count)), Path(work))


def peer_histograms(work: str, records: str, count: int, package: str) -> dict[str, float]:
    """Writes the same histograms, buckets and all, with `add_histogram_raw`.

    The lists that it takes are made outside the time.
    """
    writer_class = _writer_class(package)

    def write(folder: Path, values: list[tuple[str, dict[str, Any], int, float]]) -> None:
        writer = writer_class(str(folder))
        for tag, histogram, step, wall_time in values:
            writer.add_histogram_raw(tag, **histogram, global_step=step, walltime=wall_time)
        writer.close()

    raw = [
        {
            "min": histogram.min,
            "max": histogram.max,
            "num": histogram.count,
            "sum": histogram.sum,
            "sum_squares": 0.0,
            "bucket_limits": [bucket.left + bucket.width for bucket in histogram.buckets],
            "bucket_counts": [bucket.count for bucket in histogram.buckets],
        }
        for histogram in synthetic_records.histograms()
    ]
    different = len(raw)
    values = [
        (tag, raw[index % different], step, wall_time)
        for index, (tag, _, step, wall_time) in enumerate(synthetic_records.histogram_events(count))
    ]
    return _peer(write, values, Path(work))


def copy_and_checksum(work: str, records: str, count: int) -> dict[str, float]:
    """Copies a record file with `cp`, and takes the CRC-32C of its bytes once."""
    [source] = Path(records).glob("*_MS")
    subprocess.run(["cp", __file__, work], check=True)  # the command is in memory from here on
    with Stopwatch() as watch:
        subprocess.run(["cp", str(source), work], check=True)
        with source.open("rb") as file:
            while block := file.read(1 << 20):
                google_crc32c.value(block)
    return watch.result()


def load_ours(work: str, source: str, few: str, count: int) -> dict[str, float]:
    """Loads the scalars of records."""
    import rec_summary

    return _loaded(lambda folder: rec_summary.load(folder).scalars(), source, few, count)


def load_tbparse(work: str, source: str, few: str, count: int) -> dict[str, float]:
    """Loads the event file that was exported from the same records."""
    from tbparse import SummaryReader

    def load(folder: str) -> Any:
        [path] = Path(folder).rglob("*tfevents*")
        return SummaryReader(str(path), event_types={"scalars"}).scalars

    return _loaded(load, source, few, count)


def _loaded(load: Callable[[str], Any], source: str, few: str, count: int) -> dict[str, float]:
    load(few)
    with Stopwatch() as watch:
        table = load(source)
    check(len(table), count)
    return watch.result()


def _writer_class(package: str) -> Any:
    if package == "tensorboardX":
        from tensorboardX import SummaryWriter
    else:
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter


def _peer(
    write: Callable[[Path, list[Any]], None], values: list[Any], work: Path
) -> dict[str, float]:
    write(work / "warm-up", values[:_WARM_UP])
    with Stopwatch() as watch:
        write(work / "logs", values)
    check(events(work / "logs"), len(values))
    return watch.result()
