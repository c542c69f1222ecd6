"""Whether a model is better than the one that serves, from sums over examples that both scored.

The normalised entropies of both have the same entropy of the click rate, so their relative
difference is that of the log losses. Its standard error is of the differences of single examples,
which are far smaller than the losses, and which are treated as independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Flags, Floats
from rec_summary.checks import check_bool, check_int, check_that, check_type
from rec_summary.metrics.slices.report import quoted
from rec_summary.metrics.slices.sums import (
    CLICK_SQUARES,
    CLICKS,
    EXAMPLES,
    SERVED_EXAMPLES,
    WEIGHT,
    WEIGHT_SQUARES,
    served_calibrations_of,
    served_change_of,
)

BETTER: Final = "better"
NOT_WORSE: Final = "not worse"
WORSE: Final = "worse"
UNKNOWN: Final = "unknown"

LEVEL: Final = 0.025
"""The chance that a model that is as good as the served one is found worse, or better."""

_POWER: Final = 0.8  # the chance that a loss of `Gate.detectable` is found
_Z: Final = NormalDist().inv_cdf(1 - LEVEL)
_Z_POWER: Final = _Z + NormalDist().inv_cdf(_POWER)
_ROUNDING: Final = 1e-5  # of the loss: logs round scores, and records round sums
_LEAST_CLICKS: Final = 50.0  # and non-clicks, of equal weight, of a slice: for the normal law
_MOST_SLICES: Final = 10  # of a verdict
_ORDER: Final = (False, None, True)
_SHARE: Final = "a finite share of at least 0, such as 0.001"


@dataclass(frozen=True)
class Gate:
    """When a model may take the place of the one that serves.

    The gate holds unless the normalised entropy (NE) is worse beyond chance, at 2.5 %. If a loss of
    `detectable` would not have been seen in four of five cases, it cannot be judged.

    Attributes:
        min_gain: How much better the NE must be beyond chance, as a share of that of the served
            model: 0.001 is 0.1 %. 0 asks for no gain.
        no_slice_worse: Whether no slice may be worse beyond chance of all slices that are compared.
        task: The task that is judged; None for all that have served scores: the worst one decides.
        least_examples: The examples with a served score below which nothing is judged.
        detectable: The loss that the examples must suffice to see, as a share, above 0.
        window: The number of the last examples by which `latest_good` judges while training goes
            on.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    min_gain: float = 0.0
    no_slice_worse: bool = False
    task: str | None = None
    least_examples: int = 10_000
    detectable: float = 0.005
    window: int = 1_000_000

    def __post_init__(self) -> None:
        """Checks the options."""
        for name in ("min_gain", "detectable"):
            value = check_type(name, getattr(self, name), (int, float), _SHARE)
            check_that(0 <= value < math.inf, name, value, _SHARE)
        check_that(self.detectable > 0, "detectable", self.detectable, "a share above 0")
        check_bool("no_slice_worse", self.no_slice_worse)
        check_type("task", self.task, (str, type(None)), "the name of a task, or None")
        check_int("least_examples", self.least_examples)
        least = f"an int of at least least_examples, which is {self.least_examples:,}"
        check_int("window", self.window)
        check_that(self.window >= self.least_examples, "window", self.window, least)


class Part(NamedTuple):
    """The sums of a task and a column over what is judged.

    Attributes:
        task: The name of the task; empty for the unnamed one.
        column: The column of slices; empty for the task as a whole, which has the value "".
        values: The values.
        sums: The sums, (values, len(FIELDS)).
    """

    task: str
    column: str
    values: Sequence[str]
    sums: Floats


@dataclass(frozen=True)
class Compared:
    """A task or a slice under both models.

    Attributes:
        task: The name of the task; empty for the unnamed one.
        name: The slice, such as ``country=TR``; empty for the task as a whole.
        examples: How many examples have a served score.
        ne_change: The NE minus that of the served model, as a share of it: below 0 is better.
        ne_change_error: The standard error of this; NaN for fewer than two examples.
        compared_calibration: Predicted clicks divided by clicks; None without clicks.
        served_calibration: That of the served model.
    """

    task: str
    name: str
    examples: float
    ne_change: float
    ne_change_error: float
    compared_calibration: float | None
    served_calibration: float | None

    @property
    def title(self) -> str:
        """The name as a part of a sentence, in which no value looks like another part."""
        return quoted(self.name).replace(";", "%3B")

    def as_json(self) -> dict[str, Any]:
        """Returns what the command prints with `--json`; a number that is not known is None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
        }

    def __str__(self) -> str:
        change, error = 100 * self.ne_change, 100 * self.ne_change_error
        if not error > 0:  # NaN is not, either
            return "unknown"
        digits = max(-math.floor(math.log10(error)), 0)  # the first one of the error
        return f"{change:+.{digits}f} % ± {error:.{digits}f}".replace("-", "−")


@dataclass(frozen=True)
class Judged:
    """What is said of a task.

    Attributes:
        whole: The comparison of all its examples.
        outcome: `better`, `not worse` or `worse`, each beyond chance, or `unknown`.
        holds: Whether the gate holds; None if that cannot be judged.
        reasons: Why it does not hold, or cannot be judged.
        more_examples: About how many more examples a verdict needs; None if there is one.
    """

    whole: Compared
    outcome: str
    holds: bool | None
    reasons: tuple[str, ...] = ()
    more_examples: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a model may take the place of the one that serves.

    Attributes:
        tasks: What is said of each task; the first one decides. Empty without served scores.
        slices: The slices that are worst in standard errors, of all tasks, the worst one first.
        compared_slices: How many slices have enough examples.
        worse_slices: How many of them are worse beyond chance of all that are compared.
    """

    tasks: tuple[Judged, ...]
    slices: tuple[Compared, ...]
    compared_slices: int
    worse_slices: int

    @property
    def outcome(self) -> str:
        """That of the task that decides."""
        return self.tasks[0].outcome if self.tasks else UNKNOWN

    @property
    def holds(self) -> bool | None:
        """Whether the gate holds; None if that cannot be judged."""
        return self.tasks[0].holds if self.tasks else None

    def as_json(self) -> dict[str, Any]:
        """Returns what the command prints with `--json`."""
        tasks = [
            {
                **{name: value for name, value in each.whole.as_json().items() if name != "name"},
                **{name: value for name, value in vars(each).items() if name != "whole"},
            }
            for each in self.tasks
        ]
        return {
            "holds": self.holds,
            "outcome": self.outcome,
            "tasks": tasks,
            "slices": [each.as_json() for each in self.slices],
            "compared_slices": self.compared_slices,
            "worse_slices": self.worse_slices,
        }


def judge(gate: Gate, parts: Iterable[Part]) -> Verdict:
    """Returns whether a gate holds. How the examples were cut into parts of a stream is the same.

    Args:
        gate: The gate.
        parts: The sums of tasks and columns, each of them once.
    """
    wholes, slices = list[Compared](), list[Compared]()
    for part in parts:
        if gate.task in (None, part.task):
            (slices if part.column else wholes).extend(_compared(part))
    named = {each.task for each in wholes}
    slices = sorted((each for each in slices if each.task in named), key=_z, reverse=True)
    bound = NormalDist().inv_cdf(1 - LEVEL / max(len(slices), 1))
    worse = [each for each in slices if _z(each) > bound]
    tasks = [_judged(gate, whole, worse, len(slices)) for whole in wholes]
    tasks.sort(key=lambda each: (_ORDER.index(each.holds), -_z(each.whole)))
    return Verdict(tuple(tasks), tuple(slices[:_MOST_SLICES]), len(slices), len(worse))


def _judged(gate: Gate, whole: Compared, worse: Sequence[Compared], compared: int) -> Judged:
    change, width = whole.ne_change, _Z * whole.ne_change_error
    needed = whole.examples * (_Z_POWER * whole.ne_change_error / gate.detectable) ** 2
    more = max(gate.least_examples, needed) - whole.examples
    rounded = round(more, 1 - len(str(int(more)))) if more > 0 else 0
    needs = f"about {rounded:,.0f} more examples are needed"
    if whole.examples < gate.least_examples or math.isnan(width):
        return Judged(whole, UNKNOWN, None, (f"too few examples: {needs}",), int(rounded) or None)
    reasons = [
        f"{each.title} is worse beyond chance ({each}; {compared:,} slices were compared)"
        for each in worse
        if gate.no_slice_worse and each.task == whole.task
    ]
    if change - width > 0:
        return Judged(whole, WORSE, False, ("worse beyond chance", *reasons))
    is_better = change + width < 0
    outcome = BETTER if is_better else NOT_WORSE if more <= 0 else UNKNOWN
    if reasons:
        return Judged(whole, outcome, False, tuple(reasons))
    end = change - width if outcome == UNKNOWN else change + width
    if gate.min_gain and end > -gate.min_gain:
        no_gain = f"no gain of {100 * gate.min_gain:g} % beyond chance"
        return Judged(whole, outcome, False, (no_gain,))
    if outcome == UNKNOWN:
        unseen = f"a loss of {100 * gate.detectable:g} % might not have been seen: {needs}"
        return Judged(whole, UNKNOWN, None, (unseen,), int(rounded))
    return Judged(whole, outcome, True)


def _compared(part: Part) -> list[Compared]:
    """Returns the comparisons of values with enough examples; of a whole task, with any."""
    sums = part.sums.T
    change, error = served_change_of(sums)
    served, compared = served_calibrations_of(sums)
    numbers = (sums[SERVED_EXAMPLES], change, np.hypot(error, _ROUNDING), compared, served)
    is_enough = np.isfinite(error) & _has_clicks(sums) if part.column else sums[SERVED_EXAMPLES] > 0
    return [
        Compared(
            part.task,
            f"{part.column}={value}" if part.column else "",
            *row[:3],
            *(each if math.isfinite(each) else None for each in row[3:]),
        )
        for value, row, enough in zip(
            part.values, np.stack(numbers, axis=1).tolist(), is_enough.tolist(), strict=True
        )
        if enough
    ]


def _has_clicks(sums: Floats) -> Flags:
    """Returns which values have enough clicks and non-clicks with a served score, (values,)."""
    clicks, squares = sums[CLICKS], sums[CLICK_SQUARES]
    others = sums[WEIGHT] - clicks, sums[WEIGHT_SQUARES] - squares
    with np.errstate(all="ignore"):
        share = sums[SERVED_EXAMPLES] / sums[EXAMPLES]
        # Examples of equal weight (Kish 1965).
        counts = [share * total**2 / square for total, square in ((clicks, squares), others)]
    is_enough: Flags = np.minimum(*counts) >= _LEAST_CLICKS
    return is_enough


def _z(compared: Compared) -> float:
    return compared.ne_change / compared.ne_change_error
