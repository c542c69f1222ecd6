"""One call of `train`: its steps, what is due at a step, and its lineage."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary.records.control import Request
from rec_summary.records.failures import Troubles
from rec_summary.training.collector.options import CollectorOptions
from rec_summary.training.collector.snapshots import Snapshots
from rec_summary.training.lineage.lineage import describe_dataset, train_lineage
from rec_summary.training.lineage.optimizers import find_optimizers
from rec_summary.training.step_view import StepView

_REASON_CHARS: Final = 500
_MOST_TENSOR_STEPS: Final = 20  # in a run of known length
_TENSOR_STEPS_PER_OCTAVE: Final = 10


class TensorSchedule:
    """The steps at which tensors are due. Tensors are large, so the default steps are few.

    With a frequency, tensors are due at each multiple of it. Without one, in a run of known length,
    they are due at about 20 steps, as in `mindspore.SummaryCollector`. In an unbounded run, they
    are due as often as other values at first, then ten times for each doubling of the step. That is
    about 200 times in a million steps.
    """

    def __init__(self, collect_freq: int, tensor_freq: int | None, total: int | None) -> None:
        """Makes the schedule of one run.

        Args:
            collect_freq: The frequency of other values, in steps.
            tensor_freq: The frequency of tensors, in steps; None for the default.
            total: The number of steps in the run; None for an unbounded run.
        """
        self._every = tensor_freq or collect_freq
        self._end: int | None = None
        self._thins_out = tensor_freq is None and total is None
        if (
            tensor_freq is None
            and total is not None
            and total // collect_freq + 1 > _MOST_TENSOR_STEPS
        ):
            every = total // (_MOST_TENSOR_STEPS - 1)
            self._every = max(every, 1)
            # A short run is collected up to the limit, with step 0 and step 1.
            self._end = every * (_MOST_TENSOR_STEPS - 1) if every > 1 else _MOST_TENSOR_STEPS

    def due(self, step: int) -> bool:
        """Whether tensors are due at a step. Call it with rising steps only."""
        if self._end is not None and step > self._end:
            return False
        while self._thins_out and step >= 2 * _TENSOR_STEPS_PER_OCTAVE * self._every:
            self._every *= 2
        return step % self._every == 0


@dataclass(frozen=True)
class Totals:
    """The totals of all calls of `train` with one collector.

    Attributes:
        step: The last step trained.
        samples: Samples seen.
        start_time: The start of the first call, in seconds since the epoch.
    """

    step: int
    samples: int
    start_time: float


class TrainRun:
    """The state of one call of `train`.

    Attributes:
        reached_end: Whether training reached its end hook.
        snapshots: Reads the values of its steps.
        optimizers: Its optimizers.
        data: Its data set.
    """

    def __init__(
        self,
        view: StepView,
        environment: RunState,
        before: Totals | None,
        options: CollectorOptions,
        troubles: Troubles,
    ) -> None:
        """Begins a run.

        Args:
            view: The callback arguments.
            environment: The process that trains.
            before: The totals of earlier runs, which this run continues.
            options: The collector's options.
            troubles: Receives every failure.
        """
        self.reached_end = False
        self._view = view
        self._environment = environment
        self._options = options
        self._troubles = troubles
        self.optimizers: list[Any] = []
        with troubles.attempt("optimizers"):
            self.optimizers = find_optimizers(view)
        self.snapshots = Snapshots(options, view, self.optimizers, troubles)
        self._total = view.total_steps
        self._tensors = self._schedule()
        self._settings: Mapping[str, str] = {}
        self.data = describe_dataset(view.get("train_dataset"), troubles)
        before = before or Totals(0, 0, time.time())
        self._offset = before.step - view.step
        self._step = before.step
        self._samples = before.samples
        self._start_time = before.start_time
        self._epochs_seen = 0
        self._steps_seen = 0
        self._recorded_epoch = 0
        self._lineage_written = 0.0
        self._learning_rate: float | None = None  # at the last lineage

    @property
    def view(self) -> StepView:
        """The arguments of the last hook."""
        return self._view

    def stop(self, request: Request) -> None:
        """Ends the training in good order, after this step or at once if it waits for data."""
        self._view.stop(f"rec-summary control, {request.author}")

    def use(self, options: CollectorOptions, settings: Mapping[str, str]) -> None:
        """Goes on with other options.

        Args:
            options: The options.
            settings: Those that can be changed from outside as text, for the lineage.
        """
        before, self._options = self._options, options
        self._settings = settings
        if options is not before:
            self.snapshots.use(options)
        self._tensors = self._schedule()

    def _schedule(self) -> TensorSchedule:
        options = self._options
        return TensorSchedule(options.collect_freq, options.collect_tensor_freq, self._total)

    @property
    def totals(self) -> Totals:
        """The totals of this run and all earlier ones."""
        return Totals(self._step, self._samples, self._start_time)

    @property
    def is_first_step(self) -> bool:
        """Whether the step that has just ended is the first of this run."""
        return self._steps_seen == 1

    def begin_epoch(self, view: StepView) -> None:
        """Begins an epoch. The first epoch of a resumed run says how many steps came before.

        `Model.train(initial_epoch=2)` counts steps from 0 but epochs from 3.
        """
        self._epochs_seen += 1
        if self._epochs_seen == 1 and view.step == 0 and view.epoch > 1:
            self._offset = max(self._offset, (view.epoch - 1) * view.batch_num)

    def end_step(self, view: StepView) -> int:
        """Ends a step; returns its number over all runs, from 1 on."""
        self._view = view
        step = self._offset + view.step
        batch = view.samples
        self._samples += batch * max(step - self._step, 1)
        self._step = step
        self._steps_seen += 1
        if self._steps_seen == 1 and batch:
            self.data = describe_dataset(view.get("train_dataset"), self._troubles, batch)
        return step

    def due(self) -> tuple[bool, bool]:
        """Returns whether regular values, and whether tensors, are due at this step.

        They are due at the first step and at each multiple of their frequency. Where the device
        fetches the data, hooks may run only once for each epoch. The frequency then counts epochs,
        as in MindSpore.
        """
        view, freq = self._view, self._options.collect_freq
        count, repeated = self._step, False
        if view.sink_mode:
            count, repeated = view.epoch, view.epoch == self._recorded_epoch
            self._recorded_epoch = view.epoch
        first = self._steps_seen == 1
        return (
            first or (count % freq == 0 and not repeated),
            first or (self._tensors.due(count) and not repeated),
        )

    def lineage_due(self, now: float) -> bool:
        """Whether the lineage is due at this monotonic time, in seconds, or at the first step."""
        return self._steps_seen == 1 or now - self._lineage_written >= self._options.lineage_secs

    def lineage(
        self, status: RunState.Status, reason: str, troubles: Mapping[str, int]
    ) -> LineageEvent:
        """Returns the current train lineage."""
        self._lineage_written = time.monotonic()
        self._learning_rate = self._last_learning_rate()
        return self._lineage(status, reason, troubles, self._last_loss())

    def interrupted_lineage(self, reason: str, troubles: Mapping[str, int]) -> LineageEvent:
        """Returns the train lineage of a run that is stuck; it asks MindSpore for no value."""
        return self._lineage(RunState.STOPPED, reason, troubles, None)

    def _lineage(
        self, status: RunState.Status, reason: str, troubles: Mapping[str, int], loss: float | None
    ) -> LineageEvent:
        state = RunState(
            status=status,
            reason=reason or None,
            step=self._step,
            epoch=self._view.epoch,
            samples=self._samples or None,
            start_time=self._start_time,
            troubles=troubles,
            settings=self._settings,
        )
        state.MergeFrom(self._environment)
        rate = self._learning_rate
        return train_lineage(self._view, self.data, self.optimizers, state, loss, rate)

    def _last_loss(self) -> float | None:
        if self._view.get("net_outputs") is None:
            return None
        try:
            return self.snapshots.loss(self._view)
        except (TypeError, ValueError):  # reported when the step was recorded
            return None

    def _last_learning_rate(self) -> float | None:
        with self._troubles.attempt("learning rate"):  # a custom schedule may fail
            return self.snapshots.learning_rate()
        return None

    def ending(
        self, error: BaseException | None, signal_name: str | None = None
    ) -> tuple[RunState.Status, str]:
        """Returns how the run ended, and the reason.

        Args:
            error: The exception that ends it, or None.
            signal_name: The signal that has arrived, or None.
        """
        if isinstance(error, KeyboardInterrupt):
            return RunState.STOPPED, signal_name or "KeyboardInterrupt"
        if isinstance(error, SystemExit):
            return RunState.STOPPED, signal_name or f"SystemExit({error.code})"
        if error is not None:
            text = f"{type(error).__name__}: {error}".strip()
            return RunState.FAILED, text.splitlines()[0][:_REASON_CHARS]
        reason = str(self._view.get("stop_reason") or "")
        if self.reached_end and not self._view.stop_requested:
            return RunState.FINISHED, reason
        return RunState.STOPPED, reason or ("asked to stop" if self.reached_end else "left early")
