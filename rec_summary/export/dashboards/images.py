"""Images to the Images dashboard, their bytes untouched."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from tensorboard.compat.proto import summary_pb2 as tensorboard_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.export.dashboards.points import Point, plugin

IMAGES: Final = plugin("images", tensorboard_pb2.DATA_CLASS_BLOB_SEQUENCE)
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_SIZE: Final = struct.Struct(">8s4x4sII")  # the signature, then the header chunk


class ImageMapper:
    """Maps an image to the same image."""

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the point for a value that holds an image.

        Raises:
            ValueError: It has no content.
        """
        image = value.image
        if not image.encoded_image:
            raise ValueError("an image without a byte")
        yield encoded(tag, image.encoded_image, image.height, image.width, image.colorspace)


def encoded(tag: str, data: bytes, height: int, width: int, channels: int) -> Point:
    """Returns the point of an encoded image, usually PNG.

    The size is only shown beside it. If it cannot be true, a PNG's own is taken.

    Args:
        tag: The series.
        data: The image.
        height: In pixels.
        width: In pixels.
        channels: 1 grey, 2 grey and alpha, 3 red, green, blue, 4 with alpha.
    """
    if (height <= 0 or width <= 0) and len(data) >= _SIZE.size:
        signature, chunk, true_width, true_height = _SIZE.unpack_from(data)
        if signature == _PNG and chunk == b"IHDR" and max(true_width, true_height) < 1 << 31:
            height, width = true_height, true_width
    image = tensorboard_pb2.Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=data
    )
    return Point(tag, IMAGES, tensorboard_pb2.Summary.Value(image=image))
