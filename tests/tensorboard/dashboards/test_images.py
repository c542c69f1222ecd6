from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.images import ImageMapper


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (1, 2, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def mapped(data: bytes, height: int = 0, width: int = 0) -> Summary.Value:
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image=data)
    [point] = ImageMapper()("t", Summary.Value(tag="t", image=image))
    assert (point.tag, point.plugin.name) == ("t", "images")
    return point.value.image


def test_the_bytes_are_untouched() -> None:
    image = mapped(png(7, 5), 5, 7)
    assert image.encoded_image_string == png(7, 5)
    assert (image.width, image.height, image.colorspace) == (7, 5, 3)


@pytest.mark.parametrize("size", [(0, 0), (-1, 7), (5, -7)])
def test_a_size_that_cannot_be_true_is_read_from_the_picture(size: tuple[int, int]) -> None:
    image = mapped(png(7, 5), *size)
    assert (image.width, image.height) == (7, 5)


def test_an_image_without_content_is_told() -> None:
    with pytest.raises(ValueError, match="without a byte"):
        mapped(b"")


@given(st.binary(min_size=1, max_size=60), st.integers(-5, 5))
def test_content_may_be_anything(data: bytes, size: int) -> None:
    assert mapped(data, size, size).encoded_image_string == data
    with contextlib.suppress(ValueError):  # it may state any size
        assert mapped(png(3, 2)[:16] + data, size, size).ByteSize() > 0
