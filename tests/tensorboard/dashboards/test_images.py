from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.images import ImageMapper


def image_of(width: int, height: int, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (1, 2, 3)).save(buffer, form)
    return buffer.getvalue()


def mapped(data: bytes, height: int = 0, width: int = 0) -> Summary.Value:
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image=data)
    [point] = ImageMapper()("t", Summary.Value(tag="t", image=image))
    assert (point.tag, point.plugin.name) == ("t", "images")
    return point.value.image


def test_the_bytes_are_untouched() -> None:
    image = mapped(image_of(7, 5), 5, 7)
    assert image.encoded_image_string == image_of(7, 5)
    assert (image.width, image.height, image.colorspace) == (7, 5, 3)


@pytest.mark.parametrize("size", [(0, 0), (-1, 7), (5, -7)])
def test_a_size_that_cannot_be_true_is_read_from_the_picture(size: tuple[int, int]) -> None:
    image = mapped(image_of(7, 5), *size)
    assert (image.width, image.height) == (7, 5)


@pytest.mark.parametrize("form", ["JPEG", "GIF", "BMP"])
def test_an_image_of_another_format_is_shown_as_it_is(form: str) -> None:
    image = mapped(image_of(7, 5, form))
    assert image.encoded_image_string == image_of(7, 5, form)
    assert (image.width, image.height) == (7, 5)


@pytest.mark.parametrize("data", [b"", b"png", b"<svg/>", image_of(7, 5)[:20], b"\xff\xd8\xff"])
def test_an_image_without_a_valid_header_is_a_problem(data: bytes) -> None:
    expected = f"Received: {len(data)} bytes without an image header. Expected: a PNG"
    with pytest.raises(ValueError, match=expected):
        mapped(data, 5, 7)


@given(st.binary(max_size=60), st.integers(-5, 5))
def test_content_may_be_anything(data: bytes, size: int) -> None:
    with contextlib.suppress(ValueError):  # it may state any size, or none
        assert mapped(data, size, size).encoded_image_string == data
    with contextlib.suppress(ValueError):
        assert mapped(image_of(3, 2)[:16] + data, size, size).ByteSize() > 0
