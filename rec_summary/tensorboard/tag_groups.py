"""The groups that TensorBoard shows detailed tags in, away from the main curves.

TensorBoard's pages group tags by what is before the first slash, in alphabetical order, and
unfold the first groups. So what is recorded of each table and of each feature has a group of its
own after the metrics, and the counters of the telemetry come last. The records keep their tags.
The best values of metrics, which HParams shows, are there for this page alone.
"""

from __future__ import annotations

import re
from typing import Final

from rec_summary.metrics.tags import OF_TASK

BEST: Final = "recommender_best/"
"""The group of the best values of metrics; no records have them."""

DETAIL: Final = "recommender_detail/"
TELEMETRY: Final = "telemetry/"

_DETAIL: Final = re.compile(
    r"recommender/(?="
    r"table/|feature/|host/|throughput/(?!samples_per_second$)"
    rf"|{OF_TASK}(?:roc_error_bound/|grouped_|examples/|clicks/|refused/|masked/|missing_labels/"
    r"|lists_|\w+_standard_error/|xauc_sampled_share/|in_batch_examples/|gauc_by_user/"
    r"|calibration_free_entropy/|recalibrated_entropy/|entropy_of_clicks/"
    r"|served_missing/|served_score_difference/"
    r"|slice/[^/]+=|slice/[^/]+/\w+_(?:gap_error|error_bound)/"
    r"|drift/(js|psi_by_chance)/|drift/psi/(?!label$|rating$|prediction$)))"
)
_TELEMETRY: Final = re.compile(r"rec_summary/")


def grouped(tag: str) -> str:
    """Returns the tag under which TensorBoard shows what is recorded under `tag`."""
    for pattern, group in ((_DETAIL, DETAIL), (_TELEMETRY, TELEMETRY)):
        match = pattern.match(tag)
        if match:
            return group + tag[match.end() :]
    return tag
