"""MindSpore's `collect_landscape` dictionary, checked and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.errors import three_part
from rec_summary.training.checks import check_positive_int, check_type
from rec_summary.training.landscape.policy import SavePolicy
from rec_summary.training.landscape.replay import KINDS

_SIZES: Final = range(3, 257)
_UNITS: Final = ("step", "epoch")
_KEYS: Final = (
    *("landscape_size", "unit", "create_landscape", "num_samples", "intervals"),
    *("policy", "replay", "sparse"),  # ours
)
_NAME: Final = "collect_landscape"


@dataclass(frozen=True)
class LandscapeOptions:
    """What is kept of a run so that its loss landscape can be computed later.

    Attributes:
        landscape_size: Points along each side of the grid.
        unit: What the intervals count: `step` or `epoch`.
        create_landscape_train: Whether the landscape of the training path is wanted.
        create_landscape_result: Whether the landscape around the result is wanted.
        num_samples: How many samples the loss is computed on.
        intervals: The steps or epochs at which the parameters are kept, in groups of at
            least three; one landscape is drawn for each group.
        policy: When checkpoints are kept in place of the intervals, and which stay.
        replay: Which input rows are frozen for the computation: `first`, `reservoir`, or
            None for none.
        sparse: Whether only the rows of large tables are written that differ from the first
            checkpoint's.
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


def check_landscape(value: Mapping[str, Any] | None) -> LandscapeOptions | None:
    """Returns the options, or None for None and for an empty dictionary, which mean off.

    What the dictionary leaves out has MindSpore's documented default.

    Raises:
        TypeError: It is not a dictionary, or an entry has the wrong type.
        ValueError: A key is unknown, or an entry has a value that is not allowed.
    """
    what = f"collect_specified_data[{_NAME!r}]"
    check_type(what, value, (Mapping, type(None)), "a dict or None")
    if not value:
        return None
    for key in value:
        if key not in _KEYS:
            raise ValueError(three_part(f"a key of {_NAME}", key, f"one of {', '.join(_KEYS)}"))
    default = LandscapeOptions()
    size = value.get("landscape_size", default.landscape_size)
    check_type(f"{_NAME}['landscape_size']", size, int, "an int from 3 to 256")
    if size not in _SIZES:
        raise ValueError(three_part(f"{_NAME}['landscape_size']", size, "an int from 3 to 256"))
    unit = value.get("unit", default.unit)
    check_type(f"{_NAME}['unit']", unit, str, "'step' or 'epoch'")
    if unit not in _UNITS:
        raise ValueError(three_part(f"{_NAME}['unit']", unit, "'step' or 'epoch'"))
    samples = value.get("num_samples", default.num_samples)
    check_positive_int(f"{_NAME}['num_samples']", samples)
    policy = value.get("policy")
    what = f"{_NAME}['policy']"
    check_type(what, policy, (SavePolicy, type(None)), "a SavePolicy or None")
    if policy is not None and "intervals" in value:
        expected = "one of `policy` and `intervals`, not both"
        raise ValueError(three_part(what, policy, expected))
    replay = value.get("replay", default.replay)
    if replay is not None and replay not in KINDS:
        expected = "'first', 'reservoir' or None"
        raise ValueError(three_part(f"{_NAME}['replay']", replay, expected))
    sparse = value.get("sparse", default.sparse)
    check_type(f"{_NAME}['sparse']", sparse, bool, "a bool")
    create = _check_create(value.get("create_landscape", {}))
    return LandscapeOptions(
        landscape_size=size,
        unit=unit,
        create_landscape_train=create.get("train", True),
        create_landscape_result=create.get("result", True),
        num_samples=samples,
        intervals=_check_intervals(value.get("intervals", default.intervals)) if not policy else (),
        policy=policy,
        replay=replay,
        sparse=sparse,
    )


def _check_create(value: Any) -> Mapping[str, bool]:
    what = f"{_NAME}['create_landscape']"
    check_type(what, value, Mapping, "a dict with bools for 'train' and 'result'")
    for key, wanted in value.items():
        if key not in ("train", "result"):
            raise ValueError(three_part(f"a key of {what}", key, "'train' or 'result'"))
        check_type(f"{what}[{key!r}]", wanted, bool, "a bool")
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
