"""MindSpore Tensors, and numbers of any kind, as numpy arrays.

On the CPU, `asnumpy` returns a view of memory that the next step may overwrite. Each function
says whether its result is a copy.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import plain_array
from rec_summary.errors import three_part, verbatim
from rec_summary.training import loaded

if TYPE_CHECKING:
    from mindspore import Tensor


_COPIED: Final = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


@functools.cache
def is_on_cpu() -> bool:
    """Whether MindSpore computes on the CPU; MindSpore is loaded."""
    # Cached: the answer cannot change, and the call takes as long as all the rest of a snapshot.
    return bool(loaded.mindspore().get_context("device_target") == "CPU")


@functools.cache
def _dtypes() -> dict[Any, np.dtype[Any]]:
    """Returns the numpy types of MindSpore's types; MindSpore is loaded."""
    kinds = {getattr(loaded.mindspore(), name, None): np.dtype(name) for name in _COPIED}
    kinds.pop(None, None)
    return kinds


def as_array(value: object, what: str) -> Array:
    """Returns a Tensor, Parameter, array or number as a numpy array, which may be a view.

    An array is also whatever numpy can convert, such as a tensor of another framework. A masked
    element becomes NaN.

    Raises:
        TypeError: `value` has another type. `what` names it in the message.
    """
    if hasattr(value, "asnumpy"):
        array = np.asarray(value.asnumpy())
        # numpy can only convert a bfloat16 array, not compute with it.
        return array.astype(np.float32) if array.dtype.kind == "V" else array
    if isinstance(value, (bool, int, float)) or hasattr(value, "__array__"):
        detach = getattr(value, "detach", None)  # PyTorch refuses a tensor with a gradient
        return plain_array(value if detach is None else detach())
    raise TypeError(three_part(what, type(value).__name__, "a Tensor, an array or a number"))


def as_number(value: Any, what: str) -> float:
    """Returns a Tensor, an array or a number as a float: the mean of several elements.

    Raises:
        TypeError: `value` has another type. `what` names it in the message.
        ValueError: It is empty.
    """
    if hasattr(value, "asnumpy") and value.size == 1:
        return float(value.item())  # a twentieth of the time that an array takes
    return to_number(as_array(value, what))


def to_number(value: object) -> float:
    """Returns a number, or the mean of an array of numbers, as a float.

    NaN and infinities are kept. Source: MindSpore's collector takes the mean of a loss with more
    than one element.

    Args:
        value: A Python or numpy number, or an array-like of any shape with real numbers.

    Raises:
        TypeError: The value does not hold real numbers.
        ValueError: The array is empty.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        received = f"{type(value).__name__} of {array.dtype}"
        raise TypeError(three_part("a scalar", received, "a real number"))
    if array.size == 0:
        raise ValueError(three_part("a scalar", f"an array of shape {array.shape}", "a number"))
    if array.size == 1:
        return float(array.reshape(()).item())
    # float64, so that the mean of many float16 values does not overflow
    return float(np.mean(array, dtype=np.float64))


def copy_of(tensor: Tensor) -> Array | None:
    """Returns a copy of a contiguous Tensor, or None where only `asnumpy` can read it.

    On the CPU, MindSpore copies the bytes of a Tensor in a tenth of the time that numpy needs to
    inspect it.
    """
    dtype = _dtypes().get(tensor.dtype)
    if dtype is None or not is_on_cpu():
        return None
    shape, data = tensor.shape, tensor.get_bytes()
    if len(data) != math.prod(shape) * dtype.itemsize:
        return None  # the Tensor is not initialised
    return np.frombuffer(data, dtype).reshape(shape)


def small_copy(value: Any, most: int) -> Array | None:
    """Returns a copy of a Tensor of less than `most` bytes; None if numpy has to read the value.

    A copy takes a microsecond, and numpy several, most of them for the name of the Tensor's type.
    """
    if loaded.is_tensor(value) and value.nbytes < most and value.is_contiguous():
        return copy_of(value)
    return None


def own_array(value: object, what: str, rows: int | None = None) -> Array:
    """Returns a copy of real numbers, in a type that numpy can compute with.

    Args:
        value: A Tensor, an array, a number, or a list of these.
        what: The name of the value in messages.
        rows: The largest number of rows to copy; None copies all.

    Raises:
        TypeError: The elements are not real numbers.
        ValueError: A list has rows of different lengths.
    """
    if rows is None and loaded.is_parameter(value):
        copy = copy_of(value)
        if copy is not None:
            return copy
    array = _to_array(value, what)
    if rows is not None and array.ndim:
        array = array[:rows]
    array = np.array(array, copy=True)
    if array.dtype.kind == "V" and array.dtype.names is None:  # bfloat16 and similar types
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype(np.float32)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise TypeError(three_part(what, verbatim(f"elements of {array.dtype}"), "real numbers"))
    return array


def _to_array(value: object, what: str) -> Array:
    if not isinstance(value, (list, tuple)):
        return as_array(value, what)
    if any(
        isinstance(item, (list, tuple, np.ma.MaskedArray)) or hasattr(item, "asnumpy")
        for item in value
    ):
        value = [_to_array(item, what) for item in value]
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(three_part(what, value, "rows of the same length")) from error
