"""The inputs of a recommender's metrics in MindSpore's loops: references or copies of Tensors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from mindspore import Tensor

from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.training.operators import PROBE, Mailbox, Operator
from rec_summary.training.recommender.forward import Forward, NetworkBatch
from rec_summary.training.recommender.inputs import Roles, name_of, trouble_kind
from rec_summary.training.step_view import StepView
from rec_summary.training.tensors import as_array, is_on_cpu
from rec_summary.values.summary import TENSOR

_LOSS_ALONE: Final = (
    ", the loss alone: let the network return (loss, prediction, ...), and train with "
    "RecModel(..., keep_outputs=True) or TrainStep"
)
_COLUMNS: Final = "columns of the batch"
_NO_BATCH: Final = (
    "; this training passes no batches to callbacks, as data sink and the RecModel of mindspore_rec"
    " do not: train with rec_summary.RecModel without data sink, or put the values out by a"
    " TensorSummary in the network and use its tag"
)


class StepReader:
    """Reads the inputs from callback arguments."""

    def __init__(self, roles: Roles, view: StepView, troubles: Troubles) -> None:
        """Prepares the reading of a run.

        Each step has new Tensors in the memory of the host, so the reader keeps references: a read
        would wait on the training thread for the end of the step. Tensors on a device are copied at
        once.

        Args:
            roles: The inputs.
            view: The callback arguments of the training that begins.
            troubles: Receives each input that cannot be read.
        """
        self._on_host = is_on_cpu()
        self._places = roles.places
        self._columns = {name: n for n, name in enumerate(column_names(view.get("train_dataset")))}
        self._troubles = troubles
        self._forward: Forward | None = None
        self._passed = roles.passed
        named = {name for kind, name in self._places if kind == "name"}
        # Only what is named: the network computes what a mailbox wants.
        self._mailbox = Mailbox(
            wants=lambda source: source.kind in (PROBE, TENSOR) and source.tag in named
        )

    def examples(self, view: StepView) -> int:
        """Returns the number of examples of the step; 0 if it is unknown."""
        return view.samples

    def trained(self, view: StepView) -> None:
        """Returns None: with data sink, each step has as many examples as the last one."""

    def take(self, view: StepView) -> dict[Any, Any]:
        """Returns the inputs of the step that has ended, for a `StepInputs`."""
        inputs = _as_tuple(view.get("train_dataset_element"))
        outputs = _as_tuple(view.get("net_outputs"))
        operators = self._mailbox.take()
        values = {}
        for place in self._places:
            try:
                value = self._value(place, inputs, outputs, operators)
                if not (self._on_host and type(value) is Tensor):
                    # A copy: the array of a Parameter is a view of its live memory.
                    value = np.array(as_array(value, name_of(place)))
                values[place] = value
            except Exception as error:  # noqa: BLE001  # the other places are still read
                self._troubles.report(trouble_kind(place), error)
        return values

    def batch(self, run_context: Any) -> NetworkBatch:
        """Returns the batch of the step that begins.

        Raises:
            TypeError, ValueError: The training has no network that can predict it, or no batches.
        """
        view = StepView(run_context)
        inputs = _as_tuple(view.get("train_dataset_element"))
        _element(inputs, 0, _COLUMNS)
        if self._forward is None:
            self._forward = Forward(view)
        return NetworkBatch(self._forward, inputs, self._columns, self._predicted)

    def _predicted(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> dict[Any, Any]:
        return {place: self._value(place, inputs, outputs, {}) for place in self._passed}

    def close(self) -> None:
        """Receives no values of operators from now on."""
        self._mailbox.close()

    def _value(
        self, place: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...], operators: Any
    ) -> Any:
        kind, where = place
        if kind == "output":
            output = _element(outputs, where, "outputs of the training network")
            if isinstance(output, (list, tuple)):
                expected = "a Tensor; of several, take one with a function: "
                expected += f"lambda inputs, outputs: outputs[{where}][0]"
                several = verbatim(f"a {type(output).__name__} of {len(output)}")
                raise TypeError(three_part("an output", several, expected))
            return output
        if kind == "input":
            return _element(inputs, where, _COLUMNS)
        if kind == "call":
            return where(inputs, outputs)
        if (probed := Operator(PROBE, where)) in operators:
            return operators[probed]
        if where in self._columns:
            return _element(inputs, self._columns[where], _COLUMNS)
        return self._operator(operators, where, "" if inputs else _NO_BATCH)

    def _operator(self, operators: Any, tag: str, remedy: str) -> Any:
        value = operators.get(Operator(TENSOR, tag))
        if value is None:
            available = ", ".join([*self._columns, *sorted(tag for _, tag in operators)])
            expected = (
                "a column of the data set, the name of a probe or the tag of a TensorSummary"
                f" ({available or 'there are none'}){remedy}"
            )
            raise ValueError(three_part("a name", tag, expected))
        return value


def column_names(dataset: Any) -> list[str]:
    """Returns the names of a data set's columns; none if they are not available."""
    try:
        return [str(name) for name in dataset.get_col_names()]
    except Exception:  # noqa: BLE001  # then places can only be positions
        return []


def _as_tuple(value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _element(parts: tuple[Any, ...], index: int, what: str) -> Any:
    if not -len(parts) <= index < len(parts):
        numbers = f"from 0 to {len(parts) - 1} " if len(parts) > 1 else ""
        expected = f"a position {numbers}among the {len(parts)} {what}"
        if what.startswith("outputs"):
            expected += _LOSS_ALONE if len(parts) < 2 else ""
        elif not parts:
            expected += _NO_BATCH
        raise ValueError(three_part("a position", index, expected))
    return parts[index]
