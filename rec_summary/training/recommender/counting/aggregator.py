"""The work of a recommender's metrics on their thread: counting, reports, stored states."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rec_summary._pb.summary_pb2 import MetricStates
from rec_summary.arrays import Array
from rec_summary.errors import RecSummaryError
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.host import HostMeter
from rec_summary.metrics.report import MetricValues, read
from rec_summary.metrics.slices.gate import Gate
from rec_summary.metrics.state import State
from rec_summary.metrics.tags import PREFIX
from rec_summary.records.failures import Troubles
from rec_summary.records.reading.runs import list_files
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.counting import persistence
from rec_summary.training.recommender.counting.latest_good import LatestGood
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join
from rec_summary.training.run_directory import inform
from rec_summary.values.recommender import MOST_STATES, recommender_values
from rec_summary.values.slice_sums import SlicedSums, encode_sums, joined
from rec_summary.values.summary import encode_event, encode_value

STATES_TAG: Final = PREFIX + "states"
_GOES_ON: Final = (
    "rec_summary: recommender metrics go on from step {:,} of the training before "
    "(to begin them again: RecommenderMetrics(resume=False))"
)


@dataclass(frozen=True)
class ReportRequest:
    """A report that is due.

    Attributes:
        step: The step.
        wall_time: The end of the step, in seconds since the epoch.
        detailed: Whether the report has curves and other details.
        final: Whether it is the last report of the run.
        rows: Sampled rows by table: their numbers (s,) and values (s, width).
    """

    step: int
    wall_time: float
    detailed: bool
    final: bool
    rows: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


class Aggregator:
    """Counts batches and makes reports. Thread-safe."""

    def __init__(
        self,
        options: RecommenderMetrics,
        sizes: Mapping[str, int | None],
        directory: str | None,
        rank: int,
        rank_size: int,
        troubles: Troubles,
        *,
        resume: bool = True,
        gate: Gate | None = None,
    ) -> None:
        """Starts empty, or continues from the stored state of an earlier process.

        Args:
            options: The metrics.
            sizes: The number of rows of each table; None if it is open.
            directory: The record directory; None to store and restore no state.
            rank: The rank of this process.
            rank_size: The number of processes that train together.
            troubles: Receives every failure.
            resume: Whether to continue from a stored state.
            gate: Moves the link `latest-good`, of rank 0; None for no link.
        """
        self._options = options
        self._directory = directory
        self._rank, self._rank_size = rank, rank_size
        self._is_merged = rank_size > 1 or _has_other_ranks(directory, rank)
        self._troubles = troubles
        self._lock = threading.Lock()
        self._host = HostMeter() if options.host else None
        self._saved = time.monotonic()
        self._last_step: int | None = None  # of the last report, until more batches come
        self._last_detailed = False
        self._last_scalars: set[str] = set()
        self._after = self._summed = 0  # the steps of the last two reports with sums by slice
        self._sums: list[SlicedSums] = []  # of the last one
        self._good: LatestGood | None = None
        if gate is not None and directory is not None and rank == 0:
            self._good = LatestGood(gate, directory, troubles)
        self._states: dict[str, State] = {}  # as `_last_step`
        self._reference: dict[str, Distribution] = {}  # as it is stored
        self._metrics = RankMetrics(options, sizes, troubles, rank)
        self._restore(resume)

    def work(self, batches: list[StepInputs], request: ReportRequest | None) -> bytes:
        """Counts batches; returns the serialised event of the report, or nothing."""
        with self._lock, np.errstate(all="ignore"):  # a training may look for NaN with np.seterr
            if batches:
                self._states, self._last_step = {}, None
                self._metrics.update(join(batches, self._metrics.places, self._troubles))
            if request is None:
                return b""
            event = self._event(request, repeated=request.step == self._last_step)
            elapsed = time.monotonic() - self._saved
            due = request.final or elapsed >= self._options.advanced.state_secs
            if due and self._directory is not None:
                self._saved = time.monotonic()
                with self._troubles.attempt("recommender metrics: saving the state"):
                    self._save(self._directory, request)
            return event

    def _event(self, request: ReportRequest, *, repeated: bool) -> bytes:
        """Returns the event of a report. A second report of a step has only new values.

        It has all mergeable states again, because the merge takes the last ones of a step.
        """
        metrics = self._metrics
        for table, (rows, row_values) in request.rows.items():
            metrics.snapshot_rows(table, rows, row_values)
        if not repeated:
            self._states = metrics.end_interval()
        states = self._states
        detail = metrics.detail(curves=request.detailed)
        values = read(states, detail, metrics.attempt_report)
        quiet = metrics.read_rows(values, detail) if request.rows else {}
        metrics.check_values(values)
        metrics.mark_lost(values)
        values.put_all(self._host.report() if self._host is not None else {}, detail)
        if repeated:
            # The merge reads from NaN that a quality is lost.
            scalars = {
                tag: value
                for tag, value in values.scalars.items()
                if (self._is_merged and math.isnan(value))
                or not (self._last_detailed or tag in self._last_scalars)
            }
            if self._last_detailed:
                values, quiet = MetricValues(), {}
            values.scalars = scalars
        self._last_step, self._last_detailed = request.step, request.detailed
        self._last_scalars = set(values.scalars)
        encoded = recommender_values(**vars(values))
        sums = metrics.end_sums(detailed=request.detailed)
        if self._good is not None:
            self._good.add(request.step, request.wall_time, sums, detailed=request.detailed)
        if sums and request.step != self._summed:
            self._after, self._summed, self._sums = self._summed, request.step, []
        if request.step == self._summed:
            self._sums = joined([*self._sums, *sums])
            # Of two values of a step, the later one counts: it has the examples of both.
            sums = sums if repeated else self._sums
        encoded += encode_sums(self._after, sums, quiet)
        if request.detailed and self._is_merged:
            with self._troubles.attempt("recommender metrics: merging"):
                content = self._mergeable(states, request)
                encoded.append(encode_value(STATES_TAG, "metric_states", content))
        return encode_event(request.step, request.wall_time, encoded) if encoded else b""

    def _mergeable(self, states: Mapping[str, State], request: ReportRequest) -> bytes:
        packed, room = [], MOST_STATES
        for key, state in states.items():
            room -= sum(array.nbytes for array in state.arrays().values())
            if room < 0:
                self._troubles.report(
                    "recommender metrics: merging",
                    f"the states from {key} on are too large for the record of mergeable states",
                )
                break
            packed.append(persistence.pack({key: state}))
        return b"".join([*packed, self._description(request)])

    def _description(self, request: ReportRequest) -> bytes:
        message = MetricStates(
            rank=self._rank,
            rank_size=self._rank_size,
            step=request.step,
            wall_time=request.wall_time,
            examples=self._metrics.examples,
            final=request.final,
            settings=self._metrics.settings,
            brief=not self._options.detail,
        )
        return message.SerializeToString()

    def _save(self, directory: str, request: ReportRequest) -> None:
        """Writes the state for a restart, and the reference for drift if it is another."""
        states = persistence.pack(self._metrics.states()) + self._description(request)
        persistence.save(persistence.state_path(directory, self._rank), states)
        reference = self._metrics.reference
        if reference != self._reference:
            path = persistence.reference_path(directory, self._rank)
            persistence.save_reference(path, reference)
            self._reference = reference

    def _restore(self, resume: bool) -> None:
        """Loads the reference of the options, and the state of an earlier process."""
        errors = (OSError, RecSummaryError, ValueError)
        try:
            if self._options.reference is not None:
                path = os.fspath(self._options.reference)
                self._metrics.set_reference(persistence.load_reference(path))
        except errors as error:
            self._troubles.report("recommender metrics: the reference", error)
        if not resume or self._directory is None:
            return
        path = persistence.state_path(self._directory, self._rank)
        what = "recommender metrics: the state of an earlier run"
        try:
            message = persistence.load(path)
            if message.settings == self._metrics.settings:
                self._metrics.restore(persistence.unpack(message), message.examples)
                self._summed = message.step
                if self._rank == 0:
                    inform(_GOES_ON.format(message.step))
            else:
                self._troubles.report(what, f"{path} has other settings, and is not restored")
        except FileNotFoundError:
            return
        except ValueError as error:  # of a state, which does not know its file
            self._troubles.report(what, f"{path} is not restored: {error}")
        except errors as error:
            self._troubles.report(what, error)


def _has_other_ranks(directory: str | None, rank: int) -> bool:
    """Whether other ranks have recorded in a directory: their metrics are merged with these."""
    if directory is None:
        return False
    try:
        return any(file.name.rank != rank for file in list_files(directory))
    except OSError:
        return False
