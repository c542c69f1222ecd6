"""Which feature matters: passes without training over batches with a permuted column.

A pass is computed between two steps, on a batch that is not trained yet, with the weights as they
are. It gives the predictions; a thread for metrics does the rest.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import check_int, check_part_of_tag, check_that, check_type
from rec_summary.errors import three_part, verbatim
from rec_summary.metrics.tags import TABLE
from rec_summary.training.recommender.columns import Source, check_source
from rec_summary.training.run_directory import inform

_FEATURES: Final = (
    "a sequence of names of columns, or a dict with the place of each feature, or a list of places"
)
_SOURCE: Final = "the name or the number of a column of the batch, or a pair of that and a column"
_BUDGET: Final = "a number above 0, at most 1"
_PASSES: Final = 4  # of features at a step, beside that of the whole batch
_SLOW: Final = 1.5  # times as many steps as asked for, from which on it is said
_LEAST_ROUNDS: Final = 4  # of passes of all features, before a user is informed
_MOST_SKIPPED: Final = 20  # batches of another shape, one after another
_MOST_SHAPES: Final = 3  # that the network is compiled for
_MOST_FAILURES: Final = 3

_FEATURE: Final = "a feature of importance"

_Groups = dict[str, list[tuple[Any, int | None]]]
"""By name: what the batch knows its columns by, each with a column of the matrix or None."""

Predict = Callable[[dict[str, Array]], Any]


@dataclass(frozen=True)
class Importance:
    """The importance of features, for `RecommenderMetrics(importance=Importance(every=500))`.

    Of each feature, the values of a batch are permuted among its examples, and the network predicts
    once more, in evaluation mode and without training. The importance is the AUC that is lost.
    Features that carry the same information stand in for each other: give them as one group.

    Attributes:
        every: The steps from one pass of a feature to the next.
        features: The names of columns of the batch; or a dict by the name of the feature, with a
            place each: the name or the number of a column, or a pair of that and the number of a
            column of the matrix, as in ``{"weekday": ("context", 3)}``. A list of places is a
            group, which is permuted together. None for every column that the network takes.
        budget: The share of the training time that the passes of all ranks together may take. Fewer
            are made if this is not enough for `every`.
        predict: For `SummaryRecord`: returns the predictions for a batch, from all columns that
            `observe` is called with, which are arrays by name: one array, or with several tasks
            a dict with the column of each task's predictions. It must not train, and must switch
            dropout off. None for MindSpore's loops, where the network is known.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    every: int = 1000
    features: Mapping[str, Source | Sequence[Source]] | Sequence[str] | None = None
    budget: float = 0.01
    predict: Predict | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        check_int("every", self.every, 1)
        check_type("budget", self.budget, (int, float), _BUDGET)
        check_that(0 < self.budget <= 1, "budget", self.budget, _BUDGET)
        if self.predict is not None and not callable(self.predict):
            raise TypeError(three_part("predict", self.predict, "a function of columns, or None"))
        if self.features is not None:
            _checked(self.features)


def _checked(features: Any) -> dict[str, list[Source]]:
    is_list = isinstance(features, Sequence) and not isinstance(features, str)
    if not (is_list or isinstance(features, Mapping)) or not features:
        raise TypeError(three_part("features of importance", features, _FEATURES))
    named = features if isinstance(features, Mapping) else {name: name for name in features}
    groups = {}
    for name, sources in named.items():
        check_part_of_tag("a name of features of importance", name)
        expected = "another name: the table of the features has this one"
        check_that(name != TABLE, "a name of features of importance", name, expected)
        groups[name] = list(sources) if isinstance(sources, list) else [sources]
        what = f"features of importance[{name!r}]"
        for source in groups[name]:
            check_source(what, source)
            place = source[0] if isinstance(source, tuple) else source
            if callable(place):
                raise TypeError(three_part(what, source, _SOURCE))
        check_that(bool(groups[name]), what, sources, _SOURCE)
    return groups


class Visit(NamedTuple):
    """What the passes of one step have predicted.

    Attributes:
        time: When, in seconds since 1970.
        base: The inputs of the metrics for the whole batch, by place.
        permuted: The predictions with a permuted feature, by place, by the name of the feature.
    """

    time: float
    base: dict[Any, Array]
    permuted: dict[str, dict[Any, Array]]

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        every = [self.base, *self.permuted.values()]
        return sum(array.nbytes for arrays in every for array in arrays.values())


class Batch(Protocol):
    """A batch that can be predicted."""

    @property
    def columns(self) -> Mapping[str, Any]:
        """The columns that the network takes, by name: what `read` and `score` know them by."""

    @property
    def shapes(self) -> Any:
        """Its shapes, if another shape costs a compilation; else None."""

    def find(self, place: int | str) -> Any:
        """Returns what `read` and `score` know a column by.

        Raises:
            ValueError: There is no such column.
        """

    def read(self, column: Any) -> Array:
        """Returns the values of a column; not a copy."""

    def score(self, replaced: Mapping[Any, Array]) -> dict[Any, Array]:
        """Returns the predictions, labels, weights and masks by place.

        Args:
            replaced: Columns that take the place of those of the batch.
        """


class Passes:
    """Decides when passes are due, and makes them on the training thread.

    Attributes:
        is_over: Whether no more passes are made.
    """

    def __init__(
        self, options: Importance, predictions: Sequence[Any], rank: int, rank_size: int
    ) -> None:
        """Prepares.

        Args:
            options: The options.
            predictions: The places of the predictions.
            rank: The rank of this process; the first one informs the user.
            rank_size: The number of processes that train together.
        """
        self._options = options
        self._predictions = frozenset(predictions)
        self._tells = rank == 0
        # Ranks wait for each other in each step, so each pass takes the time of all of them.
        self._budget = options.budget / max(rank_size, 1)
        self.is_over = False
        self._groups: _Groups = {}
        self._turn: itertools.cycle[str] = itertools.cycle(())
        self._random = np.random.default_rng(0)  # not that of the training
        self._shapes: Any = None
        self._compiled = self._skipped = self._failures = 0
        self._next = 0.0  # the step of the next passes
        self._begun, self._spent, self._last = time.perf_counter(), 0.0, 0.0
        self._first = self._made = 0  # the step of the first passes, and their number
        self._slowest = _SLOW * options.every  # steps that the user knows of

    def is_due(self, step: int) -> bool:
        """Whether passes are to be made before a step, counted from 0 in this training."""
        if step < self._next:
            return False
        elapsed = time.perf_counter() - self._begun
        return self._spent + self._last <= self._budget * elapsed

    def visit(self, take: Callable[[], Batch], step: int) -> Visit | None:
        """Makes passes on a batch; returns None if there is nothing to count.

        Args:
            take: Returns the batch.
            step: The step that trains it.

        Raises:
            Exception: Of the network, or the options do not fit the batch.
        """
        begun = time.perf_counter()
        try:
            batch = take()
            if batch.shapes != self._shapes or not self._groups:
                self._adapt(batch, step)
                return None
            visit = self._visit(batch)
        except Exception as error:
            self._failures += 1
            is_wrong = not self._groups and isinstance(error, (TypeError, ValueError))
            self.is_over = is_wrong or self._failures >= _MOST_FAILURES
            self._next = step + self._spacing
            self._spent += time.perf_counter() - begun
            raise
        self._failures = self._skipped = 0
        self._last = time.perf_counter() - begun
        self._spent += self._last
        self._plan(step, len(visit.permuted))
        return visit

    def _visit(self, batch: Batch) -> Visit:
        base, permuted = batch.score({}), {}
        for name in itertools.islice(self._turn, min(_PASSES, len(self._groups))):
            scored = batch.score(self._permuted(batch, name, self._groups[name]))
            permuted[name] = {place: scored[place] for place in self._predictions}
        return Visit(time.time(), base, permuted)

    def _adapt(self, batch: Batch, step: int) -> None:
        """Begins, or takes another shape if all batches have it. It is not in the budget.

        Raises:
            ValueError: A feature does not fit, or the shapes change again and again.
        """
        self._skipped += 1
        if self._groups and self._skipped < _MOST_SKIPPED:
            return
        if self._compiled == _MOST_SHAPES:
            self.is_over = True
            received = verbatim(f"further ones than the first {_MOST_SHAPES}")
            expected = "one shape of all batches, as each one costs a compilation"
            raise ValueError(three_part("the shapes of batches", received, expected))
        base = batch.score({})
        if _differ(base, batch.score({})):
            received = verbatim("others for the same batch again")
            expected = "the same: nothing random without training"
            raise ValueError(three_part("the predictions", received, expected))
        if not self._groups:
            self._groups = self._fitting(batch, base)
            self._turn = itertools.cycle([*self._groups])
            self._first = step
        self._shapes, self._skipped = batch.shapes, 0
        self._compiled += 1
        self._begun, self._spent = time.perf_counter(), 0.0
        self._next = step + self._spacing

    def _fitting(self, batch: Batch, base: Mapping[Any, Array]) -> _Groups:
        """Returns the features, and what they are made of.

        Raises:
            ValueError: One that is named does not fit, or there is none.
        """
        sources, fixed = self._options.features, base.keys() - self._predictions
        groups: _Groups
        if sources is None:
            groups = {_name(name): [(key, None)] for name, key in batch.columns.items()}
        else:
            pairs = {
                name: [each if isinstance(each, tuple) else (each, None) for each in own]
                for name, own in _checked(sources).items()
            }
            groups = {
                name: [(batch.find(place), column) for place, column in own]  # type: ignore[arg-type]
                for name, own in pairs.items()
            }
        rows = max((len(base[place]) for place in self._predictions), default=0)
        fitting = {}
        for name, places in groups.items():
            try:
                columns = self._permuted(batch, name, places, rows)
                scored = batch.score(columns)
                is_given = any(_same(batch.read(key), base[at]) for key in columns for at in fixed)
                if is_given or _differ(scored, base, fixed):
                    received = verbatim(f"{name}, a label, a weight or a mask of a task")
                    raise ValueError(three_part(_FEATURE, received, "another column"))
                fitting[name] = places
            except ValueError:
                if sources is not None:
                    raise
        columns_of = ", ".join(batch.columns) or "no columns"
        expected = "a column with a value for each example, beside labels and weights"
        check_that(fitting, "features of importance", verbatim(columns_of), expected)
        return fitting

    @property
    def _spacing(self) -> float:
        """The steps from some passes to the next ones."""
        count = max(len(self._groups), 1)
        return self._options.every * min(_PASSES, count) / count

    def _permuted(
        self,
        batch: Batch,
        name: str,
        places: Iterable[tuple[Any, int | None]],
        rows: int | None = None,
    ) -> dict[Any, Array]:
        """Returns the columns of a feature, permuted.

        Raises:
            ValueError: They do not have so many rows, or not the column of a matrix.
        """
        columns: dict[Any, Array] = {}
        order: Any = None
        for key, column in places:
            values = columns[key] if key in columns else np.array(batch.read(key))
            shape = verbatim(f"{name} of shape {values.shape}")
            is_column = values.ndim > 0 and len(values) == (rows or len(values))
            check_that(is_column, _FEATURE, shape, f"a column of {rows} rows")
            order = self._random.permutation(len(values)) if order is None else order
            if column is None:
                values = values[order]
            else:
                is_matrix = values.ndim > 1 and -values.shape[-1] <= column < values.shape[-1]
                check_that(is_matrix, _FEATURE, shape, f"a matrix with a column {column}")
                values[..., column] = values[order][..., column]
            columns[key] = values
        return columns

    def _plan(self, step: int, passes: int) -> None:
        """Plans the next passes, and informs the user if a round takes longer than asked for."""
        self._next = max(self._next + self._spacing, step + 1)
        self._made += passes
        rounds = self._made / len(self._groups)
        steps = (step - self._first) / max(rounds, 1)
        if rounds >= _LEAST_ROUNDS and steps > self._slowest:
            self._slowest = 2 * steps
            if self._tells:
                inform(
                    f"rec_summary: importance: each feature has a pass every {steps:,.0f} steps "
                    f"and not every {self._options.every:,}, as passes may take "
                    f"{100 * self._options.budget:.3g} % of the time (Importance(budget=...))"
                )


def _name(column: str) -> str:
    """Returns the name of a column as that of a feature, which is a part of a tag."""
    name = re.sub(r"[^\w.-]", "_", column)
    return f"_{name}" if name == TABLE or not name[0].isalnum() else name


def _differ(
    some: Mapping[Any, Array], others: Mapping[Any, Array], places: Iterable[Any] | None = None
) -> bool:
    """Whether arrays of some places are not the same; of all places for None."""
    return not all(_same(some[at], others[at]) for at in (some if places is None else places))


def _same(one: Array, other: Array) -> bool:
    """Whether two arrays have the same values, in any shape."""
    is_float = one.dtype.kind == other.dtype.kind == "f"
    return one.size == other.size and np.array_equal(
        one.reshape(-1), other.reshape(-1), equal_nan=is_float
    )
