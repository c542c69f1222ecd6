"""The collector's options: MindSpore's arguments, checked once and frozen.

Names, types and bounds are those of `mindspore.SummaryCollector` (MindSpore 2.10).
`docs/options.md` lists the differences.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary.checks import (
    check_bool,
    check_entries,
    check_pattern,
)
from rec_summary.training.landscape.options import LandscapeOptions, check_landscape
from rec_summary.training.lineage.custom import CustomValue
from rec_summary.training.probes.gradient_metrics import GradientMetrics
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recorder import RecorderOptions

MOST_HISTOGRAM_VALUES: Final = 1 << 16
FIRST_PARAMETERS: Final = 5
"""The number of parameters that get a histogram where no pattern chooses them."""


@dataclass(frozen=True)
class Collect:
    """What is collected.

    Attributes:
        metric: The loss, the learning rate, and the metrics of evaluations.
        graph: The computation graph.
        train_lineage: The lineage of training.
        eval_lineage: The lineage of evaluations.
        input_data: The first column of the data, if it has images.
        dataset_graph: The pipeline of the data set.
        health: The counters of telemetry itself.
    """

    metric: bool
    graph: bool
    train_lineage: bool
    eval_lineage: bool
    input_data: bool
    dataset_graph: bool
    health: bool


@dataclass(frozen=True)
class CollectorOptions:
    """The checked options of a `SummaryCollector`.

    Attributes:
        files: The record files.
        collect: What is collected.
        landscape: Checkpoints for the loss landscape; None for none.
        custom_lineage: Custom lineage entries.
        metrics: Which values of a metric are better, as said by the user.
        lineage_secs: The time between two refreshes of the train lineage, in seconds.
        lineage_on_all_ranks: Whether every rank writes lineage, and not only rank 0.
        most_histogram_values: The largest number of values in a histogram. A larger parameter is
            sampled. None for no limit.
        recommender: The metrics of recommenders; None for none.
        run_directory: Where a training records if the directory may hold another one.
        control: Whether the options below can be changed from outside.
        collect_freq: Values are collected at the first step and at each multiple of this.
        collect_tensor_freq: Tensors are collected at each multiple of this; None for the default
            schedule.
        histograms: Matched against the start of the names of parameters that get a histogram; the
            number of the optimizer's first parameters, or None for none.
        gradients: What is measured of gradients and updates; None for nothing.
        tensors: Found in the names of parameters and tensors that are recorded whole; None for
            none. Only a request from outside sets it.
    """

    files: RecorderOptions
    collect: Collect
    landscape: LandscapeOptions | None
    custom_lineage: Mapping[str, CustomValue] = field(repr=False)
    metrics: Mapping[str, str]
    lineage_secs: float
    lineage_on_all_ranks: bool
    most_histogram_values: int | None
    recommender: RecommenderMetrics | None
    run_directory: str
    control: bool
    collect_freq: int
    collect_tensor_freq: int | None
    histograms: re.Pattern[str] | int | None
    gradients: GradientMetrics | None
    tensors: re.Pattern[str] | None = None


_SWITCHES: Final = tuple(f"collect_{field.name}" for field in dataclasses.fields(Collect))
_ENTRIES: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(_SWITCHES, check_bool),
    "histogram_regular": check_pattern,
    "collect_landscape": check_landscape,
}


def check_specified(specified: Mapping[str, Any] | None, keep_default: object) -> dict[str, Any]:
    """Returns the options `collect`, `histograms` and `landscape`, from MindSpore's dictionary.

    Args:
        specified: The argument `collect_specified_data`.
        keep_default: The argument `keep_default_action`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has an invalid value.
    """
    default = check_bool("keep_default_action", keep_default)
    entries = check_entries("collect_specified_data", specified, _ENTRIES)
    histograms = None
    if default or "histogram_regular" in entries:
        histograms = entries.get("histogram_regular") or FIRST_PARAMETERS
    return {
        "collect": Collect(*(entries.get(key, default) for key in _SWITCHES)),
        "histograms": histograms,
        # Off by default, as MindSpore documents it; MindSpore itself turns it on.
        "landscape": entries.get("collect_landscape"),
    }
