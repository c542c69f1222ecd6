"""The options that a callback of MindSpore and a loop of your own have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rec_summary.checks import check_that
from rec_summary.metrics.slices.gate import Gate
from rec_summary.training.lineage.custom import CustomValue
from rec_summary.training.recommender.config import RecommenderMetrics, tasks_of
from rec_summary.training.recorder import RecorderOptions

OptionsT = TypeVar("OptionsT", bound="SessionOptions")


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options of a recorder.

    Attributes:
        files: The record files.
        recommender: The metrics of recommenders; None for none.
        latest_good: When the link `checkpoints/latest-good` moves; None for no link.
        custom_lineage: Custom lineage entries.
        metrics: Which values of a metric are better, as said by the user.
        lineage_secs: The time between two refreshes of the train lineage, in seconds.
        lineage_on_all_ranks: Whether every rank writes lineage, and not only rank 0.
        control: Whether requests from outside are applied.
        collect_freq: Values are recorded at the first step and at each multiple of this.
    """

    files: RecorderOptions
    recommender: RecommenderMetrics | None = None
    latest_good: Gate | None = None
    custom_lineage: Mapping[str, CustomValue] = field(default_factory=dict, repr=False)
    metrics: Mapping[str, str] = field(default_factory=dict)
    lineage_secs: float = 30.0
    lineage_on_all_ranks: bool = False
    control: bool = True
    collect_freq: int = 1

    def __post_init__(self) -> None:
        """Checks that a gate has something to judge.

        Raises:
            ValueError: No task that it judges has served scores.
        """
        if self.latest_good is None:
            return
        tasks = {} if self.recommender is None else tasks_of(self.recommender)
        served = [name for name, task in tasks.items() if task.served is not None]
        check_that(served, "latest_good", self.latest_good, "None without a Task(served=...)")
        task, expected = self.latest_good.task, f"None, or one of {', '.join(map(repr, served))}"
        check_that(task is None or task in served, "the task of latest_good", task, expected)

    def changed(self: OptionsT, settings: Mapping[str, Any]) -> OptionsT:
        """Returns the options with new values of some. They are never changed, but replaced.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: A value is invalid, or there is no such option that can be changed.
        """
        check_that(not settings, "settings", [*settings], "none: the loop chooses what it records")
        return self

    def shown(self) -> dict[str, str]:
        """Returns the options that can be changed from outside, as text."""
        return {"recorded": "what the loop adds"}
