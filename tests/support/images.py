"""Images as they are recorded."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.values.image import encode_image


def to_image(array: npt.NDArray[Any]) -> Summary.Image:
    """Returns a batch of images as the message that is recorded."""
    return Summary.Image.FromString(encode_image(array))
