"""The metrics that HParams shows.

HParams shows every scalar of a run as a metric, which may be hundreds, unless a tag describes the
experiment: its hyper-parameters and its metrics. In an event file such a tag could not change when
new runs come. Here it is made each time when HParams asks for its tags.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final

from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.backend_context import Context

from rec_summary.series.overview.rows import BEST as BEST_COLUMN
from rec_summary.tensorboard.dashboards.groups import BEST
from rec_summary.tensorboard.first_screen import LOSS_RANK, metric_rank

PLUGIN: Final = "hparams"

_Tags = dict[str, dict[str, Any]]


def chosen_metrics(infos: Iterable[Any], recorded: Container[str] | None = None) -> list[Any]:
    """Returns those of HParams' metrics that matter; all if there is none.

    HParams shows the first five: an AUC, its best value, a loss, then further metrics, each with
    its best value.

    Args:
        infos: Instances of `MetricInfo`.
        recorded: The tags to choose from; all others stay, behind the chosen ones. None for all.
    """
    every, others = list(infos), []
    ranked: dict[tuple[int, str, str], list[Any]] = {}  # a metric, and its best value
    for each in sorted(every, key=lambda each: bool(_metric_of(each))):
        group, metric = each.name.group, _metric_of(each) or each.name.tag
        rank = metric_rank(metric, group)
        if rank is not None:
            if metric != each.name.tag:
                each.display_name = f"{group}/{metric}{BEST_COLUMN}".lstrip("/")
            ranked.setdefault((rank, metric, group), []).append(each)
        elif recorded is not None and each.name.tag not in recorded:
            others.append(each)
    if not ranked:
        return every
    order = sorted(ranked)
    losses = [each for each in order if each[0] == LOSS_RANK]
    first = dict.fromkeys([*order[:1], *losses[:1], *order])
    return [each for metric in first for each in ranked[metric]] + others


def _metric_of(info: Any) -> str:
    """Returns the tag of the metric of which a series has the best values; else ""."""
    tag: str = info.name.tag
    return tag.removeprefix(BEST) if tag.startswith(BEST) else ""


def with_experiment(found: _Tags, shown: Any, recorded: Container[str]) -> _Tags:
    """Adds a tag that describes the experiment to those that HParams asks for.

    Args:
        found: What `list_tensors` answers for HParams: a `TensorTimeSeries` for each run and tag.
        shown: A data provider; it has the scalars.
        recorded: The tags of scalars in records.

    Returns:
        The same with one more tag. `found`, if event files have such a tag, or without sessions.
    """
    if any(metadata.EXPERIMENT_TAG in tags for tags in found.values()):
        return found
    content = {
        run: {tag: series.plugin_content for tag, series in tags.items()}
        for run, tags in found.items()
    }
    context = Context(base_plugin.TBContext(data_provider=shown))
    # What TensorBoard makes itself of sessions and scalars; there is one experiment, called "".
    made = context.experiment_from_metadata(RequestContext(), "", True, content, [])
    if not made.metric_infos:
        return found
    experiment = api_pb2.Experiment(
        hparam_infos=made.hparam_infos,
        metric_infos=chosen_metrics(made.metric_infos, recorded),
    )
    stated = metadata.create_summary_metadata(
        plugin_data_pb2.HParamsPluginData(experiment=experiment)
    )
    run = min(found)
    series = provider.TensorTimeSeries(
        max_step=0,
        max_wall_time=0.0,
        plugin_content=stated.plugin_data.content,
        description="",
        display_name="",
    )
    return {**found, run: {**found[run], metadata.EXPERIMENT_TAG: series}}
