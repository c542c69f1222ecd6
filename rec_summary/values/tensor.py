"""Arrays as tensor values, readable by MindSpore's viewers and exact."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rec_summary._pb import anf_ir_pb2
from rec_summary._pb.anf_ir_pb2 import TensorProto
from rec_summary.arrays import Array
from rec_summary.errors import three_part
from rec_summary.records.format import wire

_TYPES: Final = {
    name: anf_ir_pb2.DataType.Value(f"DT_{name.upper()}")
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
}
_TENSOR: Final = wire.Fields(TensorProto)
_MOST_DIMENSIONS: Final = 32  # the limit of NumPy
_DTYPES: Final = {number: np.dtype(name) for name, number in _TYPES.items()}

# Types that float32 cannot represent, and the field and type that can.
_EXACT: Final = {
    "int32": ("int32_data", np.int32),
    "int64": ("int64_data", np.int64),
    "uint32": ("uint64_data", np.uint64),
    "uint64": ("uint64_data", np.uint64),
    "float64": ("double_data", np.float64),
}


def to_tensor(array: npt.ArrayLike) -> TensorProto:
    """Returns an array as a tensor value, see `encode_tensor`."""
    return TensorProto.FromString(encode_tensor(array))


def encode_tensor(array: npt.ArrayLike) -> bytes:
    """Returns an array as the bytes of a `TensorProto`.

    `float_data` holds all elements as float32, for every type, because MindSpore writes and
    MindInsight reads only this field. If float32 loses precision, the field of the type also
    holds the elements.

    Args:
        array: Real numbers or booleans, of any shape.
    """
    array = np.asarray(array)
    flat = array.reshape(-1)
    with np.errstate(over="ignore"):
        rounded = flat.astype("<f4")
    data = {"float_data": rounded.tobytes()} if flat.size else {}
    exact = _EXACT.get(array.dtype.name)
    if exact is not None and flat.size:
        field, wide = exact
        with np.errstate(invalid="ignore"):
            lossless = np.array_equal(rounded.astype(np.float64), flat.astype(np.float64), True)
            lossless = lossless and bool(
                np.all(np.abs(rounded) <= 2**24) or array.dtype.kind == "f"
            )
        if not lossless:
            cast = flat.astype(wide)
            is_float = cast.dtype.kind == "f"
            data[field] = cast.tobytes() if is_float else wire.packed_varints(cast)
    return _TENSOR(dims=array.shape, data_type=_TYPES[array.dtype.name], **data)


def from_tensor(tensor: TensorProto) -> Array:
    """Returns a tensor value as an array of its own type and shape.

    Raises:
        ValueError: The type is not numeric, or the size contradicts the shape.
    """
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        name = anf_ir_pb2.DataType.Name(tensor.data_type)
        raise ValueError(three_part("a tensor's type", name, "a type of real numbers"))
    # The type is explicit: NumPy before 1.25 turns large and small integers together into floats.
    field, wide = _EXACT.get(dtype.name, ("float_data", np.float64))
    data = getattr(tensor, field)
    if not data:
        data, wide = tensor.float_data, np.float64
    if len(tensor.dims) > _MOST_DIMENSIONS:
        received = f"{len(tensor.dims):,} of them"
        expected = f"at most {_MOST_DIMENSIONS}"
        raise ValueError(three_part("the number of a tensor's dimensions", received, expected))
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape) or np.prod(shape, dtype=object) != len(data):
        received = f"{len(data)} elements for shape {shape}"
        raise ValueError(three_part("a tensor", received, "as many elements as its shape has"))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array(data, wide).astype(dtype).reshape(shape)
