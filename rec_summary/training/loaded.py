"""MindSpore, for the modules that also work without it.

A process that has not loaded MindSpore has no Cell, no Parameter, no summary operator and one
rank. So these modules never load it: they ask whether somebody else has.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def mindspore() -> Any:
    """Returns the module, or None if this process has not loaded MindSpore."""
    return sys.modules.get("mindspore")


def is_parameter(value: object) -> bool:
    """Whether this is a `mindspore.Parameter`."""
    # Without the name, another thread is loading MindSpore just now.
    return isinstance(value, getattr(mindspore(), "Parameter", ()))


def is_tensor(value: object) -> bool:
    """Whether this is a `mindspore.Tensor` and no Parameter, whose memory is live."""
    return mindspore() is not None and type(value) is getattr(mindspore(), "Tensor", None)


def is_cell(value: object) -> bool:
    """Whether this is a `mindspore.nn.Cell`."""
    return isinstance(value, getattr(getattr(mindspore(), "nn", None), "Cell", ()))


def rank_and_size() -> tuple[int, int]:
    """Returns the rank of this process and the number of ranks: 0 of 1 without communication."""
    if mindspore() is None:
        return 0, 1
    communication = importlib.import_module("mindspore.communication")
    if not communication.GlobalComm.INITED:
        return 0, 1
    return int(communication.get_rank()), int(communication.get_group_size())
