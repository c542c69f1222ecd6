"""`RecommenderMetrics`: the metrics of a recommender."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from rec_summary.checks import (
    LARGEST,
    check_bool,
    check_directory,
    check_elements,
    check_int,
    check_optional,
    check_that,
    check_type,
)
from rec_summary.errors import three_part
from rec_summary.metrics.lists.choices import MOST_K, MOST_PLACES
from rec_summary.metrics.tags import OF_SLICES, SERVED, judging
from rec_summary.training.recommender.columns import Feature, Source, check_source, columns_of
from rec_summary.training.recommender.importance import Importance
from rec_summary.training.recommender.slices import Slice, check_slices
from rec_summary.training.recommender.task import Task, check_quality, check_tasks

OptionT = TypeVar("OptionT")

OWN_COLUMNS: Final = ("label", "rating", "true_class", "prediction")
"""The columns of a task that have drift."""

LABEL_AGE: Final = "label_age"
"""The name of the slices by the time from a label to its training."""

MODEL_AGE: Final = "served_model_age"
"""The name of the slices by the age of the model that served an example."""

_AGES: Final = (60.0, 3600.0, 86_400.0, 604_800.0)
_NAMES_OF_AGES: Final = {
    0: "below a minute",
    1: "a minute to an hour",
    2: "an hour to a day",
    3: "a day to a week",
    4: "from a week",
}
_LEAST_SIZES: Final = {"last": 16, "half_lives": 64}
_OF_ONE_TASK: Final = {
    **dict.fromkeys(("predictions", "labels", "weights", "users", "lists"), None),
    **dict.fromkeys(("served", "model_age"), None),
    "task": "clicks",
    "logits": False,
    "negative_rate": 1.0,
}
_BINS: Final = "a power of two, 64 to 65,536"
_SWITCHES: Final = ("throughput", "host", "resume", "detail")


@dataclass(frozen=True)
class Advanced:
    """Options that few need, for `RecommenderMetrics(advanced=Advanced(bins=4096))`.

    Attributes:
        bins: Half the number of cells of the score for the AUC and the curves, a power of two from
            64 to 65,536. Cells adapt to the scores there are. Raise it if `troubles` says that the
            AUC may be wrong.
        user_cells: The cells of the sample of users, and the examples of the sample of lists, at
            least 2,048: 32 bytes each.
        precisions: Precisions, above 0 and at most 1. For each, the lowest threshold of the score
            with this precision is recorded, and its recall.
        detail_every: Reports from one detailed report to the next; the last report is always
            detailed. A detailed report has curves, sampled rows, and the states for the merge of
            ranks.
        reference_examples: The number of the first examples of which the reference for drift is
            built.
        state_secs: The time between two writes of the state for a restart, in seconds.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    bins: int = 1024
    user_cells: int = 16_384
    precisions: Sequence[float] = ()
    detail_every: int = 4
    reference_examples: int = 10_000
    state_secs: float = 30.0

    def __post_init__(self) -> None:
        """Checks the options."""
        check_type("bins", self.bins, int, _BINS)
        if not 64 <= self.bins <= 65_536 or self.bins & (self.bins - 1):
            raise ValueError(three_part("bins", self.bins, _BINS))
        check_int("user_cells", self.user_cells, 2048)
        shares = "a sequence of numbers above 0, at most 1"
        precisions = check_elements("precisions", self.precisions, (int, float), shares)
        is_share = all(0 < precision <= 1 for precision in precisions)
        check_that(is_share, "precisions", precisions, shares)
        object.__setattr__(self, "precisions", precisions)
        for name in ("detail_every", "reference_examples"):
            check_int(name, getattr(self, name), 1)
        seconds = "a finite number of seconds, at least 0"
        check_type("state_secs", self.state_secs, (int, float), seconds)
        check_that(0 <= self.state_secs < float("inf"), "state_secs", self.state_secs, seconds)


@dataclass(frozen=True)
class RecommenderMetrics:
    """The metrics of a recommender, for `SummaryCollector(recommender=...)`.

    `RecommenderMetrics(predictions=1, labels=2)` is enough for a network that returns
    (loss, prediction, label) and trains with `RecModel(..., keep_outputs=True)` or with a
    `TrainStep`. `docs/recommender.md` describes the other ways.

    A place is an int, a str or a function:

    - An int is a position among the network's outputs for predictions, labels and weights, and a
      position among the columns of the batch for all other inputs.
    - A str is the name of a `probe` in the network, else that of a column of the data set, else
      the tag of a `TensorSummary` operator.
    - A function of (inputs, outputs), two tuples of Tensors, returns a Tensor or an array. It runs
      on the training thread.

    A pair of a place and an int is one column of a matrix.

    Attributes:
        predictions: What the network predicts, as described for `Task`.
        labels: What is true, as described for `Task`. Predictions need labels, and labels need
            predictions.
        task: The kind of predictions: ``"clicks"``, ``"ratings"``, ``"classes"`` or
            ``"retrieval"``.
        logits: Whether predictions are log-odds and not probabilities.
        weights: The weights of examples; all 1 if None.
        negative_rate: The share of non-clicks that the training has, above 0; below 1, the
            calibration of all examples is recorded as well.
        users: Integer or string ids, for the AUC within each user.
        tasks: The tasks of a network with several, by name, in place of predictions, labels, task,
            logits, weights, negative_rate, users, lists, served and model_age. The tags of a task
            are ``recommender/<name>/...``.
        slices: Columns by whose values the metrics of each task are split: a place, or a `Slice`
            with options. The tags are ``recommender/slice/<name>=<value>/...``.
        lists: Integer or string ids of the session or request that each example is a part of, for
            NDCG and other metrics of its list.
        served: The score that each example was served with, as described for `Task`.
        model_age: How old the served model was, in seconds, as described for `Task`.
        k: The numbers of examples at the top of a list that its metrics are of.
        ids: The ids of the lookups in each embedding table, by the name of the table's parameter
            or a unique prefix of it, such as ``"item_embedding"``. They are integers, or strings
            if the table is open. A table that the network does not have gets no row norms.
        unknown_ids: By table, the id that stands for all unknown ids, or fills up rows.
        hashed_ids: The tables whose ids are hashes: their collisions are estimated.
        event_times: The time of each example, in seconds since 1970.
        label_times: When the label of each example became known, in seconds since 1970: for the
            delay from the event to the label, and the metrics by the age of the label. It needs
            `event_times`.
        features: Columns for drift and for the shares of missing and invalid values: a place, or a
            `Feature` with a default and a range. Integers are categories.
        reference: The reference file of an earlier run for drift; None builds the reference from
            the first examples of this run.
        last: Sizes of windows over the last examples, in examples of a rank.
        half_lives: Half-lives of decaying windows, in examples of a rank.
        detail: Whether to record all metrics that `docs/recommender.md` lists, and those of all
            examples (the window `lifetime`); otherwise only the most important ones.
        report_steps: Steps from one report to the next.
        throughput: Whether to record throughput, the wait for data, and freshness.
        host: Whether to record memory and processor time; needs psutil.
        resume: Whether a run continues from the state in its record directory.
        importance: Passes for the importance of features; None for none.
        advanced: Options that few need.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    predictions: Source | None = None
    labels: Source | None = None
    task: str = "clicks"
    logits: bool = False
    weights: Source | None = None
    negative_rate: float = 1.0
    users: Source | None = None
    ids: Mapping[str, Source] = field(default_factory=dict)
    unknown_ids: Mapping[str, int] = field(default_factory=dict)
    event_times: Source | None = None
    features: Mapping[str, Source | Feature] = field(default_factory=dict)
    last: Sequence[int] = (100_000,)
    half_lives: Sequence[int] = ()
    detail: bool = False
    report_steps: int = 500
    reference: str | os.PathLike[str] | None = None
    throughput: bool = True
    host: bool = True
    resume: bool = True
    tasks: Mapping[str, Task] = field(default_factory=dict)
    slices: Mapping[str, Source | Slice] = field(default_factory=dict)
    lists: Source | None = None
    k: Sequence[int] = (10,)
    hashed_ids: Sequence[str] = ()
    label_times: Source | None = None
    advanced: Advanced = field(default_factory=Advanced)
    served: Source | None = None
    model_age: Source | None = None
    importance: Importance | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        check_quality(self, "task")
        self._check_columns()
        self._check_tables()
        self._check_tasks()
        self._check_combinations()
        self._check_numbers()
        self._check_metrics_of_slices()
        kinds = {task.kind for task in tasks_of(self).values()}
        can_lose = self.importance is None or bool(kinds - {"retrieval"})
        expected = "None without predictions of kind clicks, ratings or classes"
        check_that(can_lose, "importance", self.importance, expected)
        for name in _SWITCHES:
            check_bool(name, getattr(self, name))
        if self.reference is not None:
            self._set("reference", check_directory("reference", self.reference))

    def _set(self, name: str, checked: OptionT) -> OptionT:
        """Sets an option of this frozen class to a checked copy, and returns it."""
        object.__setattr__(self, name, checked)
        return checked

    def _check_columns(self) -> None:
        for name in ("event_times", "label_times"):
            if getattr(self, name) is not None:
                check_source(name, getattr(self, name))
        has_times = self.event_times is not None or self.label_times is None
        expected = "the place of the times, which label_times needs"
        check_that(has_times, "event_times", None, expected)
        features = _check_mapping("features", self.features)
        self._set("features", columns_of("features", features, Feature))

    def _check_tables(self) -> None:
        ids = self._set("ids", _check_mapping("ids", self.ids))
        for table, source in ids.items():
            check_source(f"ids[{table!r}]", source)
        self._set("unknown_ids", _check_mapping("unknown_ids", self.unknown_ids))
        for table, value in self.unknown_ids.items():
            check_type(f"unknown_ids[{table!r}]", value, int, "an int")
        names = "a sequence of names of tables"
        self._set("hashed_ids", check_elements("hashed_ids", self.hashed_ids, str, names))
        for name in ("unknown_ids", "hashed_ids"):
            for table in getattr(self, name):
                expected = f"a table that ids names: {', '.join(ids) or 'none'}"
                check_that(table in ids, f"a table of {name}", table, expected)

    def _check_tasks(self) -> None:
        tasks = self._set("tasks", _check_mapping("tasks", self.tasks))
        check_tasks(tasks)
        own = {f"{task}/{name}" for task in tasks for name in OWN_COLUMNS}
        for name in self.features:
            expected = f"none of {', '.join([*OWN_COLUMNS, *own])}, which always have drift"
            check_that(name not in own.union(OWN_COLUMNS), "a key of features", name, expected)
        slices = self._set("slices", check_slices(_check_mapping("slices", self.slices)))
        if not tasks and self.predictions is None:
            check_that(not slices, "slices", sorted(slices), "none without predictions")
        ages = {task.model_age for task in tasks.values()} - {None}
        check_that(len(ages) <= 1, "model_age", sorted(map(str, ages)), "one place for all tasks")
        has_age = bool(ages) or self.model_age is not None
        for name, giver, is_given in (
            (LABEL_AGE, "label_times", self.label_times is not None),
            (MODEL_AGE, "model_age", has_age),
        ):
            expected = f"another name: {giver} gives a slice of this name"
            check_that(not is_given or name not in slices, "a name of slices", name, expected)

    def _check_numbers(self) -> None:
        check_int("report_steps", self.report_steps)
        check_type("advanced", self.advanced, Advanced, "a rec_summary.Advanced")
        check_optional("importance", self.importance, Importance)
        for name, least in _LEAST_SIZES.items():
            self._set(name, _check_sizes(name, getattr(self, name), least))
        self._set("k", _check_sizes("k", self.k, 1, MOST_K))
        check_that(len(self.k) <= MOST_PLACES, "k", f"{len(self.k)} ints", f"at most {MOST_PLACES}")
        windows = "one size or more, unless detail=True"
        check_that(self.last or self.detail, "last", self.last, windows)

    def _check_combinations(self) -> None:
        for name, unset in _OF_ONE_TASK.items():
            value = getattr(self, name)
            expected = f"{unset!r} beside tasks: set this option in each Task"
            check_that(not self.tasks or value == unset, name, value, expected)
        given = self.predictions is not None, self.labels is not None
        if given[0] != given[1] and not (given[0] and self.task == "retrieval"):
            missing = "labels" if given[0] else "predictions"
            raise ValueError(three_part(missing, None, "both of predictions and labels, or none"))
        for name in ("users", "weights", "lists", "served", "model_age"):
            value = getattr(self, name)
            expected = "None without predictions"
            check_that(self.predictions is not None or value is None, name, value, expected)

    def _check_metrics_of_slices(self) -> None:
        known = set(OF_SLICES)
        for task in tasks_of(self).values():
            kinds = [
                name for name in ("users", "lists", "served") if getattr(task, name) is not None
            ]
            known.update(*(judging(kind, self.k) for kind in (task.kind, *kinds)))
        for name, slice_ in check_slices(self.slices).items():
            for metric in slice_.metrics:
                expected = f"metrics of a task that are split: {', '.join(sorted(known))}"
                check_that(metric in known, f"metrics of slices[{name!r}]", metric, expected)


def tasks_of(options: RecommenderMetrics) -> dict[str, Task]:
    """Returns the tasks by name; that of the options without `tasks` has the empty name."""
    if options.predictions is None:
        return dict(options.tasks)
    same = {name: getattr(options, name) for name in _OF_ONE_TASK if name != "task"}
    return {"": Task(**same, missing=None, kind=options.task)}


def slices_of(options: RecommenderMetrics) -> dict[str, Slice]:
    """Returns the slices by name; among them those of the ages of labels and of served models."""
    slices, tasks = check_slices(options.slices), tasks_of(options).values()
    if options.label_times is not None and tasks:
        slices[LABEL_AGE] = Slice(options.label_times, edges=_AGES, names=_NAMES_OF_AGES)
    for age in {task.model_age for task in tasks if task.model_age is not None}:  # one at most
        own = judging(SERVED)
        slices[MODEL_AGE] = Slice(age, edges=_AGES, names=_NAMES_OF_AGES, metrics=own)
    return slices


def _check_sizes(name: str, sizes: Any, least: int, most: int = LARGEST) -> tuple[int, ...]:
    expected = f"a sequence of different ints of at least {least}"
    expected += f", at most {most}" if most < LARGEST else ""
    checked = check_elements(name, sizes, int, expected)
    if any(not least <= size <= most for size in sizes) or len(set(sizes)) < len(sizes):
        raise ValueError(three_part(name, sizes, expected))
    return checked


def _check_mapping(name: str, value: Any) -> dict[str, Any]:
    """Returns a checked copy of a dict with str keys."""
    check_type(name, value, Mapping, "a dict with str keys")
    for key in value:
        check_type(f"a key of {name}", key, str, "a non-empty str")
        check_that(key, f"a key of {name}", key, "a non-empty str")
    return dict(value)
