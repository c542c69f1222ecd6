"""Which values of a run count: those that no restart supersedes."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, Batch
from rec_summary.series.event_reader import EventReader, read_batches
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writer, Writers
from rec_summary.series.step_buffer import Restart, StepBuffer


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
        self._restarts: dict[str, tuple[int, list[_Place]]] = {}  # by path, with its number
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
                restarts = _restarts(run, files[key])
                self._restarts |= {
                    file.path: (number, restarts) for number, file in enumerate(files[key])
                }

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
        number, restarts = self._restarts.get(batch.path, (0, []))
        index = bisect.bisect_left(restarts, (number, batch.end_offset))
        if index == len(restarts):
            return batch
        return batch.select(Selection(ExportOptions(until=restarts[index].step - 1)))


def _pair(file: RecordFile) -> tuple[str, int, int, str]:
    """Returns what the names of a summary file and its lineage file have in common."""
    return file.name.prefix, file.name.stamp, file.name.rank, file.name.host


class _Place(NamedTuple):
    """Where training had begun again: the number of the file, the offset, and the step."""

    file: int
    offset: int
    step: int


def summary_files(run: Run) -> Iterator[tuple[int, RecordFile]]:
    """Yields the summary files of all ranks, in order, with their ranks."""
    for rank in run.ranks:
        for file in run.files_of(Kind.SUMMARY, rank):
            yield rank, file


def _restarts(run: Run, files: Sequence[RecordFile]) -> list[_Place]:
    """Returns the restarts of a writer but those that a later one makes unimportant."""
    places: list[_Place] = []
    buffer = StepBuffer(run.name, Report())
    numbers = {file.path: number for number, file in enumerate(files)}
    for file in files:
        for batch in read_batches(file, Report()):
            for item in buffer.add(batch):
                if isinstance(item, Restart):
                    while places and places[-1].step >= item.step:
                        places.pop()
                    origin = item.origin
                    places.append(_Place(numbers[origin.path], origin.offset, item.step))
    return places
