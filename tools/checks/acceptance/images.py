"""The Images dashboard: the bytes of every recorded picture, and pictures of other values."""

from __future__ import annotations

import io
import urllib.parse
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tools.checks.acceptance import series
from tools.checks.acceptance.comparison import Items
from tools.checks.acceptance.records import Records
from tools.tensorboard_pages.server import TensorBoardServer

NAME = "images"


@dataclass(frozen=True)
class Picture:
    """A picture at a time: its bytes, or only whether it has more than one colour."""

    wall_time: float
    data: bytes | None
    is_plain: bool = False


def expected(records: Records) -> Items:
    """Yields pictures by run, tag and step."""
    for point in series.points(records, "images"):
        wall_time, message = point.value.wall_time, point.value.message
        if point.value.kind == "image":
            yield point.key, Picture(wall_time, message.image.encoded_image)
            continue
        matrix = series.array(message.tensor) if point.part == series.HEAT_MAP else None
        is_plain = matrix is not None and np.unique(matrix).size == 1
        yield point.key, Picture(wall_time, None, is_plain)


def shown(server: TensorBoardServer) -> Items:
    """Yields the same from the dashboard's interface."""
    for run, tags in server.get("plugin/images/tags").items():
        for tag in tags:
            for each in server.get("plugin/images/images", run=run, tag=tag, sample="0"):
                query = dict(urllib.parse.parse_qsl(each["query"]))
                data = server.fetch_query("plugin/images/individualImage", **query)
                yield (run, tag, each["step"]), Picture(each["wall_time"], data)


def same(expected: Picture, shown: Picture) -> bool:
    """Whether the bytes are the same; of a picture that was drawn, whether it shows anything."""
    if expected.wall_time != shown.wall_time or shown.data is None:
        return False
    if expected.data is not None:
        return expected.data == shown.data
    with Image.open(io.BytesIO(shown.data)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return bool((pixels == pixels[0, 0]).all()) == expected.is_plain
