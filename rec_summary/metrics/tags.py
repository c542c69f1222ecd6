"""The names of a recommender's metrics: keys of states, and tags.

A named task has a part of its own in keys and tags: `task/ctr/quality/last_100` is the state of
`recommender/ctr/auc/last_100`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

PREFIX: Final = "recommender/"

EVALUATION: Final = "eval/"
"""The beginning of the tags of evaluations."""

QUALITY: Final = "quality"
USERS: Final = "users"
TABLE: Final = "table"
TABLE_WINDOW: Final = "table_window"
THROUGHPUT: Final = "throughput"
LABEL_DELAY: Final = "label_delay"
DRIFT: Final = "drift"
LABELS: Final = "labels"
SLICE: Final = "slice"
LISTS: Final = "lists"
SERVED: Final = "served"
PAIRS: Final = "pairs"
TURNOVER: Final = "turnover"
AGES: Final = "ages"
FEATURE: Final = "feature"
CARDINALITY: Final = "cardinality"
_TASK: Final = "task"


class Metric(NamedTuple):
    """A metric of a task; each has a tag for each window.

    Attributes:
        name: Its name.
        detail: Whether it is recorded with `RecommenderMetrics(detail=True)` only.
        judges: Whether it judges predictions: it is then NaN if the network predicts NaN, and a
            column of a table of runs.
    """

    name: str
    detail: bool = False
    judges: bool = True


METRICS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "clicks": (
        Metric("auc"),
        Metric("average_precision"),
        Metric("log_loss"),
        Metric("normalised_entropy"),
        Metric("calibration"),
        Metric("calibration_error", detail=True),
        Metric("calibration_error_bound", detail=True, judges=False),
        Metric("calibration_free_entropy", detail=True),
        Metric("recalibrated_entropy", detail=True),
        Metric("entropy_of_clicks", detail=True),
        Metric("roc_error_bound", detail=True, judges=False),
        Metric("original_calibration", judges=False),
        Metric("click_rate", judges=False),
        Metric("clicks", detail=True, judges=False),
        Metric("examples", judges=False),
        Metric("refused", judges=False),
    ),
    "ratings": (
        Metric("rmse"),
        Metric("mae"),
        Metric("bias"),
        Metric("xauc"),
        Metric("xauc_sampled_share", detail=True, judges=False),
    ),
    "classes": (Metric("accuracy"), Metric("log_loss")),
    "retrieval": (
        Metric("in_batch_candidates", detail=True, judges=False),
        Metric("in_batch_examples", detail=True, judges=False),
    ),
    "users": (
        Metric("gauc"),
        Metric("gauc_by_user", detail=True),
        Metric("grouped_users", detail=True, judges=False),
        Metric("grouped_standard_error", detail=True, judges=False),
        Metric("grouped_error_bound", detail=True, judges=False),
        Metric("gauc_by_user_standard_error", detail=True, judges=False),
    ),
    "lists": (
        Metric("pair_accuracy", detail=True),
        Metric("lists_counted", detail=True, judges=False),
        Metric("lists_standard_error", detail=True, judges=False),
        Metric("pair_accuracy_standard_error", detail=True, judges=False),
        Metric("lists_without_hit_share", detail=True, judges=False),
        Metric("lists_sampled_share", detail=True, judges=False),
        Metric("lists_too_long_share", detail=True, judges=False),
    ),
    "served": (
        Metric("served_ne_change"),
        Metric("served_ne_change_standard_error", judges=False),
        Metric("served_auc_gain"),
        Metric("served_auc_gain_standard_error", judges=False),
        Metric("served_calibration", judges=False),
        Metric("served_skewed_share", judges=False),
        Metric("served_score_difference", detail=True, judges=False),
        Metric("served_missing", judges=False),
    ),
    "labels": (Metric("masked", judges=False), Metric("missing_labels", judges=False)),
}
"""The metrics by kind of task, and those of its users, lists, served scores and labels."""

JUDGING: Final[Mapping[str, tuple[str, ...]]] = {
    kind: tuple(metric.name for metric in metrics if metric.judges)
    for kind, metrics in METRICS.items()
}
"""The names of those that judge predictions."""

DETAILED: Final = frozenset(
    metric.name for metrics in METRICS.values() for metric in metrics if metric.detail
)
"""The names of those that are recorded with detail only."""

AT_K: Final[Mapping[str, tuple[str, ...]]] = {
    "lists": ("ndcg_at_", "recall_at_", "precision_at_", "hit_rate_at_", "mrr_at_"),
    "retrieval": ("in_batch_recall_at_", "in_batch_ndcg_at_", "in_batch_mrr_at_"),
}
"""The beginnings of further names of such metrics, before the number of places."""

STANDARD_ERROR: Final = "_standard_error"
"""The end of the name of the error of a metric from a sample, as the metric of all examples."""

CHANCE_ERROR: Final = "_chance_error"
"""The same if all examples are a sample of those that might come; only for slices."""

OF_SLICES: Final = ("auc", "calibration", "accuracy", "rmse", "bias")
"""The metrics of a slice, unless others are chosen."""

OF_EACH_SLICE: Final = ("auc", "accuracy", "rmse")
"""Those of them that have a tag for each slice by default; of the others, the worst one has."""

JUDGED: Final = "|".join(
    (
        *dict.fromkeys(itertools.chain(*JUDGING.values())),
        rf"(?:{'|'.join(itertools.chain(*AT_K.values()))})\d+",
    )
)
"""A regular expression of their names."""

GROUPS: Final = frozenset(
    (
        *(metric.name for metric in itertools.chain(*METRICS.values())),
        *("pr_curve", "reliability", "scores", "served_odds_differences"),
        *("table", "throughput", "freshness", "host", "drift", "states", "sums"),
        *("slice", "feature"),
        "label_delay",
    )
)
"""The first parts of tags after `PREFIX`. No task has one of these names."""

_ALWAYS: Final = re.compile(
    r"throughput/(?:samples_per_second|input_stall_share|step_seconds/p(?:50|99))"
    r"|(?:freshness/lag_seconds|label_delay/seconds)/p(?:50|99)|freshness/undated"
    r"|host/(?:rss_bytes|cpu_share)|drift/(?:psi|missing_share)/.*"
)

OF_TASK: Final = r"(?:(?!table/|slice/|feature/)[^/]+/)?"
"""A regular expression of the task in a tag, after `PREFIX`: the unnamed one, or any other."""

SLICE_TAG: Final = re.compile(
    rf"(?P<start>{PREFIX}(?P<task>{OF_TASK})slice/(?P<column>[^/=]+))(?:=(?P<value>[^/]*))?"
    r"(?P<rest>/.+?(?:/(?P<window>(?:last|decayed)_\d+|lifetime))?)",
    re.DOTALL | re.ASCII,
)
"""A tag of a column of slices, or of one of its values, which is quoted; a window comes last."""

_TASK_TAG: Final = re.compile(rf"{PREFIX}(?!table/|slice/|feature/)(?P<task>[^/]+)/(?:{JUDGED})/")


def key(group: str, name: str = "") -> str:
    """Returns the key of a state: its group, and the name of its window or table."""
    return f"{group}/{name}" if name else group


def group_of(task: str, group: str) -> str:
    """Returns the group of a task's states; the unnamed task (empty) has the plain one."""
    return f"{_TASK}/{task}/{group}" if task else group


def split_key(name: str) -> tuple[str, str]:
    """Returns the task of a key, empty for none, and the key without it."""
    if not name.startswith(f"{_TASK}/"):
        return "", name
    _, task, *own = name.split("/", 2)
    return task, "".join(own)


def is_group(name: str) -> bool:
    """Returns whether tags begin with this name, after `PREFIX`, so that no task has it."""
    own = rf"(?:{JUDGED})(?:{STANDARD_ERROR})?|\w+_at_precision_[\d.e-]+"
    return name in GROUPS or re.fullmatch(own, name) is not None


def judging(kind: str, at: Iterable[int] = ()) -> list[str]:
    """Returns the names of the metrics that judge predictions of a kind.

    Args:
        kind: A key of `JUDGING`.
        at: The numbers of places of the metrics of `AT_K`.
    """
    starts = AT_K.get(kind, ())
    return [*JUDGING[kind], *(f"{start}{k}" for start in starts for k in at)]


def group_with(metric: str) -> str:
    """Returns the group of the states that a metric that judges predictions is read from."""
    if metric == "xauc":
        return PAIRS
    if metric.startswith((*JUDGING[LISTS], *AT_K[LISTS])):
        return LISTS
    return next((group for group in (USERS, SERVED) if metric in JUDGING[group]), QUALITY)


def is_detail(name: str) -> bool:
    """Whether a number of no task, by its tag after `PREFIX`, is recorded with detail only."""
    return _ALWAYS.fullmatch(name) is None


def quantile_tags(name: str, shares: Iterable[float], numbers: Iterable[float]) -> dict[str, float]:
    """Returns quantiles by tag, after `PREFIX`; there is one for each share."""
    return {
        f"{name}/p{round(100 * share)}": number
        for share, number in zip(shares, numbers, strict=True)
    }


def named_tasks(tags: Iterable[str]) -> list[str]:
    """Returns the named tasks of which there are tags of metrics, sorted."""
    names = {match["task"] for match in map(_TASK_TAG.match, tags) if match}
    return sorted(names)
