"""Record directories to measure with: the same values for every contestant."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState, TrainLineage, UserDefinedInfo
from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.values.histogram import histogram

START = 1_700_000_000.0
_SERIES = 4  # tags of scalars and of histograms
_DIFFERENT = 16  # arrays and images that take turns
_FLEET_TAGS = ("loss/auto", "recommender/auc/lifetime", "step_time/auto", "grad_norm/auto")
_IMAGE_SIDE = 182  # of noise, which does not compress: a PNG of 100 KB


class Scalar(NamedTuple):
    """A scalar, as all contestants get it."""

    tag: str
    number: float
    step: int
    wall_time: float


def scalars(count: int, series: int = _SERIES) -> Iterator[Scalar]:
    """Yields `count` scalars, of several tags in turn."""
    random = np.random.default_rng(0)
    numbers = random.random(count, dtype=np.float32).tolist()  # exact as float32
    tags = [f"metric_{index}/auto" for index in range(series)]
    for index, number in enumerate(numbers):
        step = 1 + index // series
        yield Scalar(tags[index % series], number, step, START + step / 8)


def write_scalars(folder: Path, count: int, series: int = _SERIES) -> None:
    """Writes a record directory with one scalar in each event."""
    writer = RunWriter(folder, 0)
    for tag, number, step, wall_time in scalars(count, series):
        value = Summary.Value(tag=tag, scalar_value=number)
        writer.write(_record(step, wall_time, value))
    writer.close()


@cache
def histograms() -> list[Summary.Histogram]:
    """Returns some histograms with 90 buckets, as those of weights have them."""
    random = np.random.default_rng(0)
    arrays = [random.normal(0, 0.1 + n, 10_000).astype(np.float32) for n in range(_DIFFERENT)]
    return [histogram(array) for array in arrays]


def histogram_events(count: int) -> Iterator[tuple[str, Summary.Histogram, int, float]]:
    """Yields `count` times tag, histogram, step and wall time."""
    for index in range(count):
        step = 1 + index // _SERIES
        chosen = histograms()[index % _DIFFERENT]
        yield f"layer_{index % _SERIES}.weight/auto", chosen, step, START + step / 8


def write_histograms(folder: Path, count: int) -> None:
    """Writes a record directory with one histogram in each event."""
    writer = RunWriter(folder, 0)
    for tag, chosen, step, wall_time in histogram_events(count):
        writer.write(_record(step, wall_time, Summary.Value(tag=tag, histogram=chosen)))
    writer.close()


def write_mix(folder: Path, count: int) -> None:
    """Writes `count` steps as a collector does: scalars and histograms in one record."""
    random = np.random.default_rng(0)
    numbers = random.random(count, dtype=np.float32).tolist()
    arrays = [random.normal(0, 0.1 + n, 200).astype(np.float32) for n in range(_DIFFERENT)]
    made = [histogram(array) for array in arrays]
    rate = Summary.Value(tag="learning_rate/auto", scalar_value=1e-3)
    layers = [
        [Summary.Value(tag=f"layer_{n}.weight/auto", histogram=counts) for counts in made]
        for n in range(2)
    ]
    writer = RunWriter(folder, 0)
    for index, number in enumerate(numbers):
        loss = Summary.Value(tag="loss/auto", scalar_value=number)
        chosen = (layer[index % _DIFFERENT] for layer in layers)
        writer.write(_record(1 + index, START + index / 8, loss, rate, *chosen))
    writer.close()


@cache
def images() -> list[Summary.Image]:
    """Returns some PNG images of about 100 KB."""
    from PIL import Image

    random, side, made = np.random.default_rng(0), _IMAGE_SIDE, []
    for _ in range(_DIFFERENT):
        file = io.BytesIO()
        pixels = random.integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, format="PNG")
        encoded = file.getvalue()
        made.append(Summary.Image(height=side, width=side, colorspace=3, encoded_image=encoded))
    return made


def write_images(folder: Path, count: int) -> None:
    """Writes a record directory with one image in each event."""
    writer = RunWriter(folder, 0)
    for index in range(count):
        value = Summary.Value(tag="input_data/auto", image=images()[index % _DIFFERENT])
        writer.write(_record(1 + index, START + index / 8, value))
    writer.close()


def write_mixture(folder: Path, nbytes: int) -> None:
    """Writes about `nbytes` of records: in each step two scalars and five histograms.

    Each twentieth step has an image, too.
    """
    writer = RunWriter(folder, 0)
    written, step = 0, 0
    while written < nbytes:
        step += 1
        values = [Summary.Value(tag=f"metric_{n}/auto", scalar_value=1 / step) for n in range(2)]
        for layer in range(5):
            chosen = histograms()[(step + layer) % _DIFFERENT]
            values.append(Summary.Value(tag=f"layer_{layer}.weight/auto", histogram=chosen))
        if step % 20 == 0:
            chosen_image = images()[step % _DIFFERENT]
            values.append(Summary.Value(tag="input_data/auto", image=chosen_image))
        record = _record(step, START + step / 8, *values)
        written += record.nbytes
        writer.write(record)
    writer.close()


def write_fleet(folder: Path, runs: int, ranks: int, starts: int, steps: int) -> int:
    """Writes the runs of a team, each with a pair of files for each rank and start.

    Runs differ in their hyper-parameters and in their values; 16 curves of values take turns.

    Returns:
        The size of all files in bytes.
    """
    nbytes = 0
    for number in range(runs):
        run = folder / f"project_{number % 10}" / f"run_{number:05}"
        run.mkdir(parents=True, exist_ok=True)
        lineage = _run_lineage(number, ranks, steps)
        for start in range(starts):
            first, last = steps * start // starts, steps * (start + 1) // starts
            for rank in range(ranks):
                values = _curve((number + rank) % _DIFFERENT, first, last)
                for kind, content in ((Kind.SUMMARY, values), (Kind.LINEAGE, lineage)):
                    name = RecordName(int(START) + 60 * start, rank, "node", kind)
                    nbytes += (run / str(name)).write_bytes(content)
    return nbytes


@cache
def _curve(which: int, first: int, last: int) -> bytes:
    """Returns the records of some steps: the loss, an AUC, and what a step took."""
    random = np.random.default_rng(which)
    version = Event(wall_time=START, version="MindSpore.Event:1")
    records = [frame(version.SerializeToString())]
    for step in range(first + 1, last + 1):
        numbers = (1 / step + which / 100, 0.5 + step / 1e3, random.random(), random.random())
        values = [
            Summary.Value(tag=tag, scalar_value=number)
            for tag, number in zip(_FLEET_TAGS, numbers, strict=True)
        ]
        records.append(frame(_record(step, START + step / 8, *values).encode()))
    return b"".join(records)


def _run_lineage(number: int, ranks: int, steps: int) -> bytes:
    """Returns the lineage of a run that has ended."""
    train = TrainLineage(
        hyper_parameters=TrainLineage.HyperParameters(
            optimizer="Adam",
            learning_rate=1e-3 * (1 + number % 7),
            loss_function="BCELoss",
            epoch=3,
            batch_size=64 * (1 + number % 5),
            device_num=ranks,
        ),
        algorithm=TrainLineage.Algorithm(network="DeepFM"),
        run_state=RunState(status=RunState.FINISHED, step=steps, rank_size=ranks, host="node"),
    )
    custom = UserDefinedInfo(map_str={"owner": f"person_{number % 20}"})
    events = (
        LineageEvent(wall_time=START + steps / 8, train_lineage=train),
        LineageEvent(wall_time=START + steps / 8, user_defined_info=custom),
    )
    return b"".join(frame(event.SerializeToString()) for event in events)


def write(work: str, kind: str, folder: str, count: int) -> dict[str, float]:
    """Writes large records in a process of its own, whose memory ends with it."""
    {"scalars": write_scalars, "mix": write_mix}[kind](Path(folder), count)
    return {}


def _record(step: int, wall_time: float, *values: Summary.Value) -> MessageRecord:
    event = Event(wall_time=wall_time, step=step, summary=Summary(value=values))
    return MessageRecord(event)
