import numpy as np
import pytest

from rec_summary.checks import check_int
from rec_summary.metrics.state import Stored, check_same, nested, optional_array, restore


def test_nested_names_come_apart_again():
    inner = {"a": np.zeros(1), "b.c": np.ones(1)}
    both = {**nested("one", inner), **nested("one.two", inner), "one": np.zeros(2)}
    assert set(Stored(nested("one", inner)).part("one")) == {"a", "b.c"}
    assert set(Stored(both).part("one.two")) == {"a", "b.c"}


def test_take_returns_a_copy():
    arrays = {"x": np.zeros((2, 3)), "name": np.array("some")}
    taken = Stored(arrays).take("x", np.float64, (2, None))
    taken[:] = 1
    assert not arrays["x"].any()
    assert str(Stored(arrays).take("name", "U")) == "some"


@pytest.mark.parametrize(
    ("dtype", "shape"), [(np.float32, (2, 3)), (np.float64, (3, 3)), (np.float64, (None,))]
)
def test_another_dtype_or_shape_is_refused(dtype, shape):
    with pytest.raises(ValueError, match="Received: 'float64 of shape"):
        Stored({"x": np.zeros((2, 3))}).take("x", dtype, shape)


def test_missing_infinite_and_negative_are_refused():
    with pytest.raises(ValueError, match="'y' in them"):
        Stored({"x": np.zeros(1)}).take("y", np.float64)
    with pytest.raises(ValueError, match="finite numbers"):
        Stored({"x": np.array(np.inf)}).take("x", np.float64)
    with pytest.raises(ValueError, match="nothing below 0"):
        Stored({"x": np.array(-1.0)}).sums("x", np.float64, ())
    assert Stored({"x": np.array(np.inf)}).take("x", np.float64, finite=False) == np.inf


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (9, ValueError)]
    + [(wrong, TypeError) for wrong in (1.0, True, None, "1")],
)
def test_only_ints_in_range_are_accepted(value, error):
    with pytest.raises(error, match=r"^size is invalid\. .*Expected: an int from 1 to 8"):
        check_int("size", value, 1, 8)
    assert check_int("size", np.int32(8), 1, 8) == 8


@pytest.mark.parametrize("value", [None, -1, 0, 7])
def test_optional_ints_are_restored(value):
    assert Stored({"x": optional_array(value)}).optional("x") == value


def test_stored_ints_are_single_and_in_range():
    with pytest.raises(ValueError, match="one int or none"):
        Stored({"x": np.arange(2)}).optional("x")
    with pytest.raises(ValueError, match="an int from 0 to 5"):
        Stored({"x": np.array(6)}).integer("x", 0, 5)


def test_equal_values_of_different_types_are_not_the_same():
    check_same("The size", 1, 1)
    with pytest.raises(ValueError, match="The size of a state to merge is invalid"):
        check_same("The size", 1, 1.0)


def test_unknown_kinds_are_errors_whatever_is_imported():
    with pytest.raises(ValueError, match=r"'Nothing'. Expected: a kind that this version of"):
        restore("Nothing", {})


@pytest.mark.parametrize("kind", ["Slices", "LastExamples"])
def test_parts_of_parts_without_end_are_refused(kind) -> None:
    arrays = {f"{'empty.' * depth}kind": np.array(kind) for depth in range(2000)}
    with pytest.raises(ValueError, match="The depth of the parts of a state is invalid"):
        restore(kind, arrays)
