"""The heavy half of a recommender's metrics: it works on the writer's thread, in `encode`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rec_summary._pb.summary_pb2 import MetricStates
from rec_summary.errors import RecSummaryError
from rec_summary.metrics.host import HostMeter
from rec_summary.metrics.report import PREFIX, Detail, MetricValues, read
from rec_summary.metrics.state import State
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.task import EncodedRecord, Record, Task
from rec_summary.training.recommender import persistence as store
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.inputs import Batch, join
from rec_summary.training.recommender.states import Metrics
from rec_summary.training.tensors import Array
from rec_summary.values.recommender import encode_states, recommender_values
from rec_summary.values.summary import encode_event

STATES_TAG: Final = PREFIX + "states"
_MOST_BYTES: Final = 64 << 20  # of the states that are recorded at once, before compression


@dataclass(frozen=True)
class Report:
    """What is to be recorded at a step.

    Attributes:
        step: The step.
        wall_time: When it ended, in seconds since the epoch.
        detailed: Whether curves and the like are due.
        final: Whether the run ends here.
        rows: Sampled rows by table: their numbers (s,) and values (s, width).
    """

    step: int
    wall_time: float
    detailed: bool
    final: bool
    rows: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


class Engine:
    """Counts batches and writes reports; one thread at a time."""

    def __init__(
        self,
        options: RecommenderMetrics,
        sizes: Mapping[str, int | None],
        directory: str,
        rank: int,
        rank_size: int,
        troubles: Troubles,
    ) -> None:
        """Begins, or goes on where an earlier process has stopped.

        Args:
            options: What is wanted.
            sizes: How many rows each table has; None where that is open.
            directory: The record directory.
            rank: The rank of this process.
            rank_size: How many train together.
            troubles: Told of every failure.
        """
        self._options = options
        self._sizes = sizes
        self._directory = directory
        self._rank, self._rank_size = rank, rank_size
        self._troubles = troubles
        self._lock = threading.Lock()
        self._host = HostMeter() if options.host else None
        self._saved = time.monotonic()
        self._last_step, self._last_detailed = 0, False
        self._last_scalars: set[str] = set()
        self._reference_kept = False
        self._metrics = self._empty()
        self._take_up()

    def work(self, batches: list[Batch], report: Report | None) -> bytes:
        """Counts batches; returns the event of the report, or nothing."""
        with self._lock:
            if batches:
                self._metrics.update(join(batches, self._metrics.places, self._troubles))
            if report is None:
                return b""
            event = self._event(report, repeated=report.step == self._last_step and not batches)
            due = time.monotonic() - self._saved >= self._options.state_secs
            if due or report.final:
                self._attempt_to_save(report)
            return event

    def _empty(self) -> Metrics:
        def trouble(what: str, error: Exception) -> None:
            self._troubles.report(f"recommender metrics: {what}", error)

        return Metrics(self._options, self._sizes, trouble)

    def _event(self, report: Report, *, repeated: bool) -> bytes:
        """Returns the event of a report; at a step that has had one, what is new in it."""
        metrics = self._metrics
        for table, (rows, values) in report.rows.items():
            metrics.snapshot_rows(table, rows, values)
        states = metrics.end_interval()
        options = self._options
        readings = MetricValues()
        read(states, Detail(report.detailed, options.thresholds, options.top), readings)
        if report.rows:
            metrics.read_rows(readings)
        self._read_host(readings)
        if repeated:
            before = self._last_scalars
            readings = MetricValues() if self._last_detailed else readings
            readings.scalars = {t: v for t, v in readings.scalars.items() if t not in before}
        self._last_step, self._last_detailed = report.step, report.detailed
        self._last_scalars = set(readings.scalars)
        encoded = recommender_values(
            readings.scalars,
            readings.histograms,
            readings.pr_curves,
            readings.reliabilities,
            readings.tops,
        )
        if report.detailed and self._rank_size > 1:
            encoded.append(encode_states(STATES_TAG, self._mergeable(states, report)))
        return encode_event(report.step, report.wall_time, encoded) if encoded else b""

    def _read_host(self, readings: MetricValues) -> None:
        usage = self._host.read() if self._host is not None else None
        if usage is not None:
            readings.put("host/rss_bytes", usage.rss_bytes)
            readings.put("host/memory_share", usage.memory_share)
            readings.put("host/cores", usage.cores)
            readings.put("host/cpu_share", usage.cpu_share)

    def _mergeable(self, states: Mapping[str, State], report: Report) -> bytes:
        packed, room = [], _MOST_BYTES
        for key, state in states.items():
            room -= sum(array.nbytes for array in state.arrays().values())
            if room < 0:
                self._troubles.report(
                    "recommender metrics: merging",
                    f"{key} and what follows it is too large to be recorded for merging",
                )
                break
            packed.append(store.pack({key: state}))
        return b"".join([*packed, self._description(report)])

    def _description(self, report: Report) -> bytes:
        message = MetricStates(
            rank=self._rank,
            rank_size=self._rank_size,
            step=report.step,
            wall_time=report.wall_time,
            examples=self._metrics.examples,
            final=report.final,
            settings=self._metrics.settings,
        )
        return message.SerializeToString()

    def _attempt_to_save(self, report: Report) -> None:
        self._saved = time.monotonic()
        try:
            states = store.pack(self._metrics.states()) + self._description(report)
            store.save(store.state_path(self._directory, self._rank), states)
            reference = self._metrics.reference
            if reference is not None and not self._reference_kept:
                path = store.reference_path(self._directory, self._rank)
                store.save_reference(path, reference)
                self._reference_kept = True
        except Exception as error:  # noqa: BLE001  # the records matter more
            self._troubles.report("recommender metrics: saving the state", error)

    def _take_up(self) -> None:
        """Loads the reference and the state of an earlier process, where there are any."""
        try:
            if self._options.reference is not None:
                path = os.fspath(self._options.reference)
                self._metrics.set_reference(store.load_reference(path))
        except (OSError, RecSummaryError, ValueError) as error:
            self._troubles.report("recommender metrics: the reference", error)
        if not self._options.resume:
            return
        path = store.state_path(self._directory, self._rank)
        try:
            message = store.load(path)
            if message.settings != self._metrics.settings:
                self._troubles.report(
                    "recommender metrics: the state of an earlier run",
                    f"{path} is of a run with other settings, and is not gone on from",
                )
                return
            self._metrics.restore(store.unpack(message), message.examples)
        except FileNotFoundError:
            return
        except (OSError, RecSummaryError, ValueError) as error:
            self._troubles.report("recommender metrics: the state of an earlier run", error)


class Work(Task[Record]):
    """Batches to be counted, and perhaps a report.

    Attributes:
        done: Whether it has been done.
    """

    def __init__(self, engine: Engine, batches: list[Batch], report: Report | None) -> None:
        """Takes what is to be done."""
        self._engine = engine
        self._batches = batches
        self._report = report
        self.done = False
        self.nbytes = sum(batch.nbytes for batch in batches) + 4096

    def run(self) -> Record | None:
        """Does the work; returns the report."""
        try:
            payload = self._engine.work(self._batches, self._report)
            return EncodedRecord(payload) if payload else None
        finally:
            self._batches = []
            self.done = True
