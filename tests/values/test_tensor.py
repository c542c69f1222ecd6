import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rec_summary._pb.anf_ir_pb2 import DT_STRING, TensorProto
from rec_summary.values.tensor import from_tensor, to_tensor
from tests.support.laws import refused

numbers = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
)
arrays = hnp.arrays(numbers, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))


@example(np.array([2**63 + 1, 0], np.uint64))
@given(arrays)
def test_an_array_comes_back_exactly(array):
    back = from_tensor(TensorProto.FromString(to_tensor(array).SerializeToString()))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(arrays)
def test_float_data_is_there_for_mindinsight_whatever_the_type(array):
    with np.errstate(over="ignore"):
        rounded = array.reshape(-1).astype(np.float32)
    np.testing.assert_array_equal(np.array(to_tensor(array).float_data, np.float32), rounded)


def test_what_mindspore_rounds_is_kept():
    # MindSpore's collector makes 2^53 of the first and infinity of the second
    assert from_tensor(to_tensor(np.array([2**53 + 1]))).tolist() == [2**53 + 1]
    assert from_tensor(to_tensor(np.array([1e300]))).tolist() == [1e300]


def test_nothing_is_stored_twice_without_need():
    tensor = to_tensor(np.array([0.5, 0.25]))
    assert not tensor.double_data
    assert not to_tensor(np.arange(1000)).int64_data


def test_a_tensor_of_mindspore_has_float_data_alone():
    tensor = TensorProto(dims=[2], data_type=5, float_data=[1, 2])
    assert from_tensor(tensor).dtype == np.int64
    assert from_tensor(tensor).tolist() == [1, 2]


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dims=[3], data_type=11, float_data=[1]),
        TensorProto(dims=[2**62, 2**62], data_type=11, float_data=[1]),
        TensorProto(dims=[-1], data_type=11, float_data=[1]),
        TensorProto(dims=[1], data_type=DT_STRING, float_data=[1]),
        TensorProto(dims=[1], float_data=[1]),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_without_allocating(tensor):
    refused(ValueError, "is invalid", from_tensor, tensor)
