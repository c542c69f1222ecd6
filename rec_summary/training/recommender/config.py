"""`RecommenderMetrics`: which telemetry of a recommender is wanted, and where its inputs are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rec_summary.errors import three_part
from rec_summary.training.checks import check_directory, check_int, check_type

Function = Callable[[Any, Any], Any]
Place = int | str | Function
Source = Place | tuple[Place, int]
"""Where an input is; see `RecommenderMetrics`."""

_TASKS: Final = ("clicks", "ratings")
_OWN_COLUMNS: Final = ("label", "rating", "prediction")
_FEWEST_DECAYED: Final = 64
_FEWEST_LAST: Final = 16
_SOURCE: Final = (
    "an int, a str, a function of (inputs, outputs), or a pair of one of these and a column"
)
_SINGLE: Final = ("predictions", "labels", "weights", "users", "event_times")
_NUMBERS: Final = ("report_steps", "detail_every", "reference_examples", "sampled_rows", "top")
_SWITCHES: Final = ("logits", "throughput", "host", "resume")


@dataclass(frozen=True)
class RecommenderMetrics:
    """What is recorded of a recommender, for `SummaryCollector(recommender=...)`.

    `RecommenderMetrics(predictions=1, labels=2)` is enough for a network that returns
    (loss, prediction, label), trained with `RecModel(..., keep_outputs=True)` or with a
    `TrainStep`; `docs/recommender.md` has the other ways.

    A place is an int: of predictions, labels and weights the position among the network's
    outputs, of all others the position among the columns of the batch; a str: the name of a
    column of the data set, else the tag of a `TensorSummary` operator in the network; or a
    function of (inputs, outputs), two tuples of Tensors, that returns a Tensor or an array.
    It runs on the training thread. A pair of a place and an int is one column of a matrix.

    Attributes:
        predictions: Predicted probabilities of a click, or predicted ratings.
        labels: 0 and 1, or ratings. Predictions and labels come together or not at all.
        task: ``"clicks"`` or ``"ratings"``.
        logits: Whether predictions are log-odds and not probabilities.
        weights: Of examples; all 1 if None.
        users: Integer ids, for the AUC within each user.
        ids: The integer ids that are looked up in each embedding table, by the name of its
            parameter or an unmistakable beginning of that, such as ``"item_embedding"``. A
            table that the network does not have under this name gets no row norms.
        unknown_ids: By table, the id that stands for everything unknown.
        event_times: When each example happened, in seconds since 1970.
        features: Columns whose drift is watched; integers are taken for categories.
        last: Windows over the last so many examples of a rank.
        half_lives: Windows that decay, with their half-lives in examples of a rank.
        report_steps: So many steps lie between two reports.
        detail_every: Curves, histograms, frequent ids and sampled rows come with every so many
            reports, and with the last one; so do the states from which ranks are merged.
        reference: A file that was kept of an earlier run as its reference for drift; None takes
            the first examples of this one.
        reference_examples: How many.
        bins: Of the score: a power of two, 64 to 65,536.
        thresholds: Of PR curves.
        user_cells: How many cells (24 bytes) the sample of users may take.
        sampled_rows: How many rows of each table are looked at.
        top: How many of the most frequent ids are recorded.
        throughput: Whether pace, waiting for data and freshness are recorded.
        host: Whether memory and processor time are, which needs psutil.
        state_secs: How often the state for a restart is written, in seconds.
        resume: Whether a run goes on from the state that is in its record directory.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has a value that is not allowed.
    """

    predictions: Source | None = None
    labels: Source | None = None
    task: str = "clicks"
    logits: bool = False
    weights: Source | None = None
    users: Source | None = None
    ids: Mapping[str, Source] = field(default_factory=dict)
    unknown_ids: Mapping[str, int] = field(default_factory=dict)
    event_times: Source | None = None
    features: Mapping[str, Source] = field(default_factory=dict)
    last: Sequence[int] = (100_000,)
    half_lives: Sequence[int] = (100_000,)
    report_steps: int = 500
    detail_every: int = 4
    reference: str | os.PathLike[str] | None = None
    reference_examples: int = 10_000
    bins: int = 1024
    thresholds: int = 129
    user_cells: int = 16_384
    sampled_rows: int = 1024
    top: int = 20
    throughput: bool = True
    host: bool = True
    state_secs: float = 30.0
    resume: bool = True

    def __post_init__(self) -> None:
        """Checks."""
        for name in _SINGLE:
            value = getattr(self, name)
            if value is not None:
                _check_source(name, value)
        for name in ("ids", "features"):
            _check_mapping(name, getattr(self, name))
            for key, value in getattr(self, name).items():
                _check_source(f"{name}[{key!r}]", value)
            object.__setattr__(self, name, dict(getattr(self, name)))
        for name in self.features:
            if name in _OWN_COLUMNS:
                expected = f"none of {', '.join(_OWN_COLUMNS)}, which are watched anyway"
                raise ValueError(three_part("a key of features", name, expected))
        self._check_unknown()
        if (self.predictions is None) != (self.labels is None):
            missing = "labels" if self.labels is None else "predictions"
            expected = "both of predictions and labels, or none"
            raise ValueError(three_part(missing, None, expected))
        if self.predictions is None and (self.users is not None or self.weights is not None):
            name = "users" if self.users is not None else "weights"
            expected = "None, where there are no predictions"
            raise ValueError(three_part(name, getattr(self, name), expected))
        if self.task not in _TASKS:
            raise ValueError(three_part("task", self.task, "'clicks' or 'ratings'"))
        for name in _SWITCHES:
            check_type(name, getattr(self, name), bool, "a bool")
        if self.task == "ratings" and (self.logits or self.users is not None):
            name = "logits" if self.logits else "users"
            raise ValueError(three_part(name, getattr(self, name), "nothing for task='ratings'"))
        for name in _NUMBERS:
            check_int(name, getattr(self, name))
        self._check_sizes()
        if self.reference is not None:
            object.__setattr__(self, "reference", check_directory("reference", self.reference))

    def _check_unknown(self) -> None:
        _check_mapping("unknown_ids", self.unknown_ids)
        for table, value in self.unknown_ids.items():
            check_type(f"unknown_ids[{table!r}]", value, int, "an int")
            if table not in self.ids:
                expected = f"a table that ids names: {', '.join(self.ids) or 'none'}"
                raise ValueError(three_part("a table of unknown_ids", table, expected))
        object.__setattr__(self, "unknown_ids", dict(self.unknown_ids))

    def _check_sizes(self) -> None:
        for name, least in (("last", _FEWEST_LAST), ("half_lives", _FEWEST_DECAYED)):
            sizes = getattr(self, name)
            expected = f"a sequence of different ints of at least {least}"
            check_type(name, sizes, (list, tuple), expected)
            for size in sizes:
                check_type(name, size, int, expected)
            if any(size < least for size in sizes) or len(set(sizes)) < len(sizes):
                raise ValueError(three_part(name, sizes, expected))
            object.__setattr__(self, name, tuple(sizes))
        check_type("bins", self.bins, int, "a power of two, 64 to 65,536")
        if not 64 <= self.bins <= 65_536 or self.bins & (self.bins - 1):
            raise ValueError(three_part("bins", self.bins, "a power of two, 64 to 65,536"))
        check_type("thresholds", self.thresholds, int, "an int of at least 2")
        if self.thresholds < 2:
            raise ValueError(three_part("thresholds", self.thresholds, "an int of at least 2"))
        check_type("user_cells", self.user_cells, int, "an int of at least 2,048")
        if self.user_cells < 2048:
            raise ValueError(three_part("user_cells", self.user_cells, "an int of at least 2,048"))
        check_type("state_secs", self.state_secs, (int, float), "a number of seconds, at least 0")
        if not 0 <= self.state_secs < float("inf"):
            raise ValueError(
                three_part("state_secs", self.state_secs, "a finite number of seconds, at least 0")
            )


def check_recommender(value: object) -> RecommenderMetrics | None:
    """Returns the collector's argument.

    Raises:
        TypeError: It is something else than a `RecommenderMetrics` or None.
    """
    expected = "a rec_summary.RecommenderMetrics or None"
    check_type("recommender", value, (RecommenderMetrics, type(None)), expected)
    return value if isinstance(value, RecommenderMetrics) else None


def _check_mapping(name: str, value: object) -> None:
    check_type(name, value, Mapping, "a dict with str keys")
    assert isinstance(value, Mapping)
    for key in value:
        check_type(f"a key of {name}", key, str, "a non-empty str")
        if not key:
            raise ValueError(three_part(f"a key of {name}", key, "a non-empty str"))


def _check_source(name: str, value: object) -> None:
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(three_part(name, value, _SOURCE))
        place, column = value
        check_type(f"the column of {name}", column, int, "an int")
    else:
        place = value
    if isinstance(place, bool) or not (isinstance(place, int | str) or callable(place)):
        raise TypeError(three_part(name, value, _SOURCE))
    if isinstance(place, str) and not place:
        raise ValueError(three_part(name, value, _SOURCE))
