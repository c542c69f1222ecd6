"""Batches of images as one PNG of tiles."""

from __future__ import annotations

import functools
import io
import logging
import math
from typing import Final

import numpy as np
from PIL import Image

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array, Bytes
from rec_summary.errors import three_part, verbatim
from rec_summary.records.format import wire
from rec_summary.records.format.limits import MOST_PIXELS

logger = logging.getLogger("rec_summary")

_COLUMNS: Final = 8
_ROWS: Final = 8
MAX_TILES: Final = _COLUMNS * _ROWS
# Least and greatest; and how bright a batch is at least: labels 0 to 3 are not dark pixels.
_RANGES: Final = ((0.0, 1.0, 0.0), (-1.0, 1.0, -1.0), (0.0, 255.0, 128.0))
_IMAGE: Final = wire.Fields(Summary.Image)


def is_image(array: Array) -> bool:
    """Returns whether an array has the shape `[N, 1 or 3, H, W]` or `[N, H, W, 1 or 3]`."""
    return array.ndim == 4 and array.size > 0 and bool({array.shape[1], array.shape[3]} & {1, 3})


def encode_image(array: Array) -> bytes:
    """Returns up to 64 images as the bytes of one `Summary.Image`.

    The images are tiles, eight in a row, from left to right and from top to bottom.

    Values of uint8 are not changed. Others are scaled to 0 to 255 from the range that the batch
    evidently has: 0 to 1, -1 to 1, or 0 to 255. It may be left by a tenth of its width, as by a
    bicubic filter; what is outside is clipped. Any other batch is stretched from its least value to
    its greatest. Either is logged once. NaN becomes black.

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
    least, greatest = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    for low, high, bright in _RANGES:
        margin = (high - low) / 10
        if low - margin <= least and bright <= greatest <= high + margin:
            if not low <= least <= greatest <= high:
                _log_once(f"what is outside of {low:g} to {high:g} is clipped")
            break
    else:
        low, high = float(least), float(greatest)
        _log_once("values in none of the usual ranges are stretched to black and white")
    scaled = (values.clip(low, high) - low) * (255.0 / ((high - low) or 1.0))
    return np.nan_to_num(scaled, nan=0).astype(np.uint8)


@functools.cache
def _log_once(what: str) -> None:
    logger.warning("rec_summary: recorded images: %s", what)


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
