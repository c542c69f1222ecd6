"""The values of a step: a tag, a snapshot, and its encoding as a summary value.

The training thread takes the snapshot, which must own its memory. The thread of the writer encodes
it later, because encoding is slow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.errors import three_part
from rec_summary.records.format import wire
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.values.histogram import encode_histogram
from rec_summary.values.image import encode_image
from rec_summary.values.tensor import encode_tensor

_EVENT: Final = wire.Fields(Event)
_SUMMARY: Final = wire.Fields(Summary)
_VALUE: Final = wire.Fields(Summary.Value)
_HISTOGRAM: Final = wire.Fields(Summary.Histogram)
_SCALAR_BYTES: Final = 64

SCALAR: Final = "scalar"
HISTOGRAM: Final = "histogram"
IMAGE: Final = "image"
TENSOR: Final = "tensor"
LANDSCAPE: Final = "loss_landscape"

_ENCODERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    HISTOGRAM: encode_histogram,
    IMAGE: encode_image,
    TENSOR: encode_tensor,
    LANDSCAPE: bytes,
}


class SummaryValue(NamedTuple):
    """One value of a step.

    Attributes:
        kind: What it is recorded as: `SCALAR`, `HISTOGRAM`, `IMAGE`, `TENSOR` or `LANDSCAPE`.
        tag: The tag, unique among the values of its kind in a step.
        content: Of a scalar, a number, which is stored as float32. Of a landscape, the bytes of a
            `LossLandscape`. Of all others, an array of real numbers that this value owns: of any
            shape, for images `[N, C, H, W]` or `[N, H, W, C]` with C of 1 or 3.
        population: The number of values that the array of a histogram is a sample of; None if it is
            not a sample.
    """

    kind: str
    tag: str
    content: Any
    population: int | None = None

    @property
    def nbytes(self) -> int:
        """The approximate memory of the snapshot, in bytes."""
        if self.kind == LANDSCAPE:
            return len(self.content)
        return _SCALAR_BYTES if self.kind == SCALAR else int(self.content.nbytes)

    def encode(self) -> bytes:
        """Returns the value as the bytes of a `Summary.Value`.

        Raises:
            TypeError: The type of the snapshot does not fit this kind of value.
            ValueError: The snapshot is empty or unusable, or no reader takes so long a tag.
        """
        if len(self.tag) > LONGEST_TAG:
            expected = f"at most {LONGEST_TAG:,} characters"
            raise ValueError(three_part("the length of a tag", len(self.tag), expected))
        if self.kind == SCALAR:
            return encode_scalar(self.tag, self.content)
        content = _ENCODERS[self.kind](self.content)
        if self.population is not None:
            content += _HISTOGRAM["population"](self.population)
        return encode_value(self.tag, self.kind, content)


def encode_scalar(tag: str, number: float) -> bytes:
    """Returns a number as the bytes of a `Summary.Value`."""
    return _tag(tag) + _VALUE["scalar_value"](number)


def encode_value(tag: str, field: str, content: bytes) -> bytes:
    """Returns a message as the bytes of a `Summary.Value`.

    Args:
        tag: The tag of the value.
        field: The field of `Summary.Value` with the message.
        content: The bytes of the message.
    """
    return _tag(tag) + _VALUE[field](content)


def encode_event(step: int, wall_time: float, values: list[bytes]) -> bytes:
    """Returns the record of a step: the bytes of an `Event` with a `Summary`.

    Args:
        step: The step.
        wall_time: The wall time, in seconds since 1970.
        values: The encoded values.
    """
    return _EVENT(wall_time=wall_time, step=step, summary=_SUMMARY(value=values))


@functools.lru_cache(maxsize=4096)
def _tag(tag: str) -> bytes:
    return _VALUE["tag"](tag)
