"""Which past a metric speaks of: all of it, the last examples, or an exponential decay.

Each rank counts its own examples: merged, `LastExamples` of n covers the last n examples of every
rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rec_summary.errors import three_part
from rec_summary.metrics.panes import Panes
from rec_summary.metrics.state import (
    Array,
    Scalable,
    StateT,
    merged,
    positive_int,
    register,
    same_settings,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@register
class Lifetime(Panes[StateT]):
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
class LastExamples(Panes[StateT]):
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
class Decayed(Panes[StateT]):
    """All examples, each weighing half as much whenever `half_life` more have been seen.

    One pane covers a half-life; within it an example weighs 2 to the power of its place, counted
    in 64ths of the half-life, and panes count half as much for each half-life that has passed.
    So nothing stored is ever rescaled (forward decay, Cormode et al. 2009). Examples of the
    same 64th are gathered unscaled before they enter their pane, so that the result does
    not depend on how the stream was cut into batches. After 16 half-lives a pane goes, and with
    it 2**-16 of the weight.
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
        size = positive_int("half_life", half_life, self.STEPS)
        super().__init__(empty, size, self.HALF_LIVES)
        self._step = -(-size // self.STEPS)
        # By the place in the stream where its step begins. One on a rank; after merging one for
        # each step that a rank was in.
        self._open: dict[int, StateT] = {}

    @classmethod
    def _of(cls, empty: Any, size: int, panes: int) -> Self:
        same_settings("number of panes", cls.HALF_LIVES, panes)
        return cls(empty, size)

    def _room(self) -> int:
        place = self.seen % self._size
        return min(self._size - place, self._step - place % self._step)

    def _target(self, place: int) -> StateT:
        start = place - place % self._size % self._step
        if start not in self._open:
            for done in sorted(self._open):
                pane = super()._target(done)
                pane.merge(_scaled(self._open.pop(done), self._weight(done)))
            self._open[start] = self._empty.copy()
        return self._open[start]

    def _weight(self, place: int) -> float:
        """Returns the weight in its pane of an example at `place`, 1 to 2."""
        return float(2.0 ** (place % self._size / self._size))

    def total(self) -> StateT:
        """Returns the state of the window as of now: an example just seen weighs nearly 1."""
        now = self.seen / self._size
        panes = [_scaled(self._panes[n], 2.0 ** (n - now)) for n in sorted(self._panes)]
        steps = [_scaled(self._open[s], 2.0 ** (s / self._size - now)) for s in sorted(self._open)]
        return merged(panes + steps, self._empty)

    def merge(self, other: Self) -> None:
        """Adds the panes of another rank.

        Raises:
            ValueError: The settings of the two windows or of their states differ.
        """
        super().merge(other)
        self._join(self._open, other._open)
        self._forget()

    def copy(self) -> Self:
        """Returns a window of its own with the same panes."""
        other = super().copy()
        self._join(other._open, self._open)
        return other

    def arrays(self) -> dict[str, Array]:
        """Returns the settings, ``seen``, and the arrays of an empty state and of each pane."""
        return {**super().arrays(), **self._stored("open", self._open)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Makes the window that `arrays` describes; the module of its states must be imported.

        Raises:
            ValueError: They describe none.
        """
        window = super().from_arrays(arrays)
        window._open = window._restored("open", arrays)
        for start in window._open:
            oldest = max(0, window._last() - window._kept + 1) * window._size
            if start % window._size % window._step or not oldest <= start < window.seen:
                raise ValueError(three_part("open", start, "where a step of the window begins"))
        return window

    def _forget(self) -> None:
        super()._forget()
        oldest = (self._last() - self._kept + 1) * self._size
        for start in [start for start in self._open if start < oldest]:
            del self._open[start]


def _scaled(state: StateT, factor: float) -> StateT:
    other = state.copy()
    assert isinstance(other, Scalable)
    other.scale(factor)
    return other
