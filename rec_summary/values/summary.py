"""What a step's record is made of: a tag, a snapshot, and how it becomes a summary value.

A snapshot is taken on the training thread and must own its memory. Turning it into a
protobuf value is the heavy part and happens later, on the writer's thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format import wire
from rec_summary.values.histogram import encode_histogram
from rec_summary.values.image import encode_image
from rec_summary.values.tensor import encode_tensor

_SCALAR, _IMAGE, _TENSOR, _HISTOGRAM = (
    wire.number_of(Summary.Value, name) for name in ("scalar_value", "image", "tensor", "histogram")
)
_POPULATION: Final = wire.number_of(Summary.Histogram, "population")
_TAG: Final = wire.number_of(Summary.Value, "tag")
_WALL_TIME, _STEP, _SUMMARY = (
    wire.number_of(Event, name) for name in ("wall_time", "step", "summary")
)
_VALUE: Final = wire.number_of(Summary, "value")


class SummaryValue(Protocol):
    """One value of a step."""

    @property
    def tag(self) -> str:
        """Its name, unique among the values of its kind in a step."""

    @property
    def nbytes(self) -> int:
        """About how much memory the snapshot holds, in bytes."""

    def encode(self) -> bytes:
        """Returns the value as the bytes of a `Summary.Value`.

        Raises:
            TypeError: The snapshot is not of a type that this kind can show.
            ValueError: The snapshot is empty or otherwise unusable.
        """


@dataclass(frozen=True)
class ScalarValue:
    """A number. Stored as float32, as the record format has it."""

    tag: str
    number: float

    @property
    def nbytes(self) -> int:
        return 64

    def encode(self) -> bytes:
        return _tag(self.tag) + wire.float_field(_SCALAR, self.number)


@dataclass(frozen=True)
class ArrayValue:
    """What the values that hold an array have in common.

    Attributes:
        tag: Its name.
        array: Real numbers; owned by this value from now on.
    """

    tag: str
    array: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True)
class HistogramValue(ArrayValue):
    """An array of any shape that is shown as the distribution of its elements.

    Attributes:
        population: How many values there are that the array is a sample of; None if it is all.
    """

    population: int | None = None

    def encode(self) -> bytes:
        histogram = encode_histogram(self.array)
        if self.population is not None:
            histogram += wire.int_field(_POPULATION, self.population)
        return _tag(self.tag) + wire.bytes_field(_HISTOGRAM, histogram)


@dataclass(frozen=True)
class ImageValue(ArrayValue):
    """A batch of images: `[N, C, H, W]` or `[N, H, W, C]` with C of 1 or 3."""

    def encode(self) -> bytes:
        return _tag(self.tag) + wire.bytes_field(_IMAGE, encode_image(self.array))


@dataclass(frozen=True)
class TensorValue(ArrayValue):
    """An array of any shape that is kept whole."""

    def encode(self) -> bytes:
        return _tag(self.tag) + wire.bytes_field(_TENSOR, encode_tensor(self.array))


def encode_event(step: int, wall_time: float, values: Sequence[bytes]) -> bytes:
    """Returns a step's record: the bytes of an `Event` with a `Summary`.

    Args:
        step: The step.
        wall_time: In seconds since the epoch.
        values: What `encode` returned.
    """
    summary = b"".join(wire.bytes_field(_VALUE, value) for value in values)
    return (
        wire.double_field(_WALL_TIME, wall_time)
        + wire.int_field(_STEP, step)
        + wire.bytes_field(_SUMMARY, summary)
    )


@functools.lru_cache(maxsize=4096)
def _tag(tag: str) -> bytes:
    return wire.text_field(_TAG, tag)
