"""Whether a cursor can be what an export has written: anybody may have put it there.

What passes is of the right form, names nothing outside of its run, and can be gone on with.
Whether it is true is another question: `resume` compares it with the records and event files.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from rec_summary._pb.lineage_pb2 import TrainLineage

Check = Callable[[Any], bool]


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _plain(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)


def _train(value: Any) -> bool:
    try:
        TrainLineage.FromString(base64.b64decode(value, validate=True))
    except (ValueError, TypeError, DecodeError):
        return False
    return True


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _some(check: Check) -> Check:
    """A list that is not empty."""
    return lambda value: bool(value) and _each(check)(value)


def _row(*checks: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(each) for check, each in zip(checks, value, strict=True))
    )


def _mapping(name: Check, value: Check) -> Check:
    return lambda found: (
        isinstance(found, dict) and all(name(key) and value(each) for key, each in found.items())
    )


def _fields(**checks: Check) -> Check:
    return lambda value: (
        isinstance(value, dict)
        and checks.keys() <= value.keys()
        and all(check(value[name]) for name, check in checks.items())
    )


def _rank_name(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) < 10


_STEP: Final = _integer(-(1 << 63), (1 << 63) - 1)
_COUNT: Final = _integer(0, (1 << 63) - 1)
_SUM: Final = _integer(0, (1 << 32) - 1)  # a CRC-32
_RANK: Final = _integer(0, 10**9)

_OUTPUT: Final = _fields(
    stamp=_integer(0, 10**19 - 1),
    size=_COUNT,
    last=_COUNT,
    steps=_fields(
        step=_or_none(_STEP),
        passed=_each(_row(_text, _text, _SUM)),
        last=_each(_row(_text, _text, _STEP)),
    ),
    tags=_each(_row(_text, _text, _text, _text)),
    memories=_mapping(_text, _each(_text)),
    graphs=_mapping(_text, _each(_SUM)),
    layout=_SUM,
    restarts=_COUNT,
)
_LINEAGE: Final = _fields(
    train_time=_number,
    last_time=_number,
    custom=_mapping(_text, _plain),
    evaluations=_COUNT,
    valid_dataset=_or_none(_row(_text, _STEP)),
    metrics=_mapping(_text, _row(_STEP, _text)),
    train=_or_none(_train),
)
_MERGING: Final = _fields(
    places=_mapping(_rank_name, _some(_row(_COUNT, _STEP, _text, _COUNT, _truth))),
    rank_size=_COUNT,
    done=_row(_COUNT, _STEP),
)
_STATE: Final = _fields(
    options=_text,
    targets=_mapping(_text, _text),
    files=_mapping(_text, _row(_COUNT, _truth)),
    outputs=_mapping(_text, _OUTPUT),
    writers=_fields(writers=_each(_row(_RANK, _COUNT, _number)), homes=_mapping(_text, _COUNT)),
    description=_fields(
        lineages=_mapping(_rank_name, _LINEAGE),
        texts=_mapping(_rank_name, _row(_SUM, _COUNT, _SUM)),
        text_rank=_or_none(_RANK),
        session_rank=_or_none(_RANK),
        started=_or_none(_text),
        ended=_or_none(_COUNT),
        running=_truth,
    ),
    merging=_MERGING,
    began=_or_none(_number),
    reached=_STEP,
    furthest=_STEP,
    evaluating_rank=_or_none(_RANK),
)


def is_sound(state: Mapping[str, Any], run: str) -> bool:
    """Whether a cursor is of the right form, and speaks of a run and its sub-runs only."""
    return _STATE(state) and _fits_together(state) and _stays_inside(state, run)


def _fits_together(state: Mapping[str, Any]) -> bool:
    writers, description = state["writers"], state["description"]
    rank = description["session_rank"]
    return (
        all(index < len(writers["writers"]) for index in writers["homes"].values())
        and (rank is None or str(rank) in description["lineages"])
        and all(output["last"] <= output["size"] for output in state["outputs"].values())
        and "several" in state["targets"]
    )


def _stays_inside(state: Mapping[str, Any], run: str) -> bool:
    targets = (name for key, name in state["targets"].items() if key != "several")
    return all(_is_below(name, run) for name in (*state["outputs"], *targets))


def _is_below(name: str, run: str) -> bool:
    """Whether a name is that of a run or of a sub-run."""
    rest = name.removeprefix(f"{run}/").split("/")
    return name == run or (name.startswith(f"{run}/") and not {"", ".", ".."}.intersection(rest))
