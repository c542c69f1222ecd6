"""The machinery of windows: panes of a state by the stretch of the stream that they cover.

A window is a state over another kind of state. Panes have numbers that are the same on every rank,
so that the windows of several ranks merge pane by pane. Source: panes as in Li et al. 2005, "No
Pane, No Gain".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast

import numpy as np

from rec_summary.errors import three_part
from rec_summary.metrics.state import (
    Array,
    StateT,
    kind_of,
    merged,
    nested,
    positive_int,
    restore,
    same_settings,
    take,
    take_count,
    unnested,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class Batch(Protocol):
    """A batch that a state has prepared to be counted."""

    @property
    def size(self) -> int:
        """How many examples there are."""

    def cut(self, at: slice, /) -> Batch:
        """Returns some of the examples."""


class Panes(Generic[StateT]):
    """States by the number of their pane, the newest of which are kept; windows derive from it.

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
        for state, at in self._cuts(size):
            _update(state, [None if each is None else each[at] for each in arrays])

    def count(self, batch: Batch) -> None:
        """Counts a batch that the state's ``prepare`` has returned.

        What is worked out there is worked out once, however many windows count it, and however
        small the parts are into which they cut it.
        """
        for state, at in self._cuts(batch.size):
            _count(state, batch.cut(at))

    def _cuts(self, size: int) -> Iterator[tuple[StateT, slice]]:
        """Yields the parts of a batch, each with the state that is to count it."""
        start = 0
        while start < size:
            part = min(size - start, self._room())
            yield self._target(self.seen), slice(start, start + part)
            self.seen, start = self.seen + part, start + part
            self._forget()

    def add(self, state: StateT, examples: int) -> None:
        """Counts a state that was made of the next `examples` examples, as if all were the last.

        Raises:
            ValueError: Its settings differ, or there is no example.
        """
        positive_int("examples", examples)
        self._target(self.seen + examples - 1).merge(state)
        self.seen += examples
        self._forget()

    def total(self) -> StateT:
        """Returns the state of the window: a copy, all panes merged."""
        if len(self._panes) == 1:
            (only,) = self._panes.values()
            return only.copy()
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
        self._join(self._panes, other._panes)
        self.seen = max(self.seen, other.seen)
        self._forget()

    def copy(self) -> Self:
        """Returns a window of its own with the same panes."""
        other = self._of(self._empty, self._size, self._kept)
        other.seen = self.seen
        self._join(other._panes, self._panes)
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``seen``, and the arrays of an empty state and of each pane."""
        return {
            "kind": np.array(kind_of(self._empty)),
            "size": np.array(self._size, np.int64),
            "panes": np.array(self._kept, np.int64),
            "seen": np.array(self.seen, np.int64),
            **nested("empty", self._empty.arrays()),
            **self._stored("pane", self._panes),
        }

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
        window._panes = window._restored("pane", arrays)
        oldest = max(0, window._last() - window._kept + 1)
        for number in window._panes:
            if not oldest <= number <= window._last():
                raise ValueError(three_part("pane", number, "the number of one in the window"))
        return window

    def _stored(self, prefix: str, states: Mapping[int, StateT]) -> dict[str, Array]:
        """Returns the arrays of numbered states."""
        numbers = sorted(states)
        arrays: dict[str, Array] = {f"{prefix}_numbers": np.array(numbers, np.int64)}
        for number in numbers:
            arrays.update(nested(f"{prefix}{number}", states[number].arrays()))
        return arrays

    def _restored(self, prefix: str, arrays: Mapping[str, Array]) -> dict[int, StateT]:
        """Returns the numbered states that `_stored` made arrays of."""
        states: dict[int, StateT] = {}
        for number in take(arrays, f"{prefix}_numbers", np.int64, (None,)).tolist():
            state = restore(kind_of(self._empty), unnested(f"{prefix}{number}", arrays))
            states[number] = self._empty.copy()
            states[number].merge(cast("StateT", state))  # refuses other settings
        return states

    def _join(self, states: dict[int, StateT], others: Mapping[int, StateT]) -> None:
        """Merges numbered states into others of the same number."""
        for number, other in others.items():
            if number not in states:
                states[number] = self._empty.copy()
            states[number].merge(other)

    @classmethod
    def _of(cls, empty: Any, size: int, panes: int) -> Self:
        """Makes an empty window out of what `arrays` holds."""
        raise NotImplementedError

    def _last(self) -> int:
        """The number of the pane with the newest example."""
        return max(self.seen - 1, 0) // self._size

    def _room(self) -> int:
        """How many examples go together from now on."""
        return self._size - self.seen % self._size

    def _target(self, place: int) -> StateT:
        """Returns the state in which the example at `place` in the stream is counted."""
        number = place // self._size
        if number not in self._panes:
            self._panes[number] = self._empty.copy()
        return self._panes[number]

    def _forget(self) -> None:
        oldest = self._last() - self._kept + 1
        for number in [number for number in self._panes if number < oldest]:
            del self._panes[number]


def _count(state: Any, batch: Batch) -> None:
    """Hands a prepared batch to a state."""
    state.count(batch)


def _update(state: Any, columns: list[Any]) -> None:
    """Hands columns to a state; which ones it takes is between it and the caller."""
    state.update(*columns)
