"""The names of the TensorBoard runs of recorded runs."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import Record
from rec_summary.series.lineage import Lineage, lineage_events, take
from rec_summary.series.options import EVERYTHING, Selection
from rec_summary.series.report import Report
from rec_summary.series.text import valid

_PEEKED: Final = 100  # records of lineage
_RANK: Final = re.compile(r"rank (\d{1,10})")  # in the purpose of a TensorBoard run


class TargetNames(Struct):
    """The names of the TensorBoard runs of a recorded run, by purpose.

    Attributes:
        several: Whether each rank has a sub-run.
        names: The names.
        directions: Which values of metrics are better, by their names: best values are shown so.
    """

    several: bool
    names: dict[str, str]
    directions: dict[str, str] = {}


class Names:
    """Assigns the names of TensorBoard runs; each name is used once."""

    def __init__(self, runs: Iterable[str] = (), selection: Selection = EVERYTHING) -> None:
        """Reserves the names of recorded runs: no sub-run gets one of them.

        Args:
            runs: The names.
            selection: Which ranks have a sub-run.
        """
        self._selection = selection
        self._runs = set(runs)
        self._taken: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Adds names that are in use already."""
        self._taken.update(names)

    def split(self, runs: Iterable[str]) -> Iterator[Names]:
        """Yields names for each run alone: those reserved at it and below, none in use yet."""
        order = sorted(self._runs)
        for run in runs:
            first, last = (bisect.bisect_left(order, run + end) for end in "/0")  # 0 follows /
            yield Names([run, *order[first:last]], self._selection)

    def claim(self, name: str) -> str:
        """Returns `name`, with underscores added if it is taken."""
        while name in self._taken or name in self._runs:
            name += "_"
        self._taken.add(name)
        return name

    def claim_run(self, name: str) -> str:
        """Returns the name of a recorded run: its own, if no sub-run has it and it is text.

        Not every directory has a name that is text. With one that is not, TensorBoard's Python
        loader shows no run at all.
        """
        text = valid(name)
        if text != name:
            return self.claim(text)
        if name in self._taken:
            name = self.claim(name)
        self._runs.add(name)
        return name

    def named(self, runs: Iterable[Run]) -> list[Run]:
        """Returns recorded runs under the names that they are shown under."""
        return [dataclasses.replace(run, name=self.claim_run(run.name)) for run in runs]

    def is_recorded(self, name: str) -> bool:
        """Whether a recorded run has the name."""
        return name in self._runs

    def release(self, names: Iterable[str]) -> None:
        """Releases names, for other runs to use."""
        self._taken.difference_update(names)

    def fit(self, run: Run, state: TargetNames) -> bool:
        """Whether a run would get the same names now as in an earlier export."""
        if not state.several and is_parallel(run):
            return False
        if not self.fit_ranks(run, state):
            return False
        return not any(name != run.name and name in self._runs for name in state.names.values())

    def fit_ranks(self, run: Run, state: TargetNames) -> bool:
        """Whether all ranks that have a sub-run would get one now."""
        ranks = filter(None, map(_RANK.match, state.names))
        return all(self.shows(run, int(rank[1])) for rank in ranks)

    def shows(self, run: Run, rank: int) -> bool:
        """Whether a rank is shown by itself, beside what all ranks have in common."""
        return self._selection.rank(rank, run.ranks)


def is_parallel(run: Run) -> bool:
    """Whether several ranks write to a run.

    Several ranks have written files, or the lineage of the only one so far states that there
    are more: a live export may find the first rank before the others start.
    """
    if len(run.ranks) > 1:
        return True
    return any(record.event.train_lineage.run_state.rank_size > 1 for record in _first_lineage(run))


def directions_at_first(run: Run) -> dict[str, str]:
    """Returns which values of metrics are better, as a run states it at its beginning."""
    lineage = Lineage()
    for record in _first_lineage(run):
        take(lineage, record, Report())
    return lineage.directions


def _first_lineage(run: Run) -> Iterator[Record]:
    files = (lineage_events(run, rank, Report()) for rank in run.ranks)
    return itertools.islice(itertools.chain.from_iterable(files), _PEEKED)
