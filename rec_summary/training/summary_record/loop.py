"""A training in a loop of your own: its lineage, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState, TrainLineage
from rec_summary.checks import valid_unicode
from rec_summary.errors import three_part
from rec_summary.records.failures import Troubles
from rec_summary.records.reading.totals import Totals
from rec_summary.training.process.ending import ended_by
from rec_summary.training.run_directory import own_lineage, totals_before
from rec_summary.training.session.session import Progress


class Loop:
    """A training, from the first recorded step on.

    Attributes:
        should_stop: Whether somebody has asked for a stop.
        said: What the user has said of the training.
    """

    def __init__(
        self,
        directory: str,
        environment: RunState,
        progress: Progress,
        metrics: Mapping[str, str],
        troubles: Troubles,
    ) -> None:
        """Begins.

        Args:
            directory: The record directory.
            environment: The process that trains.
            progress: How far it has come.
            metrics: Which values of a metric are better, as said by the user.
            troubles: Receives every failure.
        """
        self.should_stop = False
        self.said: TrainLineage | None = None
        self._directory = directory
        self._environment = environment
        self._progress = progress
        self._metrics = metrics
        self._troubles = troubles
        self._reason = ""
        self._settings: Mapping[str, str] = {}
        self._before: Totals | None = None
        with troubles.attempt("the samples before"):
            self._before = totals_before(directory, environment.rank)
        self._has_begun = self._has_looked = False
        self._last: TrainLineage | None = None  # None if another recorder has the lineage

    def end_step(self, step: int, samples: int) -> bool:
        """Ends a step with so many examples; returns whether it is the first one."""
        progress, is_first = self._progress, not self._has_begun
        if is_first and self._before is not None and self._before.known:
            progress.samples = int(self._before.at(step - 1))
        self._has_begun = True
        progress.step = step if is_first else max(progress.step, step)
        progress.samples += samples
        return is_first

    def lineage(
        self, status: RunState.Status, reason: str = "", *, stuck: bool = False
    ) -> LineageEvent | None:
        """Returns its lineage; None before the first step, or if another recorder has it."""
        if not self._has_begun:
            return None
        if not self._has_looked or status != RunState.RUNNING:  # it reads all lineage so far
            self._has_looked = True
            self._last = own_lineage(self._directory, self._environment.rank)
        if self._last is None:
            return None
        train = TrainLineage()
        train.CopyFrom(self.said or self._last)
        if self.said is None:
            train.ClearField("run_state")  # of an earlier record
        progress = self._progress
        state = RunState(
            status=status,
            reason=valid_unicode(reason) or None,
            step=progress.step,
            samples=progress.samples or None,
            start_time=progress.start_time,
            troubles=self._troubles.counts,
            settings=self._settings,
            directions=self._metrics,
        )
        state.MergeFrom(self._environment)
        train.run_state.MergeFrom(state)
        return LineageEvent(wall_time=time.time(), step=progress.step, train_lineage=train)

    def ending(
        self, error: BaseException | None, signal_name: str | None
    ) -> tuple[RunState.Status, str]:
        """Returns how it ends, and the reason."""
        if error is not None:
            return ended_by(error, signal_name)
        return (RunState.STOPPED, self._reason) if self.should_stop else (RunState.FINISHED, "")

    def stop(self, reason: str) -> None:
        """Lets the loop know that it should end."""
        self.should_stop, self._reason = True, reason

    def use(self, options: Any, settings: Mapping[str, str]) -> None:
        """Takes the settings as text. None can be changed, but they say that requests arrive."""
        self._settings = settings

    def checkpoint(self) -> None:
        """Refuses: the loop knows its network.

        Raises:
            ValueError: Always.
        """
        expected = "stop, flush, a note or lineage: a loop of your own saves its checkpoints"
        raise ValueError(three_part("a request", "checkpoint", expected))

    def incident(self) -> None:
        """Refuses: the loop has the batches.

        Raises:
            ValueError: Always.
        """
        expected = "a training with SummaryCollector(incident=Incident()): a loop has its batches"
        raise ValueError(three_part("a request", "incident", expected))

    def unmatched(self, settings: Mapping[str, Any]) -> str:
        """Returns nothing: there are no settings."""
        return ""
