"""The collector's options: MindSpore's arguments, checked once and frozen.

Names, types and bounds are those of `mindspore.SummaryCollector` (MindSpore 2.10). What
differs is said in `docs/options.md`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary.errors import three_part
from rec_summary.records.writing.run_writer import Durability, Retention
from rec_summary.training.checks import (
    check_directory,
    check_pattern,
    check_positive_int,
    check_seconds,
    check_type,
)
from rec_summary.training.landscape.options import LandscapeOptions, check_landscape
from rec_summary.training.lineage.custom import CustomValue, check_custom_lineage, with_environment

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
    """Which parameters get a histogram.

    Attributes:
        pattern: Matched against the start of a parameter's name; None takes the first
            `count` parameters of the optimizer.
        count: How many parameters are taken when there is no pattern.
        most_values: How many values of a parameter are counted at most, of a larger one those
            of a sample; None for all.
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
        train_lineage: Which data, network and hyper-parameters the run has.
        eval_lineage: What an evaluation gave.
        input_data: The first column of the data, where it holds images.
        dataset_graph: The pipeline of the data set.
        health: How telemetry itself is doing.
        histogram: Histograms of parameters; None for none.
        landscape: Checkpoints for the loss landscape; None for none.
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


@dataclass(frozen=True)
class CollectorOptions:
    """The checked options of a `SummaryCollector`.

    Attributes:
        summary_dir: The record directory.
        collect_freq: Values are collected at the first step and at each multiple of this.
        collect_tensor_freq: Tensors are collected at each multiple of this; None for the
            default schedule.
        collect: What is collected.
        custom_lineage: The user's own lineage entries.
        export_npy: Whether tensors are also written as `.npy` files.
        retention: When files are full, and how many stay.
        flush_secs: Records older than this are with the operating system, in seconds.
        lineage_secs: How often the train lineage is refreshed, in seconds.
        lineage_on_all_ranks: Whether every rank writes lineage, and not rank 0 alone.
        durability: How hard records are held on to.
    """

    summary_dir: str
    collect_freq: int
    collect_tensor_freq: int | None
    collect: Collect
    custom_lineage: Mapping[str, CustomValue] = field(repr=False)
    export_npy: bool
    retention: Retention
    flush_secs: float
    lineage_secs: float
    lineage_on_all_ranks: bool
    durability: Durability


def check_options(
    summary_dir: str | os.PathLike[str],
    collect_freq: int,
    num_process: int,
    collect_specified_data: Mapping[str, Any] | None,
    keep_default_action: bool,
    custom_lineage_data: Mapping[str, CustomValue] | None,
    collect_tensor_freq: int | None,
    max_file_size: int | None,
    export_options: Mapping[str, Any] | None,
    *,
    flush_secs: float,
    lineage_secs: float,
    max_files: int | None,
    max_total_bytes: int | None,
    lineage_on_all_ranks: bool,
    durability: Durability | None,
    max_histogram_values: int | None = MOST_HISTOGRAM_VALUES,
) -> CollectorOptions:
    """Checks the collector's arguments and converts them.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has a value that is not allowed.
    """
    check_positive_int("collect_freq", collect_freq)
    check_positive_int("num_process", num_process)
    if collect_tensor_freq is not None:
        check_positive_int("collect_tensor_freq", collect_tensor_freq)
    if max_histogram_values is not None:
        check_positive_int("max_histogram_values", max_histogram_values)
    check_type("keep_default_action", keep_default_action, bool, "a bool")
    check_type("lineage_on_all_ranks", lineage_on_all_ranks, bool, "a bool")
    return CollectorOptions(
        summary_dir=check_directory("summary_dir", summary_dir),
        collect_freq=collect_freq,
        collect_tensor_freq=collect_tensor_freq,
        collect=_check_specified(collect_specified_data, keep_default_action, max_histogram_values),
        custom_lineage=with_environment(check_custom_lineage(custom_lineage_data)),
        export_npy=check_export_options(export_options),
        retention=check_retention(max_file_size, max_files, max_total_bytes),
        flush_secs=check_seconds("flush_secs", flush_secs),
        lineage_secs=check_seconds("lineage_secs", lineage_secs),
        lineage_on_all_ranks=lineage_on_all_ranks,
        durability=check_durability(durability),
    )


def check_durability(durability: Durability | None) -> Durability:
    """Returns the choices, or the defaults for None.

    Raises:
        TypeError: It is something else.
    """
    expected = "a rec_summary.Durability or None"
    check_type("durability", durability, (Durability, type(None)), expected)
    return durability or Durability()


def check_export_options(options: Mapping[str, Any] | None) -> bool:
    """Returns whether tensors are to be exported as `.npy` files.

    Raises:
        TypeError: It is not a dictionary, or holds something else than strings.
        ValueError: It asks for something that there is not.
    """
    if options is None:
        return False
    check_type("export_options", options, Mapping, "a dict or None")
    for key, value in options.items():
        check_type("a key of export_options", key, str, "a str")
        if key != "tensor_format":
            raise ValueError(three_part("a key of export_options", key, "'tensor_format'"))
        name = "export_options['tensor_format']"
        check_type(name, value, (str, type(None)), "'npy' or None")
        if value not in ("npy", None):
            raise ValueError(three_part(name, value, "'npy' or None"))
    return options.get("tensor_format") is not None


def check_retention(size: int | None, files: int | None, total: int | None) -> Retention:
    """Returns how much stays on disk. Files are dropped whole, so they must have a size.

    Raises:
        TypeError: A limit is not an int.
        ValueError: A limit is below 1, or the limits do not go together.
    """
    limits = {"max_file_size": size, "max_files": files, "max_total_bytes": total}
    for name, limit in limits.items():
        if limit is not None:
            check_positive_int(name, limit)
    if size is None and (files is not None or total is not None):
        expected = "an int of at least 1, where max_files or max_total_bytes is given"
        raise ValueError(three_part("max_file_size", size, expected))
    if size is not None and total is not None and total < 2 * size:
        expected = f"at least twice max_file_size, which is {size}"
        raise ValueError(three_part("max_total_bytes", total, expected))
    return Retention(**limits)


def _check_specified(
    specified: Mapping[str, Any] | None, keep_default: bool, most_values: int | None
) -> Collect:
    asked: Mapping[str, Any] = {} if specified is None else specified
    check_type("collect_specified_data", asked, Mapping, "a dict or None")
    for key, value in asked.items():
        check_type("a key of collect_specified_data", key, str, "a str")
        if key not in _KEYS:
            expected = f"one of {', '.join(_KEYS)}"
            raise ValueError(three_part("a key of collect_specified_data", key, expected))
        if key in _SWITCHES:
            check_type(f"collect_specified_data[{key!r}]", value, bool, "a bool")
    histogram = None
    if keep_default or "histogram_regular" in asked:
        regular = asked.get("histogram_regular")
        name = "collect_specified_data['histogram_regular']"
        histogram = HistogramChoice(check_pattern(name, regular), most_values=most_values)
    switches = {key.removeprefix("collect_"): asked.get(key, keep_default) for key in _SWITCHES}
    # Off unless asked for, as MindSpore documents and does not do.
    landscape = check_landscape(asked.get("collect_landscape"))
    return Collect(**switches, histogram=histogram, landscape=landscape)
