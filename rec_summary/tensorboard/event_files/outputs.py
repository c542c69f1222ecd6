"""The TensorBoard runs that one run becomes: its own, and those beside and below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Tally
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.output import TensorBoardRun
from rec_summary.tensorboard.event_files.targets import Targets


class Outputs:
    """Opens TensorBoard runs when something is to be written to them, each one once."""

    def __init__(
        self,
        run: Callable[[], Run],
        targets: Targets,
        logdir: LogDir,
        tally: Tally,
        options: ExportOptions,
        states: Mapping[str, Any],
    ) -> None:
        """Goes on with the runs of an earlier export.

        Args:
            run: Returns the run with the files that it has now.
            targets: Knows the names.
            logdir: Where all goes.
            tally: Told of everything.
            options: What is exported.
            states: What `states` returned at the end of that export; empty if there was none.

        Raises:
            DestinationError: There is something else in the place of one.
        """
        self._run = run
        self._targets = targets
        self._logdir = logdir
        self._tally = tally
        self._options = options
        self._states = dict(states)
        self._outputs: dict[str, TensorBoardRun] = {}
        for name in states:
            self._of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def session(self) -> TensorBoardRun:
        """Returns the run's own, which HParams takes for its session."""
        return self._of(self._run().name)

    def evaluation(self) -> TensorBoardRun:
        """Returns that of the metrics of evaluations."""
        return self._of(self._targets.evaluation())

    def writer(self, rank: int, number: int) -> TensorBoardRun:
        """Returns that of a rank's writer; the first one is 1."""
        return self._of(self._targets.writer(rank, number), rank)

    def rank(self, rank: int) -> TensorBoardRun:
        """Returns that of a rank."""
        return self.writer(rank, 1)

    def running(self) -> TensorBoardRun:
        """Returns the one that stands for the session as long as training goes on."""
        name = self._targets.running()
        if name in self._outputs and not self._outputs[name].begun:
            del self._outputs[name]  # it has been discarded: this is another one
        return self._of(name)

    def settle(self) -> None:
        """Lays out their charts, and shows TensorBoard all that has come.

        Raises:
            DestinationError: Something cannot be written.
        """
        for name, output in self._outputs.items():
            output.lay_out(evaluation=name == self._targets.evaluation())
            output.settle()

    def states(self) -> dict[str, Any]:
        """Flushes, and returns what a later export needs to go on with those that were written.

        Raises:
            DestinationError: Something cannot be written.
        """
        found = {name: output.state() for name, output in self._outputs.items()}
        return {name: state for name, state in found.items() if state is not None}

    def close(self) -> None:
        """Closes all files."""
        for output in self._outputs.values():
            output.close()

    def _of(self, name: str, rank: int | None = None) -> TensorBoardRun:
        """Returns the TensorBoard run of a name; with a rank, one of that rank's own."""
        output = self._outputs.get(name)
        if output is None:
            self._logdir.check(name)
            run = self._run()
            own = rank is not None and name != run.name
            files = [file for file in run.files if not own or file.name.rank == rank]
            stamp = min((file.name.stamp for file in files), default=0)
            state = self._states.pop(name, None)
            output = self._outputs[name] = TensorBoardRun(
                name, stamp, self._logdir, self._tally, self._options, state
            )
        return output
