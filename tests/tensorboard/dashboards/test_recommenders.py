from __future__ import annotations

import math
import re

import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.recommenders import ReliabilityMapper


def test_the_points_of_a_reliability_curve_have_a_column_each() -> None:
    value = Summary.Value(tag="r")
    value.reliability.predicted.extend([0.25, 0.5, 0.75])
    value.reliability.observed.extend([0.125, 0.75, 0.5])
    value.reliability.weights.extend([12447905.5, 0.00123456, 1234.567891])
    [text] = [point for point in ReliabilityMapper()("r", value) if point.tag == "r/points"]
    assert text.value.tensor.string_val[0].decode() == (
        "| predicted | observed | examples |\n| --- | --- | --- |\n"
        "| 0.25 | 0.125 | 12,447,905.5 |\n| 0.5 | 0.75 | 0.00123 |\n"
        "| 0.75 | 0.5 | 1,234.57 |"
    )


def test_a_number_that_is_not_finite_is_named_alone() -> None:
    """A curve may have millions of numbers."""
    value = Summary.Value(tag="curve")
    for column in (value.reliability.predicted, value.reliability.observed):
        column.extend([0.25] * 1000)
    value.reliability.weights.extend([1.0] * 500 + [math.nan] + [1.0] * 499)
    with pytest.raises(ValueError, match=re.escape("Received: [nan]. Expected: finite numbers")):
        list(ReliabilityMapper()("curve", value))
