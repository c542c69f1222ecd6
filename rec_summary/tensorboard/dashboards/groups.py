"""The groups of tags that few people look at.

TensorBoard's pages group tags by what is before the first slash, in alphabetical order, and
unfold the first groups. So what is recorded of each table and of each feature has a group of its
own behind the metrics, and the counters of the telemetry come last. The records keep their tags.
The best values of metrics, which HParams shows, are there for this page alone.
"""

from __future__ import annotations

import re
from typing import Final

from rec_summary.metrics.report import OF_TASK

BEST: Final = "recommender_best/"
"""What is before the tag of a metric in that of its best values; no records have them."""

DETAIL: Final = "recommender_detail/"
TELEMETRY: Final = "telemetry/"

_DETAIL: Final = re.compile(
    r"recommender/(?="
    r"table/|feature/|host/|throughput/(?!samples_per_second$)"
    rf"|{OF_TASK}(?:roc_error_bound/|grouped_|examples/|clicks/|refused/|masked/|missing_labels/"
    r"|lists_|xauc_sampled_share/|in_batch_examples/|macro_auc_error_bound/|gauc_by_user/"
    r"|calibration_free_entropy/|recalibrated_entropy/|entropy_of_clicks/"
    r"|slice/[^/]+=|slice/[^/]+/auc_(?:gap_error|error_bound)/"
    r"|drift/(js|psi_by_chance)/|drift/psi/(?!label$|rating$|prediction$)))"
)
_TELEMETRY: Final = re.compile(r"rec_summary/")


def grouped(tag: str) -> str:
    """Returns the tag under which TensorBoard shows what is recorded under `tag`."""
    for pattern, group in ((_DETAIL, DETAIL), (_TELEMETRY, TELEMETRY)):
        found = pattern.match(tag)
        if found:
            return group + tag[found.end() :]
    return tag
