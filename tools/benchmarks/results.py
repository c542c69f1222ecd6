"""Results of benchmarks: rows beside their targets, kept in one JSON file."""

from __future__ import annotations

import dataclasses
import datetime
import json
import operator
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

_COMPARE: Final = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Target:
    """What is wanted of a row.

    Attributes:
        of: Of the median ratio, of our median, or of the worst that we had.
        sign: How it compares.
        bound: To what.
    """

    of: Literal["ratio", "ours", "worst"]
    sign: Literal[">=", "<=", "<"]
    bound: float


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        what: What was measured.
        unit: Of `ours` and `peer`.
        ours: What we had, for each round.
        peer: What the peer had, for each round; empty if there is none.
        peer_name: The peer.
        ratio: For each round; see `ratio_is`.
        ratio_is: What a ratio means: `speed` (ours over the peer's; larger is better) or
            `cost` (ours over the peer's; smaller is better).
        target: What is wanted, if anything.
    """

    what: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    peer_name: str = ""
    ratio: Sequence[float] = ()
    ratio_is: Literal["", "speed", "cost"] = ""
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if there is none, or nothing to judge by."""
        judged = self._judged()
        if self.target is None or not judged:
            return None
        number = max(judged) if self.target.of == "worst" else statistics.median(judged)
        return bool(_COMPARE[self.target.sign](number, self.target.bound))

    @property
    def rounds_met(self) -> tuple[int, int]:
        """In how many rounds the target was met, of how many."""
        judged = self._judged()
        if self.target is None:
            return 0, 0
        compare, bound = _COMPARE[self.target.sign], self.target.bound
        return sum(bool(compare(number, bound)) for number in judged), len(judged)

    def _judged(self) -> Sequence[float]:
        return self.ratio if self.target is not None and self.target.of == "ratio" else self.ours


def speed(
    what: str,
    ours: Sequence[float],
    peer: Sequence[float],
    peer_name: str,
    at_least: float | None = None,
) -> Row:
    """Returns the row of two durations in seconds: how many times as fast we are."""
    ratio = [theirs / own for own, theirs in zip(ours, peer, strict=True)]
    target = None if at_least is None else Target("ratio", ">=", at_least)
    return Row(what, "s", ours, peer, peer_name, ratio, "speed", target)


def cost(
    what: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    peer_name: str,
    at_most: float | None = None,
) -> Row:
    """Returns the row of two costs: our cost as a part of the peer's.

    Where the peer's cost is a difference that came out as nothing or less, which is noise,
    the round has no ratio.
    """
    ratio = [own / theirs for own, theirs in zip(ours, peer, strict=True) if theirs > 0]
    target = None if at_most is None else Target("ratio", "<=", at_most)
    return Row(what, unit, ours, peer, peer_name, ratio, "cost", target)


def rows_from(entries: Sequence[dict[str, Any]]) -> list[Row]:
    """Returns the rows that were stored."""
    return [
        Row(
            **{
                **{key: value for key, value in entry.items() if key != "met"},
                "target": Target(**entry["target"]) if entry["target"] else None,
            }
        )
        for entry in entries
    ]


def merge(path: Path, name: str, setting: str, rows: Sequence[Row], machine: Any) -> dict[str, Any]:
    """Puts the results of a benchmark into the JSON file, and leaves the others as they are.

    Args:
        path: The file; made if need be.
        name: The benchmark.
        setting: What was measured how, in a sentence.
        rows: What came out.
        machine: Where: a dictionary.

    Returns:
        All that the file holds.
    """
    stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    stored[name] = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine,
        "setting": setting,
        "rows": [_entry(row) for row in rows],
    }
    beside = path.with_suffix(".json.new")
    beside.write_text(json.dumps(stored, indent=1) + "\n")
    os.replace(beside, path)
    return stored


def _entry(row: Row) -> dict[str, Any]:
    entry = dataclasses.asdict(row)
    for key in ("ours", "peer", "ratio"):
        entry[key] = [float(f"{number:.5g}") for number in entry[key]]
    entry["met"] = row.met
    return entry
