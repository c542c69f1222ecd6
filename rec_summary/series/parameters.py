"""The hyper-parameters of a run, as they are to be shown."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from rec_summary.series.lineage import Lineage, Plain
from rec_summary.series.words import shown


def hyper_parameters(lineage: Lineage) -> dict[str, Plain]:
    """Returns a run's hyper-parameters: MindSpore's by their names in the record, and custom data.

    Custom data under a name that is taken gets the prefix `custom.`.
    """
    found = recorded_parameters(lineage)
    for name, value in lineage.custom.items():
        found[f"custom.{name}" if name in found else name] = value
    return found


def recorded_parameters(lineage: Lineage) -> dict[str, Plain]:
    """Returns the hyper-parameters that MindSpore's training lineage has fields for."""
    return dict(_recorded(lineage))


def _recorded(lineage: Lineage) -> Iterator[tuple[str, Plain]]:
    train = lineage.train
    if train is None:
        return
    hyper, data, state = train.hyper_parameters, train.train_dataset, train.run_state
    if train.algorithm.network:
        yield "network", shown(train.algorithm.network)
    for name in ("optimizer", "loss_function", "parallel_mode"):
        text = getattr(hyper, name)
        if text:
            yield name, shown(text)
    if hyper.HasField("learning_rate"):
        yield "learning_rate", shortest(hyper.learning_rate)
    for name in ("epoch", "device_num"):
        if hyper.HasField(name):
            yield name, getattr(hyper, name)
    # Ours may be there as well, in 64 bits.
    if state.batch_size or hyper.HasField("batch_size"):
        yield "batch_size", state.batch_size or hyper.batch_size
    if data.train_dataset_path:
        yield "train_dataset_path", shown(data.train_dataset_path)
    if state.dataset_size or data.HasField("train_dataset_size"):
        yield "train_dataset_size", state.dataset_size or data.train_dataset_size


def shortest(number: float) -> float:
    """Returns the float64 that reads best of those that round to the float32 `number`.

    A learning rate of 0.001 was recorded in 32 bits, and would otherwise read
    0.0010000000474974513.
    """
    if not math.isfinite(number):
        return number
    for digits in range(6, 9):
        candidate = float(f"{number:.{digits}g}")
        if struct.pack("<f", candidate) == struct.pack("<f", number):
            return candidate
    return number
