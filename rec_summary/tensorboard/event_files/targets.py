"""The TensorBoard runs of a recorded run: their names, each used once, and their event files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.lineage import lineage_events
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import OutputState, TensorBoardRun

EVALUATION_RUN: Final = "eval"
_RUNNING_RUN: Final = "running"
_PEEKED: Final = 100  # records of lineage


class TargetNames(Struct):
    """The names of the TensorBoard runs of a recorded run, by purpose.

    Attributes:
        several: Whether each rank has a sub-run.
        names: The names.
    """

    several: bool
    names: dict[str, str]


class Names:
    """Assigns the names of TensorBoard runs; each name is used once."""

    def __init__(self, runs: Iterable[str] = ()) -> None:
        """Reserves the names of recorded runs: no sub-run gets one of them."""
        self._runs = set(runs)
        self._taken: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Adds names that are in use already."""
        self._taken.update(names)

    def unclaimed(self) -> Names:
        """Returns names that are reserved for the same runs, of which none is in use yet."""
        names = Names()
        names._runs = self._runs
        return names

    def claim(self, name: str) -> str:
        """Returns `name`, with underscores added if it is taken."""
        while name in self._taken or name in self._runs:
            name += "_"
        self._taken.add(name)
        return name

    def claim_run(self, name: str) -> str:
        """Returns the name of a run that was found later: its own, if no sub-run has it."""
        if name in self._taken:
            name = self.claim(name)
        self._runs.add(name)
        return name

    def release(self, names: Iterable[str]) -> None:
        """Releases names, for other runs to use."""
        self._taken.difference_update(names)

    def fit(self, run: Run, state: TargetNames) -> bool:
        """Whether a run would get the same names now as in an earlier export."""
        if not state.several and is_parallel(run):
            return False
        return not any(name != run.name and name in self._runs for name in state.names.values())


class Destination(NamedTuple):
    """Where and how runs are exported: the same for all runs of an export.

    Attributes:
        names: Assigns names to TensorBoard runs.
        logdir: The log directory, entered.
        report: Counts what is exported and what is not.
        options: What is exported.
    """

    names: Names
    logdir: LogDir
    report: Report
    options: ExportOptions


class TensorBoardRuns:
    """The TensorBoard runs of one recorded run: its own, and its sub-runs.

    Each is opened when it gets its first value.

    Attributes:
        run: The run, with its current files.
        targets: The names in use, by purpose.
    """

    def __init__(
        self,
        run: Run,
        destination: Destination,
        targets: TargetNames,
        outputs: Mapping[str, OutputState],
    ) -> None:
        """Begins, or continues with the runs of an earlier export.

        Args:
            run: The run.
            destination: Where and how it is exported.
            targets: The names that the earlier export used; more are added.
            outputs: The state of each TensorBoard run of the earlier export, by name.

        Raises:
            DestinationError: A run directory cannot be read, or has event files of another writer.
        """
        self.run = run
        self.targets = targets
        self._destination = destination
        self._outputs: dict[str, TensorBoardRun] = {}
        destination.names.add(self.names())
        for name, state in outputs.items():
            self._open(name, state=state)
        for name in (*map(self._writer_name, run.ranks), run.name, self._evaluation_name()):
            destination.logdir.check(name)

    def names(self) -> list[str]:
        """Returns all names in use."""
        return [*self.targets.names.values(), self.run.name]

    def session(self) -> TensorBoardRun:
        """Returns the TensorBoard run of the run itself; HParams shows it as a session."""
        return self._open(self.run.name)

    def evaluation(self) -> TensorBoardRun:
        """Returns the TensorBoard run of the metrics of evaluations."""
        return self._open(self._evaluation_name())

    def writer(self, rank: int, number: int = 1) -> TensorBoardRun:
        """Returns the TensorBoard run of a rank; its further writers have numbers from 2 on."""
        return self._open(self._writer_name(rank, number), rank)

    def running(self) -> TensorBoardRun:
        """Returns the TensorBoard run that exists only while the run is running."""
        name = self._name("running", f"{self.run.name}/{_RUNNING_RUN}")
        if name in self._outputs and not self._outputs[name].begun:
            del self._outputs[name]  # it was discarded; this is a new one
        return self._open(name)

    def settle(self) -> None:
        """Writes their layouts and flushes them: from now on TensorBoard sees all values.

        Raises:
            DestinationError: Something cannot be written.
        """
        evaluation = self._evaluation_name()
        for name, output in self._outputs.items():
            output.lay_out(evaluation=name == evaluation)
            output.settle()

    def states(self) -> dict[str, OutputState]:
        """Flushes, and returns what a later export needs to continue the runs that have a file.

        Raises:
            DestinationError: Something cannot be written.
        """
        found = {name: output.state() for name, output in self._outputs.items()}
        return {name: state for name, state in found.items() if state is not None}

    def give_up(self) -> list[str]:
        """Closes all files, releases the names, and returns the names of all opened runs."""
        self.close()
        self._destination.names.release(self.targets.names.values())
        return list(self._outputs)

    def close(self) -> None:
        """Closes all files."""
        for output in self._outputs.values():
            output.close()

    def _open(
        self, name: str, rank: int | None = None, state: OutputState | None = None
    ) -> TensorBoardRun:
        """Returns the TensorBoard run of a name; `rank` is given if it belongs to one rank."""
        output = self._outputs.get(name)
        if output is None:
            _, logdir, report, options = self._destination
            logdir.check(name)
            files = self.run.files
            if rank is not None and name != self.run.name:
                files = tuple(file for kind in Kind for file in self.run.of(kind, rank))
            stamp = min((file.name.stamp for file in files), default=0)
            output = TensorBoardRun(name, stamp, logdir, report, options, state)
            self._outputs[name] = output
        return output

    def _writer_name(self, rank: int, number: int = 1) -> str:
        known, key = self.targets.names, f"rank {rank}"
        if number > 1:
            wanted = f"{self._writer_name(rank)}/writer_{number}"
            return self._name(f"{key} writer {number}", wanted)
        if not self.targets.several and not any(each.startswith("rank ") for each in known):
            known[key] = self.run.name
        return self._name(key, f"{self.run.name}/rank_{rank}")

    def _evaluation_name(self) -> str:
        return self._name("evaluation", f"{self.run.name}/{EVALUATION_RUN}")

    def _name(self, key: str, wanted: str) -> str:
        known = self.targets.names
        if key not in known:
            known[key] = self._destination.names.claim(wanted)
        return known[key]


def is_parallel(run: Run) -> bool:
    """Whether several ranks write to a run.

    Several ranks have written files, or the lineage of the only one so far states that there
    are more: a live export may find the first rank before the others start.
    """
    if len(run.ranks) > 1:
        return True
    files = (lineage_events(run, rank, Report()) for rank in run.ranks)
    first = itertools.islice(itertools.chain.from_iterable(files), _PEEKED)
    return any(each.event.train_lineage.run_state.rank_size > 1 for each in first)
