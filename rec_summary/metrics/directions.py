"""Which values of a metric are better: as it was said, else as its name says.

A name that says nothing has no best value. Names are those of MindSpore, scikit-learn and
torchmetrics, and usual ones of recommenders.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from rec_summary.arrays import Floats
from rec_summary.checks import check_choice, check_name, check_that, check_type
from rec_summary.errors import verbatim
from rec_summary.metrics.tags import EVALUATION, PREFIX

DIRECTIONS: Final = ("greater", "less")
"""Which values of a metric can be said to be better."""

MOST: Final = 200
"""Metrics of which that can be said."""

NEAREST: Final = {"zero": 0.0, "one": 1.0}
"""What the name may say besides: the best value is the nearest to this number."""

_KEPT_NAMES: Final = 1 << 12
_WINDOW: Final = r"/(?:auto|lifetime|last_\d+)\Z"

# A word that is no part of a longer one is in the last group.
_LESS: Final = re.compile(
    r"loss(?:es)?(?![a-z])|errors?(?![a-z])|(?:cross|normali[sz]ed|free|recalibrated|relative)_?"
    r"entropy|entropy_of_clicks|perplexity|deviance|divergence|distance|brier|davies_bouldin"
    "|miss_rate|fall_?out|false_(?:discovery|omission|positive|negative|alarm)|miscalibration"
    r"|misclassification|(?:mean|median|average)_rank(?![a-z])|bits_per_|wasserstein|regret"
    r"|(?<![a-z])(?:n?r?m[as]e|r?msle|[sw]?m?ape|rmspe|mase|med_?ae|crps|ne|nlr|nll|[bem]?ce|kld?"
    r"|jsd?|eer|ppl|[wc]er|f[pnd]r|[ab]ic|[fk]id|lpips)(?![a-z])"
)
_GREATER: Final = re.compile(
    r"auc(?:_?(?:roc|pr))?(?![a-z])|au(?:roc|prc?)(?![a-z])|explained_variance(?![a-z])"
    r"|(?<![a-z])(?:accuracy|precision|recall|sensitivity|specificity|similarity|correlation"
    "|corrcoef|(?:log_?)?likelihood|hit_?rate|jaccard|kappa|matthews|silhouette|calinski"
    "|rand_score|homogeneity|completeness|v_measure|mutual_info|fowlkes|informedness|markedness"
    "|threat_score|true_(?:positive|negative)|cumulative_gain|reciprocal_rank|concordance"
    "|spearman|pearson|kendall|exact_match|reward"
    r"|(?:acc|f[0-5]|f_?beta|f_?score|dice|m?[gdc]?iou|r2|r_?squared|m?ap|mrr|n?dcg|hr|hits?|mcc"
    r"|bleu|rouge|p?snr|ssim|[np]pv|t[pn]r|c_?index|elbo|qini)(?![a-z\d]))"
)
_FIRST: Final = (
    ("zero", r"mean_(?:bias_|signed_|percentage_)?error|signed_(?:error|deviation)"),
    ("greater", r"(?<![a-z])d2(?![a-z])"),  # `d2_log_loss`
)
_LAST: Final = (
    ("zero", r"(?<![a-z])(?:bias|mbe|mpe)(?![a-z])"),
    ("one", r"(?<![a-z])(?:calibration|pcoc|copc)(?![a-z])"),
)
# These are about a metric, or something else.
_SILENT: Final = re.compile(
    r"(?<![a-z])(?:std(?:dev|err)?|stdev|sd|var|(?<!explained_)variance|standard_(?:error|deviation)"
    "|bound|gap|drop|delta|diff|difference|(?<!served_ne_)change|reduction|improvement|scale|scaler|weights?|coeff?"
    "|time|seconds|ms|latency|duration|threshold|margin|norm|grads?|gradients?|lr|curve|intercept"
    r"|intra_list|pairwise|occlusion|minus|inverse|inv|p_?value|temperature)(?![a-z])|\A1_"
)
_NEGATED: Final = re.compile(r"(?<![a-z])(?<!false_)(?<!true_)neg(?:ative)?_(.*)")


@functools.lru_cache(_KEPT_NAMES)
def direction_of(metric: str) -> str:
    """Returns which values of a metric are better, by its name, with or without a window.

    Returns:
        `"greater"`, `"less"`, a key of `NEAREST`, or `""` where the name says nothing.
    """
    name = metric.lower()
    if name.startswith(PREFIX) and name.count("/") > 1:
        return _of_name(name.split("/")[-2])  # before the window
    *groups, last = re.sub(_WINDOW, "", name).split("/")
    direction = _of_name(last)
    # Of `auc/night`, the first part is the name; of `loss_of_goods/my_score`, it is not.
    named = (group for group in groups if not direction and re.fullmatch(f"loss|{_NAMES}", group))
    return direction or next(map(_of_name, named), "")


def _of_name(text: str) -> str:
    name = re.split("@|_at_", re.sub(r"[^a-z\d@]+", "_", text))[0]
    name = re.sub("neg(?:ative)?_log_?likelihood", "nll", name)
    name = name.replace("negative_predictive_value", "npv").replace("positive_predictive", "ppv")
    name = name.replace("negative_likelihood_ratio", "nlr")
    if _SILENT.search(name):
        return ""
    if negated := _NEGATED.search(name):
        # As scikit-learn negates errors; `neg_loss` may be the loss of negative examples.
        rest = negated[1]
        is_plain = _NEGATED.search(rest) or re.search("(?<!log)(?<!log_)loss", rest)
        return "greater" if not is_plain and _of_name(rest) == "less" else ""
    for direction, pattern in _FIRST:
        if re.search(pattern, name):
            return direction
    # The last word says it: `auc_loss` is a loss, a distance correlation a correlation.
    ends = [
        max((match.end() for match in pattern.finditer(name)), default=0)
        for pattern in (_GREATER, _LESS)
    ]
    if any(ends):
        return DIRECTIONS[ends[1] >= ends[0]]
    return next((found for found, pattern in _LAST if re.search(pattern, name)), "")


_KNOWN: Final = r"""
    acc accuracy binary_accuracy balanced_accuracy top_\d+_accuracy precision recall specificity
    sensitivity f[0-5] f[0-5]_score auc roc_auc pr_auc auc_roc auc_pr auc_score roc_auc_score auroc
    aupr auprc auuc gauc uauc xauc wuauc average_precision mean_average_precision ap map dcg ndcg
    mrr mean_reciprocal_rank hit hits hit_rate hit_ratio hr r2 r2_score explained_variance mcc kappa
    iou miou dice bleu pearson spearman kendall log_loss nll bce ece cross_entropy
    binary_cross_entropy ne normali[sz]ed_entropy normali[sz]ed_cross_entropy brier brier_score
    calibration calibration_error expected_calibration_error pcoc copc mse mae rmse nrmse msle rmsle
    mape smape wmape wape mase mean_absolute_error mean_squared_error root_mean_squared_error
    mean_absolute_percentage_error perplexity ppl kl_divergence fpr fnr error_rate wer eer
"""
_NAMES: Final = "|".join(_KNOWN.split()).replace("_", "[_ -]?")
_MEASURED_ON: Final = (
    "(?:train|training|eval|evaluation|val|valid|validation|test|dev|holdout|metrics?"
    "|online|offline)"
)
NAMED: Final = (
    rf"\A(?i:(?:{_MEASURED_ON}[/_.-])*"
    rf"(?:{_NAMES})(?:[_ -](?:macro|micro|weighted))?(?:(?:@|_at_|[_ -])?(?:top[_ -]?)?k?\d+)?"
    rf"(?:{_WINDOW[:-2]})?)\Z"
)
"""A regular expression of tags that are the name of a well-known metric, and nothing more.

Before it may be what it was measured on (`val/auc`), after it a number of places (`ndcg@10`). With
the name of something else it is none, so that there are few: neither `country=DE/auc` nor
`user_7_auc`; neither a loss nor a part of one.
"""


def tags_of(names: Iterable[str]) -> str:
    """Returns a regular expression of the tags of the metrics of these names.

    Before a name may be what it was measured on, as in `NAMED`: `val/my_score`.
    """
    return rf"\A(?i:{_MEASURED_ON}/)*(?:{'|'.join(map(re.escape, names))})(?:{_WINDOW[:-2]})?\Z"


def check_metrics(metrics: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the argument `metrics`: which values of a metric are better, by its name.

    Raises:
        TypeError: It is not a dictionary of strs.
        ValueError: A value is another one than `"greater"` and `"less"`, or there are too many.
    """
    entries = check_type("metrics", metrics, (Mapping, type(None)), "a dict or None") or {}
    count = verbatim(f"{len(entries):,} entries")
    check_that(len(entries) <= MOST, "metrics", count, f"at most {MOST} entries")
    return {
        check_name("a name of metrics", name): check_choice(f"metrics[{name!r}]", value, DIRECTIONS)
        for name, value in entries.items()
    }


def stated_direction(tag: str, stated: Mapping[str, str]) -> str:
    """Returns which values of a metric are better, as it was said of it; `""` if it was not.

    Args:
        tag: The tag of the metric.
        stated: One of `DIRECTIONS`, by the tag of a metric or the last parts of it, with or without
            a window: `auc` is also `eval/auc` and `recommender/auc/last_100`.
    """
    if not stated:
        return ""
    # An evaluation is known by the name of its metric alone.
    is_own = tag.startswith((PREFIX, EVALUATION))
    parts = (tag if is_own else EVALUATION + tag).split("/")
    has_window = tag.startswith(PREFIX) or re.search(_WINDOW, tag)
    for stop in (len(parts), len(parts) - 1)[: 2 if has_window else 1]:
        for start in range(stop):
            if direction := stated.get("/".join(parts[start:stop])):
                return direction
    return ""


def costs_of(metric: str, values: Floats, direction: str = "") -> Floats:
    """Returns a number for each value of a metric: the least is that of the best one.

    A value that is not finite has an infinite cost, and so has any value where nothing says which
    one is best.

    Args:
        metric: The name of the metric.
        values: Its values.
        direction: One of `DIRECTIONS`; `""` for what the name says.
    """
    direction = direction or direction_of(metric)
    if direction in NEAREST:
        costs = abs(values - NEAREST[direction])
    elif direction:
        costs = values if direction == "less" else -values
    else:
        costs = np.full_like(values, np.inf)
    return np.where(np.isfinite(values), costs, np.inf)
