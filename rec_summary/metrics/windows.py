"""Which past a metric speaks of: all of it, the last examples, or an exponential decay.

A window is a state over another kind of state. It holds panes of it by the number of the stretch
of the stream that they cover, so that the windows of several ranks merge pane by pane. Each rank
counts its own examples: merged, `LastExamples` of n covers the last n examples of every
rank. Source: panes as in Li et al. 2005, "No Pane, No Gain".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.state import (
    Array,
    Scalable,
    StateT,
    kind_of,
    merged,
    nested,
    positive_int,
    register,
    restore,
    same_settings,
    take,
    take_count,
    unnested,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class _Panes(Generic[StateT]):
    """The machinery of windows: panes by number, the newest of which are kept.

    Attributes:
        seen: How many examples this rank has seen; after merging, the most of any rank.
    """

    def __init__(self, empty: StateT, size: int, panes: int) -> None:
        kind_of(empty)
        self._empty = empty.copy()
        self._size = size
        self._kept = panes
        self._panes: dict[int, StateT] = {}
        self.seen = 0

    def update(self, *columns: Any) -> None:
        """Counts a batch.

        Args:
            columns: What the state's ``update`` takes by position: arrays with one entry for each
                example along their first axis, or None. They are cut where a pane ends.

        Raises:
            ValueError: The columns differ in length.
        """
        arrays = [None if column is None else np.asarray(column) for column in columns]
        lengths = {len(each) for each in arrays if each is not None and each.ndim}
        if len(lengths) != 1 or any(each is not None and not each.ndim for each in arrays):
            raise ValueError(three_part("columns", sorted(lengths), "arrays of one length"))
        (size,) = lengths
        for start, end in self._cuts(size):
            self._count([None if each is None else each[start:end] for each in arrays])
            self.seen += end - start

    def add(self, state: StateT, examples: int) -> None:
        """Counts a state that was made of the next `examples` examples, as if all were the last.

        Raises:
            ValueError: Its settings differ, or there is no example.
        """
        positive_int("examples", examples)
        self._add(state, self.seen + examples - 1)
        self.seen += examples
        self._forget()

    def total(self) -> StateT:
        """Returns the state of the window: a copy, all panes merged."""
        return merged((self._panes[number] for number in sorted(self._panes)), self._empty)

    def merge(self, other: Self) -> None:
        """Adds the panes of another rank.

        Raises:
            ValueError: The settings of the two windows or of their states differ.
        """
        same_settings("kind", kind_of(self._empty), kind_of(other._empty))
        same_settings(
            "size and number of panes", (self._size, self._kept), (other._size, other._kept)
        )
        self._empty.copy().merge(other._empty)
        for number, pane in other._panes.items():
            self._into(number, pane)
        self.seen = max(self.seen, other.seen)
        self._forget()

    def copy(self) -> Self:
        """Returns a window of its own with the same panes."""
        other = self._like()
        other.seen = self.seen
        other._panes = {number: pane.copy() for number, pane in self._panes.items()}
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``seen``, and the arrays of an empty state and of each pane."""
        numbers = sorted(self._panes)
        arrays: dict[str, Array] = {
            "kind": np.array(kind_of(self._empty)),
            "size": np.array(self._size, np.int64),
            "panes": np.array(self._kept, np.int64),
            "seen": np.array(self.seen, np.int64),
            "numbers": np.array(numbers, np.int64),
            **nested("empty", self._empty.arrays()),
        }
        for number in numbers:
            arrays.update(nested(f"pane{number}", self._panes[number].arrays()))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the window that `arrays` describes; the module of its states must be imported.

        Raises:
            ValueError: They describe none.
        """
        kind = str(take(arrays, "kind", "U"))
        empty = restore(kind, unnested("empty", arrays))
        window = cls._of(empty, take_count(arrays, "size", 1), take_count(arrays, "panes", 1))
        window.seen = take_count(arrays, "seen")
        numbers = take(arrays, "numbers", np.int64, (None,)).tolist()
        for number in numbers:
            pane = restore(kind, unnested(f"pane{number}", arrays))
            empty.copy().merge(pane)  # refuses other settings
            window._panes[number] = cast("StateT", pane)
        window._forget()
        if sorted(window._panes) != numbers or (numbers and not 0 <= numbers[0] <= window._last()):
            raise ValueError(
                three_part("numbers", numbers, "rising numbers of panes in the window")
            )
        return window

    @classmethod
    def _of(cls, empty: Any, size: int, panes: int) -> Self:
        """Makes an empty window out of what `arrays` holds."""
        raise NotImplementedError

    def _like(self) -> Self:
        return self._of(self._empty, self._size, self._kept)

    def _last(self) -> int:
        """The number of the pane with the newest example."""
        return max(self.seen - 1, 0) // self._size

    def _room(self) -> int:
        """How many examples go together from now on."""
        return self._size - self.seen % self._size

    def _count(self, columns: list[Any]) -> None:
        """Counts examples that go together."""
        number = self.seen // self._size
        if number not in self._panes:
            self._panes[number] = self._empty.copy()
        _update(self._panes[number], columns)

    def _add(self, state: StateT, place: int) -> None:
        self._into(place // self._size, state)

    def _into(self, number: int, state: StateT) -> None:
        if number in self._panes:
            self._panes[number].merge(state)
        else:
            self._panes[number] = merged([state], self._empty)

    def _cuts(self, size: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of a batch, forgetting what each part makes too old."""
        start = 0
        while start < size:
            end = min(size, start + self._room())
            yield start, end
            self._forget()
            start = end

    def _forget(self) -> None:
        oldest = self._last() - self._kept + 1
        for number in [number for number in self._panes if number < oldest]:
            del self._panes[number]


def _update(state: Any, columns: list[Any]) -> None:
    """Hands columns to a state; which ones it takes is between it and the caller."""
    state.update(*columns)


@register
class Lifetime(_Panes[StateT]):
    """All examples since the beginning."""

    def __init__(self, empty: StateT) -> None:
        """Starts empty.

        Args:
            empty: An empty state of a registered class; copies of it are filled.
        """
        super().__init__(empty, 1 << 62, 1)

    @classmethod
    def _of(cls, empty: Any, size: int, panes: int) -> Self:
        same_settings("size and number of panes", (1 << 62, 1), (size, panes))
        return cls(empty)


@register
class LastExamples(_Panes[StateT]):
    """The last examples, in panes of equal size.

    Whenever a pane is full, the window holds exactly the last ``size * panes`` examples; between,
    the pane being filled replaces the oldest one, so up to ``size - 1`` examples fewer.
    """

    def __init__(self, empty: StateT, examples: int, panes: int = 16) -> None:
        """Starts empty.

        Args:
            empty: An empty state of a registered class; each pane is a copy of it.
            examples: How many; rounded up to a multiple of `panes`.
            panes: How many.

        Raises:
            ValueError: `panes` is below 1, or `examples` below `panes`.
        """
        panes = positive_int("panes", panes)
        examples = positive_int("examples", examples, panes)
        super().__init__(empty, -(-examples // panes), panes)

    @classmethod
    def _of(cls, empty: Any, size: int, panes: int) -> Self:
        return cls(empty, size * panes, panes)


@register
class Decayed(_Panes[StateT]):
    """All examples, each weighing half as much whenever `half_life` more have been seen.

    One pane covers a half-life; within it an example weighs 2 to the power of its place, counted
    in 64ths of the half-life, and panes count half as much for each half-life that has passed.
    So nothing stored is ever rescaled (forward decay, Cormode et al. 2009), and the result does
    not depend on how the stream was cut into batches. After 16 half-lives a pane goes,
    and with it 2**-16 of the weight.
    """

    STEPS = 64
    """Steps of the weight in a half-life: each is by 1.1 %."""

    HALF_LIVES = 16

    def __init__(self, empty: StateT, half_life: int) -> None:
        """Starts empty.

        Args:
            empty: An empty state of a registered class that has ``scale``.
            half_life: In examples of this rank, at least 64. A batch is cut at every 64th of it,
                so much less than a batch is slow.

        Raises:
            TypeError: The state has no ``scale``.
            ValueError: `half_life` is anything else.
        """
        if not isinstance(empty, Scalable):
            raise TypeError(three_part("empty", type(empty).__name__, "a state that can be scaled"))
        super().__init__(empty, positive_int("half_life", half_life, self.STEPS), self.HALF_LIVES)
        self._grain = -(-self._size // self.STEPS)

    @classmethod
    def _of(cls, empty: Any, size: int, panes: int) -> Self:
        same_settings("number of panes", cls.HALF_LIVES, panes)
        return cls(empty, size)

    def _room(self) -> int:
        place = self.seen % self._size
        return min(self._size - place, self._grain - place % self._grain)

    def _count(self, columns: list[Any]) -> None:
        batch = self._empty.copy()
        _update(batch, columns)
        self._add(batch, self.seen)

    def _add(self, state: StateT, place: int) -> None:
        number, place = divmod(place, self._size)
        weight = 2.0 ** ((place - place % self._grain) / self._size)
        self._into(number, _scaled(state, weight))

    def total(self) -> StateT:
        """Returns the state of the window as of now: an example just seen weighs nearly 1."""
        now = self.seen / self._size
        return merged(
            (_scaled(self._panes[n], 2.0 ** (n - now)) for n in sorted(self._panes)), self._empty
        )


def _scaled(state: StateT, factor: float) -> StateT:
    other = state.copy()
    assert isinstance(other, Scalable)
    other.scale(factor)
    return other
