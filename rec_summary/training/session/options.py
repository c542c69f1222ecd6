"""The options that a callback of MindSpore and a loop of your own have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rec_summary.checks import check_that
from rec_summary.training.lineage.custom import CustomValue
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recorder import RecorderOptions

OptionsT = TypeVar("OptionsT", bound="SessionOptions")


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options of a recorder.

    Attributes:
        files: The record files.
        recommender: The metrics of recommenders; None for none.
        custom_lineage: Custom lineage entries.
        metrics: Which values of a metric are better, as said by the user.
        lineage_secs: The time between two refreshes of the train lineage, in seconds.
        lineage_on_all_ranks: Whether every rank writes lineage, and not only rank 0.
        control: Whether requests from outside are applied.
        collect_freq: Values are recorded at the first step and at each multiple of this.
    """

    files: RecorderOptions
    recommender: RecommenderMetrics | None = None
    custom_lineage: Mapping[str, CustomValue] = field(default_factory=dict, repr=False)
    metrics: Mapping[str, str] = field(default_factory=dict)
    lineage_secs: float = 30.0
    lineage_on_all_ranks: bool = False
    control: bool = True
    collect_freq: int = 1

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
