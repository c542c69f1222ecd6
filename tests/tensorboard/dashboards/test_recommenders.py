from __future__ import annotations

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.recommenders import ReliabilityMapper


def test_the_points_of_a_reliability_curve_have_a_column_each() -> None:
    value = Summary.Value(tag="r")
    value.reliability.predicted.extend([0.25, 0.5])
    value.reliability.observed.extend([0.125, 0.75])
    value.reliability.weights.extend([12447905.5, 0.5])
    [text] = [point for point in ReliabilityMapper()("r", value) if point.tag == "r/points"]
    assert text.value.tensor.string_val[0].decode() == (
        "| predicted | observed | examples |\n| --- | --- | --- |\n"
        "| 0.25 | 0.125 | 12,447,905.5 |\n| 0.5 | 0.75 | 0.5 |"
    )
