"""Batches of images as one PNG of tiles."""

from __future__ import annotations

import io
import math
from typing import Final

import numpy as np
from PIL import Image

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array, Bytes
from rec_summary.errors import three_part, verbatim
from rec_summary.records.format import wire
from rec_summary.records.format.bounds import MOST_PIXELS

_COLUMNS: Final = 8
_ROWS: Final = 8
MAX_TILES: Final = _COLUMNS * _ROWS
_IMAGE: Final = wire.Fields(Summary.Image)


def is_image(array: Array) -> bool:
    """Returns whether an array has the shape `[N, 1 or 3, H, W]` or `[N, H, W, 1 or 3]`."""
    return array.ndim == 4 and array.size > 0 and bool({array.shape[1], array.shape[3]} & {1, 3})


def encode_image(array: Array) -> bytes:
    """Returns up to 64 images as the bytes of one `Summary.Image`.

    The images are tiles, eight in a row, from left to right and from top to bottom.

    Values of uint8 are not changed. Other values from 0 to 1 are multiplied by 255. All others are
    scaled to 0 to 255, as in MindSpore. NaN becomes black.

    Args:
        array: Real numbers for which `is_image` is true: `[N, C, H, W]` or `[N, H, W, C]`; if both
            fit, the former.

    Raises:
        ValueError: All tiles together have more pixels than can be shown.
    """
    array = array[:MAX_TILES]
    if array.shape[1] in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    tiled = _tile(_to_bytes(array))
    height, width, _ = tiled.shape
    file = io.BytesIO()
    Image.fromarray(tiled).save(file, format="PNG")
    return _IMAGE(height=height, width=width, colorspace=3, encoded_image=file.getvalue())


def _to_bytes(array: Array) -> Bytes:
    if array.dtype == np.uint8:
        return array
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if low >= 0 and high <= 1:
        low, scale = 0.0, 255.0
    elif high > low:
        scale = 255.0 / (high - low + 1)
    else:
        scale = 1.0
    return np.nan_to_num((values - low) * scale, nan=0, posinf=255, neginf=0).astype(np.uint8)


def _tile(images: Bytes) -> Bytes:
    """Returns `[N, H, W, C]` as one `[rows * H, columns * W, 3]`; missing tiles are black."""
    count, height, width, channels = images.shape
    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    if (pixels := rows * columns * height * width) > MOST_PIXELS:
        received = verbatim(f"{pixels:,} pixels in all tiles")
        raise ValueError(three_part("the size of images", received, f"at most {MOST_PIXELS:,}"))
    canvas = np.zeros((rows * columns, height, width, channels), np.uint8)
    canvas[:count] = images
    grid = canvas.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    tiled = grid.reshape(rows * height, columns * width, channels)
    return np.ascontiguousarray(np.broadcast_to(tiled, (*tiled.shape[:2], 3)))
