"""Arrays as tensor values: what MindSpore's viewers read, and what is exact besides."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb import anf_ir_pb2
from rec_summary._pb.anf_ir_pb2 import TensorProto
from rec_summary.errors import three_part

_TYPES: Final = {
    "bool": anf_ir_pb2.DT_BOOL,
    "int8": anf_ir_pb2.DT_INT8,
    "int16": anf_ir_pb2.DT_INT16,
    "int32": anf_ir_pb2.DT_INT32,
    "int64": anf_ir_pb2.DT_INT64,
    "uint8": anf_ir_pb2.DT_UINT8,
    "uint16": anf_ir_pb2.DT_UINT16,
    "uint32": anf_ir_pb2.DT_UINT32,
    "uint64": anf_ir_pb2.DT_UINT64,
    "float16": anf_ir_pb2.DT_FLOAT16,
    "float32": anf_ir_pb2.DT_FLOAT32,
    "float64": anf_ir_pb2.DT_FLOAT64,
}
_DTYPES: Final = {number: np.dtype(name) for name, number in _TYPES.items()}

# Types that float32 cannot hold, and the field that can.
_EXACT: Final = {
    "int32": ("int32_data", np.int32),
    "int64": ("int64_data", np.int64),
    "uint32": ("uint64_data", np.uint64),
    "uint64": ("uint64_data", np.uint64),
    "float64": ("double_data", np.float64),
}


def to_tensor(array: npt.ArrayLike) -> TensorProto:
    """Returns an array as a tensor value.

    `float_data` holds all elements as float32, whatever the type: it is the only field that
    MindSpore writes and that MindInsight reads. Where that loses something, the elements
    stand in the field of their own type as well.

    Args:
        array: Real numbers or booleans, of any shape.

    Raises:
        TypeError: It does not hold real numbers.
    """
    array = np.asarray(array)
    kind = _TYPES.get(array.dtype.name)
    if kind is None:
        raise TypeError(three_part("a tensor's array", array.dtype, "real numbers"))
    flat = array.reshape(-1)
    with np.errstate(over="ignore"):
        rounded = flat.astype(np.float32)
    # Assigning bytes to a packed field is not offered; extending from a list is the fast way.
    result = TensorProto(dims=array.shape, data_type=kind, float_data=rounded.tolist())
    exact = _EXACT.get(array.dtype.name)
    if exact is not None:
        field, wide = exact
        with np.errstate(invalid="ignore"):
            lossless = np.array_equal(rounded.astype(np.float64), flat.astype(np.float64), True)
            lossless = lossless and bool(
                np.all(np.abs(rounded) <= 2**24) or array.dtype.kind == "f"
            )
        if not lossless:
            getattr(result, field).extend(flat.astype(wide).tolist())
    return result


def from_tensor(tensor: TensorProto) -> npt.NDArray[Any]:
    """Returns a tensor value as an array of its own type and shape.

    Raises:
        ValueError: Its type is not one of numbers, or its size does not fit its shape.
    """
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        name = anf_ir_pb2.DataType.Name(tensor.data_type)
        raise ValueError(three_part("a tensor's type", name, "a type of real numbers"))
    # The type is named, for NumPy before 1.25 takes large and small integers together for floats.
    field, wide = _EXACT.get(dtype.name, ("float_data", np.float64))
    data = getattr(tensor, field)
    if not data:
        data, wide = tensor.float_data, np.float64
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape) or np.prod(shape, dtype=object) != len(data):
        received = f"{len(data)} elements for shape {shape}"
        raise ValueError(three_part("a tensor", received, "as many elements as its shape has"))
    with np.errstate(invalid="ignore"):
        return np.array(data, wide).astype(dtype).reshape(shape)
