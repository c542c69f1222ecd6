"""What TensorBoard shows first: a page, pinned cards of Time Series, and the metrics of HParams."""

from __future__ import annotations

import collections
import functools
import itertools
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Final

from rec_summary.metrics.directions import NAMED, tags_of
from rec_summary.metrics.tags import OF_TASK, PREFIX
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR
from rec_summary.series.event_reader import read_batches
from rec_summary.series.overview.rows import METRICS, judging_columns
from rec_summary.series.ranks.summary import LOSSES
from rec_summary.series.report import Report
from rec_summary.tensorboard.tag_groups import DETAIL

_EVALUATION: Final = (r"eval/.*auc", r"eval/")
_TASKS: Final = 3  # of which metrics are pinned
_METRICS: Final = (
    rf"{PREFIX}{OF_TASK}g?auc/",
    r"(eval/)?(.*/)?[^/]*(auc|AUC)[^/]*$",
    r"(eval/)?(.*/)?[^/]*[lL]oss[^/]*(/auto)?$",
    r"eval/",
    NAMED,
)
LOSS_RANK: Final = 2
"""The place of losses among the metrics of HParams (see `metric_rank`)."""

OWN_RANK: Final = len(_METRICS)
"""The place of metrics whose name says nothing."""

TIME_SERIES: Final = "timeseries"
RECOMMENDER: Final = "rec_summary"
"""The page of this package, in an address: the name of its plugin."""

_NO_METRIC: Final = r"(telemetry|rec_summary|recommender_detail)/"
_KEPT_TAGS: Final = 1 << 14  # runs of a tree mostly have the same tags
_PEEKED_RUNS: Final = 20
_PEEKED_BYTES: Final = 1 << 24


def pinned_tags(tags: Iterable[str]) -> list[str]:
    """Returns the tags to show first: of the loss, the AUC, the calibration and an evaluation.

    AUC and calibration, or what judges another kind of task, are of the first tasks, if they have
    names, and of the window of most runs.

    Args:
        tags: The tags of the scalars of each run, as they are recorded.
    """
    counts = collections.Counter(tags)
    known = sorted(counts, key=lambda tag: (-counts[tag], tag))

    def first(patterns: Iterable[str]) -> list[str]:
        return [tag for pattern in patterns for tag in known if re.match(pattern, tag)][:1]

    judging = judging_columns([sorted(counts.elements())])[:_TASKS]
    calibrations = [tag.replace("/auc/", "/calibration/") for tag in judging]
    quality = [tag for tag in (*judging, *calibrations) if tag in counts]
    return list(dict.fromkeys([*first(LOSSES), *quality, *first(_EVALUATION)]))


def has_recommender(tags: Iterable[str]) -> bool:
    """Whether there are metrics of a recommender among the tags of scalars."""
    return any(tag.startswith((PREFIX, DETAIL)) for tag in tags)


def page(url: str, tags: Iterable[str], shown: str = TIME_SERIES) -> str:
    """Returns the address of a page, while Time Series has cards of `tags` at its top.

    Args:
        url: The address of a TensorBoard, with a slash at its end.
        tags: The tags of scalars.
        shown: The page that it opens: the name of its plugin.
    """
    cards = [{"plugin": "scalars", "tag": tag} for tag in tags]
    if not cards:
        return f"{url}#{shown}"
    text = json.dumps(cards, separators=(",", ":"))
    return f"{url}?pinnedCards={urllib.parse.quote(text)}#{shown}"


def recorded_tags(runs: Iterable[Run]) -> list[str]:
    """Returns the tags of the scalars at the beginning of the records of each of the first runs."""
    return [tag for run in itertools.islice(runs, _PEEKED_RUNS) for tag in set(_tags_of(run))]


def metric_rank(tag: str, group: str = "") -> int | None:
    """Returns the place of a metric among those of HParams; None if it is not shown there.

    Args:
        tag: The tag of a scalar.
        group: The sub-run, with a slash before it: the metrics of `/eval` are evaluations.
    """
    name = f"{group}/{tag}".lstrip("/")
    if re.match(_NO_METRIC, name):
        return None
    return next((i for i, pattern in enumerate(_METRICS) if re.match(pattern, name)), None)


@functools.lru_cache(_KEPT_TAGS)
def has_best(name: str, directions: tuple[str, ...] = ()) -> bool:
    """Whether HParams shows the best value of a metric beside the last one.

    Args:
        name: The tag of a scalar, after the name of a sub-run: `eval/auc`.
        directions: The names of metrics of which the run states which values are better.
    """
    if directions and re.match(tags_of(directions), name):
        return True
    return metric_rank(name) is not None and re.match(METRICS, name) is not None


def _tags_of(run: Run) -> Iterator[str]:
    nbytes = 0
    for rank in run.ranks[:1]:
        for file in run.files_of(Kind.SUMMARY, rank):
            for batch in read_batches(file, Report()):
                yield from (tag for kind, tag in batch.series() if kind == SCALAR)
                nbytes += batch.end_offset - batch.offset
                if nbytes > _PEEKED_BYTES:
                    return
