"""The light half of a recommender's metrics: what it does on the training thread.

The Tensors of each step are kept, or copied if they are on a device; some thousand examples at
a time, or with a report, they are handed to the writer's thread, where everything is counted.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, Final

import mindspore

from rec_summary.records.failures import Troubles
from rec_summary.training.lineage.lineage import Environment
from rec_summary.training.recommender import inputs as batches
from rec_summary.training.recommender.aggregator import Engine, Report, Work
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.inputs import Batch, Reader, Roles, column_names
from rec_summary.training.recommender.tables import RowSampler, find_tables
from rec_summary.training.recorder import Recorder
from rec_summary.training.step_view import StepView
from rec_summary.training.tensors import Array

_LOOSE_STEPS: Final = 16  # whose Tensors may be kept alive: hundreds of them cost a step more
_EXAMPLES: Final = 8192  # at once: counting few costs nearly as much as counting many
_TABLES: Final = 4  # of which rows are taken in one step
_MOST_WAITING: Final = 4  # pieces of work that the writer's thread has not come to
_MOST_BYTES: Final = 64 << 20


class RecommenderTelemetry:
    """Follows the steps of one collector."""

    def __init__(
        self,
        options: RecommenderMetrics,
        directory: str,
        recorder: Recorder,
        troubles: Troubles,
    ) -> None:
        """Prepares; nothing is read before training begins.

        Args:
            options: What is wanted.
            directory: The record directory.
            recorder: Takes the work for the writer's thread.
            troubles: Told of every failure.
        """
        self._options = options
        self._directory = directory
        self._recorder = recorder
        self._troubles = troubles
        self._roles = Roles(options)
        self._engine: Engine | None = None
        self._reader: Reader | None = None
        self._sampler: RowSampler | None = None
        self._batches: list[Batch] = []
        self._owned = 0  # how many of them hold no small Tensor any more
        self._examples = 0
        self._nbytes = 0
        self._waiting: list[weakref.ref[Work]] = []
        self._reports = 0
        self._step = 0
        self._rows: dict[str, tuple[Array, Array]] = {}
        self._ended = self._began = 0.0

    def begin(self, view: StepView, environment: Environment) -> None:
        """Finds the tables; takes up the state of an earlier process, if there is one."""
        network = view.network
        parameters = list(network.get_parameters()) if network is not None else []
        if self._engine is None:
            tables = find_tables(self._options.ids, parameters, self._troubles)
            sizes = {name: table.size for name, table in tables.items()}
            self._sampler = RowSampler(tables, self._options.sampled_rows, self._troubles)
            self._engine = Engine(
                self._options,
                sizes,
                self._directory,
                environment.rank,
                environment.rank_size,
                self._troubles,
            )
        columns = column_names(view.get("train_dataset"))
        on_host = mindspore.get_context("device_target") == "CPU"
        self._reader = Reader(self._roles, columns, self._troubles, on_host=on_host)
        self._ended = self._began = time.perf_counter()

    def begin_step(self) -> None:
        """Notes that the batch is there: until now training has waited for it."""
        self._began = time.perf_counter()

    def end_step(self, view: StepView, step: int) -> None:
        """Takes what is needed of a step; hands it on when there is enough of it."""
        if self._reader is None or self._engine is None:
            return
        ended = time.perf_counter()
        waited = max(self._began - self._ended, 0.0)
        values = self._reader.take(view)
        samples = view.samples or max((len(a) for a in values.values() if a.ndim), default=0)
        batch = Batch(values, samples, max(ended - self._ended, waited), waited, time.time())
        self._ended, self._step = ended, step
        if self._nbytes <= _MOST_BYTES:
            if len(self._batches) - self._owned >= _LOOSE_STEPS:
                self._own()
            self._batches.append(batch)
            self._examples += samples
            self._nbytes += batch.nbytes
        else:
            self._troubles.report(
                "recommender metrics: batches not counted", "the writer's thread is too slow"
            )
        if step % self._options.report_steps == 0:
            self._hand_over(self._report(final=False))
            return
        if self._comes_soon(step):
            self._take_rows(everything=False)
        if self._examples >= _EXAMPLES and self._has_room():
            self._hand_over(None)

    def end(self) -> None:
        """Hands over what is left, with the last report of this run."""
        if self._reader is None:
            return
        self._reader.close()
        self._reader = None
        if self._step:
            self._hand_over(self._report(final=True))

    def _report(self, *, final: bool) -> Report:
        detailed = final or self._reports % self._options.detail_every == 0
        self._reports += 1
        if detailed:
            self._take_rows(everything=True)
            rows, self._rows = self._rows, {}
            return Report(self._step, time.time(), detailed, final, rows)
        return Report(self._step, time.time(), detailed, final)

    def _take_rows(self, *, everything: bool) -> None:
        """Takes rows of some tables, or of all that are left, for the next detailed report."""
        if self._sampler is None:
            return
        for table in self._sampler.open_tables:
            self._sampler.choose(table, self._last_ids(table))
        left = [name for name in self._sampler.names if name not in self._rows]
        self._rows.update(self._sampler.take(left if everything else left[:_TABLES]))

    def _comes_soon(self, step: int) -> bool:
        """Whether a detailed report is so near that its rows must be begun with."""
        if self._sampler is None or self._reports % self._options.detail_every:
            return False
        left = self._options.report_steps - step % self._options.report_steps
        return left * _TABLES <= len(self._sampler.names)

    def _last_ids(self, table: str) -> Any:
        last = self._batches[-1].settle(self._troubles) if self._batches else {}
        ids = self._roles.column(batches.IDS + table, last)
        return batches.NO_IDS if ids is None else ids

    def _own(self) -> None:
        """Lets go of the small Tensors of the steps before this one."""
        # Many in a row: from a cold cache, those of one step take several times as long. What
        # computes this step's may not have ended yet.
        for batch in self._batches[self._owned : -1]:
            batch.own()
        self._owned = max(len(self._batches) - 1, 0)

    def _hand_over(self, report: Report | None) -> None:
        assert self._engine is not None
        self._own()
        work = Work(self._engine, self._batches, report)
        self._batches, self._owned, self._examples, self._nbytes = [], 0, 0, 0
        self._waiting.append(weakref.ref(work))
        self._recorder.write(work)

    def _has_room(self) -> bool:
        # What the writer has refused is gone, and no longer waits.
        self._waiting = [each for each in self._waiting if (w := each()) is not None and not w.done]
        return len(self._waiting) < _MOST_WAITING
