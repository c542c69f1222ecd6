"""Where training began again: which recorded values a new start supersedes.

When training is started again, from a checkpoint or from the beginning, the steps from there on are
recorded again. `Cuts` finds that in the records of one writer, and tells it as a cut: a value that
was recorded before `row` counts only if its step is below `step`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Final, NamedTuple

from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.series.batch import HISTOGRAM, SCALAR, Batch
from rec_summary.series.limits import MOST_SERIES
from rec_summary.series.report import Report
from rec_summary.series.text import printable

STEADY: Final = frozenset((SCALAR, HISTOGRAM))
"""The kinds that are recorded step by step."""

_ALL: Final = 1 << 63  # above all steps


class Row(NamedTuple):
    """The place of a record; that of a later record of the writer is greater.

    Attributes:
        file: The number of the file, as it came.
        offset: Where in the file the record begins, in bytes.
    """

    file: int
    offset: int


class Cut(NamedTuple):
    """A new start of a training: earlier records count only where their step is below.

    Attributes:
        row: The first record of the new start.
        step: The step from which training went on.
        wall_time: When the first record of this step was written, in seconds since the epoch.
        reached: The last step of the series that shows the new start.
    """

    row: Row
    step: int
    wall_time: float
    reached: int


class Cuts:
    """Finds the cuts of one writer, whose records come in their order.

    A series of scalars or histograms whose steps go back means that training was started again.
    Other kinds, such as landscapes, may be recorded at any time for any step.

    A new start may begin with values of other kinds, or of other series. So values from the
    beginning of a file on, or from where steps first went back, are of the new start if the next
    value of a known series of scalars or histograms shows one. Values of the step to which a series
    goes back are of the new start if nothing else was recorded between.

    A record at step 0 with nothing but evaluations supersedes nothing: it is by a process that
    trained nothing and did not know the step. Its values are left out if their series have others.

    Memory is bounded by the number of series of scalars and histograms.

    Attributes:
        new: The first record since a new start may have begun; None if none has.
        cuts: The cuts but those that a later one makes unimportant; rows and steps ascend.
    """

    def __init__(
        self,
        run: str,
        report: Report,
        last: Iterable[tuple[str, str, int]] = (),
        most_series: int = MOST_SERIES,
    ) -> None:
        """Begins, or continues where others stopped.

        Args:
            run: The run's name, for notes.
            report: Takes problems.
            last: What their `last` returned.
            most_series: How many series there may be; the values of others are left out.
        """
        self._most_series = most_series
        self._run = run
        self._report = report
        self.new: Row | None = None
        self.cuts: list[Cut] = []
        # The last step of each series, and a row from which on there is no cut up to its own.
        self._last = {(kind, tag): (step, Row(0, 0)) for kind, tag, step in last}
        self._step: int | None = None
        self._begin = Row(0, 0), 0.0  # of the records in a row of this step, and its time
        self._path = ""
        self._files: dict[str, int] = {}  # the number of each file, as it came last

    def take(self, batch: Batch) -> list[Batch | Cut]:
        """Takes the next values of all series.

        Returns:
            The values that are not left out, and each cut before the record that shows it.
        """
        if not len(batch):
            return []
        if batch.path != self._path:
            self._files[batch.path] = self._files.get(self._path, 0) + 1
            self._path = batch.path
            self.new = self._row(batch) if self._last else None
        items: list[Batch | Cut] = []
        while single := self._single(batch):
            for number in range(single):
                items += self._add(batch.part(number, number + 1))
            if single == len(batch):
                return items
            batch = batch.part(single, len(batch))
        self._pass(batch)
        return [*items, batch]

    def below(self, path: str, end: int) -> int:
        """Returns below which step values count.

        Args:
            path: The file of the batch that they are in, which `take` has returned.
            end: Where in the file this batch ends, in bytes.
        """
        return self._behind(Row(self._files.get(path, len(self._files) + 1), end - 1))

    def last(self) -> list[tuple[str, str, int]]:
        """Returns the kind, tag and last step of each series in which that is in force."""
        return [
            (*series, step) for series, (step, at) in self._last.items() if step <= self._behind(at)
        ]

    def _single(self, batch: Batch) -> int:
        """Returns how many of the first records have to be taken one by one."""
        if (count := len(batch)) == 1:
            return 1
        last = self._last
        series = {key: span for key, span in batch.series().items() if key[0] in STEADY}
        goes_back = self._step is not None and batch.steps[0] < self._step
        if last and (goes_back or self.new is not None):
            known = [span.first_row for key, span in series.items() if key in last]
            if first := min(known, default=count):
                return min(first + 1, count)
        if len(last) + sum(key not in last for key in series) > self._most_series:
            return count
        back = [
            span.first_row
            for key, span in series.items()
            if key in last and last[key][0] > span.first_step
        ]
        return max(back) + 1 if back else 0

    def _pass(self, batch: Batch) -> None:
        """Takes records in which no series goes back."""
        self.new = None
        at = self._row(batch)
        self._last |= {
            key: (span.last_step, at) for key, span in batch.series().items() if key[0] in STEADY
        }
        step = int(batch.steps[-1])
        before = int(batch.steps.searchsorted(step))
        if before or step != self._step:
            self._step = step
            self._begin = self._row(batch.part(before, before + 1)), float(batch.wall_times[before])

    def _add(self, batch: Batch) -> list[Batch | Cut]:
        """Takes one record."""
        step, row, table = int(batch.steps[0]), self._row(batch), batch.table
        series = dict.fromkeys(table.series[code] for code in table.codes.tolist())
        if not series:
            return [batch]
        if step != self._step:
            if self.new is None and self._step is not None and step < self._step and self._last:
                self.new = row
            self._step, self._begin = step, (row, float(batch.wall_times[0]))
        last = self._last
        cuts: list[Batch | Cut] = []
        taken = set()
        is_known = False
        trained = step != 0 or not all(tag.startswith(EVALUATION) for _, tag in series)
        for kind, tag in series:
            if len(tag) > LONGEST_TAG:
                what = f"a tag of {len(tag):,} characters; at most {LONGEST_TAG:,} can be shown"
                self._report.problem(batch.path, batch.offset, f"{what}; skipped")
                continue
            if kind in STEADY:
                reached, at = last.get((kind, tag), (None, row))
                if reached is None and len(last) >= self._most_series:
                    what = f"a tag beyond the first {self._most_series:,} of the run"
                    self._report.problem(batch.path, batch.offset, f"{what}; skipped: {tag!r}")
                    continue
                if not trained and reached is not None and reached > 0:
                    self._report.note(
                        f"run {printable(self._run)}: an evaluation is recorded at step 0, by a "
                        "process that trained nothing; it is left out of the series (`rec-summary "
                        "lineage` shows it)"
                    )
                    continue
                is_known |= reached is not None
                if reached is not None and step < reached <= self._behind(at):
                    begin, wall_time = self._begin
                    cut = Cut(min(self.new or begin, begin), step, wall_time, reached)
                    self.new = None
                    while self.cuts and self.cuts[-1].step >= step:
                        self.cuts.pop()  # this one supersedes all that the earlier one does
                    self.cuts.append(cut)
                    cuts.append(cut)
                last[kind, tag] = step, row
            taken.add((kind, tag))
        if is_known:
            self.new = None
        return [*cuts, batch if len(taken) == len(series) else batch.only(taken)]

    def _behind(self, at: Row) -> int:
        """Returns the lowest step of the cuts behind a record, which is that of the first one.

        All of them are not looked at: a file may go back with every record.
        """
        index = bisect.bisect_right(self.cuts, at, key=lambda cut: cut.row)
        return self.cuts[index].step if index < len(self.cuts) else _ALL

    def _row(self, batch: Batch) -> Row:
        """Returns the place of the first record of a batch."""
        return Row(self._files[batch.path], batch.offset)
