"""`GradientProbe`: an optimizer whose gradients and updates can be measured.

The sums are computed on the device, in the graph of the step: a number for each parameter leaves
it. They are in the graph only where a collector measures; see `choose_graph`.
"""

from __future__ import annotations

from typing import Any, Final

import mindspore
from mindspore import nn, ops

from rec_summary.errors import three_part
from rec_summary.training.operators import GRADIENTS, tag_of
from rec_summary.training.probes.probe import at_compile_time, wanted

GRADIENT: Final = "gradient"
NOT_FINITE: Final = "not_finite"
UPDATE: Final = "update"
WEIGHT: Final = "weight"
STATE: Final = "state/"

_NO_STATES: Final = ("parameters", "params", "stat")  # the last one is a flag of SGD

_tensor: Final = ops.TensorSummary()
_l2: Final = ops.L2Loss()


class GradientProbe(nn.Cell):
    """An optimizer that `SummaryCollector(gradients=GradientMetrics())` can measure.

    For a training step of your own: ``self.optimizer = GradientProbe(optimizer)``. All other lines
    stay, the names of parameters too. `TrainStep` and ``RecModel(keep_outputs=True)`` have one.
    Without a collector that measures, the network is the same as with the optimizer alone.

    Args:
        optimizer: A `mindspore.nn.Optimizer`.

    Raises:
        TypeError: It is not one.
    """

    def __init__(self, optimizer: Any) -> None:
        if not isinstance(optimizer, nn.Optimizer):
            raise TypeError(three_part("optimizer", optimizer, "a mindspore.nn.Optimizer"))
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self._names = state_names(optimizer)
        self._key = ""

    @property
    def parameters(self) -> Any:
        """The parameters that the optimizer updates, a `ParameterTuple`."""
        return self.optimizer.parameters

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Names the parameters as if the optimizer were in the place of this Cell."""
        self.optimizer.update_parameters_name(prefix, recurse)

    def set_key(self, key: str) -> None:
        """Sets what the tags of this optimizer's numbers end in; before the network is compiled."""
        self._key = key

    def construct(self, gradients: Any) -> Any:
        """Updates the parameters; returns what the optimizer returns.

        Args:
            gradients: The gradients of `parameters`, in their order.
        """
        if wanted(GRADIENTS, GRADIENT):
            _put_out(_tag(GRADIENT, self._key), _half_squares(gradients))
            _put_out(_tag(NOT_FINITE, self._key), _half_squares(_not_finite(gradients)))
        if not wanted(GRADIENTS, UPDATE):
            done = self.optimizer(gradients)
        else:
            before: Any = ()
            for parameter in self.optimizer.parameters:
                before += (ops.deepcopy(parameter),)
            done = self.optimizer(ops.depend(gradients, before))  # copied first
            moved: Any = ()
            for parameter, old in zip(self.optimizer.parameters, before):  # noqa: B905
                moved += (ops.depend(parameter, done) - old,)
            _put_out(_tag(UPDATE, self._key), _half_squares(moved))
            _put_out(_tag(WEIGHT, self._key), _half_squares(before))
        if wanted(GRADIENTS, STATE):
            for name in self._names:
                states = ops.depend(getattr(self.optimizer, name), done)
                _put_out(_tag(STATE + name, self._key), _half_squares(states))
        return done


def state_names(optimizer: Any) -> tuple[str, ...]:
    """Returns the names of an optimizer's states that have one tensor for each parameter.

    They are its attributes, for example `moment1` and `moment2` of Adam.
    """
    shapes = [parameter.shape for parameter in optimizer.parameters]
    names = []
    for name, value in sorted(vars(optimizer).items()):  # a property may raise
        if name.startswith("_") or name in _NO_STATES:
            continue
        if isinstance(value, mindspore.ParameterTuple):
            same = [array.shape for array in value] == shapes
            own = all(a is not b for a, b in zip(value, optimizer.parameters, strict=False))
            if same and own:
                names.append(name)
    return tuple(names)


@at_compile_time
def _tag(what: str, key: str) -> str:
    return tag_of(GRADIENTS, f"{what}:{key}")


def _put_out(tag: str, numbers: Any) -> None:
    _tensor(tag, ops.deepcopy(ops.concat(numbers)))


def _half_squares(tensors: Any) -> Any:
    """Returns half of the sum of squares of each tensor: on the CPU, MindSpore's fastest sum."""
    sums: Any = ()
    for tensor in tensors:
        sums += (_l2(tensor.astype(mindspore.float32)).reshape((1,)),)
    return sums


def _not_finite(tensors: Any) -> Any:
    """Returns 1 where an element of a tensor is NaN or infinite, else 0."""
    marks: Any = ()
    for tensor in tensors:
        marks += (ops.logical_not(ops.isfinite(tensor)),)
    return marks
