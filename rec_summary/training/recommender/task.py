"""`Task`: one of several outputs of a network, with the labels that judge it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.checks import check_bool, check_choice, check_part_of_tag, check_that, check_type
from rec_summary.errors import three_part
from rec_summary.metrics.tags import GROUPS, is_group
from rec_summary.training.recommender.columns import Source, check_source

KINDS: Final = ("clicks", "ratings", "classes", "retrieval")
_PLACES: Final = ("predictions", "labels", "weights", "users", "lists", "served", "model_age")
_ONLY: Final = {
    **dict.fromkeys(("users", "served", "model_age"), ("clicks",)),
    "lists": ("clicks", "ratings"),
    "logits": ("clicks", "classes"),
}
"""The kinds of task that an option is for."""
_MISSING: Final = "a number (NaN always stands for a missing label), or None to refuse NaN"
_NO_GROUP: Final = f"none of the groups of metrics ({', '.join(sorted(GROUPS))})"


@dataclass(frozen=True)
class Task:
    """One task of a network with several, for `RecommenderMetrics(tasks={"ctr": Task(...)})`.

    Places are those of `RecommenderMetrics`. An int is a position among the network's outputs for
    predictions, labels, weights and the mask, and a position among the columns of the batch for
    all others. All of them have as many values as there are examples in the batch.

    Attributes:
        predictions: Predicted probabilities of a click, or predicted ratings; of classes, a matrix
            with a probability for each class; of a retrieval, the scores of all items of the batch,
            (examples, items).
        labels: 0 and 1, or ratings; the number of the true class, from 0. Of a retrieval, the
            column of each example's own item; None if it is in the diagonal.
        mask: Which examples the task has: those where this is above 0; all of them if None.
        weights: The weights of examples; all 1 if None.
        users: Integer or string ids, for the AUC within each user.
        lists: Integer or string ids of the session or request that each example is a part of, for
            NDCG and other metrics of its list.
        logits: Whether predictions are log-odds and not probabilities; of classes, whether they are
            what a softmax makes probabilities of.
        missing: The label of an example that has none; NaN stands for it as well. Such an example
            is left out and counted as `missing_labels`. None if no label is missing: NaN is then
            an error, counted as `refused`.
        negative_rate: The share of non-clicks that the training has; see `RecommenderMetrics`.
        kind: ``"clicks"``, ``"ratings"`` (and other numbers), ``"classes"`` or ``"retrieval"``.
        served: The score that each example was served with, for a comparison with the prediction:
            a probability of a click as it was logged, of all traffic, also with `logits` and
            `negative_rate`. NaN or a number outside [0, 1] is no score; such an example is left
            out of the comparison only.
        model_age: How old the served model was when it served the example, in seconds, for slices
            by this age. All tasks that give it give the same place.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    predictions: Source
    labels: Source | None = None
    mask: Source | None = None
    weights: Source | None = None
    users: Source | None = None
    logits: bool = False
    missing: float | None = math.nan
    negative_rate: float = 1.0
    kind: str = "clicks"
    lists: Source | None = None
    served: Source | None = None
    model_age: Source | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        check_source("predictions", self.predictions)
        has_labels = self.labels is not None or self.kind == "retrieval"
        check_that(has_labels, "labels", None, "where they are; None only for a retrieval")
        if self.mask is not None:
            check_source("mask", self.mask)
        check_type("missing", self.missing, (int, float, type(None)), _MISSING)
        check_quality(self, "kind")


def check_quality(options: Any, kind: str) -> None:
    """Checks the options of a `Task` that `RecommenderMetrics` has as well.

    Args:
        options: The one or the other.
        kind: The name of its option that says what the labels are.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """
    for name in _PLACES:
        if getattr(options, name) is not None:
            check_source(name, getattr(options, name))
    if options.labels is not None and options.labels == options.predictions:
        raise ValueError(three_part("labels", options.labels, "another place than predictions"))
    check_bool("logits", options.logits)
    chosen = check_choice(kind, getattr(options, kind), KINDS)
    for name, kinds in _ONLY.items():
        value = getattr(options, name)
        unset = False if name == "logits" else None
        check_that(value is unset or chosen in kinds, name, value, f"{unset} for {kind}={chosen!r}")
    rate, share = options.negative_rate, "a number above 0, at most 1"
    share += "" if chosen == "clicks" else f"; 1 for {kind}={chosen!r}"
    check_type("negative_rate", rate, (int, float), share)
    check_that((0 < rate <= 1 and chosen == "clicks") or rate == 1, "negative_rate", rate, share)


def check_tasks(tasks: Mapping[str, Any]) -> None:
    """Checks tasks by their names.

    Raises:
        TypeError: One is not a `Task`.
        ValueError: A name is invalid.
    """
    for name, task in tasks.items():
        check_part_of_tag("a name of tasks", name)
        check_that(not is_group(name), "a name of tasks", name, _NO_GROUP)
        check_type(f"tasks[{name!r}]", task, Task, "a rec_summary.Task")
