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

from rec_summary.tensorboard.first_screen import metric_rank

PLUGIN: Final = "hparams"

_Tags = dict[str, dict[str, Any]]


def chosen_metrics(infos: Iterable[Any], recorded: Container[str] | None = None) -> list[Any]:
    """Returns those of HParams' metrics that matter, AUC before loss; all if there is none.

    Args:
        infos: Instances of `MetricInfo`.
        recorded: The tags to choose from; all others stay, behind the chosen ones. None for all.
    """
    every, others, ranked = list(infos), [], []
    for each in every:
        rank = metric_rank(each.name.tag, each.name.group)
        if rank is not None:
            ranked.append((rank, each))
        elif recorded is not None and each.name.tag not in recorded:
            others.append(each)
    if not ranked:
        return every
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])] + others


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
