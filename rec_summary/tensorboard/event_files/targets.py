"""Which TensorBoard runs a run becomes; no two ever share one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.event_reader import EventReader
from rec_summary.series.report import Tally

EVALUATION_RUN = "eval"
RUNNING_RUN = "running"
_PEEKED = 100  # records of a lineage file


class Names:
    """Gives out names below a log directory, each once."""

    def __init__(self, runs: Iterable[str] = ()) -> None:
        """Begins with the names of recorded runs, which are theirs."""
        self._runs = set(runs)
        self._taken: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Takes names that are in use already."""
        self._taken.update(names)

    def claim(self, name: str) -> str:
        """Returns `name`, with underscores added if it is taken."""
        while name in self._taken or name in self._runs:
            name += "_"
        self._taken.add(name)
        return name

    def claim_run(self, name: str) -> str:
        """Returns what a run that has turned up is called; its own name, if that is free."""
        if name in self._taken:
            name = self.claim(name)
        self._runs.add(name)
        return name

    def release(self, names: Iterable[str]) -> None:
        """Gives names back."""
        self._taken.difference_update(names)

    def conflict(self, run: str, names: Iterable[str]) -> bool:
        """Whether one of the names that a run has used is that of another recorded run."""
        return any(name != run and name in self._runs for name in names)


class Targets:
    """The TensorBoard runs of one run, by what they are for."""

    def __init__(self, run: Run, names: Names, known: dict[str, str] | None = None) -> None:
        """Begins.

        Args:
            run: The run.
            names: Gives out names.
            known: The names of an earlier export; they stay as they are.
        """
        self._run = run.name
        self._names = names
        self._known = dict(known or {})
        self._names.add(self.names())
        # One rank's values are the run's own; several get a sub-run each.
        self._several = self._known.get("several") == "yes" if known else is_parallel(run)

    def rank(self, rank: int) -> str:
        """Where the values of a rank go."""
        key = f"rank {rank}"
        first = not any(known.startswith("rank ") for known in self._known)
        if first and not self._several:
            return self._known.setdefault(key, self._run)
        return self._known.get(key) or self._claim(key, f"{self._run}/rank_{rank}")

    def writer(self, rank: int, number: int) -> str:
        """Where the values of a further writer of the same rank go; the first has number 1."""
        if number == 1:
            return self.rank(rank)
        key = f"rank {rank} writer {number}"
        return self._known.get(key) or self._claim(key, f"{self.rank(rank)}/writer_{number}")

    def evaluation(self) -> str:
        """Where the results of evaluations go."""
        name = f"{self._run}/{EVALUATION_RUN}"
        return self._known.get("evaluation") or self._claim("evaluation", name)

    def running(self) -> str:
        """Where it says that the run is going on."""
        name = f"{self._run}/{RUNNING_RUN}"
        return self._known.get("running") or self._claim("running", name)

    def state(self) -> dict[str, str]:
        """Returns what is to be handed in as `known` later; JSON can hold it."""
        return {**self._known, "several": "yes" if self._several else "no"}

    def names(self) -> list[str]:
        """Returns all names in use."""
        return self.names_in(self._known)

    @classmethod
    def fit(cls, run: Run, names: Names, state: dict[str, str]) -> bool:
        """Whether the names of an earlier export are those that would be given now."""
        if state["several"] == "no" and is_parallel(run):
            return False
        return not names.conflict(run.name, cls.names_in(state))

    @staticmethod
    def names_in(state: dict[str, str]) -> list[str]:
        """Returns the names in what `state` has returned."""
        return [name for key, name in state.items() if key != "several"]

    def _claim(self, key: str, name: str) -> str:
        self._known[key] = self._names.claim(name)
        return self._known[key]


def is_parallel(run: Run) -> bool:
    """Whether several ranks write to a run.

    Several have written files, or the lineage of the only one so far says that there are
    more: a live export may meet the first rank before the others have begun.
    """
    if len(run.ranks) > 1:
        return True
    for file in run.files:
        if file.name.kind is Kind.LINEAGE:
            with EventReader(file, Tally()) as reader:
                for record in itertools.islice(reader, _PEEKED):
                    event: LineageEvent = next(record.records()).event
                    if event.train_lineage.run_state.rank_size > 1:
                        return True
    return False
