"""A safe view of MindSpore's callback arguments.

MindSpore hands callbacks a dictionary whose keys depend on who is training: `Model.train`
fills nearly all of them, the original `RecModel.online_train` six. A missing key raises
KeyError on attribute access, so everything here goes through `get`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Final

import mindspore
import numpy as np
import numpy.typing as npt
from mindspore import Tensor, get_context

from rec_summary.errors import three_part

_DTYPES: Final = {
    kind: np.dtype(name)
    for name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
    if (kind := getattr(mindspore, name, None)) is not None
}
# What unbounded training states as its number of epochs or batches, or goes beyond.
_ENDLESS: Final = 2**31 - 1


class StepView:
    """Reads callback arguments; every property has an answer when the key is missing."""

    def __init__(self, run_context: Any) -> None:
        """Wraps what a hook received (`mindspore.train.RunContext`)."""
        self._context = run_context
        self._args: Mapping[str, Any] = run_context.original_args()

    def get(self, key: str) -> Any:
        """Returns an argument, or None."""
        return self._args.get(key)

    @property
    def mode(self) -> str:
        """`"train"` or `"eval"`; the original online training says nothing and trains."""
        return str(self._args.get("mode") or "train")

    @property
    def step(self) -> int:
        """Steps since this call of train began; in sink mode it grows by the sink size."""
        return int(self._args.get("cur_step_num") or 0)

    @property
    def epoch(self) -> int:
        """The epoch under way, from 1 on; 0 before the first."""
        return int(self._args.get("cur_epoch_num") or 0)

    @property
    def batch_num(self) -> int:
        """Steps in an epoch, as far as the caller knows; 0 if it does not."""
        return int(self._args.get("batch_num") or 0)

    @property
    def total_steps(self) -> int | None:
        """How many steps (in sink mode: epochs) the run is to have; None if it has no end."""
        epochs, batches = self._args.get("epoch_num"), self.batch_num
        if not isinstance(epochs, int) or not 0 < epochs < _ENDLESS:
            return None
        total = epochs if self.sink_mode else epochs * batches
        return total if 0 < total < _ENDLESS else None

    @property
    def sink_mode(self) -> bool:
        """Whether the device fetches its own data, so that hooks run once for each sink."""
        return bool(self._args.get("dataset_sink_mode"))

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked training to stop."""
        return bool(self._context.get_stop_requested())

    @property
    def network(self) -> Any:
        """The outermost network of this mode: with loss and optimizer when training."""
        network = self._args.get("train_network" if self.mode == "train" else "eval_network")
        return self._args.get("network") if network is None else network

    @property
    def samples(self) -> int:
        """The number of samples in this step's batch; 0 if the caller does not show it."""
        element = self._args.get("train_dataset_element")
        first = element[0] if isinstance(element, (list, tuple)) and element else element
        shape = getattr(first, "shape", None)
        return int(shape[0]) if shape else 0

    def loss(self) -> npt.NDArray[Any] | float:
        """Returns this step's loss: the network's output, or the first of several.

        Raises:
            TypeError: The output is nothing that could be a loss.
        """
        output = self._args.get("net_outputs")
        if isinstance(output, (list, tuple)) and output:
            output = output[0]
        if isinstance(output, Tensor) and output.size == 1:
            return as_number(output)
        return as_array(output, "the network's output")


def as_number(tensor: Tensor) -> float:
    """Returns the one number in a tensor; a twentieth of the time of an array around it."""
    return float(tensor.item())


def copy_of(tensor: Tensor) -> npt.NDArray[Any] | None:
    """Returns the numbers of a contiguous tensor, copied; None where `asnumpy` is to be asked.

    On the CPU, MindSpore copies a tensor's bytes in a tenth of the time that numpy takes to
    look at it.
    """
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or not is_on_cpu():
        return None
    shape, data = tensor.shape, tensor.get_bytes()
    if len(data) != math.prod(shape) * dtype.itemsize:
        return None  # it has no numbers yet
    return np.frombuffer(data, dtype).reshape(shape)


@functools.cache
def is_on_cpu() -> bool:
    """Whether MindSpore computes on the CPU."""
    # Asked for once: it cannot change any more, and asking takes as long as all the rest.
    return bool(get_context("device_target") == "CPU")


def as_array(value: Any, what: str) -> npt.NDArray[Any]:
    """Returns a tensor, parameter, array or number as a numpy array; it may be a view.

    Raises:
        TypeError: It is none of these.
    """
    if hasattr(value, "asnumpy"):
        array = np.asarray(value.asnumpy())
        # bfloat16 comes as a type that numpy knows nothing about but how to convert it
        return array.astype(np.float32) if array.dtype.kind == "V" else array
    if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
        return np.asarray(value)
    raise TypeError(three_part(what, type(value).__name__, "a Tensor or a number"))
