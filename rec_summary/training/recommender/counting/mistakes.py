"""What cannot be right in the inputs of the metrics: each mistake in one line, with its remedy.

A metric of wrong inputs looks like any other: an AUC of 0.5, a share, a curve. What is reported
here is what no training does on purpose, after so many examples that it is not chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from rec_summary.arrays import Array, Flags
from rec_summary.metrics.report import LARGEST_BOUND
from rec_summary.metrics.tags import PREFIX
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.inputs import role_of
from rec_summary.training.recommender.task import Task

MOST_REFUSED: Final = 0.01
"""The share of examples from which on it is reported that they cannot be used."""

_FEW: Final = 1000  # examples after which not all predictions are equal by chance
_LEAST_SERVED: Final = 0.5  # share of examples with a served score: some of a log have none
_MANY: Final = 10_000  # examples after which equal labels are not chance
_SORTED: Final = 1_000_000  # after which a stream brought a rare click
_LEAST_WEIGHT: Final = 2.0**-13  # rounded by less than 1 %
_ROWS: Final = 64  # of a matrix of scores, by which it is judged
_LATEST: Final = 1e11  # seconds since 1970: no time of an event, but one in milliseconds
_NEAR: Final = 0.25  # the difference of a mean prediction and a click rate, as a part of the rate
_SIGMOID: Final = (0.5, 0.7311)  # of 0 and 1: the log-odds were probabilities
_REMEDIES: Final = {
    "score outside [0, 1]": "if your predictions are log-odds, set logits=True",
    "probabilities do not add up to 1": "if your predictions are logits, set logits=True",
    "weight not usable": "weights are 0 to 2**20: divide larger ones all by one number",
    "number not usable": (
        "predictions and ratings are finite; if some ratings are NaN, as they are missing, use "
        "tasks={{...: Task(...)}}"
    ),
    "no such candidate": "a label is the number of a column of the predictions, from 0",
    "label outside [0, 1]": (
        "a label is 0 for no click and 1 for a click; if your labels are ratings, set {}='ratings';"
        " if some are missing, use tasks={{...: Task(..., missing=-1)}}: -1 and NaN are left out"
    ),
}


class _Range:
    """The range of numbers so far; of matrices, that of their first rows.

    Attributes:
        count: How many there were.
        low: The least one; infinity before the first.
        high: The largest one.
        total: Their sum; 0 for those of matrices.
        has_fractions: Whether one is between 0 and 1; not known for those of matrices.
    """

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = math.inf, -math.inf
        self.total = 0.0
        self.has_fractions = False

    @property
    def are_only_0_and_1(self) -> bool:
        """Whether there is no other number."""
        return self.low == 0 and self.high == 1 and not self.has_fractions

    def add(self, numbers: Array) -> None:
        """Adds numbers, (n,) or (n, m); NaN has no part in `low` and `high`."""
        if not numbers.size:
            return
        self.count += len(numbers)
        if numbers.ndim == 1:
            self.total += float(numbers.sum(dtype=np.float64))
            fractions = (numbers > 0) & (numbers < 1)
            self.has_fractions = self.has_fractions or bool(fractions.any())
        else:
            numbers = numbers[:_ROWS]  # the scores of all pairs may be millions
        # `min` and `max` of numpy would leave out all numbers beside a NaN.
        self.low = min(self.low, float(np.fmin.reduce(numbers, axis=None)))
        self.high = max(self.high, float(np.fmax.reduce(numbers, axis=None)))


class TaskMistakes:
    """Looks at the examples of a task, and reports what cannot be right."""

    def __init__(self, name: str, task: Task, troubles: Troubles) -> None:
        """Starts without examples.

        Args:
            name: The name of the task; empty if it has none.
            task: The task.
            troubles: Receives the mistakes.
        """
        self._name, self._task, self._troubles = name, task, troubles
        self._examples = self._kept = 0
        self._labels, self._weights = _Range(), _Range()
        self._steps = 0
        self._scores = _Range()  # since the last report, as the steps
        self._compared = self._served = 0  # examples of both, since the last report

    def add_steps(self, steps: int) -> None:
        """Counts steps."""
        self._steps += steps

    def add_kept(self, kept: Flags) -> None:
        """Counts examples, (examples,), of which the task leaves out those that are not kept."""
        self._examples += len(kept)
        self._kept += int(np.count_nonzero(kept))

    def add_served(self, valid: Flags) -> None:
        """Counts examples, (examples,), by whether they have a served score."""
        self._compared += len(valid)
        self._served += int(np.count_nonzero(valid))

    def add(
        self, scores: Array, labels: Array, weights: Array | None, refused: Mapping[str, int]
    ) -> None:
        """Looks at examples of the task.

        Args:
            scores: Probabilities, ratings, or a row of scores for each example.
            labels: The labels, (examples,).
            weights: The weights; None if each is 1.
            refused: The number of refused examples by reason.
        """
        self._scores.add(scores)
        self._labels.add(labels)
        self._check_refused(refused, len(scores))
        if weights is not None:
            self._weights.add(weights)
        if weights is not None and self._task.kind == "clicks":
            small = (weights > 0) & (weights < _LEAST_WEIGHT)
            if np.count_nonzero(small) > MOST_REFUSED * len(weights):
                text = f"many are below {_LEAST_WEIGHT}, and are rounded to multiples of 2**-20; "
                self.report("small weights", text + "multiply them all by one number")

    def end_interval(self) -> None:
        """Reports what cannot be right since the last report, or since the beginning."""
        scores, labels, kind = self._scores, self._labels, self._task.kind
        if scores.count >= _FEW and self._steps > 1:
            if scores.low == scores.high:
                text = f"all {scores.count:,} since the last report are {scores.low:.6g}: the "
                text += "network predicts nothing, or `predictions` is another of its outputs"
                self.report("constant predictions", text)
            elif kind == "clicks" and labels.has_fractions and scores.are_only_0_and_1:
                text = "all predictions are 0 or 1, and labels are between them: exchange them"
                self.report("predictions and labels", text)
            elif self._task.logits and self._are_squeezed():
                text = f"all {scores.count:,} since the last report were between 0 and 1 before"
                text += " the sigmoid: if your predictions are probabilities, set logits=False"
                self.report("log-odds", text)
        # Of a retrieval, the own item may be in the same column each time.
        least = _SORTED if labels.low == 0 else _MANY  # a purchase may be one of 10,000 impressions
        if labels.count >= least and labels.low == labels.high and kind != "retrieval":
            text = f"all {labels.count:,} are {labels.low:.6g}, so that there is nothing to "
            text += "predict: check that `labels` is the right output"
            self.report("constant labels", text)
        if self._weights.count >= _SORTED and self._weights.low == self._weights.high == 0:
            text = f"all {self._weights.count:,} are 0, so that no example counts: check that "
            self.report("zero weights", text + "`weights` is the right output")
        # The first label may come days after its impression.
        if self._examples >= _SORTED and not self._kept:
            text = f"none of {self._examples:,} examples is in the task and has a label: "
            self.report("no examples", text + "check `mask`, `labels` and `missing`")
        if self._compared >= _FEW and self._served < _LEAST_SERVED * self._compared:
            text = f"{self._compared - self._served:,} of {self._compared:,} examples since the "
            text += "last report have none: a served score is a probability, also with "
            text += "logits=True; let a function return those of logged log-odds"
            self.report("served scores", text)
        self._steps, self._scores = 0, _Range()
        self._compared = self._served = 0

    def report(self, what: str, text: str) -> None:
        """Reports a mistake."""
        self._troubles.report(f"recommender metrics: {role_of(self._name, what)}", text)

    def _check_refused(self, refused: Mapping[str, int], examples: int) -> None:
        """Reports examples that no metric of the quality counts, if there are many."""
        count = sum(refused.values())
        if count > MOST_REFUSED * examples:
            reason = max(refused, key=lambda name: refused[name])
            text = f"{count:,} of {examples:,} examples of the last steps are refused: {reason}"
            remedy = _REMEDIES.get(reason, "").format("kind" if self._name else "task")
            self.report("refused examples", f"{text} ({remedy})" if remedy else text)

    def _are_squeezed(self) -> bool:
        """Whether the scores look like the sigmoid of probabilities, where clicks are rare.

        Such probabilities have a wide range, or their mean is near the click rate.
        """
        low, high = _SIGMOID
        scores, labels = self._scores, self._labels
        if not (low <= scores.low and scores.high <= high and labels.total < labels.count / 2):
            return False
        width = high - low
        mean = (scores.total / scores.count - low) / width  # the sigmoid is almost a line there
        rate = labels.total / labels.count
        return scores.high - scores.low > width / 2 or abs(mean - rate) < _NEAR * rate


def auc_mistakes(task: str, scalars: Mapping[str, float], bins: int) -> Iterator[str]:
    """Yields what is wrong with the AUC of a task if its error may be visible.

    Args:
        task: The name of the task; empty if it has none.
        scalars: The numbers of a report by tag.
        bins: As of `Advanced`.
    """
    start = PREFIX + (f"{task}/" if task else "") + "roc_error_bound/"
    bound = max((number for tag, number in scalars.items() if tag.startswith(start)), default=0.0)
    if bound > LARGEST_BOUND:
        yield (
            f"it may be wrong by up to {bound:.2g}, as too many clicks and others share a cell of "
            f"the score: set bins above {bins:,}, or limit weights that are far above the others"
        )


def time_mistakes(times: Array) -> Iterator[str]:
    """Yields what cannot be right in times, which are seconds since 1970 or not known."""
    if times.dtype.kind == "f" and times.dtype.itemsize < 8:
        text = f"{times.dtype} holds seconds since 1970 with an error of up to 64 s; "
        yield text + "make the column float64 or int64"
    if ((times > _LATEST) & (times < math.inf)).any():  # infinite if the label never comes
        yield "they are not seconds since 1970: divide milliseconds by 1,000"
    if (times <= 0).any():
        yield "some are not after 1970: a time that is not known is NaN"
    if np.count_nonzero(np.isnan(times)) > MOST_REFUSED * times.size:
        text = f"more than {MOST_REFUSED:.0%} are NaN, and have no age: "
        yield text + "check the column"
