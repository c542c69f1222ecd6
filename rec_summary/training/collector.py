"""The callback: thin hooks that look at a step and hand what they saw to the recorder."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mindspore.train import Callback

from rec_summary.records.background import DEFAULT_FLUSH_SECS
from rec_summary.records.directory import make_directory
from rec_summary.records.trouble import Troubles
from rec_summary.training import lineage
from rec_summary.training.dataset_info import describe_dataset
from rec_summary.training.environment import this_environment
from rec_summary.training.options import CustomValue, check_options
from rec_summary.training.recorder import Recorder
from rec_summary.training.step_record import StepRecord
from rec_summary.training.step_view import StepView
from rec_summary.training.train_run import Totals, TrainRun
from rec_summary.values.summary import SummaryValue

logger = logging.getLogger("rec_summary.training")


def _guarded(hook: Callable[..., None]) -> Callable[..., None]:
    """Keeps a failure of telemetry away from training: it is reported, not raised."""

    @functools.wraps(hook)
    def run(self: SummaryCollector, *args: Any) -> None:
        try:
            hook(self, *args)
        except Exception as error:  # noqa: BLE001  # training goes on
            self._troubles.report(hook.__name__.strip("_"), error)

    return run


class SummaryCollector(Callback):
    """Records what happens inside training, for MindSpore's `Model` and for `RecModel`.

    A drop-in for `mindspore.SummaryCollector`, with the same argument names. What a step
    costs the training thread is a snapshot; a thread of its own turns it into records.
    Records older than `flush_secs` survive the death of the process. Nothing that goes
    wrong in here stops training: it is logged once, and counted in `troubles`.

    Recorded are the loss (`loss/auto`), the learning rate (`learning_rate/auto`),
    histograms of parameters (`<name>/auto`), and the lineage of training and evaluation.
    The train lineage is written when training starts, refreshed on a schedule and at
    `flush`, and finished with a status when training ends, in whatever way.

    Steps never restart within one collector: a second call of `train` goes on counting.

    Example:
        model.online_train(stream, callbacks=[SummaryCollector("records", collect_freq=10)])
    """

    def __init__(
        self,
        summary_dir: str | os.PathLike[str],
        collect_freq: int = 10,
        num_process: int = 32,
        collect_specified_data: Mapping[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: Mapping[str, CustomValue] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: Mapping[str, Any] | None = None,
        *,
        flush_secs: float = DEFAULT_FLUSH_SECS,
        lineage_secs: float = 30.0,
    ) -> None:
        """Checks the arguments and makes the directory.

        Args:
            summary_dir: The record directory; made (mode 0700) if it does not exist.
            collect_freq: Values are recorded at the first step and at every multiple of
                this number of steps (of epochs, when the device fetches its own data).
            num_process: Accepted for MindSpore's sake; one thread does the work here.
            collect_specified_data: What to collect, in MindSpore's dictionary:
                collect_metric, collect_train_lineage and collect_eval_lineage (bool), and
                histogram_regular, a regular expression that is matched against the start
                of parameter names; None takes the first five of the optimizer.
            keep_default_action: Whether what `collect_specified_data` does not name is
                collected as by default, or not at all.
            custom_lineage_data: Entries of your own for the lineage: str keys with str,
                int, float or bool values.
            collect_tensor_freq: Checked, without effect in this version.
            max_file_size: Checked, without effect in this version.
            export_options: Checked, without effect in this version.
            flush_secs: How long a record may wait in memory, in seconds.
            lineage_secs: How often the train lineage is refreshed, in seconds.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument has a value that is not allowed.
            OSError: The directory cannot be made.
        """
        super().__init__()
        self._options = check_options(
            summary_dir,
            collect_freq,
            num_process,
            collect_specified_data,
            keep_default_action,
            custom_lineage_data,
            collect_tensor_freq,
            max_file_size,
            export_options,
            flush_secs,
            lineage_secs,
        )
        for note in self._options.notes:
            logger.warning("SummaryCollector: %s", note)
        make_directory(self._options.summary_dir)
        self._troubles = Troubles()
        self._recorder = Recorder(self._options.summary_dir, flush_secs, self._troubles)
        self._depth = 0  # fit enters its callbacks again for each evaluation
        self._totals: Totals | None = None  # of all calls of train together
        self._run: TrainRun | None = None
        self._evaluated: Mapping[str, Any] | None = None  # the evaluation recorded last

    @property
    def summary_dir(self) -> str:
        """The record directory, as an absolute path."""
        return self._options.summary_dir

    @property
    def troubles(self) -> dict[str, int]:
        """How often each kind of telemetry failure has happened; empty if all is well."""
        return self._troubles.counts

    def flush(self) -> bool:
        """Refreshes the lineage and waits until all records are with the operating system.

        Returns:
            Whether they are.
        """
        if self._run is not None:
            self._refresh_lineage(self._run, lineage.Status.RUNNING)
        return self._recorder.flush()

    def __enter__(self) -> SummaryCollector:
        self._depth += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._depth = 0
        self._finish(error[1] if len(error) > 1 else None)
        self._recorder.close()
        if self._troubles.counts:
            logger.warning(
                "SummaryCollector: training was not disturbed, but telemetry failed: %s",
                ", ".join(f"{kind} ({count})" for kind, count in self._troubles.counts.items()),
            )

    @_guarded
    def on_train_begin(self, run_context: Any) -> None:
        """Opens the files and writes the lineage as it stands."""
        view = StepView(run_context)
        environment = this_environment()
        self._recorder.open(environment.rank)
        self._run = TrainRun(view, environment, self._totals, self._options.collect.histogram)
        if self._options.custom_lineage:
            self._recorder.write_message(lineage.custom_lineage(self._options.custom_lineage))
        self._refresh_lineage(self._run, lineage.Status.RUNNING)

    @_guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Finds out at which step a resumed run goes on."""
        if self._run is not None:
            self._run.begin_epoch(StepView(run_context))

    @_guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Takes the snapshot of a step that is due."""
        run = self._run
        if run is None:
            return
        view = StepView(run_context)
        step = run.note_step(view)
        if run.is_due(self._options.collect_freq):
            values = self._collect(run)
            if values:
                self._recorder.write(StepRecord(step, time.time(), values, self._troubles))
        if run.lineage_due(self._options.lineage_secs):
            self._refresh_lineage(run, lineage.Status.RUNNING)

    @_guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Records what `Model.fit` evaluated at the end of this epoch."""
        self._record_evaluation(StepView(run_context))

    @_guarded
    def on_train_end(self, run_context: Any) -> None:
        """Finishes the lineage."""
        if self._run is not None:
            self._run.reached_end = True
        self._finish(None)

    @_guarded
    def on_eval_begin(self, run_context: Any) -> None:
        """Opens the files, if no training has."""
        self._recorder.open(this_environment().rank)

    @_guarded
    def on_eval_end(self, run_context: Any) -> None:
        """Records what the evaluation gave."""
        self._record_evaluation(StepView(run_context))

    def _collect(self, run: TrainRun) -> list[SummaryValue]:
        """Returns the snapshots of this step; one that fails does not cost the others."""
        collect = self._options.collect
        sources: list[tuple[str, Callable[[], Iterable[SummaryValue]]]] = []
        if collect.metric:
            sources += [("loss", run.loss_values), ("learning rate", run.learning_rate_values)]
        if collect.histogram is not None:
            sources.append(("histogram", run.histogram_values))
        values: list[SummaryValue] = []
        for what, source in sources:
            try:
                values.extend(source())
            except Exception as error:  # noqa: BLE001  # training goes on
                self._troubles.report(what, error)
        return values

    def _refresh_lineage(self, run: TrainRun, status: lineage.Status, reason: str = "") -> None:
        if not self._options.collect.train_lineage or not self._recorder.is_open:
            return
        self._recorder.write_message(run.lineage(status, reason, self._troubles.counts))

    @_guarded
    def _finish(self, error: BaseException | None) -> None:
        """Writes the last lineage of a run: how it ended."""
        run, self._run = self._run, None
        if run is not None:
            self._totals = run.totals
            status, reason = run.ending(error)
            self._refresh_lineage(run, status, reason)

    def _record_evaluation(self, view: StepView) -> None:
        # eval_results has the evaluation's loss besides; only `fit` gives it
        metrics = view.get("eval_results") or view.get("metrics")
        if not isinstance(metrics, Mapping) or not self._options.collect.eval_lineage:
            return
        if metrics is self._evaluated:  # a subclass in `fit` sees it at both hooks
            return
        self._evaluated = metrics
        data = describe_dataset(view.get("valid_dataset"))
        totals = self._run.totals if self._run is not None else self._totals
        step = totals.step if totals is not None else 0
        self._recorder.write_message(lineage.evaluation_lineage(metrics, data, step))
