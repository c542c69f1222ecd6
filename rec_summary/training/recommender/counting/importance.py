"""What passes say of features: by how much worse the quality of a batch is with one permuted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rec_summary.arrays import Array
from rec_summary.metrics import tags
from rec_summary.metrics.lists.choices import ChoiceQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.importance import FeatureImportance
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.training.recommender import inputs
from rec_summary.training.recommender.counting.task_metrics import is_missing, odds_of, softmax
from rec_summary.training.recommender.importance import Visit
from rec_summary.training.recommender.inputs import Roles, role_of
from rec_summary.training.recommender.task import Task

_CELLS: Final = 1 << 17  # a batch has fewer scores, so that its AUC is exact


class ImportanceMeter:
    """The importance of features for one task.

    Attributes:
        states: Its state, by its group.
    """

    def __init__(self, name: str, task: Task, roles: Roles) -> None:
        """Starts empty.

        Args:
            name: The name of the task; empty if it has none.
            task: The task; none of a retrieval.
            roles: The places of the inputs.
        """
        self._name = name
        self._task = task
        self._roles = roles
        self.states: dict[str, Any] = {tags.IMPORTANCE: FeatureImportance()}

    def add(self, visits: Iterable[Visit | None]) -> None:
        """Counts passes."""
        for visit in visits:
            if visit is None:
                continue
            base = self._quality(visit.base, visit.base)
            for feature, arrays in visit.permuted.items():
                area, loss, weight = self._quality(arrays, visit.base)
                lost = base[0] - area, loss - base[1]
                self.states[tags.IMPORTANCE].add(feature, visit.time, *lost, weight)

    def end_interval(self) -> FeatureImportance:
        """Returns the state of a report, and begins an interval."""
        ended: FeatureImportance = self.states[tags.IMPORTANCE].end_interval()
        return ended

    def _quality(
        self, predicted: Mapping[Any, Array], base: Mapping[Any, Array]
    ) -> tuple[float, float, float]:
        """Returns the AUC, the mean loss and the weight of a batch; NaN where it is not known.

        Args:
            predicted: The predictions, by place.
            base: The labels, weights and masks.
        """
        task = self._task
        scores = self._column(inputs.PREDICTIONS, predicted)
        labels, weights, mask = (
            self._column(role, base) for role in (inputs.LABELS, inputs.WEIGHTS, inputs.MASK)
        )
        assert scores is not None
        assert labels is not None
        labels = labels.reshape(-1)
        kept = ~is_missing(task, labels)
        if mask is not None:
            kept &= mask.reshape(-1) > 0
        labels = labels[kept]
        weights = None if weights is None else weights.reshape(-1)[kept]
        if task.kind == "classes":
            choices = ChoiceQuality()
            shares = softmax(scores[kept]) if task.logits else scores[kept]
            choices.update(shares, labels, weights)
            return math.nan, choices.log_loss(), choices.weight
        scores = scores.reshape(-1)[kept]
        if task.kind == "ratings":
            errors = RatingErrors()
            errors.update(scores, labels, weights)
            return math.nan, errors.rmse() ** 2, errors.weight
        return self._of_clicks(scores, labels, weights)

    def _of_clicks(
        self, scores: Array, labels: Array, weights: Array | None
    ) -> tuple[float, float, float]:
        probabilities, odds = odds_of(scores) if self._task.logits else (scores, None)
        clicks = clean(probabilities, labels, weights, odds)
        order, loss = ScoreOrder(_CELLS), LogLoss()
        order.count(order.prepare(clicks))
        loss.count(clicks)
        # The spread of an AUC is that of the rarer label.
        weight = min(loss.clicks, loss.weight - loss.clicks)
        return order.auc().value, loss.log_loss(), weight

    def _column(self, role: str, arrays: Mapping[Any, Array]) -> Array | None:
        return self._roles.column(role_of(self._name, role), dict(arrays))
