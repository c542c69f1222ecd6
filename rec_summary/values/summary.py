"""What a step's record is made of: a tag, a snapshot, and how it becomes a summary value.

A snapshot is taken on the training thread and must own its memory. Turning it into a
protobuf value is the heavy part and happens later, on the writer's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.values.histogram import histogram
from rec_summary.values.image import to_image
from rec_summary.values.tensor import to_tensor


class SummaryValue(Protocol):
    """One value of a step."""

    @property
    def tag(self) -> str:
        """Its name, unique among the values of its kind in a step."""

    @property
    def nbytes(self) -> int:
        """About how much memory the snapshot holds, in bytes."""

    def build(self) -> Summary.Value:
        """Returns the protobuf value.

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

    def build(self) -> Summary.Value:
        with np.errstate(over="ignore"):  # beyond float32 it is infinite, not an error
            return Summary.Value(tag=self.tag, scalar_value=float(np.float32(self.number)))


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
    """An array of any shape that is shown as the distribution of its elements."""

    def build(self) -> Summary.Value:
        return Summary.Value(tag=self.tag, histogram=histogram(self.array))


@dataclass(frozen=True)
class ImageValue(ArrayValue):
    """A batch of images: `[N, C, H, W]` or `[N, H, W, C]` with C of 1 or 3."""

    def build(self) -> Summary.Value:
        return Summary.Value(tag=self.tag, image=to_image(self.array))


@dataclass(frozen=True)
class TensorValue(ArrayValue):
    """An array of any shape that is kept whole."""

    def build(self) -> Summary.Value:
        return Summary.Value(tag=self.tag, tensor=to_tensor(self.array))
