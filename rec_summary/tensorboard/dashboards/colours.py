"""Colour maps with evenly growing lightness: readable in grey, and for the colour-blind as well."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Bytes, Floats

MISSING: Final = (255, 0, 255)  # NaN; in neither map
_DARKEST, _LIGHTEST = 0.12, 0.95
# How far red, green and blue are from grey along the two directions of a helix around it.
_HELIX: Final = np.array([[-0.14861, 1.78277], [-0.29227, -0.90649], [1.97294, 0.0]])
_START, _TURNS, _HUE = 0.5, -0.9, 1.1

# From -1 to 1. The middles are saturated, so that small values differ visibly from zero.
_DIVERGING: Final = np.array(
    [
        [0.02, 0.19, 0.45],
        [0.29, 0.575, 0.905],
        [0.96, 0.96, 0.96],
        [0.955, 0.51, 0.30],
        [0.55, 0.06, 0.04],
    ]
)
_STOPS: Final = np.linspace(-1, 1, len(_DIVERGING))


def sequential(values: npt.ArrayLike) -> Bytes:
    """Returns the colours of values from 0 (dark) to 1 (light); others are cut off.

    Source: D. A. Green, "A colour scheme for the display of astronomical intensity images",
    Bulletin of the Astronomical Society of India 39 (2011).

    Args:
        values: An array of any shape; NaN gets a colour of its own.

    Returns:
        An array with one axis more: red, green, blue.
    """
    scaled, missing = _clipped(values, 0.0)
    light = _DARKEST + (_LIGHTEST - _DARKEST) * scaled
    angle = 2 * math.pi * (_START / 3 + _TURNS * light)
    away = _HUE * light * (1 - light) / 2
    turned = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return _pixels(light[..., None] + away[..., None] * (turned @ _HELIX.T), missing)


def diverging(values: npt.ArrayLike) -> Bytes:
    """Returns the colours of values from -1 (blue) over 0 (nearly white) to 1 (red)."""
    scaled, missing = _clipped(values, -1.0)
    channels = [np.interp(scaled, _STOPS, channel) for channel in _DIVERGING.T]
    return _pixels(np.stack(channels, axis=-1), missing)


def _clipped(values: npt.ArrayLike, least: float) -> tuple[Floats, Any]:
    array = np.asarray(values, dtype=np.float64)
    missing = np.isnan(array)
    return np.clip(np.where(missing, 0.0, array), least, 1.0), missing


def _pixels(colours: Floats, missing: Any) -> Bytes:
    result: Bytes = np.rint(np.clip(colours, 0, 1) * 255).astype(np.uint8)
    result[missing] = MISSING
    return result
