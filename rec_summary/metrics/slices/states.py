"""Metrics by slice: a state of its own for each value of a column, and one for all other values.

A state is kept for each value until there are more than `most` of them. Then, at a certain place of
the stream, the most frequent ones stay, and from there on all examples of others are counted
together. A state that is kept has all examples of its value. So in a sum of closed states only the
values remain that each of them keeps, and merging is exact, whatever the order.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Array
from rec_summary.checks import check_int
from rec_summary.errors import three_part
from rec_summary.metrics.quality.click_quality import QualityBatch
from rec_summary.metrics.quality.score_cells import Places, starts_of
from rec_summary.metrics.state import (
    ColumnBatch,
    Scalable,
    State,
    Stored,
    count_part,
    kind_of,
    nested,
    restore,
    to_array,
)

OTHER: Final = "other"
"""All values without a state of their own."""

_EVERY: Final = 1024  # places for a value in examples, after which values may be too many
_LONGEST: Final = 64  # characters of a name


class Slicing(NamedTuple):
    """The slices of examples.

    Attributes:
        codes: The place of the name of each example's slice, (examples,), or of each of its slices,
            (examples, slices); -1 for none.
        names: Names, all different; they are cut after 64 characters.
    """

    codes: npt.NDArray[np.intp]
    names: list[str]

    def at(self, examples: Any) -> Slicing:
        """Returns the slices of some examples: a slice, places, or bools."""
        return Slicing(self.codes[examples], self.names)


def label(name: str) -> str:
    """Returns the name of a value, in quotes if it could be that of all other values."""
    return f"'{name}'" if name.strip("'") == OTHER else name


class SlicedBatch:
    """A batch for `Slices`; the work for each slice is done once for several states."""

    def __init__(self, slicing: Slicing, batch: Any, start: int = 0) -> None:
        """Puts a batch together.

        Args:
            slicing: The slices of the examples.
            batch: What the states by slice count, of all examples.
            start: The place of the first example in `batch`.
        """
        self._slicing, self._batch, self._start = slicing, batch, start
        self._parts: dict[tuple[str, ...], list[tuple[str | None, int, Any]]] = {}

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self._slicing.codes)

    @property
    def width(self) -> int:
        """The number of slices of an example."""
        return math.prod(self._slicing.codes.shape[1:])

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """The names of the slices by their codes, of those that have an example."""
        codes, names = self._slicing
        counts = np.bincount(codes.reshape(-1) + 1)[1:]  # without the code -1
        # A stored array has no zeros at the end of a name.
        return {
            code: names[code][:_LONGEST].rstrip("\0") for code in np.flatnonzero(counts).tolist()
        }

    def cut(self, at: slice) -> SlicedBatch:
        """Returns some of the examples."""
        if at.stop - at.start == self.size:
            return self
        return SlicedBatch(self._slicing.at(at), self._batch, self._start + at.start)

    def parts(self, known: Container[str]) -> list[tuple[str | None, int, Any]]:
        """Returns the examples of each slice: its name, their number, what a state counts.

        Args:
            known: The names that have a state of their own. All others are together, as None.
        """
        codes, names = self._slicing
        own = tuple(dict.fromkeys(name for name in self.names.values() if name in known))
        if own in self._parts:
            return self._parts[own]
        numbers = np.full(len(names) + 1, len(own))
        for code, name in self.names.items():
            if name in known:
                numbers[code] = own.index(name)
        numbers[-1] = -1  # of the code -1, which is no slice
        slices = numbers[codes]
        examples = np.arange(self.size).reshape(-1, *(1,) * (codes.ndim - 1))
        marked = (slices * self.size + examples)[slices >= 0]
        # An example with a slice twice, or with two of the others, counts once.
        marked = np.sort(marked) if codes.ndim == 1 else np.unique(marked)
        groups, at = np.divmod(marked, self.size)
        starts = starts_of(groups)
        sizes = np.diff(starts, append=len(groups))
        of_groups = [(*own, None)[number] for number in groups[starts].tolist()]
        split = _split(self._batch, at + self._start, starts.tolist()) if len(at) else []
        self._parts[own] = list(zip(of_groups, sizes.tolist(), split, strict=True))
        return self._parts[own]


def _split(batch: Any, at: Places, starts: list[int]) -> list[Any]:
    """Returns the parts of a batch: the examples `at` places, cut where parts begin."""
    if isinstance(batch, QualityBatch):  # which adds up all parts at once
        # A copy: a view of few examples would keep the whole batch in memory.
        parts = batch.cut(at).split(starts)
        return [part._replace(order=part.order.copy()) for part in parts]
    if isinstance(batch, dict):
        several = [_split(of_group, at, starts) for of_group in batch.values()]
        return [dict(zip(batch, parts, strict=True)) for parts in zip(*several, strict=True)]
    return [batch.cut(places) for places in np.split(at, starts[1:])]


class SliceState(Scalable):
    """The states of several metrics of a slice; a mergeable state.

    Attributes:
        metrics: The names of the metrics that have tags.
        groups: The groups of the states, as in the keys of the states of a task.
        kinds: The kinds of the states.
        states: The states by group.
    """

    _settings = ("metrics", "groups", "kinds")
    _parts = ("states",)

    def __init__(self, metrics: Sequence[str], states: Mapping[str, State]) -> None:
        """Starts with empty states."""
        self.metrics, self.groups = tuple(metrics), tuple(states)
        self.kinds = tuple(map(kind_of, states.values()))
        self.states = dict(states)

    def count(self, parts: Mapping[str, Any]) -> None:
        """Counts the parts of a batch, by group, for the states that there are."""
        for group in self.states.keys() & parts.keys():
            count_part(self.states[group], parts[group])

    @classmethod
    def _restored(cls, arrays: Stored) -> SliceState:
        metrics, groups, kinds = (
            arrays.take(name, "U", (None,)).tolist() for name in cls._settings
        )
        parts = arrays.part("states")
        states = map(restore, kinds, map(parts.part, groups))
        return cls(metrics, dict(zip(groups, states, strict=True)))


class Slices(Scalable):
    """States by slice; a mergeable state.

    Attributes:
        most: The number of values that have a state of their own in the long run.
        shown: The number of values that a report shows one by one.
        closed: Whether the values that have one are fixed.
        tagged: The values that a report has shown one by one.
        other: The state of all other values.
    """

    _settings = ("most", "shown")
    _parts = ("_empty", "other", "_states")

    def __init__(self, empty: State, most: int = 64, shown: int = 8) -> None:
        """Starts empty.

        Args:
            empty: An empty state; each slice has a copy of it.
            most: As the attribute.
            shown: As the attribute.

        Raises:
            TypeError, ValueError: An argument is anything else.
        """
        self.most = check_int("most", most, 1, 4096)
        self.shown = check_int("shown", shown, 0)
        self.closed = False
        self.tagged: tuple[str, ...] = ()
        self.other: Any = empty.copy()
        self._empty = empty.copy()
        self._states: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._seen = 0  # examples since the place where values were counted

    def update(self, names: Any, *columns: Any) -> None:
        """Counts a batch.

        Args:
            names: The name of the slice of each example, str, (examples,).
            columns: The positional arguments of ``update`` of the states by slice.
        """
        values, codes = np.unique(np.asarray(names), return_inverse=True)
        slicing = Slicing(codes.reshape(-1), [str(value) for value in values.tolist()])
        self.count(SlicedBatch(slicing, ColumnBatch.of(*columns)))

    def count(self, batch: SlicedBatch) -> None:
        """Counts a batch. The result does not depend on how the stream is cut into batches."""
        every = max(_EVERY // max(batch.width, 1), 1)
        start = 0
        while start < batch.size:
            stop = batch.size
            part = batch.cut(slice(start, stop))
            if not self.closed and len({*self._states, *part.names.values()}) > self.most:
                stop = min(start + max(every - self._seen, 1), stop)
                part = batch.cut(slice(start, stop))
            self._count(part)
            self._seen += stop - start
            if self._seen >= every:
                self._seen %= every
                self._close()
            start = stop

    def slices(self) -> Iterator[tuple[str, int, Any]]:
        """Yields name, number of examples and state of each value, the most frequent first."""
        for name in sorted(self._sizes, key=lambda name: (-self._sizes[name], name)):
            yield name, self._sizes[name], self._states[name]

    def shown_names(self) -> Iterator[str]:
        """Yields what is shown: the most frequent values, and of the others those of before."""
        tagged = set(self.tagged)
        for rank, (name, *_) in enumerate(self.slices()):
            if rank < self.shown or name in tagged:
                yield name

    def tag_shown(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Tags the values of `before`, and the most frequent ones; returns all that are tagged.

        If they are more than have a state in the long run, those go that have none.
        """
        most_frequent = (name for name, *_ in itertools.islice(self.slices(), self.shown))
        names = {*before, *most_frequent}
        if len(names) > max(self.most, self.shown):
            names &= self._states.keys()
        self.tagged = tuple(sorted(names))
        return self.tagged

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, and the names, sizes and arrays of the states by slice."""
        names = sorted(self._states)
        arrays = {
            "kind": np.array(kind_of(self._empty)),
            "most": to_array(self.most),
            "shown": to_array(self.shown),
            "closed": to_array(int(self.closed)),
            "seen": to_array(self._seen),
            "names": np.array(names, np.str_),
            "sizes": np.array([self._sizes[name] for name in names], np.int64),
            **nested("empty", self._empty.arrays()),
            **nested("other", self.other.arrays()),
        }
        if self.tagged:
            arrays["tagged"] = np.array(self.tagged, np.str_)
        for number, name in enumerate(names):
            arrays.update(nested(f"slice{number}", self._states[name].arrays()))
        return arrays

    @classmethod
    def _restored(cls, arrays: Stored) -> Slices:
        kind = str(arrays.take("kind", "U"))
        parts: dict[str, Any] = {
            name: restore(kind, arrays.part(name)) for name in ("empty", "other")
        }
        new = cls(parts["empty"], arrays.integer("most"), arrays.integer("shown"))
        new.closed = bool(arrays.integer("closed", 0, 1))
        new._seen = arrays.integer("seen", 0, _EVERY - 1)
        if "tagged" in arrays:
            new.tagged = tuple(arrays.take("tagged", "U", (None,)).tolist())
        names = arrays.take("names", "U", (None,)).tolist()
        if names != sorted(set(names)):
            raise ValueError(three_part("The array 'names' of a state", names, "rising names"))
        sizes = arrays.sums("sizes", np.int64, (len(names),)).tolist()
        new._sizes = dict(zip(names, sizes, strict=True))
        for number, name in enumerate(names):
            new._states[name] = restore(kind, arrays.part(f"slice{number}"))
        for state in (parts["other"], *new._states.values()):
            new._empty.check_mergeable(state)
        new.other = parts["other"]
        return new

    def _add(self, other: Slices) -> None:
        if other.closed:
            for name in [name for name in self._states if name not in other._states]:
                self._drop(name)
        for name, state in other._states.items():
            if name in self._states:
                self._states[name]._add(state)
                self._sizes[name] += other._sizes[name]
            elif self.closed:
                self.other._add(state)
            else:
                self._states[name], self._sizes[name] = state.copy(), other._sizes[name]
        self.other._add(other.other)
        self.closed |= other.closed
        self.tagged = tuple(sorted({*self.tagged, *other.tagged}))
        self._seen = min(self._seen + other._seen, _EVERY - 1)

    def _count(self, batch: SlicedBatch) -> None:
        if not self.closed:
            for value in batch.names.values():
                if value not in self._states:
                    self._states[value], self._sizes[value] = self._empty.copy(), 0
        for name, size, part in batch.parts(self._states):
            state = self.other
            if name is not None:
                state = self._states[name]
                self._sizes[name] += size
            count_part(state, part)

    def _close(self) -> None:
        """Keeps only the states of the most frequent values, if there are too many."""
        if len(self._states) <= self.most:
            return
        self.closed = True
        for name in [name for name, *_ in self.slices()][self.most :]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        """Counts a value with all others from now on."""
        self.other._add(self._states.pop(name))
        del self._sizes[name]
