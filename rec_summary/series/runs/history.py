"""Which values of a run count: those that no restart supersedes."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, Batch
from rec_summary.series.cuts import Cuts
from rec_summary.series.event_reader import EventReader, read_batches
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writer, Writers


class History:
    """Who wrote the values of a run, and which of them count.

    When training is started again from a checkpoint, the values of the steps from there on are
    recorded again. Those that were recorded before do not count, whatever kind they are of. To know
    them from the first one on, all files are read before, but for their steps and times only.

    Attributes:
        files: The writers and their summary files, in order.
        last_steps: The step of the last record of each writer, by its rank and number.
    """

    def __init__(self, run: Run) -> None:
        """Reads the steps and times of a run; what cannot be read is not reported."""
        self.files: list[tuple[Writer, list[RecordFile]]] = []
        self.last_steps: dict[tuple[int, int], int] = {}
        self._run = run
        self._cuts: dict[str, Cuts] = {}  # by path, where there are any
        writers = Writers()
        files: dict[tuple[int, int], list[RecordFile]] = {}  # by rank and number of the writer
        latest: dict[tuple[int, int], int] = {}
        restarted = set()
        for rank, file in summary_files(run):
            writer = None
            with EventReader(file, Report(), steps_only=True) as reader:
                for batch in reader:
                    if batch.kind != SUMMARY:
                        writers.begins(file, batch)
                        continue
                    writer, steps = writers.of(file, batch), batch.steps
                    key = (rank, writer.number)
                    if steps[0] < latest.get(key, steps[0]):
                        restarted.add(key)
                    latest[key] = steps[-1]
                    # A landscape has step 0, and is computed after the training.
                    self.last_steps[key] = int(steps[-1]) or self.last_steps.get(key, 0)
            if writer is None:  # it has no values
                self.files.append((Writer(rank, 1, 0.0), [file]))
            else:
                files.setdefault((rank, writer.number), []).append(file)
        for writer in writers.writers:
            key = (writer.rank, writer.number)
            self.files.append((writer, files[key]))
            if key in restarted:
                cuts = Cuts(run.name, Report())
                for file in files[key]:
                    for batch in read_batches(file, Report()):
                        cuts.take(batch)
                self._cuts |= dict.fromkeys((file.path for file in files[key]), cuts)

    def writers(self) -> list[tuple[Run, History]]:
        """Returns the run of the first writers of all ranks, and one for each further number.

        These have the names that the values of further writers have: `<run>/writer_2`. A lineage
        file belongs to the writer whose summary file has the same name otherwise.
        """
        if all(writer.number == 1 for writer, _ in self.files):
            return [(self._run, self)]
        numbers = {_pair(file): writer.number for writer, files in self.files for file in files}
        parts = []
        for number in sorted(set(numbers.values())):
            chosen = [file for file in self._run.files if numbers.get(_pair(file), 1) == number]
            name = Writer(0, number, 0.0).name(self._run.name)
            history = copy.copy(self)
            history.files = [file for file in self.files if file[0].number == number]
            history.last_steps = {
                writer: step for writer, step in self.last_steps.items() if writer[1] == number
            }
            parts.append((Run(name, self._run.path, tuple(chosen)), history))
        return parts

    def in_force(self, batch: Batch) -> Batch:
        """Returns the values of a batch that no later restart supersedes."""
        cuts = self._cuts.get(batch.path)
        if cuts is None or (end := cuts.below(batch.path, batch.end_offset)) > batch.steps.item(-1):
            return batch
        return batch.select(Selection(ExportOptions(until=end - 1)))


def _pair(file: RecordFile) -> tuple[str, int, int, str]:
    """Returns what the names of a summary file and its lineage file have in common."""
    return file.name.prefix, file.name.stamp, file.name.rank, file.name.host


def summary_files(run: Run) -> Iterator[tuple[int, RecordFile]]:
    """Yields the summary files of all ranks, in order, with their ranks."""
    for rank in run.ranks:
        for file in run.files_of(Kind.SUMMARY, rank):
            yield rank, file
