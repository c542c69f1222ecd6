"""The work of a recommender's metrics on the training thread.

It keeps the Tensors of each step, or copies them if they are on a device. After some thousand
examples, or with a report, it queues them for a thread that does all counting. This is not the
writer's thread: a record waits for no metric. Where counting is slower than training, it takes a
part of the batches.
"""

from __future__ import annotations

import atexit
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.arrays import Array
from rec_summary.metrics.slices.gate import Gate
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.background import CLOSE_SECS, TaskQueue
from rec_summary.records.writing.record import Record, Task
from rec_summary.training.recommender import inputs
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.counting.aggregator import Aggregator, ReportRequest
from rec_summary.training.recommender.importance import Batch, Passes, Visit
from rec_summary.training.recommender.inputs import Roles, StepInputs
from rec_summary.training.recommender.rows import EmbeddingTable, RowSampler
from rec_summary.training.recorder import Recorder

_MOST_TENSOR_STEPS: Final = 16  # with live Tensors: hundreds of steps slow down training
_EXAMPLES: Final = 1 << 15  # in a task: few examples take nearly as much time as many
_TASK_BYTES: Final = 8 << 20  # larger ones leave the cache, and keep memory from others
_TABLES: Final = 4  # whose rows are sampled in one step
_BEHIND_SECS: Final = 5.0  # of counting, at most, that wait: the end of a training waits for them
_BEHIND_BYTES: Final = 64 << 20
_FORGET: Final = 0.9  # of the earlier speed of counting, with each task
_REPORT_BYTES: Final = 4096
_TASK: Final = "recommender metrics"


class Source(Protocol):
    """Has the inputs of each step."""

    def examples(self, step: Any) -> int:
        """Returns the number of examples of a step that has ended; 0 if it is unknown."""

    def trained(self, step: Any) -> int | None:
        """Returns that of all steps since the last one; None if each has had as many."""

    def take(self, step: Any) -> dict[Any, Any]:
        """Returns the inputs of the step by place, for a `StepInputs`."""

    def batch(self, step: Any) -> Batch:
        """Returns the batch of a step that begins, for passes."""

    def close(self) -> None:
        """Receives no more inputs."""


class RecommenderTelemetry:
    """Observes the steps of one training.

    Attributes:
        roles: The inputs.
        tables: The names of the tables whose lookups are counted.
    """

    def __init__(
        self,
        options: RecommenderMetrics,
        recorder: Recorder,
        troubles: Troubles,
        gate: Gate | None = None,
    ) -> None:
        """Prepares. It reads nothing before training begins.

        Args:
            options: The metrics.
            recorder: Receives the records of reports.
            troubles: Receives every failure.
            gate: Moves the link `latest-good`; None for no link.
        """
        self._options, self._gate = options, gate
        self._recorder = recorder
        self._troubles = troubles
        self.roles, self.tables = Roles(options), tuple(options.ids)
        self._aggregator: Aggregator | None = None
        self._source: Source | None = None
        self._sampler = RowSampler({}, troubles)
        self._batches: list[StepInputs] = []
        self._owned = 0  # batches whose small Tensors are released
        self._examples = 0
        self._nbytes = 0
        self._queue: TaskQueue | None = None
        self._counted = (float(_TASK_BYTES), _BEHIND_SECS)  # bytes, and seconds; a first guess
        self._reports = 0
        self._step = 0
        self._rows: dict[str, tuple[Array, Array]] = {}
        self._ended = self._waited = 0.0
        self._is_compiled = False
        self._passes: Passes | None = None
        self._visit: Visit | None = None  # before the step that ends next
        self._trained_steps = 0  # of this training; the number of a step may go back

    def begin(
        self,
        source: Source,
        tables: Callable[[], Mapping[str, EmbeddingTable]],
        environment: RunState,
        directory: str | None,
        resume: bool = True,
    ) -> None:
        """Takes the tables, and restores the state of an earlier process.

        Args:
            source: Has the inputs of each step.
            tables: Returns the tables, when training begins for the first time.
            environment: The process that trains.
            directory: The record directory, for the state; None to store and restore none.
            resume: Whether the state in the directory is of this training.
        """
        if self._aggregator is None:
            found = tables()
            self._sampler = RowSampler(found, self._troubles)
            self._aggregator = Aggregator(
                self._options,
                {name: table.size for name, table in found.items()},
                directory,
                environment.rank,
                environment.rank_size,
                self._troubles,
                resume=resume and self._options.resume,
                gate=self._gate,
            )
        self.stop()
        self._queue = TaskQueue(self._troubles, take=self._recorder.write)
        atexit.register(self.stop)  # before the recorder closes
        self._source = source
        if self._options.importance is not None:
            ranks = environment.rank, environment.rank_size
            self._passes = Passes(self._options.importance, self.roles.predictions, *ranks)
        self._ended = time.perf_counter()
        self._waited = 0.0
        self._is_compiled = False

    def begin_step(self) -> None:
        """Ends the wait for data: the batch is available."""
        self._waited = max(time.perf_counter() - self._ended, 0.0)

    def add_wait(self, seconds: float) -> None:
        """Adds a wait for data of this step."""
        self._waited += seconds

    def predict(self, context: Any) -> None:
        """Makes passes on the batch of a step that begins, if they are due.

        Args:
            context: What the source has the batch from.
        """
        passes, source = self._passes, self._source
        if passes is None or source is None or not passes.is_due(self._trained_steps):
            return
        if self._is_behind:
            return
        with self._troubles.attempt("recommender metrics: importance"):
            take = functools.partial(source.batch, context)
            self._visit = passes.visit(take, self._trained_steps)
        if passes.is_over:
            self._passes = None
            text = "importance: no more passes are made in this training, for the reason above"
            self._troubles.limit("recommender metrics: no more passes", text)

    def end_step(self, context: Any, step: int) -> None:
        """Takes the inputs of a step; queues a task if enough, or if a report is due.

        Args:
            context: What the source reads the inputs from.
            step: The step.
        """
        source = self._source
        if source is None:
            return
        ended, waited, self._waited = time.perf_counter(), self._waited, 0.0
        visit, self._visit = self._visit, None
        self._trained_steps += 1
        # The first step compiles the network.
        seconds = max(ended - self._ended, waited) if self._is_compiled else math.nan
        self._is_compiled = True
        steps = max(step - self._step, 1) if self._step else 1
        self._ended, self._step = ended, step
        samples, trained = source.examples(context), source.trained(context)
        if self._is_behind:
            self._troubles.report(
                "recommender metrics: examples not counted",
                "counting is slower than training, so a part of the batches is left out: name "
                "fewer slices, tables and features, or raise report_steps",
                max(samples, 1),
            )
            return
        values = source.take(context)
        samples = samples or max((len(a) for a in values.values() if a.ndim), default=0)
        batch = StepInputs(values, samples, seconds, waited, time.time(), steps, trained, visit)
        if len(self._batches) - self._owned >= _MOST_TENSOR_STEPS:
            self._release_tensors()
        self._batches.append(batch)
        self._examples += samples
        self._nbytes += batch.nbytes
        every = self._options.report_steps
        if step % every < steps:  # a multiple of it is among these steps
            self._put(self._report(final=False))
            return
        if self._is_detail_near(step):
            self._sample_rows(_TABLES)
        if self._examples >= _EXAMPLES or self._nbytes >= _TASK_BYTES:
            self._put(None)

    def end(self) -> None:
        """Counts the remaining batches, and records the last report of this run."""
        if self._source is None:
            return
        self._source.close()
        self._source = None
        if self._step:
            self._put(self._report(final=True))
        self.stop()

    def flush(self) -> None:
        """Waits until all reports so far are with the recorder."""
        if self._queue is not None:
            self._queue.reach(lambda: None, CLOSE_SECS)

    def stop(self) -> None:
        """Waits as `flush`; nothing is counted after that until `begin`. Twice is allowed."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
            atexit.unregister(self.stop)

    @property
    def _is_behind(self) -> bool:
        """Whether too much waits to be counted. If nothing waits, a batch of any size is taken."""
        waiting = 0 if self._queue is None else self._queue.held_bytes
        nbytes, seconds = self._counted
        most = min(_BEHIND_SECS * nbytes / seconds, _BEHIND_BYTES)
        return waiting > 0 and waiting + self._nbytes > most

    def _report(self, *, final: bool) -> ReportRequest:
        detailed = final or self._reports % self._options.advanced.detail_every == 0
        self._reports += 1
        rows: dict[str, tuple[Array, Array]] = {}
        if detailed:
            self._sample_rows(None)
            rows, self._rows = self._rows, {}
        return ReportRequest(self._step, time.time(), detailed, final, rows)

    def _sample_rows(self, most: int | None) -> None:
        """Samples rows of the remaining tables, at most `most`, for the next detailed report."""
        for table in self._sampler.open_tables:
            with self._troubles.attempt(f"recommender metrics: table {table}"):
                self._sampler.choose(table, self._last_ids(table))
        left = [name for name in self._sampler.names if name not in self._rows]
        self._rows.update(self._sampler.take(left[:most]))

    def _is_detail_near(self, step: int) -> bool:
        """Whether the sampling of rows must begin now for the next detailed report."""
        if self._reports % self._options.advanced.detail_every:
            return False
        left = self._options.report_steps - step % self._options.report_steps
        return left * _TABLES <= len(self._sampler.names)

    def _last_ids(self, table: str) -> Array:
        place, _ = self.roles.of[inputs.IDS + table]
        last = inputs.join(self._batches[-1:], [place], self._troubles)
        ids = self.roles.column(inputs.IDS + table, last.arrays)
        return inputs.NO_IDS if ids is None else ids

    def _release_tensors(self) -> None:
        """Releases the small Tensors of all steps before this one."""
        # For many steps at once: with a cold cache, a single step takes several times as long. The
        # computation of this step's Tensors may not have finished.
        for batch in self._batches[self._owned : -1]:
            batch.own()
        self._owned = max(len(self._batches) - 1, 0)

    def _put(self, request: ReportRequest | None) -> None:
        self._release_tensors()
        nbytes = self._nbytes + _REPORT_BYTES
        if self._queue is not None:
            run = functools.partial(self._count, self._batches, request, nbytes)
            self._queue.put(Task(_TASK, run, nbytes))
        self._batches, self._owned, self._examples, self._nbytes = [], 0, 0, 0

    def _count(
        self, batches: list[StepInputs], request: ReportRequest | None, nbytes: int
    ) -> Record | None:
        """Counts batches; returns the record of the report, if one is due and not empty."""
        assert self._aggregator is not None
        begun = time.monotonic()
        event = self._aggregator.work(batches, request)
        before, seconds = self._counted
        seconds = _FORGET * seconds + time.monotonic() - begun
        self._counted = _FORGET * before + nbytes, seconds
        return Record(lambda: event, len(event)) if event else None
