"""MindSpore's callback arguments, with an answer for every missing key.

MindSpore passes callbacks a dictionary. Its keys depend on the caller: `Model.train` sets nearly
all of them, the original `RecModel.online_train` sets six. Attribute access to a missing key
raises KeyError, so this module reads every key with `get`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from mindspore import Tensor

from rec_summary.training.tensors import as_number

# Unbounded training reports this number of epochs or batches, or a larger one.
_ENDLESS: Final = 2**31 - 1


class StepView:
    """Reads the callback arguments of one hook."""

    def __init__(self, run_context: Any) -> None:
        """Wraps the argument of a hook, a `mindspore.train.RunContext`."""
        self._context = run_context
        self._args: Mapping[str, Any] = run_context.original_args()

    def get(self, key: str) -> Any:
        """Returns an argument, or None."""
        return self._args.get(key)

    @property
    def step(self) -> int:
        """Steps since this call of train began, and before it if the caller counts these.

        In sink mode it grows by the sink size.
        """
        return int(self._args.get("cur_step_num") or 0)

    @property
    def epoch(self) -> int:
        """The current epoch, from 1 on; 0 before the first."""
        return int(self._args.get("cur_epoch_num") or 0)

    @property
    def batch_num(self) -> int:
        """Steps in an epoch; 0 if the caller does not know."""
        return int(self._args.get("batch_num") or 0)

    @property
    def total_steps(self) -> int | None:
        """The planned number of steps (in sink mode: epochs); None for an unbounded run."""
        epochs, batches = self._args.get("epoch_num"), self.batch_num
        if not isinstance(epochs, int) or not 0 < epochs < _ENDLESS:
            return None
        total = epochs if self.sink_mode else epochs * batches
        return total if 0 < total < _ENDLESS else None

    @property
    def sink_mode(self) -> bool:
        """Whether the device fetches the data, so that hooks run once for each sink."""
        return bool(self._args.get("dataset_sink_mode"))

    @property
    def stop_requested(self) -> bool:
        """Whether a callback requested a stop."""
        return bool(self._context.get_stop_requested())

    def stop(self, reason: str) -> None:
        """Requests that training stops after this step, unless something else has stopped it."""
        self._context.request_stop()
        if isinstance(self._args, dict):
            self._args.setdefault("stop_reason", reason)

    @property
    def network(self) -> Any:
        """The outermost network of this mode; in training, with loss and optimizer."""
        mode = self._args.get("mode") or "train"  # the original online training sets none
        network = self._args.get("train_network" if mode == "train" else "eval_network")
        return self._args.get("network") if network is None else network

    @property
    def first_column(self) -> Any:
        """The first column of this step's batch; None if the caller does not pass the batch."""
        element = self._args.get("train_dataset_element")
        return element[0] if isinstance(element, (list, tuple)) and element else element

    @property
    def samples(self) -> int:
        """The number of samples in this step's batch; 0 if the caller does not pass the batch."""
        shape = getattr(self.first_column, "shape", None)
        return int(shape[0]) if shape else 0

    @property
    def outputs(self) -> Any:
        """What the network returned for this step; None before the first."""
        return self._args.get("net_outputs")


def losses(outputs: object) -> list[float]:
    """Returns the losses of a step: the network's output, or the first of several outputs.

    Further ones come after it if the outputs begin with several numbers.

    Raises:
        TypeError: The first output cannot be a loss.
        ValueError: It is empty.
    """
    what = "the network's output"
    if not (isinstance(outputs, (list, tuple)) and outputs):
        return [as_number(outputs, what)]
    further = itertools.islice(itertools.takewhile(_is_number, outputs), 1, None)
    return [as_number(outputs[0], what), *(loss.item() for loss in further)]


def _is_number(output: object) -> bool:
    return isinstance(output, Tensor) and not output.shape and output.is_floating_point()
