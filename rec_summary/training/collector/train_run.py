"""One call of `train`: its steps, what is due at a step, and its lineage."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary.checks import check_that, valid_unicode
from rec_summary.records.checkpoints.saved import SAVED, name_of
from rec_summary.records.failures import Troubles
from rec_summary.records.files import make_directory
from rec_summary.records.reading.totals import Totals
from rec_summary.training.collector.options import CollectorOptions
from rec_summary.training.collector.snapshots import Snapshots
from rec_summary.training.incidents import Incidents
from rec_summary.training.landscape.checkpoints import save_atomically
from rec_summary.training.lineage.lineage import describe_dataset, train_lineage
from rec_summary.training.lineage.optimizers import find_optimizers
from rec_summary.training.process.ending import ended_by
from rec_summary.training.session.session import Progress
from rec_summary.training.step_view import StepView, losses

_SHOWN_PARAMETERS: Final = 8  # in an answer to a request
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
        self._left = math.inf
        self._thins_out = tensor_freq is None and total is None
        times = 0 if total is None else total // collect_freq + 1
        if tensor_freq is None and total is not None and times > _MOST_TENSOR_STEPS:
            self._every = total // (_MOST_TENSOR_STEPS - 1)
            # The first step has tensors as well, which is a multiple only in a short run.
            self._left = _MOST_TENSOR_STEPS - (self._every > 1)

    def due(self, step: int) -> bool:
        """Whether tensors are due at a step. Call it once for each step; the first is any."""
        if not self._left:
            return False
        while self._thins_out and step >= 2 * _TENSOR_STEPS_PER_OCTAVE * self._every:
            self._every *= 2
        is_due = step % self._every == 0
        self._left -= is_due
        return is_due


class TrainRun:
    """The state of one call of `train`.

    Attributes:
        view: The arguments of the last hook.
        progress: How far this call and all earlier ones have come.
        reached_end: Whether training reached its end hook.
        snapshots: Reads the values of its steps.
        optimizers: Its optimizers.
        data: Its data set.
        incidents: The last batches; None if none are kept.
    """

    def __init__(
        self,
        view: StepView,
        environment: RunState,
        progress: Progress,
        options: CollectorOptions,
        troubles: Troubles,
        directory: Callable[[], str],
    ) -> None:
        """Begins a run.

        Args:
            view: The callback arguments.
            environment: The process that trains.
            progress: The progress of earlier runs, which this run continues.
            options: The collector's options.
            troubles: Receives every failure.
            directory: Returns the record directory, for checkpoints.
        """
        self.view = view
        self.progress = progress
        self.reached_end = False
        self._environment = environment
        self._directory = directory
        self._options = options
        self._troubles = troubles
        self.incidents: Incidents | None = None
        self.optimizers: list[Any] = []
        with troubles.attempt("optimizers"):
            self.optimizers = find_optimizers(view)
        self.snapshots = Snapshots(options, view, self.optimizers, troubles)
        self._total = view.total_steps
        self.data = describe_dataset(view.get("train_dataset"), troubles)
        self._counted = progress.step  # the last step of which samples are counted
        self._before: Totals | None = None  # the samples of earlier processes
        progress.step = view.step or progress.step  # `online_train(initial_step=700)`
        self._offset = progress.step - view.step
        self._outputs: Any = None  # of the last step; `view` has those of an evaluation in `fit`
        self._steps_seen = 0
        self._recorded_epoch = -1
        self._learning_rate: float | None = None  # at the last lineage
        self._settings: Mapping[str, str] = {}
        self._tensors = self._schedule()

    def go_on_from(self, before: Totals) -> None:
        """Goes on from the samples that earlier processes have seen."""
        self._before = before

    def stop(self, reason: str) -> None:
        """Ends the training in good order, after this step or at once if it waits for data."""
        self.view.stop(reason)

    def use(self, options: CollectorOptions, settings: Mapping[str, str]) -> None:
        """Goes on with other options.

        Args:
            options: The options.
            settings: Those that can be changed from outside as text, for the lineage.
        """
        before, self._options = self._options, options
        if options is not before:
            self.snapshots.use(options)
            self._tensors = self._schedule()
        self._settings = settings

    def _schedule(self) -> TensorSchedule:
        options = self._options
        return TensorSchedule(options.collect_freq, options.collect_tensor_freq, self._total)

    @property
    def is_first_step(self) -> bool:
        """Whether the step that has just ended is the first of this run."""
        return self._steps_seen == 1

    def begin_epoch(self, view: StepView) -> None:
        """Begins an epoch. The first epoch of a resumed run says how many steps came before.

        `Model.train(initial_epoch=2)` counts steps from 0 but epochs from 3.
        """
        if view.step == 0:
            self._offset = max(self._offset, (view.epoch - 1) * view.batch_num)
            self.progress.step = self._offset

    def end_step(self, view: StepView) -> int:
        """Ends a step; returns its number over all runs, from 1 on."""
        self.view = view
        self._outputs = view.outputs
        step = self._offset + view.step
        batch = view.samples
        if self._before is not None and self._before.known:
            self._counted = self.progress.step
            self.progress.samples = int(self._before.at(self._counted))
            self._before = None
        self.progress.samples += batch * max(step - self._counted, 1)
        self.progress.step = self._counted = step
        self._steps_seen += 1
        if self.is_first_step and batch:
            self.data = describe_dataset(view.get("train_dataset"), self._troubles, batch)
        return step

    def due(self) -> tuple[bool, bool]:
        """Returns whether regular values, and whether tensors, are due at this step.

        They are due at the first step and at each multiple of their frequency. Where the device
        fetches the data, hooks may run only once for each epoch. The frequency then counts epochs,
        as in MindSpore.
        """
        count = self.progress.step
        if self.view.sink_mode:
            count = self.view.epoch
            if count == self._recorded_epoch:
                return False, False
            self._recorded_epoch = count
        due = count % self._options.collect_freq == 0, self._tensors.due(count)
        return (True, True) if self.is_first_step else due

    def lineage(
        self, status: RunState.Status, reason: str = "", *, stuck: bool = False
    ) -> LineageEvent | None:
        """Returns the current train lineage; None if it is not collected.

        Args:
            status: The status of the run.
            reason: Why it has ended.
            stuck: Whether no value is read from MindSpore, because it may never answer.
        """
        if not self._options.collect.train_lineage:
            return None
        loss = None
        if not stuck:
            self._learning_rate = None
            with self._troubles.attempt("learning rate"):  # a custom schedule may fail
                self._learning_rate = self.snapshots.learning_rate()
            with contextlib.suppress(TypeError, ValueError):  # reported when the step was recorded
                loss = losses(self._outputs)[0]
        state = RunState(
            status=status,
            reason=valid_unicode(reason) or None,  # an error may name a path that is not UTF-8
            step=self.progress.step,
            epoch=self.view.epoch,
            samples=self.progress.samples or None,
            start_time=self.progress.start_time,
            troubles=self._troubles.counts,
            settings=self._settings,
            directions=self._options.metrics,
        )
        state.MergeFrom(self._environment)
        return train_lineage(
            self.view, self.data, self.optimizers, state, loss, self._learning_rate
        )

    def ending(
        self, error: BaseException | None, signal_name: str | None = None
    ) -> tuple[RunState.Status, str]:
        """Returns how the run ended, and the reason.

        Args:
            error: The exception that ends it, or None.
            signal_name: The signal that has arrived, or None.
        """
        if error is not None:
            return ended_by(error, signal_name)
        reason = str(self.view.get("stop_reason") or "")
        if self.reached_end and not self.view.stop_requested:
            return RunState.FINISHED, reason
        return RunState.STOPPED, reason or ("asked to stop" if self.reached_end else "left early")

    def checkpoint(self) -> None:
        """Saves the network, with the state of its optimizer, on the training thread.

        Raises:
            OSError: The file cannot be written.
        """
        rank, step = self._environment.rank, self.progress.step
        save_checkpoint(self.view.network, self._directory(), rank, step)

    def incident(self) -> None:
        """Writes the last batches.

        Raises:
            ValueError: None are kept, or there is no room for them.
        """
        expected = "a training with SummaryCollector(incident=Incident())"
        check_that(self.incidents, "a request", "incident", expected)
        assert self.incidents is not None
        self.incidents.ask()

    def end_incidents(self) -> None:
        """Judges the last step, also one that another callback has ended with an error."""
        if self.incidents is not None:
            view, step = self.view, self._offset + self.view.step
            # After an error in the network, the outputs are those of the step before.
            if step > self.progress.step and view.outputs is not self._outputs:
                self.incidents.add(step, view.get("train_dataset_element"), view.outputs)
            self.incidents.judge()

    def unmatched(self, settings: Mapping[str, Any]) -> str:
        """Returns which patterns match no parameter, as text after an answer."""
        names = self.snapshots.names
        shown = ", ".join(names[:_SHOWN_PARAMETERS])
        shown += ", …" if len(names) > _SHOWN_PARAMETERS else ""
        wrong = [
            f"{setting}: {settings[setting]!r} matches {where} of the trained parameters {shown}"
            for setting, find, where in (
                ("histograms", re.match, "the start of none"),
                ("tensors", re.search, "none"),
            )
            if settings.get(setting) and not any(find(settings[setting], name) for name in names)
        ]
        return f" ({'; '.join(wrong)})" if names and wrong else ""


def save_checkpoint(network: Any, directory: str, rank: int, step: int) -> None:
    """Saves a network on the training thread, in `checkpoints/` below the record directory.

    Args:
        network: The network that trains, with the state of its optimizer.
        directory: The record directory.
        rank: The rank of this process, which saves its own part of sharded parameters.
        step: The step that has just ended.

    Raises:
        OSError: The file cannot be written.
    """
    folder = os.path.join(directory, SAVED)
    make_directory(folder)
    save_atomically(network, folder, name_of(rank, step), f".rank_{rank}.tmp.ckpt")
