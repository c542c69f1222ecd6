"""Exporting one run, from where an earlier export stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.series.batch import SUMMARY, Batch
from rec_summary.series.new_records import NewRecords
from rec_summary.series.options import Selection
from rec_summary.series.text import printable
from rec_summary.tensorboard.event_files.cursor import (
    CURSOR_NAME,
    Cursor,
    load_cursor,
    remove_cursor,
    save_cursor,
)
from rec_summary.tensorboard.event_files.event_file import is_intact
from rec_summary.tensorboard.event_files.experiment import Described, described
from rec_summary.tensorboard.event_files.run_writer import Destination, TensorBoardRuns, is_sub_run
from rec_summary.tensorboard.run_names import TargetNames, directions_at_first, is_parallel
from rec_summary.tensorboard.run_reader import RunReader, continues, is_replaced

_COMMIT_BYTES: Final = 1 << 26
_STATES: Final = 8


class RunExporter:
    """Exports one run to a log directory, and keeps it up to date there.

    `update` exports what is new since the last update, by this process or by an earlier one:
    the cursor in the log directory states where that update stopped. The run is exported from
    the beginning if the event files have changed since then, if the options differ, or if the
    records are those of another training.
    """

    _state: Cursor
    _outputs: TensorBoardRuns
    _reader: RunReader

    def __init__(self, run: Run, destination: Destination) -> None:
        """Reads the cursor and checks the places; nothing is written yet.

        Args:
            run: The run.
            destination: Where and how it is exported.

        Raises:
            DestinationError: The log directory cannot be read, or there are event files of
                another writer in the run's place.
        """
        self._destination = destination
        _, self._logdir, self._report, self._options = destination
        self._records = NewRecords(self._report, frames=True)
        cursor = load_cursor(self._logdir, run.name)
        # The TensorBoard runs of an earlier export.
        self._stale = list(cursor.outputs if cursor else self._left_behind(run.name))
        self._begin(run, cursor if cursor and self._is_in_force(run, cursor) else None)

    @property
    def is_waiting(self) -> bool:
        """Whether reading stopped at damage that is soon to be tried again."""
        return self._records.is_waiting(self._outputs.run.files)

    @property
    def has_records(self) -> bool:
        """Whether any record has ever been read."""
        return self._state.began is not None

    def update(self, run: Run, *, final: bool = True) -> Iterator[None]:
        """Exports what is new; TensorBoard can read it when the update ends.

        The session of the HParams dashboard, and the table beside it, are those of the
        lowest rank with a lineage; the tables of other ranks are in their own sub-runs.
        Evaluations are those of the lowest rank that has made any, because all ranks
        usually report the same.

        Args:
            run: The run with all its files, which may be more than before.
            final: Whether this is the last update for now; if not, an unfinished record
                or an unfinished lineage is not reported.

        Yields:
            Nothing, after each part. The update can be stopped there; a later export completes it.

        Raises:
            DestinationError: Something cannot be written.
        """
        if is_replaced(run, self._state, self._records) and self._can_begin_again(run):
            self._begin_again(run)
        yield from self._read(run, final=final)
        can_begin_again = self._can_begin_again(run)
        # Best values may have been taken before the lineage said which values are better.
        is_misread = self._reader.directions != self._state.targets.directions
        if (is_misread and can_begin_again) or not self._describe(final=final):
            if can_begin_again:
                self._begin_again(run)
                yield from self._read(run, final=final)
                self._describe(final=final)
            else:
                self._report.note(
                    f"run {printable(run.name)}: what its hyper-parameters or its status are "
                    "now is in its text only; the HParams dashboard keeps the first ones"
                )
        self._outputs.settle()

    def commit(self) -> Described | None:
        """Saves the cursor, for the next export.

        Returns:
            What the description of the experiment is made of; None without a cursor.

        Raises:
            DestinationError: Something cannot be written.
        """
        if not self.has_records:
            return None
        written = self._outputs.states()
        for name in (*self._stale, *self._outputs.names()):
            if name not in written and self._logdir.remove(name):
                self._report.replaced.append(name)
        self._stale = []
        if not written:
            return None
        self._state.outputs = written
        if self._state.ranks is not None:
            self._state.ranks.pack()
        name = self._outputs.run.name
        return described(name, self._state, save_cursor(self._logdir, name, self._state))

    def close(self) -> None:
        """Closes all files, also after an error."""
        self._outputs.close()

    def _begin(
        self, run: Run, cursor: Cursor | None, directions: dict[str, str] | None = None
    ) -> None:
        """Begins, or continues where an earlier export stopped."""
        if cursor is None:
            directions = directions_at_first(run) if directions is None else directions
            cursor = Cursor(
                format=5,
                options=self._options.fingerprint(),
                # One rank's values are the run's own; several get a sub-run each.
                targets=TargetNames(is_parallel(run), {}, directions),
            )
        self._state, selection = cursor, Selection(self._options)
        self._outputs = TensorBoardRuns(run, self._destination, cursor.targets, cursor.outputs)
        lineages = cursor.description.lineages
        self._reader = RunReader(cursor, lineages, self._outputs, self._records, selection)
        self._uncommitted = 0

    def _begin_again(self, run: Run) -> None:
        self._stale += self._outputs.discard_all()
        remove_cursor(self._logdir, run.name)
        self._begin(run, None, self._reader.directions)

    def _read(self, run: Run, *, final: bool) -> Iterator[None]:
        """Reads what is new."""
        is_first = not self.has_records
        for file, batch in self._reader.new(run, final=final):
            if is_first:  # before anything changes that an old cursor describes
                remove_cursor(self._logdir, run.name)
                is_first = False
            if batch.kind == SUMMARY:
                self._commit_between_steps(file, batch)
            self._reader.take(file, batch)
            yield
        self._reader.join()

    def _left_behind(self, run: str) -> Iterator[str]:
        """Yields the sub-runs of an export that was killed before it saved a cursor.

        They are known by their names; where there is a cursor, or will be one, is another run.
        """
        for name, files, _ in self._logdir.directories(run):
            is_recorded = CURSOR_NAME in files or self._destination.names.is_recorded(name)
            if is_sub_run(name, run) and not is_recorded:
                yield name

    def _is_in_force(self, run: Run, cursor: Cursor) -> bool:
        """Whether a cursor describes these records, these options and these event files."""
        if not self._options.resumable or cursor.options != self._options.fingerprint():
            return False
        if cursor.began is None:  # it is stored when there are records
            return False
        if not self._destination.names.fit(run, cursor.targets):
            return False
        if not continues(run, cursor, self._records):
            return False
        return all(
            is_intact(self._logdir, name, output.file) for name, output in cursor.outputs.items()
        )

    def _can_begin_again(self, run: Run) -> bool:
        """Whether all that was ever exported of this run can still be read."""
        names = {os.path.basename(file.path) for file in run.files}
        return self._state.files.keys() <= names

    def _commit_between_steps(self, file: RecordFile, batch: Batch) -> None:
        """Saves the cursor of a long export now and then: it may be killed."""
        self._uncommitted += batch.end_offset - batch.offset
        # The state of many ranks is large: it is not worth more than a part of the time.
        ranks = self._state.ranks
        least = max(_COMMIT_BYTES, 0 if ranks is None else _STATES * ranks.nbytes)
        if self._uncommitted >= least and self._options.resumable:
            output = self._reader.output_of(file, batch)
            if output is None or batch.steps[0] != output.step:
                self._uncommitted = 0
                self.commit()

    def _describe(self, *, final: bool) -> bool:
        """Writes the texts and the session of the run; returns whether the event file is right."""
        state, outputs = self._state, self._outputs
        if not state.description.lineages:
            return True
        state.description.write_texts(outputs, state.reached, final=final)
        return state.description.write_session(outputs, state.began, state.furthest, final=final)
