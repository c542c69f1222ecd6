"""`Feature`: a column with what is known of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rec_summary.checks import check_type
from rec_summary.errors import three_part
from rec_summary.training.recommender.sources import Source, check_source


@dataclass(frozen=True)
class Feature:
    """A column for `RecommenderMetrics(features={"age": Feature("age", low=0, high=120)})`.

    Attributes:
        column: The place of the column.
        default: The value that stands for an unknown one, such as 0 or ``"unknown"``: its share is
            recorded.
        low: The least value; the share of smaller ones is recorded as out of range.
        high: The largest value.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    column: Source
    default: float | str | None = None
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        """Checks the options."""
        check_source("column", self.column)
        check_type("default", self.default, (int, float, str, type(None)), "a number, str or None")
        for name in ("low", "high"):
            check_type(name, getattr(self, name), (int, float), "a number")
        if not self.low <= self.high:
            raise ValueError(three_part("low, high", (self.low, self.high), "low at most high"))


def check_features(features: Mapping[str, Any]) -> dict[str, Feature]:
    """Returns features by name; places become a `Feature`.

    Raises:
        TypeError: One is neither a `Feature` nor a place.
        ValueError: A place is invalid.
    """
    found = {}
    for name, each in features.items():
        if not isinstance(each, Feature):
            check_source(f"features[{name!r}]", each)
            each = Feature(each)
        found[name] = each
    return found
