"""What each kind of record becomes in TensorBoard.

A kind is the name of its field in the records' protobuf. A kind that is in no table here is
counted and reported as not exported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rec_summary.tensorboard.dashboards.graphs import dataset_graph_def, graph_def
from rec_summary.tensorboard.dashboards.histograms import HistogramMapper
from rec_summary.tensorboard.dashboards.images import ImageMapper
from rec_summary.tensorboard.dashboards.landscape.mapper import LandscapeMapper
from rec_summary.tensorboard.dashboards.points import ValueMapper
from rec_summary.tensorboard.dashboards.recommenders import (
    MetricTableMapper,
    PrCurveMapper,
    ReliabilityMapper,
    TopIdsMapper,
)
from rec_summary.tensorboard.dashboards.scalars import ScalarMapper
from rec_summary.tensorboard.dashboards.tensors import TensorMapper

VALUES: Final[Mapping[str, Callable[[], ValueMapper]]] = {
    "scalar_value": ScalarMapper,
    "histogram": HistogramMapper,
    "image": ImageMapper,
    "tensor": TensorMapper,
    "loss_landscape": LandscapeMapper,
    "pr_curve": PrCurveMapper,
    "reliability": ReliabilityMapper,
    "top_ids": TopIdsMapper,
    "metric_table": MetricTableMapper,
}
"""The kinds of a summary's values, each with its mapper."""

COMPUTATION_GRAPH: Final = "graph_def"
DATASET_GRAPH: Final = "dataset_graph"
"""The kind of lineage that shows where the data comes from: a graph beside the computation's."""

GRAPHS: Final[Mapping[str, Callable[[Any], Any]]] = {
    COMPUTATION_GRAPH: graph_def,
    DATASET_GRAPH: dataset_graph_def,
}
"""The kinds of records that hold a graph, each with what makes a `GraphDef` of it."""
