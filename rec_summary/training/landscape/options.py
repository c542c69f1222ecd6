"""MindSpore's `collect_landscape` dictionary, checked and frozen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary.checks import (
    check_bool,
    check_choice,
    check_choice_or_none,
    check_elements,
    check_entries,
    check_int,
    check_that,
    check_type,
)
from rec_summary.training.landscape.policy import SavePolicy
from rec_summary.training.landscape.replay import KINDS

_CREATE: Final = {"train": True, "result": True}


@dataclass(frozen=True)
class LandscapeOptions:
    """The checkpoints of a run from which its loss landscape is computed later.

    Attributes:
        landscape_size: Points along each side of the grid.
        unit: The unit of the intervals: `step` or `epoch`.
        create_landscape: Whether to compute the landscape of the training path (`train`), and the
            one around the result (`result`).
        num_samples: The number of samples in the computation of the loss.
        intervals: The steps or epochs of the checkpoints, in groups of at least three. Each group
            gives one landscape.
        policy: The rule for checkpoints, in place of the intervals.
        replay: The input rows that are stored for the computation: `first`, `reservoir`, or None
            for none.
        sparse: Whether a checkpoint of a large table has only the rows that differ from the first
            checkpoint.
    """

    landscape_size: int = 40
    unit: str = "step"
    create_landscape: Mapping[str, bool] = field(default_factory=_CREATE.copy)
    num_samples: int = 2048
    intervals: tuple[tuple[int, ...], ...] = (tuple(range(1, 10)), tuple(range(10, 20)))
    policy: SavePolicy | None = None
    replay: str | None = "first"
    sparse: bool = False


def check_landscape(name: str, value: Mapping[str, Any] | None) -> LandscapeOptions | None:
    """Returns the options, or None (off) for None and for an empty dictionary.

    A missing entry has MindSpore's documented default.

    Raises:
        TypeError: It is not a dictionary, or an entry has the wrong type.
        ValueError: A key is unknown, or an entry has an invalid value.
    """
    entries = check_entries(name, value, _ENTRIES)
    if not entries:
        return None
    if entries.get("policy") is not None:
        expected = "one of `policy` and `intervals`, not both"
        check_that("intervals" not in entries, f"{name}['policy']", entries["policy"], expected)
        entries["intervals"] = ()
    return LandscapeOptions(**entries)


def _check_create(name: str, value: object) -> dict[str, bool]:
    check_type(name, value, Mapping, "a dict with bools for 'train' and 'result'")
    return _CREATE | check_entries(name, value, dict.fromkeys(_CREATE, check_bool))


def _check_intervals(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    for interval in check_elements(name, value, (list, tuple), "a list of lists of ints"):
        check_elements(f"an interval of {name}", interval, int, "a list of ints")
        check_that(len(interval) >= 3, f"an interval of {name}", interval, "at least three ints")
    return tuple(map(tuple, value))


def _check_policy(name: str, value: object) -> Any:
    return check_type(name, value, (SavePolicy, type(None)), "a SavePolicy or None")


_ENTRIES: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "landscape_size": functools.partial(check_int, least=3, most=256),
    "unit": functools.partial(check_choice, choices=("step", "epoch")),
    "create_landscape": _check_create,
    "num_samples": check_int,
    "intervals": _check_intervals,
    # Ours:
    "policy": _check_policy,
    "replay": functools.partial(check_choice_or_none, choices=KINDS),
    "sparse": check_bool,
}
