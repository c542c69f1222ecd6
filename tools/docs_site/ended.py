"""Data of the pages' examples: unlike the streams that these are about, they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mindspore.dataset import GeneratorDataset


def ended(batches: Iterable[Any], names: Iterable[str]) -> GeneratorDataset:
    """Returns a stream of batches that is dry when it has been read."""
    left = iter(batches)
    return GeneratorDataset(lambda: left, list(names), shuffle=False)
