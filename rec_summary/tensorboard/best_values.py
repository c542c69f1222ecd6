"""The best values of the metrics that HParams shows."""

from __future__ import annotations

from collections.abc import Iterator

from rec_summary.series.batch import SCALAR, Batch, by_tag, concatenated
from rec_summary.series.best_values import BestPoint, BestSeries
from rec_summary.series.step_buffer import Finished, Restart
from rec_summary.tensorboard.first_screen import has_best


class BestValues:
    """The best values of the metrics of a TensorBoard run.

    Attributes:
        state: The series of each metric, by its recorded tag.
    """

    def __init__(self, state: dict[str, BestSeries] | None, *, evaluation: bool) -> None:
        """Begins, or continues with the state of an earlier export.

        Args:
            state: The series so far; kept up to date. None if there were values before that are
                not known: then nothing is the best.
            evaluation: Whether all scalars are metrics of evaluations.
        """
        self.state = {} if state is None else state
        self._is_known = state is not None
        self._group = "/eval" if evaluation else ""
        self._is_metric: dict[str, bool] = {}

    def take(self, finished: Finished) -> None:
        """Takes values, or forgets those that a restart supersedes."""
        if isinstance(finished, Batch):
            self._extend(finished)
            return
        assert isinstance(finished, Restart)
        for series in self.state.values():
            series.forget(finished.step)
        for record in finished.again:
            self._extend(record)

    def new(self) -> Iterator[tuple[str, list[BestPoint]]]:
        """Yields metrics, by their recorded tags, with what was not yielded before."""
        for tag, series in self.state.items():
            points = series.new()
            if points:
                yield tag, points

    def _extend(self, batch: Batch) -> None:
        wanted = {each for each in batch.series() if each[0] == SCALAR and self._wants(each[1])}
        if wanted:
            for tag, columns in by_tag(concatenated([batch.only(wanted).scalars()])):
                self.state.setdefault(tag, BestSeries()).extend(tag, columns)

    def _wants(self, tag: str) -> bool:
        known = self._is_metric.get(tag)
        if known is None:
            known = self._is_metric[tag] = self._is_known and has_best(tag, self._group)
        return known
