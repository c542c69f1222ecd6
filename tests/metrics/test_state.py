import numpy as np
import pytest

from rec_summary.checks import check_int
from rec_summary.metrics.feature_health import FeatureCounts
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.labels import LabelCounts
from rec_summary.metrics.state import (
    ColumnBatch,
    Stored,
    check_same,
    nested,
    optional_array,
    restore,
)
from tests.support.laws import assert_equal_states, refused, updated


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
    refused(ValueError, "'y' in them", Stored({"x": np.zeros(1)}).take, "y", np.float64)
    refused(ValueError, "finite numbers", Stored({"x": np.array(np.inf)}).take, "x", np.float64)
    refused(ValueError, "nothing below 0", Stored({"x": np.array(-1.0)}).sums, "x", np.float64, ())
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
    refused(ValueError, "one int or none", Stored({"x": np.arange(2)}).optional, "x")
    refused(ValueError, "an int from 0 to 5", Stored({"x": np.array(6)}).integer, "x", 0, 5)


def test_equal_values_of_different_types_are_not_the_same():
    check_same("The size", 1, 1)
    refused(ValueError, "The size of a state to merge is invalid", check_same, "The size", 1, 1.0)


def test_unknown_kinds_are_errors_whatever_is_imported():
    refused(ValueError, r"'Nothing'. Expected: a kind that this version of", restore, "Nothing", {})


@pytest.mark.parametrize("kind", ["Slices", "LastExamples"])
def test_parts_of_parts_without_end_are_refused(kind) -> None:
    arrays = {f"{'empty.' * depth}kind": np.array(kind) for depth in range(2000)}
    refused(ValueError, "The depth of the parts of a state is invalid", restore, kind, arrays)


def test_names_may_be_as_deep_as_the_limit_says() -> None:
    arrays = {"masked": np.array(3), "missing": np.array(1)}
    assert restore("LabelCounts", {**arrays, "a" + 32 * ".a": np.array(0)}).masked == 3
    with pytest.raises(ValueError, match=r"Received: 33\. Expected: at most 32"):
        restore("LabelCounts", {**arrays, "a" + 33 * ".a": np.array(0)})


def test_a_state_of_another_kind_or_with_another_part_is_not_merged() -> None:
    refused(ValueError, "The kind of a state to merge", LabelCounts().merge, FeatureCounts())
    one = updated(ClickQuality(64), [0.5, 0.25], [0, 1])
    other = updated(ClickQuality(128), [0.5, 0.25], [0, 1])
    before = one.copy()
    refused(ValueError, "setting cells of a state to merge", one.merge, other)
    assert_equal_states(one, before)


@pytest.mark.parametrize("make_small", ["seal", "shorten"])
def test_the_parts_of_a_state_become_small_with_it(make_small) -> None:
    state = updated(ClickQuality(64), np.arange(600) / 600, np.arange(600) % 2)
    getattr(state, make_small)()
    assert len(state.order.positives) <= 128


def test_columns_of_a_batch_are_arrays_of_one_length_or_none() -> None:
    batch = ColumnBatch.of(None, [1, 2, 3], np.zeros((3, 2)))
    assert (batch.size, batch.cut(slice(1)).size) == (3, 1)
    for wrong in ([], [None], [1.0], [[1, 2], 3], [[1, 2], [1]]):
        refused(ValueError, "arrays of one length", ColumnBatch.of, *wrong)
