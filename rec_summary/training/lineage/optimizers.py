"""The optimizers of a network, their parameters and their learning rates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
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


def learning_rates(optimizers: list[Any]) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yields the name of each learning rate, and a function that returns that of the last update.

    The function raises TypeError if it has a type that is not one of MindSpore's.
    """
    for index, optimizer in enumerate(optimizers):
        prefix = "learning_rate"
        if len(optimizers) > 1:
            prefix += f"/{type(optimizer).__name__}_{index}"
        rates = _distinct(optimizer)
        for number, rate in enumerate(rates):
            name = prefix if len(rates) == 1 else f"{prefix}/group_{number}"
            yield name, functools.partial(_evaluate, rate, optimizer)


def _distinct(optimizer: Any) -> list[Any]:
    """Returns each learning rate of an optimizer once, in the order of its groups."""
    if not getattr(optimizer, "is_group_lr", False):
        return [optimizer.learning_rate]
    by_group: dict[Any, Any] = {}
    for rate in optimizer.learning_rate:
        # MindSpore wraps a rate once for each parameter; the name of its Parameter is the group's.
        wrapped = isinstance(rate, (LearningRateTable, ConstantLearningRate))
        inner = rate.learning_rate if wrapped else rate
        by_group.setdefault(id(inner) if isinstance(inner, nn.Cell) else inner.name, rate)
    return list(by_group.values())


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
