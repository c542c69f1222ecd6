"""The metrics that HParams shows in a TensorBoard of ours.

HParams shows every scalar of a run as a metric, which may be hundreds. Its own way to choose them
is a record that also lists the hyper-parameters of all runs, and that cannot change while new
runs come. So the choice is made here, when the page asks for its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorboard.plugins.hparams.backend_context import Context

from rec_summary.tensorboard.first_screen import metric_rank

_METRICS = "_compute_metric_infos_from_runs"


def chosen_metrics(infos: Iterable[Any]) -> list[Any]:
    """Returns those of HParams' metrics that matter, AUC before loss; all if there is none."""
    every = list(infos)
    ranked = [(metric_rank(each.name.tag, each.name.group), each) for each in every]
    chosen = [(rank, each) for rank, each in ranked if rank is not None]
    return [each for _, each in sorted(chosen, key=lambda pair: pair[0])] or every


def choose_metrics() -> None:
    """Makes HParams show the metrics that matter; a TensorBoard without this method shows all."""
    compute: Callable[..., Iterable[Any]] | None = getattr(Context, _METRICS, None)
    if compute is not None:
        setattr(Context, _METRICS, lambda *args: chosen_metrics(compute(*args)))
