"""Predictions of the network that trains, for a batch, without training and without a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Tensor, nn

from rec_summary.arrays import Array
from rec_summary.errors import three_part, verbatim
from rec_summary.training.process.ending import this_environment
from rec_summary.training.recommender.inputs import name_of
from rec_summary.training.run_directory import inform
from rec_summary.training.step_view import StepView
from rec_summary.training.tensors import as_array

_MOST_BUFFER: Final = 1 << 20  # values of a parameter that is not trained; a larger one is a table
_STEP: Final = (
    "a training step whose `network` returns the predictions: RecModel(..., keep_outputs=True) "
    "or TrainStep"
)
_COMPILES: Final = (
    "rec_summary: importance: the network is compiled once more, for predictions without training"
)


class Forward:
    """The network in evaluation mode.

    Dropout and batch statistics are off in it, and the states of random generators are put back: a
    training goes on bit for bit as without it. That does not hold for operators with a state of
    their own, such as `ops.standard_normal`, and for what `construct` writes to Python attributes.
    """

    def __init__(self, view: StepView) -> None:
        """Prepares.

        Args:
            view: The callback arguments of the training.

        Raises:
            TypeError: The training step has no network of its own.
            ValueError: Parts of the network are on several devices.
        """
        step = view.network
        network = getattr(step, "network", None)
        if not (isinstance(step, nn.Cell) and isinstance(network, nn.Cell)):
            raise TypeError(three_part("the training network", type(step).__name__, _STEP))
        mode = str(view.get("parallel_mode") or "stand_alone")
        if mode not in ("stand_alone", "data_parallel"):
            expected = "stand_alone or data_parallel, for the importance of features"
            raise ValueError(three_part("the parallel mode", mode, expected))
        self._cell = _Forward(network)
        self._buffers: list[tuple[Any, Array]] | None = None

    @property
    def compiles(self) -> bool:
        """Whether another shape of a batch costs a compilation."""
        return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)

    def __call__(self, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns what the network returns for the columns of a batch.

        Raises:
            ValueError: The network changes a parameter also in evaluation mode.
        """
        if self._buffers is not None:
            with self._evaluating():
                return _as_tuple(self._cell(*columns))
        if self.compiles and this_environment().rank == 0:
            inform(_COMPILES)
        self._buffers = [
            (parameter, parameter.asnumpy().copy())
            for parameter in self._cell.get_parameters()
            if not parameter.requires_grad and parameter.size <= _MOST_BUFFER
        ]
        with self._evaluating():
            outputs = _as_tuple(self._cell(*columns))
            [output.asnumpy() for output in outputs if isinstance(output, Tensor)]  # has ended
        self._check_buffers()
        return outputs

    def _check_buffers(self) -> None:
        changed = [
            (parameter, before)
            for parameter, before in self._buffers or ()
            if parameter.asnumpy().tobytes() != before.tobytes()
        ]
        for parameter, before in changed:
            parameter.set_data(Tensor(before))
        if changed:
            names = verbatim(", ".join(parameter.name for parameter, _ in changed))
            expected = "none: it must change nothing in evaluation mode"
            raise ValueError(three_part("parameters that the network changes", names, expected))

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        cells = [cell for _, cell in self._cell.cells_and_names()]
        before = [(cell, cell.training, cell.phase) for cell in cells]
        random, numpy_random = mindspore.get_rng_state(), np.random.get_state()
        self._cell.set_train(False)
        try:
            yield
        finally:
            for cell, training, phase in before:
                cell.add_flags(training=training)
                cell.phase = phase
            mindspore.set_rng_state(random)
            np.random.set_state(numpy_random)


class NetworkBatch:
    """A batch of MindSpore's loops, for `Passes`."""

    def __init__(
        self,
        forward: Forward,
        inputs: tuple[Any, ...],
        names: Mapping[str, int],
        read: Callable[[tuple[Any, ...], tuple[Any, ...]], dict[Any, Any]],
    ) -> None:
        """Takes a batch.

        Args:
            forward: The network.
            inputs: Its columns.
            names: The numbers of the columns of the data set by name; empty if not known.
            read: Returns the inputs of the metrics by place, from columns and outputs.
        """
        self._forward = forward
        self._inputs = inputs
        self._names = names or {f"column_{number}": number for number in range(len(inputs))}
        self._read = read

    @property
    def columns(self) -> dict[str, int]:
        """The columns by name."""
        return {name: number for name, number in self._names.items() if number < len(self._inputs)}

    @property
    def shapes(self) -> Any:
        """The shapes of the columns, in graph mode."""
        shapes = [tuple(column.shape) for column in self._inputs]
        return shapes if self._forward.compiles else None

    def find(self, place: int | str) -> int:
        """Returns the number of a column.

        Raises:
            ValueError: There is no such column.
        """
        number = place if isinstance(place, int) else self._names.get(place, len(self._inputs))
        if not -len(self._inputs) <= number < len(self._inputs):
            columns = ", ".join(self.columns)
            expected = f"one of the {len(self._inputs)} columns of the batch: {columns}"
            raise ValueError(three_part("a feature of importance", place, expected))
        return number % len(self._inputs)

    def read(self, column: int) -> Array:
        """Returns the values of a column."""
        return as_array(self._inputs[column], "a column")

    def score(self, replaced: Mapping[int, Array]) -> dict[Any, Array]:
        """Returns predictions, labels, weights and masks by place."""
        inputs = tuple(
            Tensor(np.ascontiguousarray(replaced[number]), column.dtype)
            if number in replaced
            else column
            for number, column in enumerate(self._inputs)
        )
        values = self._read(inputs, self._forward(inputs))
        return {place: np.array(as_array(value, name_of(place))) for place, value in values.items()}


class _Forward(nn.Cell):
    """A network with a graph of its own: the network's own graph stays as it is."""

    def __init__(self, network: Any) -> None:
        super().__init__(auto_prefix=False)
        self._network = network

    def construct(self, *columns: Any) -> Any:
        """Returns the outputs of the network."""
        return self._network(*columns)


def _as_tuple(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)
