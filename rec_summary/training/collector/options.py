"""The collector's options: MindSpore's arguments, checked once and frozen.

Names, types and bounds are those of `mindspore.SummaryCollector` (MindSpore 2.10).
`docs/options.md` lists the differences.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.checks import (
    check_bool,
    check_entries,
    check_int,
    check_int_or_none,
    check_pattern,
    check_that,
)
from rec_summary.training.incidents import Incident
from rec_summary.training.landscape.options import LandscapeOptions, check_landscape
from rec_summary.training.probes.gradient_metrics import GradientMetrics
from rec_summary.training.session.options import SessionOptions

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


SETTINGS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "collect_freq": check_int,
    "collect_tensor_freq": check_int_or_none,
    "histograms": check_pattern,
    "tensors": check_pattern,
    "gradients": check_bool,
}
"""The options that can be changed from outside, by their names in `CollectorOptions`; each check
returns a valid value, and raises TypeError or ValueError if it is invalid."""

_ABSENT: Final = {"collect_tensor_freq": "a schedule", "gradients": "off"}
"""The texts that stand for None, where that is not `none`."""


@dataclass(frozen=True, kw_only=True)
class CollectorOptions(SessionOptions):
    """The checked options of a `SummaryCollector`.

    Attributes:
        collect: What is collected.
        landscape: Checkpoints for the loss landscape; None for none.
        most_histogram_values: The largest number of values in a histogram. A larger parameter is
            sampled. None for no limit.
        run_directory: Where a training records if the directory may hold another one.
        collect_tensor_freq: Tensors are collected at each multiple of this; None for the default
            schedule.
        histograms: Matched against the start of the names of parameters that get a histogram; the
            number of the optimizer's first parameters, or None for none.
        gradients: What is measured of gradients and updates; None for nothing.
        incident: What is kept of the last batches; None for nothing.
        tensors: Found in the names of parameters and tensors that are recorded whole; None for
            none. Only a request from outside sets it.
    """

    collect: Collect
    landscape: LandscapeOptions | None
    most_histogram_values: int | None
    run_directory: str
    collect_tensor_freq: int | None
    histograms: re.Pattern[str] | int | None
    gradients: GradientMetrics | None
    incident: Incident | None = None
    tensors: re.Pattern[str] | None = None

    def changed(self, settings: Mapping[str, Any]) -> CollectorOptions:
        """Returns the options with new values of some.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: A value is invalid, or there is no such option.
        """
        options = self
        for name, value in settings.items():
            check_that(name in SETTINGS, "a setting", name, f"one of {', '.join(SETTINGS)}")
            new = SETTINGS[name](name, value)
            if name == "histograms":
                new = new or FIRST_PARAMETERS
            elif name == "gradients":
                measured = options.gradients or GradientMetrics()
                new = dataclasses.replace(measured, every=1) if new else None
            options = dataclasses.replace(options, **{name: new})
        return options

    def shown(self) -> dict[str, str]:
        """Returns the options that can be changed from outside, as text."""
        return {name: self._shown(name) for name in SETTINGS}

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        if value is None:
            return _ABSENT.get(name, "none")
        if name == "histograms" and isinstance(value, int):
            return f"the first {value} parameters"
        if isinstance(value, GradientMetrics):
            return "every step" if value.every == 1 else f"every {value.every:,} steps"
        return value.pattern if isinstance(value, re.Pattern) else str(value)


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
