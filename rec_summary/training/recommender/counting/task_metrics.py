"""The quality of one task's predictions on one rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.arrays import Array, Floats, Integers
from rec_summary.errors import three_part, verbatim
from rec_summary.metrics import report, tags
from rec_summary.metrics.drift import LABEL
from rec_summary.metrics.lists.choices import ChoiceQuality
from rec_summary.metrics.lists.ranked_lists import (
    LARGEST_SCORE,
    RankedLists,
    SampledExamples,
)
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import REASONS, Clicks, clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.labels import LabelCounts
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.served import Comparison, ServedQuality
from rec_summary.metrics.slices.states import SlicedBatch, Slices, SliceState, Slicing
from rec_summary.metrics.slices.sums import Moments, ValueSums
from rec_summary.metrics.state import ColumnBatch, State
from rec_summary.metrics.windows import (
    Decayed,
    LastExamples,
    Lifetime,
    Window,
    count_together,
)
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender import inputs
from rec_summary.training.recommender.config import RecommenderMetrics, slices_of
from rec_summary.training.recommender.counting.mistakes import MOST_REFUSED, TaskMistakes
from rec_summary.training.recommender.inputs import Roles, Steps, role_of
from rec_summary.training.recommender.slices import Slice
from rec_summary.training.recommender.task import Task
from rec_summary.values.slice_sums import SlicedSums

_SLICE_BINS: Final = 128  # of the score in a slice
_SLICE_CELLS: Final = 2048  # of users, lists and pairs in a slice
_PAIR_ROWS: Final = 16_384
_PAIRS: Final = 2048  # examples of which the error of the gain in AUC is estimated, of 2 % itself
_SLICE_PAIRS: Final = 512
_BUCKETS: Final = 8  # of a window: of slices as of the whole task, so that they add up
_NO_PROBABILITY: Final = ("score outside [0, 1]", "probabilities do not add up to 1")
_OF_MATRICES: Final = ("classes", "retrieval")


class Examples(NamedTuple):
    """The examples of a task, each array (examples,).

    Attributes:
        scores: Probabilities of a click, or predicted ratings; a row of scores for each example of
            classes or of a retrieval, (examples, candidates).
        labels: The labels.
        weights: The weights; None if each is 1.
        users: The ids of users; None if they are not known.
        slicings: The slices, by the name of the column.
        lists: The ids of lists; None if they are not known.
        odds: The log-odds of a click, by which examples are ranked; None if the scores rank them.
        served: The scores that were served; None if they are not known.
    """

    scores: Array
    labels: Array
    weights: Array | None
    users: Array | None
    slicings: Mapping[str, Slicing] = MappingProxyType({})
    lists: Array | None = None
    odds: Array | None = None
    served: Array | None = None

    def at(self, kept: Array) -> Examples:
        """Returns the examples at which `kept`, bools of shape (examples,), is set."""
        weights, users, lists, odds, served = (
            None if column is None else column[kept]
            for column in (self.weights, self.users, self.lists, self.odds, self.served)
        )
        slicings = {name: slicing.at(kept) for name, slicing in self.slicings.items()}
        scores, labels = self.scores[kept], self.labels[kept]
        return Examples(scores, labels, weights, users, slicings, lists, odds, served)


class TaskMetrics:
    """The metrics of one task: its windows of the quality, of users, and of what it leaves out."""

    def __init__(
        self,
        name: str,
        task: Task,
        options: RecommenderMetrics,
        roles: Roles,
        troubles: Troubles,
        rank: int,
    ) -> None:
        """Starts empty.

        Args:
            name: The name of the task; empty if it has none.
            task: The task.
            options: The metrics.
            roles: The places of the inputs.
            troubles: Receives what is wrong with many examples.
            rank: The rank of this process.
        """
        self._name = name
        self._task = task
        self._options = options
        self._roles = roles
        self._mistakes = TaskMistakes(name, task, troubles)
        self._first = rank << 40  # the number of the first example, beyond those of other ranks
        self._predicts_nan = False  # in the last batch
        self._predicts_odds = False  # in the last report that had examples
        self._scored = 0  # examples since the last report
        self._odds = 0  # those of them whose scores are no probabilities
        self._empty = _empty_states(task, options)
        self._windows: dict[str, dict[str, Window[Any]]] = {}
        for group, empty in self._empty.items():
            # To scale the cells of users, or lists, in a decaying window would copy all of them.
            half_lives = options.half_lives if group == tags.QUALITY else ()
            self._windows[group] = _windows(empty, options, half_lives)
        self._left_out: dict[str, Window[Any]] = {}
        if task.mask is not None or task.missing is not None:
            self._left_out = _windows(LabelCounts(), options)
            self._windows[tags.LABELS] = self._left_out
        self._slices = slices_of(options)
        for column, slice_ in self._slices.items():
            group = tags.key(tags.SLICE, column)
            self._windows[group] = _windows_of_slices(slice_, task, options)
        self._sums: dict[str, Any] = {}
        if task.kind == "clicks":
            mosts = {name: slice_.most for name, slice_ in self._slices.items()}
            self._sums = {name: ValueSums(most) for name, most in {"": 1, **mosts}.items()}
        self._several: set[str] = set()  # columns with several values for an example

    @property
    def groups(self) -> dict[str, dict[str, Any]]:
        """The windows by group and name. You may replace them by stored ones."""
        return {
            tags.group_of(self._name, group): windows for group, windows in self._windows.items()
        }

    def end_interval(self) -> dict[str, State]:
        """Returns the states of a report, by key, and reports the mistakes of the interval."""
        self._mistakes.end_interval()
        states: dict[str, State] = {}
        for group, windows in self.groups.items():
            for name, window in windows.items():
                state = states[tags.key(group, name)] = window.total()
                if isinstance(state, Slices):
                    # What is stored for a restart has it.
                    window.empty.tagged = state.tag_shown(window.empty.tagged)
                state.shorten()
        return states

    @property
    def sums(self) -> dict[str, Any]:
        """The sums by slice, by column. You may replace them by stored ones."""
        return self._sums

    def end_sums(self, *, detailed: bool) -> Iterator[SlicedSums]:
        """Yields the sums since the last report, and begins an interval.

        Args:
            detailed: Whether the sums have the orders of the scores.
        """
        for column, sums in self._sums.items():
            counted, several = sums.end_interval(detailed=detailed), column in self._several
            if counted.values:
                yield SlicedSums.of(self._name, column, several, counted)

    def select(self, steps: Steps, slicings: Mapping[str, Slicing]) -> Examples | None:
        """Returns the examples of the task that have a label; None if an input is not there.

        It counts the others.

        Args:
            steps: The inputs.
            slicings: The slices of all examples, by the name of the column.

        Raises:
            ValueError: The inputs differ in length.
        """
        columns = self._columns(steps)
        scores, labels, weights, users, lists, served, mask = (
            columns[role] for role in inputs.OF_TASK
        )
        if scores is None or labels is None or (mask is None and self._task.mask is not None):
            return None
        self._check_sizes(columns, steps)
        chosen = None if mask is None else mask > 0
        self._check_nan(steps, chosen)
        self._mistakes.add_steps(len(steps.batches))
        odds = None
        if self._task.logits and scores.ndim == 2:
            scores = softmax(scores)
        elif self._task.logits:
            scores, odds = odds_of(scores)
        fitting = self._fitting(slicings, len(labels))
        examples = Examples(scores, labels, weights, users, fitting, lists, odds, served)
        return self._labelled(examples, chosen) if self._left_out else examples

    def _columns(self, steps: Steps) -> dict[str, Array | None]:
        """Returns the inputs by role; None for one that is not there."""
        columns = {role: self._flat(role, steps.arrays) for role in inputs.OF_TASK}
        if columns[inputs.PREDICTIONS] is None:
            return columns
        if self._task.kind in _OF_MATRICES:
            columns[inputs.PREDICTIONS] = self._matrix(steps.arrays)
        if self._task.labels is None:  # of a retrieval: the own item of each row of a batch
            sizes = self._roles.lengths(role_of(self._name, inputs.PREDICTIONS), steps)
            columns[inputs.LABELS] = np.concatenate([np.arange(size) for size in sizes])
        return columns

    def _labelled(self, examples: Examples, chosen: Array | None) -> Examples:
        """Returns the examples that are chosen and have a label; counts the others."""
        labels = examples.labels
        missing = is_missing(self._task, labels)
        if chosen is None:
            masked, kept = np.zeros(len(labels), np.bool_), ~missing
        else:
            masked, kept = ~chosen, chosen & ~missing
            missing &= chosen
        self._mistakes.add_kept(kept)
        count_together(self._left_out.values(), ColumnBatch((masked, missing)))
        return examples if kept.all() else examples.at(kept)

    def count(self, examples: Examples) -> None:
        """Counts examples."""
        batches, refused = self._prepare(examples)
        self._scored += len(examples.scores)
        self._odds += sum(refused.get(reason, 0) for reason in _NO_PROBABILITY)
        for group, batch in batches.items():
            count_together(self._windows[group].values(), batch)
        for column, slicing in examples.slicings.items():
            is_quality_only = self._slices[column].metrics == tags.OF_SLICES
            sliced = SlicedBatch(slicing, batches[tags.QUALITY] if is_quality_only else batches)
            count_together(self._windows[tags.key(tags.SLICE, column)].values(), sliced)
        self._mistakes.add(examples.scores, examples.labels, examples.weights, refused)

    def _prepare(self, examples: Examples) -> tuple[dict[str, Any], dict[str, int]]:
        """Returns a batch for each group, and the numbers of refused examples by reason."""
        scores, labels, weights, users, _, lists, odds, served = examples
        quality, batches = self._empty[tags.QUALITY], dict[str, Any]()
        if lists is not None:
            ranked = scores if odds is None else np.clip(odds, -LARGEST_SCORE, LARGEST_SCORE)
            batches[tags.LISTS] = RankedLists().prepare(lists, ranked, labels)
        if self._task.kind in _OF_MATRICES:
            batches[tags.QUALITY], refused = quality.prepare(scores, labels, weights)
            return batches, refused
        if self._task.kind == "ratings":
            batches[tags.QUALITY] = ColumnBatch.of(scores, labels, weights)
            numbers = self._numbers(tags.PAIRS, len(scores))
            batches[tags.PAIRS] = SampledExamples().prepare(numbers, scores, labels)
            errors = RatingErrors()
            errors.update(scores, labels, weights)
            return batches, {"number not usable": errors.refused}
        clicks = clean(scores, labels, weights, odds)
        refused = dict(zip(REASONS, clicks.refused.tolist(), strict=True))
        compared = None
        if served is not None:
            numbers = self._numbers(tags.SERVED, len(scores))
            compared = Comparison.of(clicks, served, self._task.negative_rate, numbers)
            self._mistakes.add_served(compared.valid)
        if clicks.kept is None and len(scores):
            prepared = batches[tags.QUALITY] = quality.prepare(clicks)
            self._count_sums(clicks, examples.slicings, prepared.losses, prepared.scores, compared)
            if compared is not None:
                batches[tags.SERVED] = compared
            if users is not None:
                batches[tags.USERS] = UserScores().prepare(users, clicks)
        else:
            losses, own = quality.loss.terms(clicks)
            self._count_sums(clicks, examples.slicings, losses, own, compared)
            # Windows also count invalid examples, so they need the whole batch.
            columns = (scores, labels, weights, odds)
            batches[tags.QUALITY] = ColumnBatch.of(*columns)
            if served is not None:
                batches[tags.SERVED] = ColumnBatch.of(*columns, served, numbers)
            if users is not None:
                batches[tags.USERS] = ColumnBatch.of(users, *columns)
        return batches, refused

    def _numbers(self, group: str, size: int) -> Integers:
        """Returns a number of each of the next examples, which no other one has."""
        seen = max(window.seen for window in self._windows[group].values())
        return np.arange(size) + (self._first + seen)

    def _count_sums(
        self,
        clicks: Clicks,
        slicings: Mapping[str, Slicing],
        losses: Floats,
        scores: Floats,
        compared: Comparison | None,
    ) -> None:
        batch = Moments.of(clicks, losses, scores, compared)
        for column, sums in self._sums.items():
            slicing = slicings.get(column)
            if column and slicing is None:
                continue
            if slicing is not None:
                self._several |= {column} if slicing.codes.ndim > 1 else set()
                slicing = slicing if clicks.kept is None else slicing.at(clicks.kept)
            sums.count(batch, slicing)

    def columns(self, examples: Examples) -> dict[str, Array]:
        """Returns the columns of the drift."""
        if self._task.kind == "classes":
            return {"prediction": examples.scores.argmax(axis=1), "true_class": examples.labels}
        if self._task.kind == "retrieval":
            return {}
        label = LABEL if self._task.kind == "clicks" else "rating"
        return {"prediction": examples.scores, label: examples.labels}

    def mark_lost(self, into: report.MetricValues) -> None:
        """Replaces the quality by NaN if the network has begun to predict nothing but NaN.

        Invalid examples are not counted, so the windows only have the time before that. It also
        does so if more than 1 % of the scores since the last report are no probabilities: those
        that happen to look like some are not a fair sample. Lists only need the order.
        """
        if self._scored:
            self._predicts_odds = self._odds > MOST_REFUSED * self._scored
            self._scored = self._odds = 0
        if not (self._predicts_nan or self._predicts_odds):
            return
        groups = {self._task.kind: tags.QUALITY, "users": tags.USERS, "served": tags.SERVED}
        if self._predicts_nan:
            groups["lists"] = tags.LISTS
        detail = report.Detail(full=self._options.detail)
        judging = {
            kind: [*filter(detail.has, tags.judging(kind, self._options.k))] for kind in groups
        }
        judging["served"] += [name + tags.STANDARD_ERROR for name in judging["served"]]
        lost = report.MetricValues(
            {
                f"{tags.PREFIX}{name}/{window}": math.nan
                for kind, group in groups.items()
                for name in judging[kind]
                for window in self._windows.get(group, ())
            }
        )
        into.add(self._name, lost)
        start = tags.PREFIX + (f"{self._name}/" if self._name else "") + f"{tags.SLICE}/"
        kept = () if self._predicts_nan else tuple(tags.judging("lists", self._options.k))
        for tag in into.scalars:
            if tag.startswith(start) and not tag.split("/")[-2].startswith(kept):
                into.scalars[tag] = math.nan

    def _check_sizes(self, columns: Mapping[str, Array | None], steps: Steps) -> None:
        """Checks that inputs have as many values as there are examples.

        Raises:
            ValueError: They differ in length.
        """
        if len({len(column) for column in columns.values() if column is not None}) > 1:
            arrays = (
                (role, self._roles.column(role_of(self._name, role), steps.arrays))
                for role in inputs.OF_TASK
            )
            shapes = [
                f"{role} of shape {array.shape}" for role, array in arrays if array is not None
            ]
            received = f"{', '.join(shapes)} in {len(steps.batches):,} steps"
            expected = "one value for each example (take a column of a matrix as in (1, 0); a class"
            expected += " is a number; a loss has one value for each step)"
            what = f"the task {self._name}" if self._name else "an input of the metrics"
            raise ValueError(three_part(what, verbatim(received), expected))

    def _flat(self, role: str, arrays: dict[Any, Array]) -> Array | None:
        column = self._roles.column(role_of(self._name, role), arrays)
        return None if column is None else column.reshape(-1)

    def _fitting(self, slicings: Mapping[str, Slicing], size: int) -> dict[str, Slicing]:
        """Returns the columns that have a value for each example, and reports the others."""
        fitting = {}
        for name, slicing in slicings.items():
            if len(slicing.codes) == size:
                fitting[name] = slicing
            else:
                text = f"it has {len(slicing.codes):,} values of {size:,} examples"
                self._mistakes.report(f"slice {name}", text)
        return fitting

    def _matrix(self, arrays: dict[Any, Array]) -> Array:
        """Returns the predictions: a row for each example, a column for each candidate."""
        matrix = self._roles.column(role_of(self._name, inputs.PREDICTIONS), arrays)
        if matrix is None or matrix.ndim != 2:
            shape = verbatim(f"an array of shape {None if matrix is None else matrix.shape}")
            expected = f"a row of scores for each example, as it is of kind {self._task.kind!r}"
            raise ValueError(three_part(f"the predictions {self._name}".rstrip(), shape, expected))
        return matrix

    def _check_nan(self, steps: Steps, chosen: Array | None) -> None:
        """Looks whether all predictions of the task in the last step are NaN."""
        role = role_of(self._name, inputs.PREDICTIONS)
        values = self._roles.column(role, steps.arrays)
        assert values is not None
        last = values[-self._roles.lengths(role, steps)[-1] :]
        if self._task.kind not in _OF_MATRICES:
            last = last.reshape(-1)
        if chosen is not None:
            last = last[chosen[len(chosen) - len(last) :]]
            if not last.size:
                return  # the step has no example of this task
        self._predicts_nan = last.size > 0 and bool(np.isnan(last).all())


def _empty_states(
    task: Task, options: RecommenderMetrics, *, of_slice: bool = False
) -> dict[str, Any]:
    """Returns the empty states of a task, or smaller ones of its slices, by group."""
    advanced = options.advanced
    cells, rows = (_SLICE_CELLS,) * 2 if of_slice else (advanced.user_cells, _PAIR_ROWS)
    states: dict[str, Any] = {}
    bins, precisions = (_SLICE_BINS, ()) if of_slice else (advanced.bins, advanced.precisions)
    if task.kind == "clicks":
        states[tags.QUALITY] = ClickQuality(bins, task.negative_rate, precisions)
    elif task.kind == "ratings":
        states[tags.QUALITY] = RatingErrors()
    else:
        is_classes = task.kind == "classes"
        states[tags.QUALITY] = ChoiceQuality(int(is_classes), () if is_classes else options.k)
    if task.users is not None:
        states[tags.USERS] = UserScores(cells)
    if task.served is not None:
        pairs = _SLICE_PAIRS if of_slice else _PAIRS
        states[tags.SERVED] = ServedQuality(task.negative_rate, bins, pairs)
    if task.lists is not None:
        states[tags.LISTS] = RankedLists(cells, at=options.k)
    if task.kind == "ratings":
        states[tags.PAIRS] = SampledExamples(rows)
    return states


def _windows_of_slices(
    slices: Slice, task: Task, options: RecommenderMetrics
) -> dict[str, Window[Any]]:
    """Returns the windows of a column of slices."""
    needed = {tags.QUALITY, *map(tags.group_with, slices.metrics)}
    states = _empty_states(task, options, of_slice=True)
    states = {group: state for group, state in states.items() if group in needed}

    is_default = slices.metrics == tags.OF_SLICES
    empty = states[tags.QUALITY] if is_default else SliceState(slices.metrics, states)
    by_slice = Slices(empty, slices.most, slices.shown)
    return _windows(by_slice, options)


def is_missing(task: Task, labels: Array) -> Array:
    """Returns which labels of a task are missing: bools, (examples,)."""
    missing = task.missing
    if missing is None:
        return np.zeros(len(labels), np.bool_)
    if labels.dtype.kind == "f":
        # NaN is equal to no number, not even to itself.
        return (labels != labels) | (labels == labels.dtype.type(missing))
    return np.asarray(labels == missing)


def odds_of(scores: Array) -> tuple[Array, Array]:
    """Returns the probabilities of log-odds, and the log-odds in float64."""
    odds = scores.astype(np.float64)
    # exp(-log(1 + exp(-x))), exact in both tails. NaN is refused later, with a word.
    with np.errstate(invalid="ignore"):
        return np.exp(-np.logaddexp(0.0, -odds)), odds


def softmax(scores: Array) -> Array:
    """Returns the probabilities of classes, (examples, classes)."""
    with np.errstate(invalid="ignore"):  # NaN is refused later, with a word
        odds = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


def _windows(
    empty: Any,
    options: RecommenderMetrics,
    half_lives: Sequence[int] = (),
) -> dict[str, Window[Any]]:
    return {
        **({"lifetime": Lifetime(empty)} if options.detail else {}),
        **{f"last_{size}": LastExamples(empty, size, _BUCKETS) for size in options.last},
        **{f"decayed_{size}": Decayed(empty, size) for size in half_lives},
    }
