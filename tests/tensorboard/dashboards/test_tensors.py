from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards import colours
from rec_summary.tensorboard.dashboards.images import picture
from rec_summary.tensorboard.dashboards.tensors import TensorMapper, heat_map, statistics
from rec_summary.values.tensor import to_tensor


def points(array: Any, tag: str = "t") -> dict[str, Any]:
    value = Summary.Value(tag=tag, tensor=to_tensor(array))
    return {point.tag: point for point in TensorMapper()(tag, value)}


def pixels(matrix: Any) -> Any:
    data = (
        picture("m", lambda: heat_map(np.asarray(matrix)))
        .rendered()
        .value.image.encoded_image_string
    )
    return np.asarray(Image.open(io.BytesIO(data)))


def test_a_matrix_is_a_histogram_a_table_and_a_picture() -> None:
    found = points(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert {tag: point.plugin.name for tag, point in found.items()} == {
        "t": "histograms",
        "t/statistics": "text",
        "t/heat_map": "images",
    }
    assert sum(found["t"].value.histo.bucket) == 12
    text = found["t/statistics"].value.tensor.string_val[0].decode()
    for row in ("shape | 3 × 4", "type | float32", "minimum | 0", "maximum | 11", "mean | 5.5"):
        assert f"| {row} |" in text


def test_what_is_not_finite_is_counted() -> None:
    found = points([1.0, math.nan, math.inf, -math.inf, math.nan])
    counts = {tag: point.value.simple_value for tag, point in found.items() if "count" in tag}
    assert counts == {"t/nan_count": 2, "t/pos_inf_count": 1, "t/neg_inf_count": 1}
    assert dict(statistics(np.array([1.0, math.nan, math.inf]), "float64"))["NaN"] == "1"


def test_one_number_is_a_scalar() -> None:
    for array in (3.5, [3.5], [[3.5]]):
        [(tag, point)] = points(array).items()
        assert (tag, point.plugin.name, point.value.simple_value) == ("t", "scalars", 3.5)


def test_a_tensor_without_elements_has_a_table() -> None:
    text = points(np.zeros((0, 5)))["t/statistics"].value.tensor.string_val[0].decode()
    assert "| shape | 0 × 5 |" in text


def test_elements_that_do_not_fit_the_shape_are_reported() -> None:
    value = Summary.Value(tag="t", tensor=to_tensor([1.0, 2.0]))
    value.tensor.dims[:] = [1 << 60]
    with pytest.raises(ValueError, match="as many elements as its shape has"):
        list(TensorMapper()("t", value))


def test_signs_have_colours_and_zero_has_none() -> None:
    picture = pixels([[-1.0, 0.0, 1.0]])
    width = picture.shape[1] // 3
    negative, zero, positive = (picture[0, width * i + width // 2].astype(int) for i in range(3))
    assert negative[2] > negative[0]
    assert positive[0] > positive[2]
    assert zero.min() > 230


def test_an_outlier_does_not_blank_the_rest() -> None:
    matrix = np.linspace(0, 1, 10_000).reshape(100, 100)
    matrix[50, 50] = 1e9
    assert len(np.unique(pixels(matrix).reshape(-1, 3), axis=0)) > 50


def test_what_is_no_number_stands_out() -> None:
    for number in (math.nan, math.inf, -math.inf):
        for sign in (1, -1):
            picture = pixels([[1.0, number], [2.0, 3.0 * sign]])
            missing = (picture == colours.MISSING).all(axis=2)
            assert missing[: len(picture) // 2, picture.shape[1] // 2 :].all()
            assert missing.sum() == missing.size // 4


def test_a_large_matrix_is_made_smaller_by_means() -> None:
    matrix = np.zeros((4096, 16))
    matrix[:2048] = 1
    picture = pixels(matrix)
    assert picture.shape == (512, 128, 3)
    assert (picture[:256] != picture[256:]).any(axis=2).all()


@settings(deadline=None)
@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.bool_]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
    )
)
def test_any_tensor_has_points(array: Any) -> None:
    for point in points(array).values():
        assert point.rendered().value.ByteSize() > 0


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_is_lighter(first: float, second: float) -> None:
    lights = [colours.sequential(each) @ [0.2126, 0.7152, 0.0722] for each in (first, second)]
    if first + 0.02 < second:
        assert lights[0] < lights[1]
