"""One call of train, as the collector sees it: where it stands and what can be read of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rec_summary._pb import lineage_pb2
from rec_summary.training.dataset_info import DatasetInfo, describe_dataset
from rec_summary.training.environment import Environment
from rec_summary.training.lineage import Progress, Status, train_lineage
from rec_summary.training.optimizers import LearningRates, find_optimizers, parameters_of
from rec_summary.training.options import HistogramChoice
from rec_summary.training.step_view import StepView, as_array
from rec_summary.values.scalar import to_number
from rec_summary.values.summary import HistogramValue, ScalarValue

_REASON_CHARS: Final = 500
# MindSpore's own suffix for what its collector gathers, as opposed to the network's operators.
_AUTO: Final = "/auto"


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
        histograms: HistogramChoice | None,
    ) -> None:
        """Looks at a run that begins.

        Args:
            view: The callback arguments.
            environment: The process that trains.
            before: What the runs before this one came to; this one goes on from it.
            histograms: Which parameters get a histogram.
        """
        self.reached_end = False
        self._view = view
        self._environment = environment
        self._histograms = histograms
        self._parameters: list[Any] | None = None
        self._optimizers = find_optimizers(view)
        self._rates = LearningRates(self._optimizers)
        self._data: DatasetInfo = describe_dataset(view.get("train_dataset"))
        before = before or Totals(0, 0, time.time())
        self._offset = before.step - view.step
        self._step = before.step
        self._samples = before.samples
        self._start_time = before.start_time
        self._epochs_seen = 0
        self._steps_seen = 0
        self._recorded_epoch = 0
        self._loss: float | None = None
        self._lineage_written = 0.0

    @property
    def totals(self) -> Totals:
        """What this run and those before it have come to."""
        return Totals(self._step, self._samples, self._start_time)

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

    def is_due(self, freq: int) -> bool:
        """Whether this step is to be recorded: the first, and each multiple of `freq`.

        Where the device fetches its own data, hooks may run once for each epoch only, and
        `freq` counts epochs, as MindSpore has it.
        """
        if self._view.sink_mode:
            epoch = self._view.epoch
            due = epoch != self._recorded_epoch and epoch % freq == 0
            self._recorded_epoch = epoch
        else:
            due = self._step % freq == 0
        return due or self._steps_seen == 1

    def loss_values(self) -> Iterable[ScalarValue]:
        """Returns the loss of this step.

        Raises:
            TypeError: The network's output is nothing that could be a loss.
            ValueError: It is empty.
        """
        self._loss = to_number(self._view.loss())
        return [ScalarValue("loss" + _AUTO, self._loss)]

    def learning_rate_values(self) -> Iterable[ScalarValue]:
        """Returns the learning rates that this step used."""
        return [ScalarValue(name + _AUTO, rate) for name, rate in self._rates.read()]

    def histogram_values(self) -> Iterable[HistogramValue]:
        """Yields a copy of each chosen parameter's values."""
        for parameter in self._chosen_parameters():
            # On CPU, asnumpy is a view of live weights: copy before the next step moves them.
            array = np.array(as_array(parameter, parameter.name), copy=True)
            yield HistogramValue(parameter.name + _AUTO, array)

    def _chosen_parameters(self) -> list[Any]:
        if self._parameters is None:
            choice = self._histograms or HistogramChoice()
            every = parameters_of(self._optimizers, self._view.network)
            if choice.pattern is None:
                self._parameters = every[: choice.count]
            else:
                self._parameters = [p for p in every if choice.pattern.match(p.name)]
        return self._parameters

    def lineage_due(self, seconds: float) -> bool:
        """Whether the lineage was last written that long ago, or before the first step."""
        return self._steps_seen == 1 or time.monotonic() - self._lineage_written >= seconds

    def lineage(
        self, status: Status, reason: str, troubles: Mapping[str, int]
    ) -> lineage_pb2.LineageEvent:
        """Returns the train lineage as it stands now."""
        self._lineage_written = time.monotonic()
        rates = self._rates.read()
        progress = Progress(
            status=status,
            reason=reason,
            step=self._step,
            samples=self._samples,
            start_time=self._start_time,
            loss=self._last_loss(),
            learning_rate=rates[0][1] if rates else None,
            troubles=troubles,
        )
        return train_lineage(self._view, self._data, self._optimizers, self._environment, progress)

    def _last_loss(self) -> float | None:
        if self._view.get("net_outputs") is not None:
            try:
                return to_number(self._view.loss())
            except (TypeError, ValueError):  # reported when the step was recorded
                return self._loss
        return self._loss

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
