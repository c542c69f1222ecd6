"""One call of train, as the collector sees it: where it stands and what can be read of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rec_summary._pb import lineage_pb2
from rec_summary.records.failures import Troubles
from rec_summary.training.collector.options import CollectorOptions
from rec_summary.training.collector.schedule import TensorSchedule
from rec_summary.training.collector.snapshots import Snapshots
from rec_summary.training.collector.step_view import StepView
from rec_summary.training.lineage.dataset import DatasetInfo, describe_dataset
from rec_summary.training.lineage.environment import Environment
from rec_summary.training.lineage.lineage import Progress, Status, train_lineage
from rec_summary.training.lineage.optimizers import find_optimizers
from rec_summary.values.summary import SummaryValue

_REASON_CHARS: Final = 500


@dataclass(frozen=True)
class Totals:
    """What all calls of train with one collector have come to so far.

    Attributes:
        step: The last step trained.
        samples: Samples seen.
        start_time: When the first call began, in seconds since the epoch.
    """

    step: int
    samples: int
    start_time: float


class TrainRun:
    """The state of one training run between its begin and its end.

    Attributes:
        reached_end: Whether training came to its end hook.
    """

    def __init__(
        self,
        view: StepView,
        environment: Environment,
        before: Totals | None,
        options: CollectorOptions,
        troubles: Troubles,
    ) -> None:
        """Looks at a run that begins.

        Args:
            view: The callback arguments.
            environment: The process that trains.
            before: What the runs before this one came to; this one goes on from it.
            options: The collector's options.
            troubles: Told of every failure.
        """
        self.reached_end = False
        self._view = view
        self._environment = environment
        self._options = options
        self._troubles = troubles
        self._optimizers = find_optimizers(view)
        self._snapshots = Snapshots(options.collect, view, self._optimizers, troubles)
        self._tensors = TensorSchedule(
            options.collect_freq, options.collect_tensor_freq, view.total_steps
        )
        self._data: DatasetInfo = describe_dataset(view.get("train_dataset"))
        before = before or Totals(0, 0, time.time())
        self._offset = before.step - view.step
        self._step = before.step
        self._samples = before.samples
        self._start_time = before.start_time
        self._epochs_seen = 0
        self._steps_seen = 0
        self._recorded_epoch = 0
        self._lineage_written = 0.0

    @property
    def totals(self) -> Totals:
        """What this run and those before it have come to."""
        return Totals(self._step, self._samples, self._start_time)

    @property
    def is_first_step(self) -> bool:
        """Whether the step that has just ended is the first of this run."""
        return self._steps_seen == 1

    def begin_epoch(self, view: StepView) -> None:
        """Notes an epoch's beginning; the first tells where a resumed run goes on.

        `Model.train(initial_epoch=2)` counts steps from 0 but epochs from 3.
        """
        self._epochs_seen += 1
        if self._epochs_seen == 1 and view.step == 0 and view.epoch > 1:
            self._offset = max(self._offset, (view.epoch - 1) * view.batch_num)

    def note_step(self, view: StepView) -> int:
        """Notes the end of a step; returns its number over all runs, from 1 on."""
        self._view = view
        step = self._offset + view.step
        batch = view.samples
        self._samples += batch * max(step - self._step, 1)
        self._step = step
        self._steps_seen += 1
        if self._steps_seen == 1 and batch:
            self._data = describe_dataset(view.get("train_dataset"), batch)
        return step

    def snapshots(self) -> list[SummaryValue]:
        """Returns the values of this step that are due.

        The first step is, and each multiple of the frequency. Where the device fetches its
        own data, hooks may run once for each epoch only, and the frequency counts epochs, as
        MindSpore has it.
        """
        view, freq = self._view, self._options.collect_freq
        count, repeated = self._step, False
        if view.sink_mode:
            count, repeated = view.epoch, view.epoch == self._recorded_epoch
            self._recorded_epoch = view.epoch
        first = self._steps_seen == 1
        return self._snapshots.take(
            view,
            regular=first or (count % freq == 0 and not repeated),
            tensors=first or (self._tensors.due(count) and not repeated),
        )

    def close(self) -> None:
        """Lets go of what the run has taken hold of."""
        self._snapshots.close()

    def lineage_due(self, now: float) -> bool:
        """Whether the lineage was last written long ago, or before the first step.

        Args:
            now: The monotonic time, in seconds.
        """
        return self._steps_seen == 1 or now - self._lineage_written >= self._options.lineage_secs

    def lineage(
        self, status: Status, reason: str, troubles: Mapping[str, int]
    ) -> lineage_pb2.LineageEvent:
        """Returns the train lineage as it stands now."""
        self._lineage_written = time.monotonic()
        progress = Progress(
            status=status,
            reason=reason,
            step=self._step,
            samples=self._samples,
            start_time=self._start_time,
            loss=self._last_loss(),
            learning_rate=self._last_learning_rate(),
            troubles=troubles,
        )
        return train_lineage(self._view, self._data, self._optimizers, self._environment, progress)

    def _last_loss(self) -> float | None:
        if self._view.get("net_outputs") is None:
            return None
        try:
            return self._snapshots.loss(self._view)
        except (TypeError, ValueError):  # reported when the step was recorded
            return None

    def _last_learning_rate(self) -> float | None:
        try:
            return self._snapshots.learning_rate()
        except Exception as error:  # noqa: BLE001  # a schedule of the user's own may fail
            self._troubles.report("learning rate", error)
            return None

    def ending(self, error: BaseException | None) -> tuple[Status, str]:
        """Returns how the run ended, and why.

        Args:
            error: The exception that is ending it, or None.
        """
        if isinstance(error, KeyboardInterrupt):
            return Status.STOPPED, "KeyboardInterrupt"
        if isinstance(error, SystemExit):
            return Status.STOPPED, f"SystemExit({error.code})"
        if error is not None:
            text = f"{type(error).__name__}: {error}".strip()
            return Status.FAILED, text.splitlines()[0][:_REASON_CHARS]
        told = str(self._view.get("stop_reason") or "")
        if self.reached_end and not self._view.stop_requested:
            return Status.FINISHED, told
        return Status.STOPPED, told or ("asked to stop" if self.reached_end else "left early")
