"""Finding a network's optimizers, their parameters and their learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from mindspore import Tensor, nn
from mindspore import dtype as mstype

from rec_summary.training.collector.step_view import StepView, as_array, as_number

# MindSpore's private wrappers: reading the array that they hold costs a microsecond,
# calling them would compile and run a graph.
_TABLE: Final = "_IteratorLearningRate"
_CONSTANT: Final = "_ConvertToCell"


def find_optimizers(view: StepView) -> list[Any]:
    """Returns the run's optimizers: the one that was named, else all in the network."""
    named = view.get("optimizer")
    if isinstance(named, nn.Optimizer):
        return [named]
    network = view.network
    if network is None:
        return []
    found: dict[int, Any] = {}
    for _, cell in network.cells_and_names():
        if isinstance(cell, nn.Optimizer):
            found[id(cell)] = cell
    return list(found.values())


def parameters_of(optimizers: list[Any], network: Any) -> list[Any]:
    """Returns the parameters that are trained, without repetition and in their order."""
    found: dict[int, Any] = {}
    for optimizer in optimizers:
        for parameter in optimizer.parameters:
            found[id(parameter)] = parameter
    if not found and network is not None:
        found = {id(p): p for p in network.trainable_params()}
    return list(found.values())


class LearningRates:
    """Reads the learning rates that the last update used.

    Parameters of one group share one learning rate; each distinct one has a name of its
    own: `learning_rate` where there is only one, else `learning_rate/group_<n>`, with the
    optimizer's class in front if there are several optimizers.
    """

    def __init__(self, optimizers: list[Any]) -> None:
        """Looks through the optimizers once; reading is done at each step."""
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
            TypeError: An optimizer holds something else than MindSpore's own kinds.
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
        # A constant is wrapped once for each parameter; its Parameter's name tells the group.
        held = rate.learning_rate if type(rate).__name__ in (_TABLE, _CONSTANT) else rate
        key = id(held) if isinstance(held, nn.Cell) else held.name
        if key not in seen:
            seen.add(key)
            yield rate


def _evaluate(rate: Any, optimizer: Any) -> float:
    if isinstance(rate, nn.Cell):
        # The optimizer counts a step after it has used its learning rate.
        step = max(0, int(_first(optimizer.global_step)) - 1)
        if type(rate).__name__ == _TABLE:
            table = as_array(rate.learning_rate, "learning_rate").reshape(-1)
            return float(table[min(step, table.size - 1)])
        if type(rate).__name__ == _CONSTANT:
            return _first(rate.learning_rate)
        return _first(rate(Tensor([step], mstype.int32)))
    return _first(rate)


def _first(value: Any) -> float:
    if isinstance(value, Tensor) and value.size == 1:
        return as_number(value)
    return float(np.asarray(as_array(value, "learning_rate"), dtype=np.float64).reshape(-1)[0])
