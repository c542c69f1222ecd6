"""Histograms to the Histograms and Distributions dashboards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from tensorboard.compat.proto import summary_pb2 as tensorboard_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import three_part, verbatim
from rec_summary.series.blocks.histograms import bucket_sums
from rec_summary.series.limits import MOST_BUCKETS
from rec_summary.tensorboard.dashboards.points import HISTOGRAMS, Point, ValueMapper
from rec_summary.tensorboard.dashboards.scalars import scalar

_NON_FINITE: Final = ("nan_count", "pos_inf_count", "neg_inf_count")


class HistogramMapper(ValueMapper):
    """Maps a histogram to one of TensorBoard's, and the counts that it cannot show to scalars.

    TensorBoard's histograms have no place for values that are not finite. Their numbers
    become the scalars `<tag>/nan_count`, `<tag>/pos_inf_count` and `<tag>/neg_inf_count`:
    from the first step at which they are not zero, so that a healthy run has none.

    Attributes:
        memory: The series of counts that have begun.
    """

    plugin = HISTOGRAMS

    def __call__(self, tag: str, value: Summary.Value) -> Iterator[Point]:
        """Yields the points for a value that holds a histogram.

        Raises:
            ValueError: It has more buckets than any page can show.
        """
        histogram = value.histogram
        if len(histogram.buckets) > MOST_BUCKETS:
            received = verbatim(f"{len(histogram.buckets):,}")
            expected = f"at most {MOST_BUCKETS:,}"
            raise ValueError(three_part("the number of buckets", received, expected))
        histo = to_histogram_proto(histogram)
        yield Point(tag, HISTOGRAMS, tensorboard_pb2.Summary.Value(histo=histo))
        for name in _NON_FINITE:
            count = getattr(histogram, name)
            series = f"{tag}/{name}"
            if count or series in self.memory:
                self.memory.add(series)
                yield scalar(series, count)

    def shows_more(self, tag: str) -> bool:
        """Whether something besides the histogram itself is shown of a series."""
        return bool(self.memory) and any(f"{tag}/{name}" in self.memory for name in _NON_FINITE)


def to_histogram_proto(histogram: Summary.Histogram) -> Any:
    """Returns TensorBoard's `HistogramProto` of a histogram.

    TensorBoard knows a bucket by its right edge. For the left edge of the first bucket and
    the right edge of the last one both loaders put min and max instead, and one of them
    cuts off empty buckets first; so they are cut off here, for both to show the same. Where
    all values are equal, that leaves one bucket without width, as TensorBoard's own
    summaries of such data have. A histogram without finite values gets no buckets.

    `sum_squares` is an estimate from the middles of the buckets; no dashboard shows it.
    Source: `tensorboard/data_compat.py` and `tensorboard/data/server/data_compat.rs`.
    """
    buckets = _without_empty_ends(histogram)
    if not buckets:
        return tensorboard_pb2.HistogramProto()
    left = np.array([bucket.left for bucket in buckets], np.float64)
    width = np.array([bucket.width for bucket in buckets], np.float64)
    counts = np.array([max(bucket.count, 0) for bucket in buckets], np.float64)
    right = left + width
    with np.errstate(all="ignore"):
        sums = bucket_sums(left[None], width[None], counts[None])
    return tensorboard_pb2.HistogramProto(
        min=histogram.min if _states(histogram, "min") else left[0],
        max=histogram.max if _states(histogram, "max") else right[-1],
        num=sums.num[0],
        sum=histogram.sum if _states(histogram, "sum") else sums.weighted[0],
        sum_squares=sums.squares[0],
        bucket_limit=[*left[1:].tolist(), right[-1]],
        bucket=counts.tolist(),
    )


def _without_empty_ends(histogram: Summary.Histogram) -> list[Any]:
    buckets = list(histogram.buckets)
    if not all(math.isfinite(bucket.left + bucket.width) for bucket in buckets):
        return []  # no dashboard can place them
    filled = [index for index, bucket in enumerate(buckets) if bucket.count > 0]
    return buckets[filled[0] : filled[-1] + 1] if filled else []


def _states(histogram: Summary.Histogram, field: Any) -> bool:
    return histogram.HasField(field) and math.isfinite(getattr(histogram, field))
