"""Records of many ranks, of which one waits for its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.corpus import START, event, put, scalar

STALL = "recommender/throughput/input_stall_share"
SLOW = 137
SECS = 0.25  # of a step


def value(rank: int, step: int, tag: str) -> float:
    """Returns what a rank records at a step; a float32."""
    noise = (rank * 7919 + step * 104729) % 997 / 997
    number = {
        STALL: 0.45 + 0.05 * noise if rank == SLOW else 0.02 * noise,
        "loss": 1 / (1 + step / 50) + 0.01 * noise,
        "gradients/norm": 2 + 0.5 * noise,
    }[tag]
    return float(np.float32(number))


def events(rank: int, steps: Sequence[int], *, after: float = 0.0) -> list[object]:
    """Returns the records of some steps of a rank, `after` seconds later than usual."""
    tags = ("loss", STALL, "gradients/norm")
    return [
        event(
            step,
            *(scalar(tag, value(rank, step, tag)) for tag in tags),
            at=START + step * SECS + after,
        )
        for step in steps
    ]


def many_ranks(run: Path, ranks: int, steps: Sequence[int]) -> None:
    """Writes a run in which all ranks record the same steps."""
    for rank in range(ranks):
        put(run, *events(rank, steps), rank=rank)
