"""`probe`: a value inside a network, by name.

A probe is a summary operator that is part of the network only if somebody wants its value. This is
decided when MindSpore compiles the network, or at each call in PyNative mode. A graph that was
compiled without a probe that is wanted later is compiled again, as another graph of the network
(`choose_graph`).

Other ways to get a value out of a graph do not work in every training. A `Parameter` that the graph
assigns has a fixed shape and enters checkpoints. `HookBackward` does nothing in a graph. What an
`if` in a graph computes does not reach a summary operator.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import mindspore
from mindspore import ops

from rec_summary.checks import check_name
from rec_summary.training.operators import GRADIENTS, PROBE, Operator, tag_of, wanted_of

THROUGH: Final = "probes/"

_Function = TypeVar("_Function", bound=Callable[..., Any])

# MindSpore calls such a function when it compiles a graph, and the result is a constant there.
at_compile_time: Callable[[_Function], _Function] = ops.constexpr

_scalar: Final = ops.ScalarSummary()
_tensor: Final = ops.TensorSummary()
_half_squares: Final = ops.L2Loss()
_left_out: set[Operator] = set()  # probes that a graph leaves out: nobody wanted them


def probe(name: str, value: Any, gradient: bool = False) -> Any:
    """Makes a value inside a network available by name, in graph mode and in PyNative mode.

    One number, for example a loss, is recorded as a scalar of this name. Anything larger is not
    recorded: it is there for `RecommenderMetrics(predictions=name)`. Without a collector that
    wants it, the network is the same as without this line. What is seen of several steps in one
    call (data sink) is the last one.

        def construct(self, user, item, label):
            score = self.score(user, item)
            probe("score", score)
            probe("label", label)

    Args:
        name: A name that the network has once. Later values of a step replace earlier ones.
        value: A Tensor of any shape and type. The last batch may be smaller.
        gradient: Whether the norm of the gradient of `value` is measured as well, where
            `SummaryCollector(gradients=...)` measures; go on with the result:
            ``score = probe("score", score, gradient=True)``.

    Returns:
        `value`.

    Raises:
        TypeError: The name is not a str.
        ValueError: The name is empty.
    """
    if value.ndim == 0:
        if wanted("scalar", name):
            # A copy: of what a reshape feeds directly, MindSpore's compiler drops the operator.
            _scalar(name, ops.deepcopy(ops.stop_gradient(value)))
    elif wanted(PROBE, name):
        _tensor(_tag(PROBE, name), ops.deepcopy(ops.stop_gradient(value)))
    if gradient and wanted(GRADIENTS, THROUGH + name):
        value = _insertion(name)(value)
    return value


@at_compile_time
def wanted(kind: str, tag: str) -> bool:
    """Whether the network that is compiled, or runs, has this operator."""
    check_name("the name of a probe", tag)
    operator = Operator(kind, tag)
    answer = bool(wanted_of([operator]))
    if not answer:
        _left_out.add(operator)
    return answer


@at_compile_time
def _tag(kind: str, tag: str) -> str:
    return tag_of(kind, tag)


@at_compile_time
def _insertion(name: str) -> Any:
    """Returns an operator that passes a value on, and records the norm of its gradient."""
    tag = tag_of(GRADIENTS, THROUGH + name)

    def measure(gradient: Any) -> Any:
        norm = ops.sqrt(2 * _half_squares(gradient.astype(mindspore.float32)))
        _tensor(tag, norm.reshape(1) * 1.0)
        return gradient

    return ops.InsertGradientOf(measure)


def choose_graph(network: Any) -> None:
    """Lets the next call of a network run the graph that has what is wanted now.

    MindSpore compiles a graph for each value of `phase`. Does nothing in PyNative mode.

    Args:
        network: The Cell that is called; None does nothing.
    """
    if network is None:
        return
    missing = sorted(wanted_of(_left_out))
    phase = "train"
    if missing:
        phase += f"_{zlib.crc32(repr(missing).encode()):08x}"
    if network.phase == phase or not network.phase.startswith("train"):
        return
    if mindspore.get_context("mode") == mindspore.GRAPH_MODE:  # slow, so it is asked last
        network.phase = phase
