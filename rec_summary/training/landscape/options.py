"""MindSpore's `collect_landscape` dictionary, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.checks import check_bool, check_choice, check_int, check_type
from rec_summary.errors import three_part
from rec_summary.training.landscape.policy import SavePolicy
from rec_summary.training.landscape.replay import KINDS

_UNITS: Final = ("step", "epoch")
_KEYS: Final = (
    *("landscape_size", "unit", "create_landscape", "num_samples", "intervals"),
    *("policy", "replay", "sparse"),  # ours
)
_NAME: Final = "collect_landscape"


@dataclass(frozen=True)
class LandscapeOptions:
    """The checkpoints of a run from which its loss landscape is computed later.

    Attributes:
        landscape_size: Points along each side of the grid.
        unit: The unit of the intervals: `step` or `epoch`.
        create_landscape_train: Whether to compute the landscape of the training path.
        create_landscape_result: Whether to compute the landscape around the result.
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
    create_landscape_train: bool = True
    create_landscape_result: bool = True
    num_samples: int = 2048
    intervals: tuple[tuple[int, ...], ...] = (tuple(range(1, 10)), tuple(range(10, 20)))
    policy: SavePolicy | None = None
    replay: str | None = "first"
    sparse: bool = False

    def __post_init__(self) -> None:
        """Checks the options, except the intervals.

        Raises:
            TypeError: An option has the wrong type.
            ValueError: An option has an invalid value.
        """
        check_int(f"{_NAME}['landscape_size']", self.landscape_size, 3, 256)
        check_choice(f"{_NAME}['unit']", self.unit, _UNITS)
        check_int(f"{_NAME}['num_samples']", self.num_samples)
        kinds = (SavePolicy, type(None))
        check_type(f"{_NAME}['policy']", self.policy, kinds, "a SavePolicy or None")
        if self.replay is not None:
            check_choice(f"{_NAME}['replay']", self.replay, KINDS)
        check_bool(f"{_NAME}['sparse']", self.sparse)


def check_landscape(value: Mapping[str, Any] | None) -> LandscapeOptions | None:
    """Returns the options, or None (off) for None and for an empty dictionary.

    A missing entry has MindSpore's documented default.

    Raises:
        TypeError: It is not a dictionary, or an entry has the wrong type.
        ValueError: A key is unknown, or an entry has an invalid value.
    """
    what = f"collect_specified_data[{_NAME!r}]"
    check_type(what, value, (Mapping, type(None)), "a dict or None")
    if not value:
        return None
    for key in value:
        if key not in _KEYS:
            raise ValueError(three_part(f"a key of {_NAME}", key, f"one of {', '.join(_KEYS)}"))
    entries = dict(value)
    create = _check_create(entries.pop("create_landscape", {}))
    policy = entries.get("policy")
    if policy is not None and "intervals" in entries:
        expected = "one of `policy` and `intervals`, not both"
        raise ValueError(three_part(f"{_NAME}['policy']", policy, expected))
    if policy is not None:
        entries["intervals"] = ()
    elif "intervals" in entries:
        entries["intervals"] = _check_intervals(entries["intervals"])
    entries.update({f"create_landscape_{key}": wanted for key, wanted in create.items()})
    return LandscapeOptions(**entries)


def _check_create(value: Any) -> Mapping[str, bool]:
    what = f"{_NAME}['create_landscape']"
    check_type(what, value, Mapping, "a dict with bools for 'train' and 'result'")
    for key, wanted in value.items():
        if key not in ("train", "result"):
            raise ValueError(three_part(f"a key of {what}", key, "'train' or 'result'"))
        check_bool(f"{what}[{key!r}]", wanted)
    found: Mapping[str, bool] = value
    return found


def _check_intervals(value: Any) -> tuple[tuple[int, ...], ...]:
    what = f"{_NAME}['intervals']"
    check_type(what, value, (list, tuple), "a list of lists of ints")
    for interval in value:
        check_type(f"an interval of {what}", interval, (list, tuple), "a list of ints")
        if len(interval) < 3:
            raise ValueError(three_part(f"an interval of {what}", interval, "at least three ints"))
        for number in interval:
            check_type(f"a number in {what}", number, int, "an int")
    return tuple(tuple(interval) for interval in value)
