"""A training step that returns all outputs of the network, computed before the update.

MindSpore's step returns only the loss. This one returns the outputs of the forward pass of the
gradients. They need no extra computation, and they are predictions of a model that has not yet
learned from the batch.
"""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore import nn, ops

from rec_summary.errors import three_part
from rec_summary.training.probes.gradient_probe import GradientProbe


class TrainStep(nn.TrainOneStepCell):
    """One step of training: forward, backward, update; returns all outputs of the network.

    For MindSpore's `Model`: ``Model(TrainStep(network, optimizer))``. `RecModel` makes one with
    ``keep_outputs=True``. It works in graph mode and in PyNative mode. It has no loss scaling. The
    optimizer is in a `GradientProbe`, for `SummaryCollector(gradients=...)`.

    Args:
        network: Returns the loss, a scalar, alone or with other outputs after it: predictions,
            labels. The step returns the same; a tuple if it is a list.
        optimizer: Updates the weights.
        loss_fn: If given, `network` takes all columns except the last and returns a prediction. The
            last column is the label, and the step returns (loss, prediction, label).

    Raises:
        TypeError: `network` is not a Cell, or `optimizer` is not an Optimizer.
    """

    def __init__(self, network: Any, optimizer: Any, loss_fn: Any = None) -> None:
        if not isinstance(network, nn.Cell):
            raise TypeError(three_part("network", network, "a mindspore.nn.Cell"))
        if not isinstance(optimizer, nn.Optimizer):
            raise TypeError(three_part("optimizer", optimizer, "a mindspore.nn.Optimizer"))
        if loss_fn is not None:
            network = _WithLoss(network, loss_fn)
        super().__init__(network, optimizer)
        self._update = GradientProbe(optimizer)
        self._forward_and_gradients = mindspore.value_and_grad(
            _LossFirst(self.network), None, self.weights, has_aux=True
        )

    def construct(self, *inputs: Any) -> Any:
        """Trains one batch; returns the network's outputs, computed before the update."""
        (loss, outputs), gradients = self._forward_and_gradients(*inputs)
        gradients = self.grad_reducer(gradients)
        loss = ops.depend(loss, self._update(gradients))
        if isinstance(outputs, (tuple, list)):
            return (loss, *outputs[1:])
        return loss


class _LossFirst(nn.Cell):
    """The loss of a network, then all that the network returns: `has_aux` needs a second output."""

    def __init__(self, network: Any) -> None:
        super().__init__(auto_prefix=False)
        self._network = network

    def construct(self, *columns: Any) -> Any:
        """Returns the loss and the outputs."""
        outputs = self._network(*columns)
        return outputs[0] if isinstance(outputs, (tuple, list)) else outputs, outputs


class _WithLoss(nn.Cell):
    """A network and its loss; returns loss, prediction and label of a batch."""

    def __init__(self, backbone: Any, loss_fn: Any) -> None:
        super().__init__(auto_prefix=False)
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, *columns: Any) -> Any:
        """Returns loss, prediction and label."""
        output = self._backbone(*columns[:-1])
        return self._loss_fn(output, columns[-1]), output, columns[-1]
