"""What a landscape of the tests' click model is computed of."""

from __future__ import annotations

from typing import Any

from mindspore import nn
from mindspore.train import Model

from tests.support.nets import BATCH, ClickNet, bounded

SAMPLES = 4 * BATCH


def parts() -> tuple[Any, ...]:
    """Returns a model, its network, data and metrics."""
    network = ClickNet()
    return Model(network, nn.BCEWithLogitsLoss()), network, bounded(4), {}
