"""Which feature matters: passes without training over batches with a permuted column.

A pass is computed between two steps, on a batch that is not trained yet, with the weights as they
are. It gives the predictions; a thread for metrics does the rest.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import check_int, check_part_of_tag, check_that, check_type
from rec_summary.errors import three_part, verbatim
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
_MOST_SKIPPED: Final = 1000  # batches of another shape, one after another
_MOST_FAILURES: Final = 3

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
            object.__setattr__(self, "features", _checked(self.features))

    @property
    def groups(self) -> dict[str, list[Source]] | None:
        """The places of each feature; None for every column."""
        return cast("dict[str, list[Source]] | None", self.features)


def _checked(features: Any) -> dict[str, list[Source]]:
    is_list = isinstance(features, Sequence) and not isinstance(features, str)
    if not (is_list or isinstance(features, Mapping)) or not features:
        raise TypeError(three_part("features of importance", features, _FEATURES))
    named = features if isinstance(features, Mapping) else {name: name for name in features}
    groups = {}
    for name, sources in named.items():
        check_part_of_tag("a name of features of importance", name)
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
        permuted: Those for the batch with a permuted feature, by the name of the feature.
    """

    time: float
    base: dict[Any, Array]
    permuted: dict[str, dict[Any, Array]]


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
    """Decides when passes are due, and makes them on the training thread."""

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
        self._groups: dict[str, list[tuple[Any, int | None]]] = {}
        self._has_begun = False
        self._turn: itertools.cycle[str] = itertools.cycle(())
        self._random = np.random.default_rng(0)  # not that of the training
        self._shapes: Any = None
        self._skipped = self._failures = 0
        self._next = 0.0  # the step of the next passes
        self._begun, self._spent, self._last = time.perf_counter(), 0.0, 0.0
        self._first = self._made = 0  # the step of the first passes, and their number
        self._slowest = _SLOW * options.every  # steps that the user knows of

    def is_due(self, step: int) -> bool:
        """Whether passes are to be made before a step."""
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
        try:
            return self._visit(take(), step)
        except Exception:
            self._failures += 1
            # A wrong option stays wrong.
            is_over = not self._groups or self._failures >= _MOST_FAILURES
            self._next = np.inf if is_over else step + self._spacing
            raise

    def _visit(self, batch: Batch, step: int) -> Visit | None:
        if not self._has_begun:
            self._begin(batch, step)
            return None
        if batch.shapes != self._shapes:
            self._skipped += 1
            if self._skipped == _MOST_SKIPPED:
                received = verbatim(f"{self._skipped:,} batches of other shapes than the first")
                expected = "batches of one shape: another one would cost a compilation"
                raise ValueError(three_part("batches for the importance", received, expected))
            return None
        begun, self._skipped = time.perf_counter(), 0
        base = batch.score({})
        permuted = {}
        for name in itertools.islice(self._turn, min(_PASSES, len(self._groups))):
            scored = batch.score(self._permuted(batch, self._groups[name]))
            if _differ(scored, base, base.keys() - self._predictions):
                self._drop(name)
                break
            permuted[name] = {place: scored[place] for place in self._predictions & scored.keys()}
        self._last = time.perf_counter() - begun
        self._spent += self._last
        self._plan(step, len(permuted))
        return Visit(time.time(), base, permuted)

    def _begin(self, batch: Batch, step: int) -> None:
        """Chooses the features, and compiles the network for passes; that is not in the budget."""
        groups = self._options.groups
        found: dict[str, list[tuple[Any, int | None]]] = {}
        if groups is None:
            found = {name: [(column, None)] for name, column in batch.columns.items()}
        else:
            for name, sources in groups.items():
                pairs = [each if isinstance(each, tuple) else (each, None) for each in sources]
                found[name] = [(batch.find(place), column) for place, column in pairs]  # type: ignore[arg-type]
        batch.score({})
        self._groups, self._shapes, self._has_begun = found, batch.shapes, True
        self._turn = itertools.cycle([*found])
        self._begun, self._first = time.perf_counter(), step
        self._next = step + self._spacing

    @property
    def _spacing(self) -> float:
        """The steps from some passes to the next ones."""
        count = max(len(self._groups), 1)
        return self._options.every * min(_PASSES, count) / count

    def _permuted(self, batch: Batch, places: list[tuple[Any, int | None]]) -> dict[Any, Array]:
        columns: dict[Any, Array] = {}
        order: Any = None
        for key, column in places:
            values = columns[key] if key in columns else np.array(batch.read(key))
            order = self._random.permutation(len(values)) if order is None else order
            if column is None:
                values = values[order]
            elif values.ndim > 1 and -values.shape[-1] <= column < values.shape[-1]:
                values[..., column] = values[order][..., column]
            else:
                received = verbatim(f"column {column} of shape {values.shape}")
                raise ValueError(three_part("a feature of importance", received, "one of a matrix"))
            columns[key] = values
        return columns

    def _drop(self, name: str) -> None:
        """Leaves out a column that the metrics need: a label, a weight."""
        del self._groups[name]
        self._turn = itertools.cycle([*self._groups])
        if not self._groups:
            self._next = np.inf
        if self._options.groups is not None:
            received = verbatim(f"{name}, which is a label, a weight or a mask of a task")
            raise ValueError(three_part("a feature of importance", received, "another column"))

    def _plan(self, step: int, passes: int) -> None:
        """Plans the next passes, and informs the user if a round takes longer than asked for."""
        self._next = max(self._next + self._spacing, step + 1)  # it stays infinite
        self._made += passes
        rounds = self._made / max(len(self._groups), 1)
        steps = (step - self._first) / max(rounds, 1)
        if rounds >= _LEAST_ROUNDS and steps > self._slowest:
            self._slowest = 2 * steps
            if self._tells:
                inform(
                    f"rec_summary: importance: each feature has a pass every {steps:,.0f} steps "
                    f"and not every {self._options.every:,}, as passes may take "
                    f"{self._options.budget:.3g} of the time (Importance(budget=...))"
                )


def _differ(some: Mapping[Any, Array], others: Mapping[Any, Array], places: set[Any]) -> bool:
    """Whether arrays of some places are not the same."""
    for place in places:
        one, other = some[place], others[place]
        is_float = one.dtype.kind == "f"
        if not np.array_equal(one, other, equal_nan=is_float):
            return True
    return False
