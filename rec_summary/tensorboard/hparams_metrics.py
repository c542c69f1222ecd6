"""The metrics and hyper-parameters that HParams shows.

HParams shows every scalar of a run as a metric, which may be hundreds, and every hyper-parameter,
unless a tag describes the experiment: its hyper-parameters and its metrics. TensorBoard takes one
such tag for all runs, so it is made of all of them: of served records each time when HParams asks
for its tags, in a log directory at each export. So what is equal in all runs can be left out until
a later run differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any, Final

from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.metrics import run_tag_from_session_and_metric

from rec_summary.series.overview.rows import BEST as BEST_COLUMN
from rec_summary.tensorboard.dashboards.hparams import START_TAG, hparams_point
from rec_summary.tensorboard.dashboards.points import Point
from rec_summary.tensorboard.first_screen import LOSS_RANK, OWN_RANK, metric_rank
from rec_summary.tensorboard.tag_groups import BEST

PLUGIN: Final = "hparams"

_USER: Final = "rec_summary"  # of an experiment that we describe

_Tags = dict[str, dict[str, Any]]


def chosen_metrics(infos: Iterable[Any], recorded: Container[str] | None = None) -> list[Any]:
    """Returns those of HParams' metrics that matter; all if there is none.

    HParams shows the first five: an AUC, its best value, a loss, then further metrics, each with
    its best value.

    Args:
        infos: Instances of `MetricInfo`.
        recorded: The tags to choose from; all others stay, after the chosen ones. None for all.
    """
    every, others = list(infos), []
    best = {(info.name.group, metric) for info in every if (metric := _metric_of(info))}
    ranked: dict[tuple[int, str, str], list[Any]] = {}  # a metric, and its best value
    for info in sorted(every, key=lambda info: bool(_metric_of(info))):
        group, metric = info.name.group, _metric_of(info) or info.name.tag
        rank = metric_rank(metric, group)
        if rank is None and (group, metric) in best:  # the run states its direction
            rank = OWN_RANK
        if rank is not None:
            if metric != info.name.tag:
                info.display_name = BEST_COLUMN + f"{group}/{metric}".lstrip("/")
            ranked.setdefault((rank, metric, group), []).append(info)
        elif recorded is not None and info.name.tag not in recorded:
            others.append(info)
    if not ranked:
        return every
    # `lineage` means the one of all examples, too, where it is asked for `auc`.
    order = sorted(ranked, key=lambda item: (item[0], not item[1].endswith("/lifetime"), item))
    losses = [item for item in order if item[0] == LOSS_RANK]
    first = dict.fromkeys([*order[:1], *losses[:1], *order])
    return [tag for metric in first for tag in ranked[metric]] + others


def _metric_of(info: Any) -> str:
    """Returns the tag of the metric of which a series has the best values; else ""."""
    tag: str = info.name.tag
    return tag.removeprefix(BEST) if tag.startswith(BEST) else ""


def experiment(
    sessions: dict[str, dict[str, bytes]], shown: Any, recorded: Container[str] | None = None
) -> Point | None:
    """Returns the point that describes the experiment; None if TensorBoard infers the same.

    Args:
        sessions: The contents of the tags of HParams, by run and tag.
        shown: A data provider; of it, only `list_scalars` and `read_last_scalars` are called.
        recorded: As in `chosen_metrics`.
    """
    context = Context(base_plugin.TBContext(data_provider=shown))
    # What TensorBoard makes itself of sessions and scalars; there is one experiment, called "".
    result = context.experiment_from_metadata(RequestContext(), "", True, sessions, [])
    starts = {name: start.session_start_info for name, start in _starts(sessions).items()}
    by_run = defaultdict[str, list[str]](list)
    for name, start in starts.items():
        by_run[start.group_name or name].append(name)
    metrics = chosen_metrics(result.metric_infos, recorded)
    wanted = provider.RunTagFilter(tags={info.name.tag for info in metrics})
    last = context.read_last_scalars(RequestContext(), "", wanted)

    def last_value(session: str, info: Any) -> object:
        run, tag = run_tag_from_session_and_metric(session, info.name)
        datum = last.get(run, {}).get(tag)
        return datum and repr(datum.value)

    def parameter(session: str, info: Any) -> object:
        known = starts[session].hparams
        return known[info.name].SerializeToString() if info.name in known else None

    metrics = _differing(metrics, by_run.values(), last_value)
    hparams = _differing(result.hparam_infos, by_run.values(), parameter)
    inferred = [*result.metric_infos, *result.hparam_infos]
    if [*metrics, *hparams] == inferred and not any(info.display_name for info in metrics):
        return None
    hparams.sort(key=lambda info: info.name)
    for info in hparams:
        # TensorBoard's order is that of a set.
        values = sorted(info.domain_discrete.values, key=lambda value: value.SerializeToString())
        if values:
            info.domain_discrete.ClearField("values")
            info.domain_discrete.values.extend(values)
    described = api_pb2.Experiment(user=_USER, hparam_infos=hparams, metric_infos=metrics)
    return hparams_point(
        metadata.EXPERIMENT_TAG, plugin_data_pb2.HParamsPluginData(experiment=described)
    )


def _differing(
    infos: Sequence[Any], runs: Collection[Sequence[str]], value: Callable[[str, Any], object]
) -> list[Any]:
    """Returns what is not equal in all runs; everything if nothing differs.

    Args:
        infos: Instances of `MetricInfo` or `HParamInfo`.
        runs: The sessions of each run: one that goes on has two.
        value: Returns the value in a session; None where it has none. NaN is a text.
    """
    differing = [
        info
        for info in infos
        if len({frozenset(value(each, info) for each in run) - {None} for run in runs}) > 1
    ]
    return differing or list(infos)  # without any column, the page says that there is no data


def _starts(content: dict[str, dict[str, bytes]]) -> dict[str, Any]:
    """Returns the starts of sessions, by run."""
    return {
        run: plugin_data_pb2.HParamsPluginData.FromString(tags[START_TAG])
        for run, tags in content.items()
        if START_TAG in tags
    }


def with_experiment(answer: _Tags, shown: Any, recorded: Container[str]) -> _Tags:
    """Adds a tag that describes the experiment to those that HParams asks for.

    Args:
        answer: What `list_tensors` answers for HParams: a `TensorTimeSeries` for each run and tag.
        shown: A data provider; it has the scalars.
        recorded: The tags of scalars in records.

    Returns:
        The same with one more tag, in place of that of an export. `answer`, if event files of other
        programs have such a tag, or if TensorBoard infers the same.
    """
    content: dict[str, dict[str, bytes]] = {}
    for run, tags in answer.items():
        content[run] = {tag: series.plugin_content for tag, series in tags.items()}
        described = content[run].get(metadata.EXPERIMENT_TAG)
        if described is not None:
            if metadata.parse_experiment_plugin_data(described).user != _USER:
                return answer
            del content[run][metadata.EXPERIMENT_TAG]  # of the runs in event files alone
    _make_comparable(content)
    point = experiment(content, shown, recorded)
    kept = {run: tags for run, tags in content.items() if tags}
    if point is not None:
        kept[min(kept)][metadata.EXPERIMENT_TAG] = point.plugin.metadata.plugin_data.content
    return {
        run: {tag: _series(data, answer[run].get(tag)) for tag, data in tags.items()}
        for run, tags in kept.items()
    }


def _series(content: bytes, known: Any) -> Any:
    """Returns a series with this content, the known one if it has it."""
    if known is not None and known.plugin_content == content:
        return known
    return provider.TensorTimeSeries(
        max_step=0, max_wall_time=0.0, plugin_content=content, description="", display_name=""
    )


def _make_comparable(content: dict[str, dict[str, bytes]]) -> None:
    """Makes a hyper-parameter text in all sessions if its type is not the same in all of them.

    TensorBoard cannot sort or filter text and numbers together: its page fails for all runs.
    """
    starts = _starts(content)
    kinds: defaultdict[str, set[str | None]] = defaultdict(set)
    for start in starts.values():
        for name, value in start.session_start_info.hparams.items():
            kinds[name].add(value.WhichOneof("kind"))
    mixed = {name for name, of_name in kinds.items() if len(of_name) > 1}
    for run, start in starts.items() if mixed else ():
        for name, value in start.session_start_info.hparams.items():
            kind = value.WhichOneof("kind") if name in mixed else None
            if kind is not None:
                value.string_value = str(getattr(value, kind)).removesuffix(".0")
        content[run][START_TAG] = start.SerializeToString(deterministic=True)
