"""Sums by slice as a value of a record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import SliceSums, Summary
from rec_summary.metrics.slices.sums import (
    CELLS,
    FIELDS,
    LOSS_DIFFERENCES,
    SERVED_EXAMPLES,
    ColumnSums,
)
from rec_summary.values.slice_sums import (
    SlicedSums,
    added,
    decode_numbers,
    decode_sums,
    dense_orders,
    encode_interval,
    encode_sums,
)
from tests.support.laws import refused


def column(
    seed: int,
    values: list[str],
    *,
    weighted: bool = True,
    orders: bool = True,
    served: bool = False,
) -> SlicedSums:
    random = np.random.default_rng(seed)
    sums = random.integers(1, 1000, (len(values), len(FIELDS))).astype(float)
    if weighted:
        sums += random.integers(0, 2, sums.shape) / 4
    else:
        sums[:, [1, 5]] = sums[:, :1]
        sums[:, 6], sums[:, 7] = sums[:, 2], sums[:, 4]
    sums[:, LOSS_DIFFERENCES] *= -1
    sums[:, SERVED_EXAMPLES:] *= served
    cells = np.zeros((len(values), 2, CELLS))
    cells[:, :, random.integers(0, CELLS, 9)] = random.integers(1, 300, (len(values), 2, 9))
    cells += cells * weighted / 4
    return SlicedSums.of(
        "ctr", "country", False, ColumnSums(values, sums, cells if orders else None)
    )


def decoded(data: bytes) -> list[SlicedSums]:
    return decode_sums(Summary.Value.FromString(data).slice_sums)


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(0, 6), st.booleans(), st.booleans(), st.booleans())
def test_what_is_encoded_is_decoded(
    seed: int, size: int, weighted: bool, orders: bool, served: bool
) -> None:
    names = [f"v{number}" for number in range(size)]
    part = column(seed, names, weighted=weighted, orders=orders, served=served)
    (again,) = decoded(encode_interval("recommender/sums", 7, [part]))
    assert again[:4] == part[:4]
    np.testing.assert_array_equal(again.sums, part.sums)
    np.testing.assert_array_equal(dense_orders(again), dense_orders(part))


def test_sums_and_orders_have_tags_of_their_own() -> None:
    part = column(0, ["a", "b"])
    values = [Summary.Value.FromString(data) for data in encode_sums(3, [part], {"a": 0.5})]
    assert [value.tag for value in values] == ["recommender/sums", "recommender/sums/orders"]
    assert [value.slice_sums.after for value in values] == [3, 3]
    assert [decode_numbers(value.slice_sums) for value in values] == [{}, {"a": 0.5}]
    both = added([each for value in values for each in decode_sums(value.slice_sums)])
    np.testing.assert_array_equal(both.sums, part.sums)
    np.testing.assert_array_equal(dense_orders(both), dense_orders(part))
    nothing = SlicedSums(*part[:4], np.zeros_like(part.sums), *part[5:])
    (only,) = (Summary.Value.FromString(data) for data in encode_sums(3, [nothing], {}))
    assert only.tag == "recommender/sums/orders"


def test_equal_weights_take_less_space() -> None:
    values = [f"v{number}" for number in range(40)]
    light, heavy = (
        len(encode_interval("t", 0, [column(1, values, weighted=weighted, orders=False)]))
        for weighted in (False, True)
    )
    assert light < 0.75 * heavy


def test_served_scores_are_an_array_of_their_own_where_there_are_any() -> None:
    for served in (False, True):
        part = column(3, ["a", "b"], orders=False, served=served)
        (value,) = (Summary.Value.FromString(data) for data in encode_sums(0, [part], {}))
        arrays = {array.name: array for array in value.slice_sums.columns[0].arrays}
        assert list(arrays) == ["sums", "served"] if served else ["sums"]
        # Versions without served scores read this array, and no other.
        assert list(arrays["sums"].shape) == [2, SERVED_EXAMPLES]


def test_parts_add_up_by_value() -> None:
    one, other = column(1, ["a", "b"]), column(2, ["b", "c"])
    both = added([one, other])
    assert both.values == ["a", "b", "c"]
    np.testing.assert_array_equal(both.sums[1], one.sums[1] + other.sums[0])
    np.testing.assert_array_equal(dense_orders(both)[0], dense_orders(one)[0])
    np.testing.assert_array_equal(
        dense_orders(both)[1], dense_orders(one)[1] + dense_orders(other)[0]
    )


def test_too_many_values_are_others() -> None:
    names = [f"v{number}" for number in range(3000)]
    one = column(1, names, orders=False)
    other = column(2, ["other", *(f"w{name}" for name in names[1:])])
    both = added([one, other])
    assert len(both.values) == 4097
    assert both.values[-1] == "other"
    np.testing.assert_allclose(both.sums.sum(axis=0), (one.sums + other.sums).sum(axis=0))
    assert dense_orders(both).sum() == pytest.approx(dense_orders(other).sum())


def with_number(array: Any, place: int, number: float) -> None:
    data = np.frombuffer(array.data, "<f4").copy()
    data[place] = number
    array.data = data.tobytes()


def leave_one_row(own: Any, arrays: dict[str, Any]) -> None:
    del own.values[1:]
    arrays["sums"].shape[0] = 1
    arrays["sums"].data = arrays["sums"].data[: len(arrays["sums"].data) // 2]


def leave_out_a_served_sum(own: Any, arrays: dict[str, Any]) -> None:
    arrays["served"].CopyFrom(arrays["sums"])
    arrays["served"].name = "served"
    arrays["served"].shape[1] -= 1
    arrays["served"].data = arrays["served"].data[:-8]


DIFFERENCES = LOSS_DIFFERENCES - SERVED_EXAMPLES
DAMAGE = {
    "a value twice": lambda own, _: own.values.__setitem__(1, "a"),
    "too many values": lambda own, _: own.values.extend(map(str, range(5000))),
    "a row too few": lambda own, _: own.values.append("c"),
    "a whole task with values": lambda own, _: setattr(own, "column", ""),
    "no weights": lambda own, arrays: own.arrays.remove(arrays["weights"]),
    "cells beyond the last": leave_one_row,
    "NaN": lambda _, arrays: with_number(arrays["sums"], 0, np.nan),
    "infinite differences": lambda _, arrays: with_number(arrays["served"], DIFFERENCES, -np.inf),
    "too few served sums": leave_out_a_served_sum,
    "another type": lambda _, arrays: setattr(arrays["cells"], "dtype", "<f4"),
    "damaged bytes": lambda _, arrays: setattr(arrays["sums"], "data", b"x"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_sums_are_an_error(damage: str) -> None:
    part = column(5, ["a", "b"], served=True)
    message = Summary.Value.FromString(encode_interval("t", 0, [part])).slice_sums
    own = message.columns[0]
    DAMAGE[damage](own, {array.name: array for array in own.arrays})
    refused(ValueError, r"(?s)is invalid\. Received: .* Expected: ", decode_sums, message)


def test_numbers_without_tags_are_none() -> None:
    assert decode_numbers(SliceSums(tags=["a", "b"], numbers=[1.0])) == {"a": 1.0}
    assert decode_numbers(SliceSums(numbers=[1.0])) == {}
