"""The TensorBoard runs of a recorded run, each with its event file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import OutputState, TensorBoardRun
from rec_summary.tensorboard.outputs import Names, RunOutputs, TargetNames

_RUNNING_RUN: Final = "running"


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


class TensorBoardRuns(RunOutputs):
    """The TensorBoard runs of one recorded run, each with its event file."""

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
        super().__init__(run, destination.names, targets)
        self._destination = destination
        self._outputs: dict[str, TensorBoardRun] = {}
        for name, state in outputs.items():
            self._open(name, state=state)
        shown = map(self._writer_name, filter(self.shows, run.ranks))
        for name in dict.fromkeys((*shown, run.name, self._evaluation_name())):
            destination.logdir.check(name)

    def session(self) -> TensorBoardRun:
        """Returns the TensorBoard run of the run itself; HParams shows it as a session."""
        return self._open(self.run.name)

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
        """Completes and flushes them: from now on TensorBoard sees all values.

        Raises:
            DestinationError: Something cannot be written.
        """
        for output in self._outputs.values():
            output.complete()
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
        output = self._outputs.get(name)
        if output is None:
            _, logdir, report, options = self._destination
            logdir.check(name)
            stamp = self._stamp(name, rank)
            output = TensorBoardRun(
                *(name, stamp, logdir, report, options, state),
                is_evaluation=self._is_evaluation(name),
            )
            self._outputs[name] = output
        return output
