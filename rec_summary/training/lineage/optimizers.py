"""The optimizers of a network, their parameters and their learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindspore import Tensor, nn
from mindspore import dtype as mstype

from rec_summary.training._mindspore import ConstantLearningRate, LearningRateTable
from rec_summary.training.step_view import StepView
from rec_summary.training.tensors import as_array, as_number


def find_optimizers(view: StepView) -> list[Any]:
    """Returns the run's optimizers: the argument `optimizer`, or all in the network."""
    named = view.get("optimizer")
    if isinstance(named, nn.Optimizer):
        return [named]
    network = view.network
    if network is None:
        return []
    cells = (cell for _, cell in network.cells_and_names())
    return list({id(cell): cell for cell in cells if isinstance(cell, nn.Optimizer)}.values())


def parameters_of(optimizers: list[Any], network: Any) -> list[Any]:
    """Returns the trained parameters, without repetition and in their order."""
    parameters = [p for optimizer in optimizers for p in optimizer.parameters]
    if not parameters and network is not None:
        parameters = network.trainable_params()
    return list({id(parameter): parameter for parameter in parameters}.values())


class LearningRates:
    """Reads the learning rates of the last update.

    The parameters of one group share a learning rate. A single learning rate is named
    `learning_rate`, several are named `learning_rate/group_<n>`. With several optimizers, the
    optimizer's class comes before the group.
    """

    def __init__(self, optimizers: list[Any]) -> None:
        """Finds the learning rates; `read` then only evaluates them."""
        self._sources: list[tuple[str, Any, Any]] = []
        for index, optimizer in enumerate(optimizers):
            prefix = "learning_rate"
            if len(optimizers) > 1:
                prefix += f"/{type(optimizer).__name__}_{index}"
            rates = list(_distinct(optimizer))
            for number, rate in enumerate(rates):
                name = prefix if len(rates) == 1 else f"{prefix}/group_{number}"
                self._sources.append((name, rate, optimizer))

    def read(self) -> list[tuple[str, float]]:
        """Returns the name and the value of each learning rate.

        Raises:
            TypeError: A learning rate has a type that is not one of MindSpore's.
        """
        return [(name, _evaluate(rate, opt)) for name, rate, opt in self._sources]


def _distinct(optimizer: Any) -> Iterator[Any]:
    """Yields each learning rate of an optimizer once, in the order of its groups."""
    rates = optimizer.learning_rate
    if not getattr(optimizer, "is_group_lr", False):
        yield rates
        return
    seen: set[Any] = set()
    for rate in rates:
        # MindSpore wraps a rate once for each parameter; the name of its Parameter is the group's.
        wrapped = isinstance(rate, (LearningRateTable, ConstantLearningRate))
        inner = rate.learning_rate if wrapped else rate
        key = id(inner) if isinstance(inner, nn.Cell) else inner.name
        if key not in seen:
            seen.add(key)
            yield rate


def _evaluate(rate: Any, optimizer: Any) -> float:
    if not isinstance(rate, nn.Cell):
        return as_number(rate, "learning_rate")
    # A read of the inner array takes a microsecond; a call of the Cell compiles and runs a graph.
    if isinstance(rate, ConstantLearningRate):
        return as_number(rate.learning_rate, "learning_rate")
    # The optimizer counts a step after it has used its learning rate.
    step = max(0, int(as_number(optimizer.global_step, "global_step")) - 1)
    if isinstance(rate, LearningRateTable):
        table = as_array(rate.learning_rate, "learning_rate").reshape(-1)
        return float(table[min(step, table.size - 1)])
    return as_number(rate(Tensor([step], mstype.int32)), "learning_rate")
