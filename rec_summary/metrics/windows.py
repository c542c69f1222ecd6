"""Windows over a stream: all examples, the last examples, or an exponential decay.

A window splits the stream into buckets of equal size and keeps a state for each of the newest ones
(the panes of Li et al. 2005, "No Pane, No Gain"). The windows of several ranks merge by the age of
their buckets, because ranks do not count equally many examples where some have no label. Merged,
`LastExamples` of n covers the last n examples of every rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, cast

import numpy as np

from rec_summary.arrays import Array
from rec_summary.checks import LARGEST, check_int
from rec_summary.errors import three_part
from rec_summary.metrics.state import (
    ColumnBatch,
    Scalable,
    State,
    StateT,
    Stored,
    check_same,
    count_part,
    join,
    kind_of,
    nested,
    restore,
    split,
    to_array,
)

if TYPE_CHECKING:
    from typing_extensions import Self


_MOST_WAITING: Final = 1 << 17  # examples
_MOST_PARTS: Final = 4096  # a part takes about a kilobyte beside its examples


class Window(State, Generic[StateT], is_base=True):
    """A state that keeps one state for each of the newest buckets of the stream.

    Attributes:
        seen: How many examples this rank has seen; after merging, the maximum over the ranks.
    """

    _settings = ("_bucket_size", "_bucket_count")
    _parts = ("_empty",)

    def __init__(self, empty: StateT, size: int, count: int) -> None:
        self._empty = empty.copy()
        self._bucket_size = size
        self._bucket_count = count
        self._buckets: dict[int, StateT] = {}
        self.seen = 0

    @property
    def empty(self) -> StateT:
        """The state that each bucket begins as a copy of."""
        return self._empty

    def update(self, *columns: Any) -> None:
        """Counts a batch.

        Args:
            columns: The positional arguments of the state's ``update``: arrays with one entry for
                each example along the first axis, or None. They are cut where a bucket ends.

        Raises:
            ValueError: The columns differ in length.
        """
        count_together([self], ColumnBatch.of(*columns))

    def total(self) -> StateT:
        """Returns the state of the window: a copy, all buckets merged."""
        self._count_waiting()
        if len(self._buckets) == 1:
            (only,) = self._buckets.values()
            return only.copy()
        return self._sum(self._buckets[number] for number in sorted(self._buckets))

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``seen``, and the arrays of an empty state and of each bucket."""
        self._count_waiting()
        return {
            "kind": np.array(kind_of(self._empty)),
            "size": to_array(self._bucket_size),
            "panes": to_array(self._bucket_count),
            "seen": to_array(self.seen),
            **nested("empty", self._empty.arrays()),
            **_to_arrays("pane", self._buckets),
        }

    @classmethod
    def _restored(cls, arrays: Stored) -> Self:
        empty: Any = restore(str(arrays.take("kind", "U")), arrays.part("empty"))
        settings = arrays.integer("size", 1), arrays.integer("panes", 1)
        window = cls(empty, *cls._arguments(*settings))
        check_same(
            "The size and number of buckets", (window._bucket_size, window._bucket_count), settings
        )
        window.seen = arrays.integer("seen", high=LARGEST // 2)  # it goes on rising
        window._buckets = window._from_arrays("pane", arrays)
        for number in window._buckets:
            if not max(0, window._oldest()) <= number <= window._newest():
                raise ValueError(three_part("pane", number, "the number of one in the window"))
        return window

    @staticmethod
    def _arguments(size: int, count: int) -> tuple[int, ...]:
        """Returns the arguments, after the empty state, for a size and number of buckets."""
        return (size, count)

    def _add(self, other: Self) -> None:
        self._count_waiting()
        other._count_waiting()
        if other.seen < self.seen:
            other = other.copy()  # it is moved
        for window in (self, other):
            window._move(max(self.seen, other.seen))
        self._join(other)
        self._forget()

    def _move(self, seen: int) -> None:
        """Moves the buckets to where they have the same age in a stream of this length."""
        ahead = max(seen - 1, 0) // self._bucket_size - self._newest()
        self._buckets = {number + ahead: state for number, state in self._buckets.items()}
        self.seen = seen

    def _join(self, other: Self) -> None:
        """Adds the buckets of a window that has seen as many examples."""
        join(self._buckets, other._buckets)

    def _sum(self, states: Iterator[StateT]) -> StateT:
        """Returns the sum of states of this window."""
        total = self._empty.copy()
        for state in states:
            total._add(state)
        return total

    def _take(self, size: int, part: Any) -> None:
        """Counts the next examples, which go into the same state."""
        count_part(self._next(size), part)

    def _count_waiting(self) -> None:
        """Counts the examples that wait until somebody reads the buckets."""

    def _next(self, size: int) -> StateT:
        """Returns the state that counts the next examples, for which it has room."""
        state, is_new = self._target(self.seen), self.seen % self._bucket_size == 0
        self.seen += size
        if is_new:
            self._forget()
        return state

    def _from_arrays(self, prefix: str, arrays: Stored) -> dict[int, StateT]:
        """Returns the numbered states that `_to_arrays` stored."""
        states: dict[int, StateT] = {}
        for number in arrays.take(f"{prefix}_numbers", np.int64, (None,)).tolist():
            state = restore(kind_of(self._empty), arrays.part(f"{prefix}{number}"))
            self._empty.check_mergeable(state)
            states[number] = cast("StateT", state)
        return states

    def _newest(self) -> int:
        """Returns the number of the bucket with the newest example."""
        return max(self.seen - 1, 0) // self._bucket_size

    def _oldest(self) -> int:
        """Returns the number of the oldest bucket in the window; negative at the beginning."""
        return self._newest() - self._bucket_count + 1

    def _room(self, position: int) -> int:
        """Returns how many examples from this position in the stream on go into one state."""
        return self._bucket_size - position % self._bucket_size

    def _target(self, position: int) -> StateT:
        """Returns the state that counts the example at this position in the stream."""
        number = position // self._bucket_size
        if number not in self._buckets:
            if self._buckets:
                self._buckets[max(self._buckets)].seal()  # the others are
            self._buckets[number] = self._empty.copy()
        return self._buckets[number]

    def _forget(self) -> None:
        oldest = self._oldest()
        for number in [number for number in self._buckets if number < oldest]:
            del self._buckets[number]


def count_together(windows: Collection[Window[Any]], batch: Any) -> None:
    """Counts a batch: `ColumnBatch`, or what the ``prepare`` of the windows' states returned.

    A batch has a ``size``, and ``cut`` or ``split`` for `state.split`. It is cut where a bucket of
    any window ends, so that the work for each part is done once.
    """
    if not batch.size:
        return
    starts, end = list[int](), 0
    while end < batch.size:
        starts.append(end)
        end += min(window._room(window.seen + end) for window in windows)
    sizes = np.diff(starts, append=batch.size).tolist()
    for size, part in zip(sizes, split(batch, starts), strict=True):
        for window in windows:
            window._take(size, part)


class Lifetime(Window[StateT]):
    """All examples since the beginning."""

    def __init__(self, empty: StateT) -> None:
        """Starts empty.

        Args:
            empty: An empty state; copies of it are filled.
        """
        super().__init__(empty, 1 << 62, 1)

    @staticmethod
    def _arguments(size: int, count: int) -> tuple[int, ...]:
        return ()


class LastExamples(Window[StateT]):
    """The last examples, in buckets of equal size.

    Whenever a bucket is full, the window holds exactly the last ``size * buckets`` examples. In
    between, the bucket being filled replaces the oldest one: up to ``size - 1`` examples fewer.

    Prepared batches wait until somebody reads the window: most examples leave it before that, and
    are never counted.
    """

    def __init__(self, empty: StateT, examples: int, buckets: int = 16) -> None:
        """Starts empty.

        Args:
            empty: An empty state; each bucket is a copy of it.
            examples: The number of examples; rounded up to a multiple of `buckets`.
            buckets: The number of buckets.

        Raises:
            TypeError, ValueError: `buckets` is below 1, or `examples` below `buckets`.
        """
        buckets = check_int("buckets", buckets)
        examples = check_int("examples", examples, buckets)
        super().__init__(empty, -(-examples // buckets), buckets)
        self._waiting: list[tuple[int, int, Any]] = []  # positions in the stream, sizes, parts

    @staticmethod
    def _arguments(size: int, count: int) -> tuple[int, ...]:
        return (size * count, count)

    def _take(self, size: int, part: Any) -> None:
        # ColumnBatch are not checked yet, and may change.
        if isinstance(part, ColumnBatch):
            self._count_waiting()
            super()._take(size, part)
            return
        self._waiting.append((self.seen, size, part))
        is_new = self.seen % self._bucket_size == 0
        self.seen += size
        if is_new:
            self._forget()
        many = len(self._waiting) >= _MOST_PARTS
        if many or self.seen - self._waiting[0][0] > _MOST_WAITING:
            self._count_waiting()

    def _count_waiting(self) -> None:
        seen = self.seen
        try:
            while self._waiting:  # after an error, all but one part wait for another attempt
                self.seen, size, part = self._waiting.pop(0)
                count_part(self._next(size), part)
        finally:
            self.seen = seen  # also after an error: the buckets of all ranks begin alike

    def _forget(self) -> None:
        super()._forget()
        oldest = self._oldest() * self._bucket_size
        self._waiting = [part for part in self._waiting if part[0] >= oldest]


class Decayed(Window[StateT]):
    """All examples, each with half the weight whenever `half_life` more have been seen.

    A bucket covers a half-life. Within it an example weighs 2 to the power of its place, counted
    in steps of a 64th of the half-life, and buckets count half as much for each half-life that
    has passed. So nothing stored is ever rescaled (forward decay, Cormode et al. 2009). Examples of
    the same step are gathered unscaled before they enter their bucket, so that the result does
    not depend on how the stream is cut into batches. A bucket is dropped after 16 half-lives, and
    with it 2**-16 of the weight.
    """

    STEPS = 64
    """Steps of the weight in a half-life, of 1.1 % each."""

    HALF_LIVES = 16

    def __init__(self, empty: StateT, half_life: int) -> None:
        """Starts empty.

        Args:
            empty: An empty state that has ``scale``.
            half_life: In examples of this rank, at least 64. A batch is cut at every 64th of it,
                so a half-life much shorter than a batch is slow.

        Raises:
            TypeError: The state has no ``scale``, or `half_life` is not an int.
            ValueError: `half_life` is below 64.
        """
        if not isinstance(empty, Scalable):
            raise TypeError(three_part("empty", type(empty).__name__, "a state that can be scaled"))
        size = check_int("half_life", half_life, self.STEPS)
        super().__init__(empty, size, self.HALF_LIVES)
        self._step = -(-size // self.STEPS)
        # Keys are the positions in the stream where steps begin. A rank has one open step; merged
        # windows have one for each step that a rank was in.
        self._open: dict[int, StateT] = {}

    def total(self) -> StateT:
        """Returns the state of the window as of now: the newest example weighs nearly 1."""
        now = self.seen / self._bucket_size
        states: list[tuple[float, StateT]]  # with where they begin, in half-lives
        states = [(number, self._buckets[number]) for number in sorted(self._buckets)]
        states += [(start / self._bucket_size, self._open[start]) for start in sorted(self._open)]
        return self._sum(_scaled(state, 2.0 ** (begin - now)) for begin, state in states)

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays of a window, and those of the open steps."""
        return {**super().arrays(), **_to_arrays("open", self._open)}

    @classmethod
    def _restored(cls, arrays: Stored) -> Self:
        window = super()._restored(arrays)
        window._open = window._from_arrays("open", arrays)
        for start in window._open:
            oldest = max(0, window._oldest()) * window._bucket_size
            if start % window._bucket_size % window._step or not oldest <= start < window.seen:
                raise ValueError(three_part("open", start, "where a step of the window begins"))
        return window

    @staticmethod
    def _arguments(size: int, count: int) -> tuple[int, ...]:
        return (size,)

    def _move(self, seen: int) -> None:
        buckets, rest = divmod(seen - self.seen, self._bucket_size)
        # The newest example has the weight of the newest one of the longer stream.
        factor = 2.0 ** (rest / self._bucket_size)
        self._buckets = _moved(self._buckets, buckets, factor)
        self._open = _moved(self._open, buckets * self._bucket_size, factor)
        self.seen = seen

    def _join(self, other: Self) -> None:
        super()._join(other)
        join(self._open, other._open)

    def _room(self, position: int) -> int:
        room = super()._room(position)
        return min(room, self._step - (self._bucket_size - room) % self._step)

    def _target(self, position: int) -> StateT:
        start = position - position % self._bucket_size % self._step
        if start not in self._open:
            for ended in sorted(self._open):
                gathered: Any = self._open.pop(ended)
                gathered.scale(2.0 ** (ended % self._bucket_size / self._bucket_size))
                super()._target(ended)._add(gathered)
            self._open[start] = self._empty.copy()
        return self._open[start]

    def _forget(self) -> None:
        super()._forget()
        oldest = self._oldest() * self._bucket_size
        for start in [start for start in self._open if start < oldest]:
            del self._open[start]


def _moved(states: Mapping[int, StateT], ahead: int, factor: float) -> dict[int, StateT]:
    """Returns states under later numbers, scaled."""
    return {number + ahead: _scaled(state, factor) for number, state in states.items()}


def _scaled(state: Any, factor: float) -> Any:
    """Returns a copy of a `Scalable` state, scaled."""
    copy = state.copy()
    copy.scale(factor)
    return copy


def _to_arrays(prefix: str, states: Mapping[int, State]) -> dict[str, Array]:
    """Returns the arrays of numbered states."""
    numbers = sorted(states)
    arrays: dict[str, Array] = {f"{prefix}_numbers": np.array(numbers, np.int64)}
    for number in numbers:
        arrays.update(nested(f"{prefix}{number}", states[number].arrays()))
    return arrays
