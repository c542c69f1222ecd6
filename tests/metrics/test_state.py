import numpy as np
import pytest

from rec_summary.metrics.quality import ratings  # noqa: F401  (registers its states)
from rec_summary.metrics.state import nested, positive_int, restore, take, take_weights, unnested


def test_nested_names_come_apart_again():
    inner = {"a": np.zeros(1), "b.c": np.ones(1)}
    both = {**nested("one", inner), **nested("one.two", inner), "one": np.zeros(2)}
    assert set(unnested("one", nested("one", inner))) == {"a", "b.c"}
    assert set(unnested("one.two", both)) == {"a", "b.c"}


def test_what_is_taken_is_a_copy_of_what_was_asked_for():
    arrays = {"x": np.zeros((2, 3)), "name": np.array("some")}
    taken = take(arrays, "x", np.float64, (2, None))
    taken[:] = 1
    assert not arrays["x"].any()
    assert str(take(arrays, "name", "U")) == "some"


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.float32, (2, 3)), (np.float64, (3, 3)), (np.float64, (None,))]
)
def test_another_dtype_or_shape_is_refused(dtype, shape):
    with pytest.raises(ValueError, match="Received: 'float64 of shape"):
        take({"x": np.zeros((2, 3))}, "x", dtype, shape)


def test_missing_infinite_and_negative_are_refused():
    with pytest.raises(ValueError, match="'y' in them"):
        take({"x": np.zeros(1)}, "y", np.float64)
    with pytest.raises(ValueError, match="finite numbers"):
        take({"x": np.array(np.inf)}, "x", np.float64)
    with pytest.raises(ValueError, match="nothing below 0"):
        take_weights({"x": np.array(-1.0)}, "x")


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "1"])
def test_only_positive_ints_are_positive_ints(value):
    with pytest.raises(ValueError, match=r"^size is invalid"):
        positive_int("size", value)


def test_unknown_kinds_are_told_with_the_known():
    with pytest.raises(ValueError, match=r"'Nothing'.*RatingErrors"):
        restore("Nothing", {})
