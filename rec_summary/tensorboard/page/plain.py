"""Answers of the page as JSON that a browser reads."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def json_of(answer: object) -> str:
    """Returns an answer as JSON; numbers that are not finite, which JSON has not, are null."""
    return json.dumps(_finite(answer), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, np.float32):
        value = float(str(value))  # the shortest number that is this float32
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
