import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from rec_summary.values.image import is_image
from tests.support.images import to_image


def decoded(image):
    picture = Image.open(io.BytesIO(image.encoded_image))
    assert picture.format == "PNG"
    assert picture.size == (image.width, image.height)
    return np.asarray(picture)


def batch(count, channels, *, height=4, width=5):
    values = np.arange(count * channels * height * width) % 251
    return values.reshape(count, channels, height, width).astype(np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_bytes_are_untouched_in_either_layout(channels):
    array = batch(1, channels)
    expected = np.broadcast_to(array[0].transpose(1, 2, 0), (4, 5, 3))
    for layout in (array, array.transpose(0, 2, 3, 1)):
        np.testing.assert_array_equal(decoded(to_image(layout)), expected)


def test_tiles_run_from_left_to_right_and_downwards_eight_in_a_row():
    array = np.stack([np.full((1, 4, 5), n, np.uint8) for n in range(1, 12)])
    picture = decoded(to_image(array))
    assert picture.shape == (8, 40, 3)
    tiles = picture[::4, ::5, 0]
    assert tiles.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 0, 0, 0, 0, 0]]


def test_no_more_than_64_tiles():
    image = to_image(batch(100, 3))
    assert (image.height, image.width) == (8 * 4, 8 * 5)


def test_more_pixels_than_can_be_shown_are_refused():
    with pytest.raises(ValueError, match=r"size of images is invalid.*at most 67,108,864"):
        to_image(np.zeros((1, 1, 1 << 13, (1 << 13) + 1), np.uint8))


@pytest.mark.parametrize(
    ("values", "pixels"),
    [
        ([0.0, 0.5, 1.0], [0, 127, 255]),
        ([0.0, 1.0, 1.0], [0, 255, 255]),
        ([0.0, 0.5, 1.0000002], [0, 127, 255]),
        ([-0.0625, 0.5, 1.0625], [0, 127, 255]),
        ([-1.0, 0.0, 1.0], [0, 127, 255]),
        ([-1.125, 0.0, 1.125], [0, 127, 255]),
        ([0.0, 128.0, 255.0], [0, 128, 255]),
        ([-20.0, 128.0, 260.0], [0, 128, 255]),
        ([0.0, 1.0, 3.0], [0, 85, 255]),
        ([-2.5, 0.0, 2.5], [0, 127, 255]),
        ([1000.0, 1500.0, 2000.0], [0, 127, 255]),
        ([7.0, 7.0, 7.0], [0, 0, 0]),
        ([0.0, np.nan, 1.0], [0, 0, 255]),
        ([0.0, np.inf, 1.0], [0, 255, 255]),
        ([np.nan, np.nan, -np.inf], [0, 0, 0]),
    ],
)
def test_other_numbers_are_scaled_from_the_range_that_they_evidently_have(values, pixels):
    array = np.array(values, np.float32).reshape(1, 1, 1, 3)
    assert decoded(to_image(array))[0, :, 0].tolist() == pixels


def test_a_change_of_the_range_is_said_once():
    program = (
        "import numpy as np; from rec_summary.values.image import encode_image as encode;"
        "[encode(np.array([[[[low, high]]]])) for low, high in ((0, 1), (-1, 1.0), (0, 255))];"
        "print('nothing so far', flush=True);"
        "[encode(np.array([[[[0, high]]]])) for high in (1.01, 1.02, 3.0, 4.0)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    said = "rec_summary: recorded images"
    assert done.stdout.splitlines() == [
        "nothing so far",
        f"{said}: what is outside of 0 to 1 is clipped",
        f"{said}: values in none of the usual ranges are stretched to black and white",
    ]


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 4, 5), (0, 3, 4, 5), (1, 3, 0, 5), (3, 4, 5)])
def test_other_shapes_are_not_images(shape):
    assert not is_image(np.zeros(shape, np.float32))


@pytest.mark.mindspore
@pytest.mark.parametrize("kind", [np.float32, np.int32])  # it stretches uint8 as well
def test_the_tiles_and_levels_are_mindspores(kind):
    adapter = pytest.importorskip("mindspore.train.summary._summary_adapter")
    array = np.random.default_rng(1).integers(0, 256, (11, 3, 6, 7)).astype(kind)
    named = [{"_type": "Image", "name": "tag", "data": array}]
    theirs = adapter.package_summary_event(named, 1, 1.0).summary.value[0].image
    ours = decoded(to_image(array)).astype(int)
    np.testing.assert_allclose(ours, decoded(theirs), atol=1)  # its white is 254
