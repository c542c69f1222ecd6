from __future__ import annotations

import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.tensorboard.dashboards.scalars import ScalarMapper


@pytest.mark.parametrize(
    ("tag", "in_overview"),
    [
        ("recommender/auc/last_20000", ["overview/auc last_20000"]),
        ("recommender/click/auc/last_20000", ["overview/auc click last_20000"]),
        ("recommender/stars/rmse/last_5", ["overview/rmse stars last_5"]),
        ("recommender/click/auc/lifetime", []),
        ("recommender/click/gauc/last_20000", []),
        ("recommender/click/slice/country/auc/last_20000", []),
        ("recommender/table/auc/last_20000", []),
        ("my/recommender/auc/last_20000", []),
    ],
)
def test_the_overview_has_the_metrics_of_the_latest_examples(
    tag: str, in_overview: list[str]
) -> None:
    mapper = ScalarMapper()
    points = list(mapper(tag, Summary.Value(tag=tag, scalar_value=0.75)))
    assert [point.tag for point in points] == [tag, *in_overview]
    assert [point.value.simple_value for point in points] == [0.75] * len(points)
    assert mapper.shows_more(tag) == bool(in_overview)
