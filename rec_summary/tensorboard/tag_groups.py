"""The groups that TensorBoard shows detailed tags in, away from the main curves.

TensorBoard's pages group tags by what is before the first slash, in alphabetical order, and
unfold the first groups. So what is recorded of each table and of each feature has a group of its
own after the metrics, and the counters of the telemetry come last. The records keep their tags.
The best values of metrics, which HParams shows, are there for this page alone.

On a narrow card TensorBoard shows only what is after the last slash of a tag: of
`recommender/click/auc/last_20000` the window, but neither the metric nor the task. So the most
important metrics are shown a second time, in the group `overview`, with one slash in their tag.
"""

from __future__ import annotations

import re
from typing import Final

from rec_summary.metrics.tags import OF_TASK

BEST: Final = "recommender_best/"
"""The group of the best values of metrics; no records have them."""

DETAIL: Final = "recommender_detail/"
OVERVIEW: Final = "overview/"
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
_HEADLINE: Final = re.compile(
    rf"recommender/(?P<task>{OF_TASK})(?P<metric>auc|calibration|rmse)/(?P<window>last_[^/]+)"
)


def grouped(tag: str) -> str:
    """Returns the tag under which TensorBoard shows what is recorded under `tag`."""
    for pattern, group in ((_DETAIL, DETAIL), (_TELEMETRY, TELEMETRY)):
        match = pattern.match(tag)
        if match:
            return group + tag[match.end() :]
    return tag


def overview(tag: str) -> str | None:
    """Returns the tag of a metric in the overview; None for what is not shown there."""
    match = _HEADLINE.fullmatch(tag)
    if match is None:
        return None
    names = (match["metric"], match["task"].rstrip("/"), match["window"])
    return OVERVIEW + " ".join(filter(None, names))
