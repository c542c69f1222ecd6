"""The collector's options: MindSpore's arguments, checked once and frozen.

Names, types and bounds are those of `mindspore.SummaryCollector` (MindSpore 2.10). What
differs is said where it differs.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary.errors import three_part
from rec_summary.records.background import DEFAULT_FLUSH_SECS

CustomValue = str | int | float

_SWITCHES: Final = {
    "collect_metric": True,
    "collect_graph": True,
    "collect_train_lineage": True,
    "collect_eval_lineage": True,
    "collect_input_data": True,
    "collect_dataset_graph": True,
}
_KEYS: Final = (*_SWITCHES, "histogram_regular", "collect_landscape")

# Asked for by name, these are answered with a note: this version does not record them.
_LATER: Final = (
    "collect_graph",
    "collect_input_data",
    "collect_dataset_graph",
    "collect_landscape",
)


@dataclass(frozen=True)
class HistogramChoice:
    """Which parameters get a histogram.

    Attributes:
        pattern: Matched against the start of a parameter's name; None takes the first
            `count` parameters of the optimizer.
        count: How many parameters are taken when there is no pattern.
    """

    pattern: re.Pattern[str] | None = None
    count: int = 5


@dataclass(frozen=True)
class Collect:
    """What is collected.

    Attributes:
        metric: The loss and the learning rate.
        histogram: Histograms of parameters; None for none.
        train_lineage: Which data, network and hyper-parameters the run has.
        eval_lineage: What an evaluation gave.
    """

    metric: bool = True
    histogram: HistogramChoice | None = field(default_factory=HistogramChoice)
    train_lineage: bool = True
    eval_lineage: bool = True


@dataclass(frozen=True)
class CollectorOptions:
    """The checked options of a `SummaryCollector`.

    Attributes:
        summary_dir: The record directory.
        collect_freq: Values are collected at the first step and at each multiple of this.
        collect: What is collected.
        custom_lineage: The user's own lineage entries.
        flush_secs: Records older than this are with the operating system, in seconds.
        lineage_secs: How often the train lineage is refreshed, in seconds.
        notes: What the user should be told about these options.
    """

    summary_dir: str
    collect_freq: int
    collect: Collect
    custom_lineage: Mapping[str, CustomValue]
    flush_secs: float
    lineage_secs: float
    notes: tuple[str, ...]


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
    flush_secs: float = DEFAULT_FLUSH_SECS,
    lineage_secs: float = 30.0,
) -> CollectorOptions:
    """Checks the collector's arguments and converts them.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument has a value that is not allowed.
    """
    _check_positive_int("collect_freq", collect_freq)
    _check_positive_int("num_process", num_process)
    _check_type("keep_default_action", keep_default_action, bool, "a bool")
    notes = []
    for name, size in (
        ("collect_tensor_freq", collect_tensor_freq),
        ("max_file_size", max_file_size),
    ):
        if size is not None:
            _check_positive_int(name, size)
            notes.append(f"{name}={size} has no effect yet in this version")
    if _check_export_options(export_options):
        notes.append("export_options has no effect yet in this version")
    asked = _check_specified(collect_specified_data)
    notes += [f"{key} is not recorded yet by this version" for key in _LATER if asked.get(key)]
    return CollectorOptions(
        summary_dir=_check_directory(summary_dir),
        collect_freq=collect_freq,
        collect=_to_collect(asked, keep_default_action),
        custom_lineage=_check_custom_lineage(custom_lineage_data),
        flush_secs=_check_seconds("flush_secs", flush_secs),
        lineage_secs=_check_seconds("lineage_secs", lineage_secs),
        notes=tuple(notes),
    )


def _to_collect(asked: Mapping[str, Any], keep_default: bool) -> Collect:
    switches = {key: asked.get(key, default and keep_default) for key, default in _SWITCHES.items()}
    histogram = None
    if keep_default or "histogram_regular" in asked:
        regular = asked.get("histogram_regular")
        histogram = HistogramChoice(None if regular is None else re.compile(regular))
    return Collect(
        metric=switches["collect_metric"],
        histogram=histogram,
        train_lineage=switches["collect_train_lineage"],
        eval_lineage=switches["collect_eval_lineage"],
    )


def _check_specified(specified: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if specified is None:
        return {}
    _check_type("collect_specified_data", specified, Mapping, "a dict or None")
    for key, value in specified.items():
        what = f"collect_specified_data[{key!r}]"
        _check_type("a key of collect_specified_data", key, str, "a str")
        if key not in _KEYS:
            raise ValueError(
                three_part("a key of collect_specified_data", key, f"one of {', '.join(_KEYS)}")
            )
        if key in _SWITCHES:
            _check_type(what, value, bool, "a bool")
        elif key == "histogram_regular":
            _check_type(what, value, (str, type(None)), "a str or None")
            _check_regex(what, value)
        else:
            _check_type(what, value, (Mapping, type(None)), "a dict or None")
    return specified


def _check_regex(what: str, pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        re.compile(pattern)
    except re.error as error:
        expected = f"a regular expression that compiles ({error})"
        raise ValueError(three_part(what, pattern, expected)) from error


def _check_custom_lineage(data: Mapping[str, CustomValue] | None) -> Mapping[str, CustomValue]:
    if data is None:
        return {}
    _check_type("custom_lineage_data", data, Mapping, "a dict or None")
    for key, value in data.items():
        _check_type("a key of custom_lineage_data", key, str, "a str")
        if not isinstance(value, (str, int, float)):
            what = f"custom_lineage_data[{key!r}]"
            raise TypeError(three_part(what, value, "a str, an int or a float"))
    return dict(data)


def _check_export_options(options: Mapping[str, Any] | None) -> bool:
    if options is None:
        return False
    _check_type("export_options", options, Mapping, "a dict or None")
    for key, value in options.items():
        _check_type("a key of export_options", key, str, "a str")
        if key != "tensor_format":
            raise ValueError(three_part("a key of export_options", key, "'tensor_format'"))
        _check_type("export_options['tensor_format']", value, (str, type(None)), "'npy' or None")
        if value not in ("npy", None):
            raise ValueError(three_part("export_options['tensor_format']", value, "'npy' or None"))
    return options.get("tensor_format") is not None


def _check_directory(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(three_part("summary_dir", path, "a str or a path"))
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(three_part("summary_dir", path, "the path of a directory"))
    return os.path.abspath(text)


def _check_seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(three_part(name, value, "a number of seconds"))
    if not (math.isfinite(value) and value > 0):
        raise ValueError(three_part(name, value, "a finite number of seconds above 0"))
    return float(value)


def _check_positive_int(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(three_part(name, value, "an int of at least 1"))
    if value < 1:
        raise ValueError(three_part(name, value, "an int of at least 1"))


def _check_type(name: str, value: object, types: Any, expected: str) -> None:
    # bool is an int to Python, but nobody who passes True means 1
    if not isinstance(value, types):
        raise TypeError(three_part(name, value, expected))
