"""Streams of clicks in which something breaks, as histories of sums by slice."""

from __future__ import annotations

import functools

import numpy as np

from rec_summary.series.runs.slices import SliceHistory
from tests.support.slice_streams import SHARES, Batch, Stream

BREAK = 510  # in the 21st report
REPORT = 25


def by_chance(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Labels of DE, a quarter of the traffic, are drawn by chance."""
    if step > BREAK:
        chosen = batch["country"] == 1
        batch["ctr"][chosen] = random.random(chosen.sum()) < batch["ctr"].mean()


def nothing(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Breaks nothing."""


def shifted(step: int) -> tuple[float, ...]:
    return (0.2, 0.09, *SHARES[2:]) if step > BREAK else SHARES


@functools.cache
def stream(broken: object = nothing, seed: int = 1, *, shifts: bool = False) -> list[SliceHistory]:
    shares = shifted if shifts else lambda _: SHARES
    return Stream(seed, broken, shares, steps=REPORT, size=512).histories()  # type: ignore[arg-type]
