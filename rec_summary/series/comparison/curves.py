"""Curves of several runs at the same places, and where two of them part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rec_summary.arrays import Floats, Integers

_WINDOWS: Final = 50  # over which differences are averaged
_FEWEST: Final = 5  # steps of a window, if there are as many windows
_CALIBRATING: Final = 10  # values at the beginning that are measured by their own noise
_TIMES: Final = 3.0  # times the noise: a greater difference is not noise
_ROUNDING: Final = 2.0**-20  # of values that were computed in 32 bits in another order
_SIGMA: Final = 1.4826  # of a normal distribution, for a median of absolute values


class Curve(NamedTuple):
    """A series of numbers, of shape [n] each.

    Attributes:
        places: Where the values are: steps or samples, ascending, each once.
        values: The values; some may not be finite.
    """

    places: Integers
    values: Floats


@dataclass(frozen=True)
class Parting:
    """Where two curves part.

    Attributes:
        differs_at: The first step at which they differ by more than rounding; None if nowhere.
        parts_at: The first step at which they differ by more than the noise before it explains;
            None if nowhere.
        greatest: The greatest mean difference of a window, of the second from the first.
        greatest_at: The step at which this window begins.
    """

    differs_at: int | None
    parts_at: int | None
    greatest: float
    greatest_at: int

    @property
    def same(self) -> bool:
        """Whether the curves do not differ."""
        return self.differs_at is None


def aligned(curves: Sequence[Curve], most: int | None = None) -> tuple[Integers, Floats]:
    """Returns curves at the same places: all places at which one of them has a value.

    Between two values of a curve, its value is interpolated linearly. Before its first and after
    its last finite value it is NaN.

    Args:
        curves: The curves, at least one.
        most: At most so many places, at even distances; None for all.

    Returns:
        The places, of shape [n], and the values, of shape [curves, n].
    """
    places = np.unique(np.concatenate([curve.places for curve in curves]))
    if most is not None and len(places) > most:
        places = places[np.linspace(0, len(places) - 1, most).astype(np.int64)]
    # Differences of integers are exact; a step may be beyond 2^53.
    origin = places[:1]
    x = (places - origin).astype(np.float64)
    values = np.full((len(curves), len(places)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        kept = np.isfinite(curve.values)
        if kept.any():
            known = (curve.places[kept] - origin).astype(np.float64)
            row[:] = np.interp(x, known, curve.values[kept], left=np.nan, right=np.nan)
    return places, values


def parting(one: Curve, other: Curve) -> Parting | None:
    """Returns where two curves part; None if there is no step at which both have a value.

    The differences at all steps are averaged over windows: each has a fiftieth of the steps; in
    short curves five, or a fifth of them if that is less. The curves part in the first window whose
    mean difference is more than three times the noise, if the window after it is so too, with the
    same sign. The noise is the greater of two numbers: the scatter of single differences until
    then, as far as it shows in a mean, measured by their changes from step to step; and the root
    mean square of the mean differences before the difference last changed its sign, of the latter
    half of these windows. If nothing differs before, the first difference counts. A value that is
    not finite beside one that is parts the curves as well; two that are not finite do not differ.
    """
    steps, (ours, theirs) = aligned([one, other])
    common = np.isfinite(ours) & np.isfinite(theirs)
    broken = _broken(one, other)
    if not common.any():
        for first in np.intersect1d(one.places, other.places)[:1]:
            return Parting(broken, broken, np.nan, int(first) if broken is None else broken)
        return None
    steps, ours, theirs = steps[common], ours[common], theirs[common]
    differences = theirs - ours
    rounding = _ROUNDING * abs(ours)
    differing = np.flatnonzero(abs(differences) > rounding)
    differences[abs(differences) <= rounding] = 0
    size = max(len(steps) // _WINDOWS, min(len(steps) // _FEWEST, _FEWEST), 1)
    starts = np.arange(0, max(len(steps) - size, 0) + 1, size)
    means = np.add.reduceat(differences, starts) / np.diff(starts, append=len(steps))
    greatest = int(abs(means).argmax())
    candidates = [] if broken is None else [broken]
    window = _parting_window(differences, means, size)
    if window is not None:
        candidates.append(int(steps[max(starts[window], differing[0])]))
    differs = [int(steps[place]) for place in differing[:1]]
    return Parting(
        min(differs + candidates, default=None),
        min(candidates, default=None),
        float(means[greatest]),
        int(steps[starts[greatest]]),
    )


def _parting_window(differences: Floats, means: Floats, size: int) -> int | None:
    changes = abs(np.diff(differences)) / np.sqrt(2)
    turned = 0  # the first window of those in a row with the sign of this one
    for window, mean in enumerate(means):
        if window and mean * means[window - 1] <= 0:
            turned = window
        before = changes[: max(window * size - 1, _CALIBRATING)]
        scatter = _SIGMA * float(np.median(before)) if len(before) else 0.0
        earlier = means[turned // 2 : turned]
        level = float(np.sqrt(np.square(earlier).mean())) if len(earlier) else 0.0
        noise = _TIMES * max(scatter / np.sqrt(size), level)
        if noise:
            behind = means[window + 1 : window + 2] * np.sign(mean)
            parts = abs(mean) > noise and bool((behind > noise).all())
        else:
            end = None if window == len(means) - 1 else (window + 1) * size  # with the remainder
            parts = bool(differences[window * size : end].any())
        if parts:
            return window
    return None


def _broken(one: Curve, other: Curve) -> int | None:
    """Returns the first common step at which only one of two values is finite."""
    steps, ours, theirs = np.intersect1d(one.places, other.places, return_indices=True)
    odd = np.isfinite(one.values[ours]) != np.isfinite(other.values[theirs])
    return int(steps[odd][0]) if odd.any() else None
