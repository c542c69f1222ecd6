"""Records of a stream with slices, written without a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rec_summary import RecommenderMetrics, SummaryRecord
from rec_summary._pb import summary_pb2
from rec_summary.series.runs.slices import SliceHistory
from rec_summary.values.slice_sums import SlicedSums, encode_sums
from tests.support.record_dirs import event, scalar, write_segment


def write_histories(
    directory: Path,
    histories: Sequence[SliceHistory],
    scalars: Mapping[str, np.ndarray] | None = None,
    *others: object,
) -> None:
    """Writes histories of the same reports, values of scalars at the same steps, and lineage."""
    events = []
    for report, step in enumerate(histories[0].steps.tolist()):
        columns = [
            SlicedSums(each.task, each.column, False, each.values, each.sums[report], None, None)
            for each in histories
        ]
        values = [scalar(tag, float(numbers[report])) for tag, numbers in (scalars or {}).items()]
        for encoded in encode_sums(step, columns, {}):
            values.append(summary_pb2.Summary.Value.FromString(encoded))
        events.append(event(step, *values))
    write_segment(directory, *others, *events)


def record_clicks(
    directory: Path,
    scores: Sequence[float],
    labels: Sequence[int],
    countries: Sequence[str],
    steps: int = 1,
) -> None:
    """Records sums by country, of the same examples at each step."""
    slices = {"country": "c"}
    options = RecommenderMetrics(predictions="p", labels="y", slices=slices, report_steps=1)
    with SummaryRecord(directory, recommender=options) as record:
        for step in range(1, steps + 1):
            record.observe(p=np.array(scores), y=np.array(labels), c=np.array(countries))
            record.record(step)
