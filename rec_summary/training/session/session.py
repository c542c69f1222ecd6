"""What every training records besides its values: how it goes on, and how it ends.

`SummaryCollector` translates MindSpore's hooks to it, `SummaryRecord` the calls of a loop of your
own.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary.records.control import Request
from rec_summary.records.failures import Troubles
from rec_summary.training import loaded
from rec_summary.training.lineage.custom import custom_lineage
from rec_summary.training.process.signals import InterruptSignals, end_waits
from rec_summary.training.recommender.telemetry import RecommenderTelemetry
from rec_summary.training.recorder import Recorder
from rec_summary.training.session.control import Applied, Control
from rec_summary.training.session.options import SessionOptions

logger = logging.getLogger("rec_summary.training")

STOPPED_BY: Final = "rec-summary control"  # in the reason why a training has stopped

_INTERRUPTS: Final = ("SIGINT", "SIGTERM", "KeyboardInterrupt", "SystemExit", STOPPED_BY)


@dataclass
class Progress:
    """How far all trainings of one recorder have come.

    Attributes:
        step: The last step trained.
        samples: Samples seen.
        start_time: The start of the first one, in seconds since the epoch; None before it.
    """

    step: int = 0
    samples: int = 0
    start_time: float | None = None


class Training(Protocol):
    """A training that goes on."""

    def lineage(
        self, status: RunState.Status, reason: str = "", *, stuck: bool = False
    ) -> LineageEvent | None:
        """Returns its current lineage; None if none is to be written.

        Args:
            status: Its status.
            reason: Why it has ended.
            stuck: Whether nothing is read from the framework, because it may never answer.
        """

    def ending(
        self, error: BaseException | None, signal_name: str | None
    ) -> tuple[RunState.Status, str]:
        """Returns how it ends, and the reason.

        Args:
            error: The exception that ends it, or None.
            signal_name: The signal that has arrived, or None.
        """

    def stop(self, reason: str) -> None:
        """Ends it in good order, after this step or at once if it waits for data."""

    def use(self, options: Any, settings: Mapping[str, str]) -> None:
        """Goes on with other options; `settings` are those that can be changed, as text."""

    def checkpoint(self) -> None:
        """Saves the network.

        Raises:
            OSError: The file cannot be written.
            ValueError: It cannot do that.
        """

    def incident(self) -> None:
        """Writes the last batches; raises ValueError if it cannot do that."""

    def unmatched(self, settings: Mapping[str, Any]) -> str:
        """Returns which new settings match nothing, as text after an answer."""


class Session:
    """The telemetry of one recorder, and of its trainings, one after another.

    Attributes:
        options: The options of the code.
        progress: How far the trainings have come.
        troubles: Receives every failure.
        recorder: The record files.
        control: The requests from outside.
        recommender: The metrics of recommenders; None for none.
        signals: Completes the records where SIGTERM or Ctrl-C ends the process.
        rank: The rank of this process.
        rank_size: The number of processes that train together.
    """

    def __init__(
        self,
        name: str,
        options: SessionOptions,
        troubles: Troubles,
        close: Callable[[BaseException | None], object],
    ) -> None:
        """Prepares. It creates no files, and reads nothing.

        Args:
            name: The name of the recorder, for messages.
            options: The options.
            troubles: Receives every failure.
            close: Closes the recorder, with `close`, where a signal ends the process.
        """
        self._name, self._close = name, close
        self.options = options
        self.progress = Progress()
        self.troubles = troubles
        self.control = Control(options, troubles)
        self.recorder = Recorder(options.files, troubles, self._poll if options.control else None)
        self.recommender: RecommenderTelemetry | None = None
        if options.recommender is not None:
            self.recommender = RecommenderTelemetry(
                options.recommender, self.recorder, troubles, options.latest_good
            )
        self.signals = InterruptSignals(self.complete)
        self.rank, self.rank_size = 0, 1
        self._training: Any = None
        self._stoppable: Any = None  # the same, until it ends
        self._is_asked = False
        self._lineage_written = 0.0
        self._interrupted: str | None = None  # by a signal, or by an exception like it

    def enter(self) -> None:
        """Begins to complete the records where SIGTERM or Ctrl-C ends the process."""
        # MindSpore turns SIGINT into SIGTERM, which ends a process wherever it is.
        self.signals = InterruptSignals(
            self.complete, ends_at_sigint=loaded.mindspore() is not None
        )
        with self.troubles.attempt("signals"):  # it needs a thread and two file descriptors
            self.signals.__enter__()

    def leave(self, error: BaseException | None) -> None:
        """Closes the recorder, and lets signals end the process again."""
        try:
            with self.signals.deferring():
                self._close(error)
        finally:
            self.signals.__exit__()

    def open(self, environment: RunState, *, is_alone: bool = True) -> None:
        """Opens the files of this process, and begins to look for requests.

        Args:
            environment: The process.
            is_alone: Whether no other recorder answers requests in this directory.
        """
        self.rank, self.rank_size = environment.rank, environment.rank_size
        self._is_asked = self.options.control and is_alone
        if self._is_asked and not self.recorder.is_open:
            self.control.begin(self.recorder.directory)
        self.recorder.open(environment.rank)

    def begin(self, training: Training) -> None:
        """Begins a training. `refresh` writes its first lineage."""
        self.progress.start_time = self.progress.start_time or time.time()
        self._training = self._stoppable = training
        if self._is_asked:
            training.use(self.control.options, self.control.in_force())

    def write_custom_lineage(self) -> None:
        """Writes the custom entries of the options."""
        if self.options.custom_lineage:
            with self.troubles.attempt("custom lineage"):
                self.write_lineage(custom_lineage(self.options.custom_lineage))

    def write_lineage(self, event: LineageEvent) -> None:
        """Queues a lineage event, if this rank writes lineage."""
        if self.rank == 0 or self.options.lineage_on_all_ranks:
            self.recorder.write_message(event)

    def refresh(self, status: RunState.Status = RunState.RUNNING, reason: str = "") -> None:
        """Writes the lineage of the training, with its status."""
        self._lineage_written = time.monotonic()
        if self._training is not None and self.recorder.is_open:
            with self.troubles.attempt("train lineage"):
                event = self._training.lineage(status, reason)
                if event is not None:
                    self.write_lineage(event)

    def refresh_if_due(self, now: float, *, is_first: bool = False) -> None:
        """Writes the lineage if that is due at this monotonic time, in seconds.

        Args:
            now: The time.
            is_first: Whether the step is the first of its training, which is always recorded.
        """
        if is_first or now - self._lineage_written >= self.options.lineage_secs:
            self.refresh()

    def end_step(self, context: Any, step: int) -> None:
        """Passes the inputs of a step on to the metrics of recommenders."""
        if self.recommender is not None:
            with self.troubles.attempt("recommender metrics"):
                self.recommender.end_step(context, step)

    def apply_requests(self, *, is_first: bool = False) -> None:
        """Applies requests that are due, and records the answers in the lineage.

        Args:
            is_first: Whether the step is the first of its training.
        """
        control, step = self.control, self.progress.step
        if not control.is_due(step) or self._training is None:
            return
        with self.troubles.attempt("control"):
            answers = [self._carry_out(applied) for applied in control.apply(step, is_first)]
            with self.troubles.attempt("control"):
                self._training.use(control.options, control.in_force())
            # Before the answers: a reader of an answer finds its settings in the lineage.
            self.refresh()
            for answer in answers:
                self.recorder.write_message(answer.note(step))
            self.recorder.flush(0)

    def flush(self) -> bool:
        """Waits until the operating system has all records; returns whether it has them."""
        if self.recommender is not None:
            self.recommender.flush()
        return self.recorder.flush()

    def finish(self, error: BaseException | None) -> None:
        """Writes the last lineage of the training, with its status.

        Args:
            error: The exception that ends it, or None.
        """
        if self._training is None:
            return
        try:
            self.recorder.drain()
            self.apply_requests()
            self._stoppable = None  # a request that comes now is too late
            if self.recommender is not None:
                with self.troubles.attempt("recommender metrics"):
                    self.recommender.end()
            with self.troubles.attempt("train lineage"):
                status, reason = self._training.ending(error, self.signals.signal_name)
                self.refresh(status, reason)
                if status == RunState.STOPPED and reason.startswith(_INTERRUPTS):
                    self._interrupted = reason
        finally:
            self._training = self._stoppable = None

    def close(self, error: BaseException | None) -> None:
        """Completes the records and closes them; logs an interruption."""
        try:
            self.finish(error)
        finally:
            self.recorder.close()
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None:
            self._log_interrupted(interrupted)

    def complete(self, signal_name: str, stuck: bool) -> None:
        """Completes the records of a process that a signal ends.

        Args:
            signal_name: The name of the signal.
            stuck: Whether the main thread is inside the framework: no value is read from it then.
        """
        training = self._training
        if not stuck:
            self._close(SystemExit(signal_name))
        elif training is not None:
            event = training.lineage(RunState.STOPPED, signal_name, stuck=True)
            if event is not None:
                self.write_lineage(event)
            if self.recommender is not None:
                self.recommender.stop()
            self.recorder.close()
            self._log_interrupted(signal_name)

    def _poll(self) -> None:
        """Checks for requests; the writer's thread calls this."""
        self.control.poll()
        request, training = self.control.requested_stop, self._stoppable
        if request is not None and training is not None:  # no step has come: it waits for data
            training.stop(_reason(request))
            end_waits()

    def _carry_out(self, applied: Applied) -> Applied:
        """Carries out the actions of a request; returns it with the failure, if there is one."""
        request = applied.request
        if request is None or applied.refusal is not None:
            return applied
        refusal = None
        try:
            if request.lineage:
                self.write_lineage(custom_lineage(request.lineage))
            if "checkpoint" in request.actions:
                self._training.checkpoint()
            if "incident" in request.actions:
                self._training.incident()
        except Exception as error:  # noqa: BLE001  # training continues
            self.troubles.report("control", error)
            refusal = f"{type(error).__name__}: {error}"
            if request.settings:
                refusal += "; the settings are in force"
        if "stop" in request.actions:
            # The other ranks stop as well: a rank that goes on waits for them for ever.
            if refusal is None or self.rank_size > 1:
                self._training.stop(_reason(request))
            else:
                refusal += "; training goes on"
        text = applied.text + self._training.unmatched(request.settings)
        return dataclasses.replace(applied, text=text, refusal=refusal)

    def _log_interrupted(self, reason: str) -> None:
        # MindSpore turns Ctrl-C into SIGTERM.
        reason = "SIGTERM or Ctrl-C" if reason == "SIGTERM" else reason
        logger.warning(
            f"{self._name}: training was interrupted ({reason}); step {self.progress.step} is "
            f"the last one in {self.recorder.directory}"
        )


def _reason(request: Request) -> str:
    return f"{STOPPED_BY}, {request.author}"
