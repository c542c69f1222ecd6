"""The values of a step: a tag, a snapshot, and its encoding as a summary value.

The training thread takes the snapshot, which must own its memory. The thread of the writer encodes
it later, because encoding is slow.
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

_FIELDS: Final = {
    name: wire.number_of(Summary.Value, name) for name in Summary.Value.DESCRIPTOR.fields_by_name
}
_POPULATION: Final = wire.number_of(Summary.Histogram, "population")
_WALL_TIME, _STEP, _SUMMARY = (
    wire.number_of(Event, name) for name in ("wall_time", "step", "summary")
)
_VALUE: Final = wire.number_of(Summary, "value")


class SummaryValue(Protocol):
    """One value of a step."""

    @property
    def tag(self) -> str:
        """The tag, unique among the values of its kind in a step."""

    @property
    def nbytes(self) -> int:
        """The approximate memory of the snapshot, in bytes."""

    def encode(self) -> bytes:
        """Returns the value as the bytes of a `Summary.Value`.

        Raises:
            TypeError: The type of the snapshot does not fit this kind of value.
            ValueError: The snapshot is empty or unusable.
        """


@dataclass(frozen=True)
class ScalarValue:
    """A number, stored as float32 as in the record format."""

    tag: str
    number: float

    @property
    def nbytes(self) -> int:
        return 64

    def encode(self) -> bytes:
        return _tag(self.tag) + wire.float_field(_FIELDS["scalar_value"], self.number)


@dataclass(frozen=True)
class ArrayValue:
    """The base class of values with an array.

    Attributes:
        tag: The tag.
        array: Real numbers; this value owns the array.
    """

    tag: str
    array: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


@dataclass(frozen=True)
class HistogramValue(ArrayValue):
    """An array of any shape, recorded as the distribution of its elements.

    Attributes:
        population: The number of values that the array is a sample of; None if it is not a sample.
    """

    population: int | None = None

    def encode(self) -> bytes:
        histogram = encode_histogram(self.array)
        if self.population is not None:
            histogram += wire.int_field(_POPULATION, self.population)
        return encode_value(self.tag, "histogram", histogram)


@dataclass(frozen=True)
class ImageValue(ArrayValue):
    """A batch of images: `[N, C, H, W]` or `[N, H, W, C]` with C of 1 or 3."""

    def encode(self) -> bytes:
        return encode_value(self.tag, "image", encode_image(self.array))


@dataclass(frozen=True)
class TensorValue(ArrayValue):
    """An array of any shape with all its elements."""

    def encode(self) -> bytes:
        return encode_value(self.tag, "tensor", encode_tensor(self.array))


def encode_value(tag: str, field: str, content: bytes) -> bytes:
    """Returns a message as the bytes of a `Summary.Value`.

    Args:
        tag: The tag of the value.
        field: The field of `Summary.Value` with the message.
        content: The bytes of the message.
    """
    return _tag(tag) + wire.bytes_field(_FIELDS[field], content)


def encode_event(step: int, wall_time: float, values: Sequence[bytes]) -> bytes:
    """Returns the record of a step: the bytes of an `Event` with a `Summary`.

    Args:
        step: The step.
        wall_time: The wall time, in seconds since 1970.
        values: The encoded values.
    """
    summary = b"".join(wire.bytes_field(_VALUE, value) for value in values)
    return (
        wire.double_field(_WALL_TIME, wall_time)
        + wire.int_field(_STEP, step)
        + wire.bytes_field(_SUMMARY, summary)
    )


@functools.lru_cache(maxsize=4096)
def _tag(tag: str) -> bytes:
    return wire.text_field(_FIELDS["tag"], tag)
