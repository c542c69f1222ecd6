"""The collector's options: MindSpore's arguments, checked once and frozen.

Names, types and bounds are those of `mindspore.SummaryCollector` (MindSpore 2.10).
`docs/options.md` lists the differences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary.checks import check_bool, check_int_or_none, check_pattern, check_type
from rec_summary.errors import three_part
from rec_summary.records.writing.run_writer import Durability, Rotation
from rec_summary.training.landscape.options import LandscapeOptions, check_landscape
from rec_summary.training.lineage.custom import CustomValue
from rec_summary.training.probes.gradient_metrics import GradientMetrics

_SWITCHES: Final = (
    "collect_metric",
    "collect_graph",
    "collect_train_lineage",
    "collect_eval_lineage",
    "collect_input_data",
    "collect_dataset_graph",
    "collect_health",
)
_KEYS: Final = (*_SWITCHES, "histogram_regular", "collect_landscape")

MOST_HISTOGRAM_VALUES: Final = 1 << 16


@dataclass(frozen=True)
class HistogramChoice:
    """The parameters that get a histogram.

    Attributes:
        pattern: Matched against the start of a parameter's name; None chooses the first `count`
            parameters of the optimizer.
        count: The number of parameters without a pattern.
        most_values: The largest number of values in a histogram. A larger parameter is sampled.
            None for no limit.
    """

    pattern: re.Pattern[str] | None = None
    count: int = 5
    most_values: int | None = MOST_HISTOGRAM_VALUES


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
        histogram: Histograms of parameters; None for none.
        landscape: Checkpoints for the loss landscape; None for none.
        tensors: Found in the names of parameters and tensors that are recorded whole; None for
            none. Only a request from outside sets it.
    """

    metric: bool
    graph: bool
    train_lineage: bool
    eval_lineage: bool
    input_data: bool
    dataset_graph: bool
    health: bool
    histogram: HistogramChoice | None
    landscape: LandscapeOptions | None
    tensors: re.Pattern[str] | None = None


@dataclass(frozen=True)
class CollectorOptions:
    """The checked options of a `SummaryCollector`.

    Attributes:
        summary_dir: The record directory.
        collect_freq: Values are collected at the first step and at each multiple of this.
        collect_tensor_freq: Tensors are collected at each multiple of this; None for the default
            schedule.
        collect: What is collected.
        custom_lineage: Custom lineage entries.
        export_npy: Whether tensors are also written as `.npy` files.
        rotation: The size of a full file, and what becomes of full files.
        flush_secs: The longest time between two flushes, in seconds.
        lineage_secs: The time between two refreshes of the train lineage, in seconds.
        lineage_on_all_ranks: Whether every rank writes lineage, and not only rank 0.
        durability: When files are synchronised, and what happens when the queue is full.
        run_directory: Where a training records if the directory may hold another one.
        gradients: What is measured of gradients and updates; None for nothing.
    """

    summary_dir: str
    collect_freq: int
    collect_tensor_freq: int | None
    collect: Collect
    custom_lineage: Mapping[str, CustomValue] = field(repr=False)
    export_npy: bool
    rotation: Rotation
    flush_secs: float
    lineage_secs: float
    lineage_on_all_ranks: bool
    durability: Durability
    run_directory: str
    gradients: GradientMetrics | None


def check_specified(
    specified: Mapping[str, Any] | None, keep_default: object, most_values: object
) -> Collect:
    """Returns what is collected, from MindSpore's dictionary.

    Args:
        specified: The argument `collect_specified_data`.
        keep_default: The argument `keep_default_action`.
        most_values: The argument `max_histogram_values`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has an invalid value.
    """
    most = check_int_or_none("max_histogram_values", most_values)
    default = check_bool("keep_default_action", keep_default)
    entries: Mapping[str, Any] = {} if specified is None else specified
    check_type("collect_specified_data", entries, Mapping, "a dict or None")
    for key, value in entries.items():
        check_type("a key of collect_specified_data", key, str, "a str")
        if key not in _KEYS:
            expected = f"one of {', '.join(_KEYS)}"
            raise ValueError(three_part("a key of collect_specified_data", key, expected))
        if key in _SWITCHES:
            check_bool(f"collect_specified_data[{key!r}]", value)
    histogram = None
    if default or "histogram_regular" in entries:
        name = "collect_specified_data['histogram_regular']"
        pattern = check_pattern(name, entries.get("histogram_regular"))
        histogram = HistogramChoice(pattern, most_values=most)
    switches = {key.removeprefix("collect_"): entries.get(key, default) for key in _SWITCHES}
    # Off by default, as MindSpore documents it; MindSpore itself turns it on.
    landscape = check_landscape(entries.get("collect_landscape"))
    return Collect(**switches, histogram=histogram, landscape=landscape)
