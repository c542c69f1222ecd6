"""Images to the Images dashboard, their bytes untouched."""

from __future__ import annotations

import functools
import io
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from PIL import Image
from tensorboard.compat.proto import summary_pb2 as tensorboard_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import three_part, verbatim
from rec_summary.records.format.limits import MOST_PIXELS
from rec_summary.series.blocks.rendering import png_size
from rec_summary.tensorboard.dashboards.points import Point, ValueMapper, plugin, tensor_value

_GIF_SIZE: Final = struct.Struct("<6xHH")
_BMP_SIZE: Final = struct.Struct("<18xii")
_JPEG_SEGMENT: Final = struct.Struct(">BBH")
_JPEG_SIZE: Final = struct.Struct(">5xHH")  # of a frame header, after its marker
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
IMAGES: Final = plugin("images", tensorboard_pb2.DATA_CLASS_BLOB_SEQUENCE)


class ImageMapper(ValueMapper):
    """Maps an image to the same image."""

    plugin = IMAGES

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the point for a value that holds an image.

        Raises:
            ValueError: It has no header of a format that TensorBoard shows, or declares more
                pixels than a browser can show.
        """
        image = value.image
        size = declared_size(image.encoded_image)
        if size is None:
            received = verbatim(f"{len(image.encoded_image):,} bytes without an image header")
            expected = "a PNG, JPEG, GIF or BMP, which states its size"
            raise ValueError(three_part("the content of an image", received, expected))
        if math.prod(size) > MOST_PIXELS:
            received = verbatim(f"{size[0]:,} × {size[1]:,} pixels")
            expected = f"at most {MOST_PIXELS:,} pixels"
            raise ValueError(three_part("the size of an image", received, expected))
        content = encoded(image.encoded_image, image.colorspace, image.height, image.width)
        yield Point(tag, IMAGES, content)


def picture(tag: str, draw: Callable[[], Image.Image | bytes]) -> Point:
    """Returns the point of a picture, which is drawn when it is looked at.

    Args:
        tag: The series.
        draw: Returns a picture in red, green and blue, or a PNG that has alpha, too.
    """
    return Point(tag, IMAGES, functools.partial(_rendered, draw))


def _rendered(draw: Callable[[], Image.Image | bytes]) -> Any:
    picture = draw()
    if isinstance(picture, bytes):
        return encoded(picture, channels=4)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return encoded(buffer.getvalue(), channels=3)


def encoded(data: bytes, channels: int, height: int = 0, width: int = 0) -> Any:
    """Returns the value of an encoded image, usually PNG.

    The size is only shown beside it. If it is not positive, the size in the image is used.

    Args:
        data: The image.
        channels: 1 grey, 2 grey and alpha, 3 red, green, blue, 4 with alpha.
        height: In pixels.
        width: In pixels.
    """
    if height <= 0 or width <= 0:
        size = declared_size(data)
        if size is not None and max(size) < 1 << 31:
            width, height = size
    image = tensorboard_pb2.Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=data
    )
    return tensorboard_pb2.Summary.Value(image=image)


def declared_size(data: bytes) -> tuple[int, int] | None:
    """Returns the width and height that an image states, not decoded; None if none is found.

    Collectors record PNG. The other formats are what TensorBoard shows as well. Pillow would read
    them too, with warnings and hundreds of megabytes for crafted ones.
    """
    try:
        if data.startswith((b"GIF87a", b"GIF89a")):
            width, height = _GIF_SIZE.unpack_from(data)
        elif data.startswith(b"BM"):
            width, height = (abs(side) for side in _BMP_SIZE.unpack_from(data))
        elif data.startswith(b"\xff\xd8"):
            return _jpeg_size(data)
        else:
            return png_size(data)
    except struct.error:
        return None
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while True:
        start, marker, length = _JPEG_SEGMENT.unpack_from(data, at)
        if start != 0xFF:
            return None
        if marker in _JPEG_FRAMES:
            height, width = _JPEG_SIZE.unpack_from(data, at)
            return width, height
        at += 1 if marker == 0xFF else 2 + length


def no_image(tag: str) -> Any:
    """Returns a value of an image series that holds a size, and no image."""
    value = tensor_value([b"0", b"0"])
    value.tag = tag
    return value
