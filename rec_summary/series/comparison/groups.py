"""Groups of runs: those of one experiment, with several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Floats, Integers
from rec_summary.errors import ArgumentError, three_part
from rec_summary.series.comparison.curves import Curve, aligned

GROUP: Final = "group"
"""The entry of the lineage by which runs are grouped as they state it."""

_ONLY: Final = "all"  # the name of a group beside which there is no other
_NAMED: Final = 12  # names in a message

Facts = Mapping[str, Any]


class Band(NamedTuple):
    """The curves of a group, at all places of any of them; arrays of shape [n].

    At each place, only members count that have values before and after it, or there.

    Attributes:
        places: Where the values are.
        runs: How many members have a value.
        mean: Their mean.
        std: Their standard deviation, with `runs - 1` as divisor; NaN for a single run.
        least: The least of their values.
        greatest: The greatest.
    """

    places: Integers
    runs: Integers
    mean: Floats
    std: Floats
    least: Floats
    greatest: Floats


def grouped(parameters: Mapping[str, Facts], by: str) -> dict[str, list[str]]:
    """Returns the members of each group, by its name.

    Args:
        parameters: The hyper-parameters and custom data of each run, by its name.
        by: `group`: runs with the same entry `group` form a group, which has its value as a name.
            Else one or more names of hyper-parameters, separated by commas: runs that differ in
            nothing but these form a group; the entry `group` does not count. Its name is what
            distinguishes it from other groups, such as `learning_rate=0.01`. A run without any of
            them is in no group.

    Raises:
        ArgumentError: No run has such a hyper-parameter.
    """
    names = [name.strip() for name in by.split(",")]
    known = dict.fromkeys(name for facts in parameters.values() for name in facts)
    missing = [name for name in names if name not in known]
    if missing:
        keys = ", ".join([*known][:_NAMED]) or "none: there is no lineage"
        expected = f"a hyper-parameter of the runs, or `group` where they have it; they have {keys}"
        raise ArgumentError(three_part("what runs are grouped by", missing[0], expected))
    chosen = {
        run: facts for run, facts in parameters.items() if any(name in facts for name in names)
    }
    if names == [GROUP]:
        stated: dict[str, list[str]] = {}
        for run, facts in chosen.items():
            stated.setdefault(str(facts[GROUP]), []).append(run)
        return stated
    others = {
        run: {name: value for name, value in facts.items() if name not in (*names, GROUP)}
        for run, facts in chosen.items()
    }
    all_names = dict.fromkeys(name for facts in others.values() for name in facts)
    differing = [
        name for name in all_names if len({repr(facts.get(name)) for facts in others.values()}) > 1
    ]
    members: dict[tuple[str, ...], list[str]] = {}
    for run, facts in others.items():
        members.setdefault(tuple(repr(facts.get(name)) for name in differing), []).append(run)
    groups = {
        ", ".join(f"{name}={others[runs[0]].get(name, 'none')}" for name in differing)
        or _ONLY: runs
        for runs in members.values()
    }
    if len(groups) == len(members):
        return groups
    # 1 and "1" read alike, as do "none" and no value.
    return {
        ", ".join(map("{}={}".format, differing, values)): runs for values, runs in members.items()
    }


def band(curves: Sequence[Curve], most: int | None = None) -> Band:
    """Returns the mean of curves and how far they spread.

    The places are those of all members; between two values of a member, its value is interpolated
    linearly. A value that is not finite is left out.

    Args:
        curves: The curves, at least one.
        most: At most so many places; None for all.
    """
    places, values = aligned(curves, most)
    known = np.isfinite(values)
    runs = known.sum(axis=0)
    used = runs > 0
    places, values, known, runs = places[used], values[:, used], known[:, used], runs[used]
    mean = np.where(known, values, 0).sum(axis=0) / runs
    squares = np.square(np.where(known, values - mean, 0)).sum(axis=0)
    std = np.sqrt(squares / np.where(runs > 1, runs - 1, np.nan))
    least = np.where(known, values, np.inf).min(axis=0)
    greatest = np.where(known, values, -np.inf).max(axis=0)
    return Band(places, runs, mean, std, least, greatest)
