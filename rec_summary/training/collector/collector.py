"""`SummaryCollector`: a callback with thin hooks that copy values and queue records."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from mindspore.train import Callback

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary.checks import (
    check_bool,
    check_choice,
    check_directory,
    check_int,
    check_int_or_none,
    check_optional,
    check_seconds,
)
from rec_summary.metrics.directions import check_metrics
from rec_summary.records.control import Request
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.background import DEFAULT_FLUSH_SECS
from rec_summary.records.writing.retention import Retention
from rec_summary.records.writing.run_writer import Durability, Rotation
from rec_summary.training import operators
from rec_summary.training.collector.control import Applied, Control, save_checkpoint
from rec_summary.training.collector.health import Health
from rec_summary.training.collector.options import (
    MOST_HISTOGRAM_VALUES,
    CollectorOptions,
    check_specified,
)
from rec_summary.training.collector.session import STOPPED_BY, TrainingProgress, TrainRun
from rec_summary.training.collector.settings import network_settings, training_settings
from rec_summary.training.collector.snapshots import metric_values
from rec_summary.training.ending import this_environment
from rec_summary.training.graphs import dataset_graph, graph_record
from rec_summary.training.landscape.checkpoints import LandscapeCheckpoints
from rec_summary.training.lineage import lineage
from rec_summary.training.lineage.custom import (
    CustomValue,
    check_custom_lineage,
    custom_lineage,
    with_environment,
)
from rec_summary.training.npy_export import check_export_options
from rec_summary.training.probes.gradient_metrics import GradientMetrics
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.telemetry import RecommenderTelemetry
from rec_summary.training.recorder import Recorder, RecorderOptions
from rec_summary.training.run_directory import (
    SAME,
    SIBLING,
    WAYS,
    Choice,
    Participant,
    announce,
    announce_superseded,
    chosen_directory,
    evaluation_directory,
    last_step,
    totals_before,
)
from rec_summary.training.signals import InterruptSignals, end_waits
from rec_summary.training.step_view import StepView

logger = logging.getLogger("rec_summary.training")

_INTERRUPTS: Final = ("SIGINT", "SIGTERM", "KeyboardInterrupt", "SystemExit", STOPPED_BY)
_SHOWN_PARAMETERS: Final = 8  # in an answer to a request


def _guarded(hook: Callable[..., None]) -> Callable[..., None]:
    """Reports a failure of telemetry in place of raising it, so that training continues."""

    @functools.wraps(hook)
    def run(self: SummaryCollector, *args: Any) -> None:
        with self._signals.deferring():
            try:
                hook(self, *args)
            except Exception as error:  # noqa: BLE001  # training continues
                self._troubles.report(hook.__name__.strip("_"), error)

    return run


class SummaryCollector(Callback):
    """Records training with MindSpore's `Model` and with `RecModel`.

    A drop-in for `mindspore.SummaryCollector`, with the same argument names. The training thread
    only copies values. A thread of its own encodes and writes them. Records older than
    `flush_secs` survive the death of the process. A failure of telemetry never stops training: it
    is logged once, and counted in `troubles`.

    The collector records the loss (`loss/auto`), the learning rate (`learning_rate/auto`),
    histograms of parameters (`<name>/auto`), images among the input (`input_data/auto`), the values
    of summary operators in the network, the metrics of evaluations (`eval/<metric>`), the
    computation graph, the pipeline of the data set, and the lineage of training and evaluation.
    The train lineage is written when training starts, refreshed on a schedule and by `flush`, and
    completed with a status when training ends for any reason.

    A training that is started again with the same directory, network, data and hyper-parameters
    goes on there. Another training does not mix with it: it records in a directory beside it, and
    one line says so. `docs/options.md` describes the choice.

    Steps never restart within one collector: a second call of `train` continues the count. In
    another process, `online_train(..., initial_step=)` and `train(..., initial_epoch=)` say where
    the count goes on. `docs/options.md` compares each option with MindSpore's.

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
        metrics: Mapping[str, str] | None = None,
        retention: Retention | None = None,
        lineage_on_all_ranks: bool = False,
        flush_secs: float = DEFAULT_FLUSH_SECS,
        lineage_secs: float = 30.0,
        max_histogram_values: int | None = MOST_HISTOGRAM_VALUES,
        durability: Durability | None = None,
        recommender: RecommenderMetrics | None = None,
        gradients: GradientMetrics | None = None,
        run_directory: str = SIBLING,
        control: bool = True,
    ) -> None:
        """Checks the arguments and creates the directory.

        Args:
            summary_dir: The record directory; created (mode 0700) if it does not exist.
            collect_freq: Values are recorded at the first step and at every multiple of this number
                of steps (of epochs, if the device fetches the data).
            num_process: Has no effect; MindSpore has it. One thread writes the records.
            collect_specified_data: What to collect, in MindSpore's dictionary: collect_metric,
                collect_graph, collect_train_lineage, collect_eval_lineage, collect_input_data,
                collect_dataset_graph and collect_health, the counters of telemetry itself under
                `rec_summary/` (bool); histogram_regular, a regular expression that is matched
                against the start of parameter names, where None chooses the first five of the
                optimizer; and collect_landscape, a dictionary that turns on checkpoints for the
                loss landscape.
            keep_default_action: The default of what `collect_specified_data` does not name: True
                collects it, False does not.
            custom_lineage_data: Custom entries for the lineage: str keys with str, int, float,
                bool, None or numpy numbers, or lists and dictionaries of these.
            collect_tensor_freq: Tensors are recorded at the first step and at every multiple of
                this number; None for a schedule with few tensors.
            max_file_size: The size in bytes at which the next record file begins.
            export_options: `{"tensor_format": "npy"}` also writes tensors as `.npy` files.
            metrics: Which values of a metric are better, `"greater"` or `"less"`, by its name: of
                an evaluation, or of a scalar of your own, which is then a metric. It is needed for
                names that do not say it: such a metric has no best value.
            retention: A budget of bytes within which the whole history stays: old records become
                coarser. None for no budget. Do not combine it with `max_file_size`.
            lineage_on_all_ranks: Whether every rank writes lineage, and not only rank 0.
            flush_secs: The longest time that a record waits in memory, in seconds.
            lineage_secs: The time between two refreshes of the train lineage, in seconds.
            max_histogram_values: The largest number of values in a histogram; at least one row is
                counted. Of a larger parameter, usually an embedding table, each histogram has a
                sample: every k-th row, from another row on each time. The record states the size
                of the whole parameter. None counts all values, which copies the table on the
                training thread.
            durability: When files are synchronised to the disk, and what happens when the disk is
                too slow; None for the defaults of `Durability`.
            recommender: Metrics of recommenders: the quality of predictions, the health of
                embedding tables, throughput, drift. None for none.
            gradients: Norms of gradients, updates and the optimizer's states, and gradients that
                are not finite. None for none.
            run_directory: Where a training records. `"sibling"`: in `summary_dir`; if that holds
                the records of another training, beside it, in `<summary_dir>-2` and so on.
                `"same"`: in `summary_dir` in any case; you say that this training continues the
                one there. `"new"`: in a directory of its own below `summary_dir`, with the time
                as its name.
            control: Whether `rec-summary control` can change options while training goes on.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument has an invalid value.
            OSError: The directory cannot be created.
        """
        super().__init__()
        check_int("num_process", num_process)
        self._options = options = CollectorOptions(
            files=RecorderOptions(
                directory=check_directory("summary_dir", summary_dir),
                rotation=Rotation(max_file_size, retention),
                durability=check_optional("durability", durability, Durability) or Durability(),
                export_npy=check_export_options(export_options),
                flush_secs=check_seconds("flush_secs", flush_secs),
            ),
            **check_specified(collect_specified_data, keep_default_action),
            custom_lineage=with_environment(check_custom_lineage(custom_lineage_data)),
            metrics=check_metrics(metrics),
            lineage_secs=check_seconds("lineage_secs", lineage_secs),
            lineage_on_all_ranks=check_bool("lineage_on_all_ranks", lineage_on_all_ranks),
            most_histogram_values=check_int_or_none("max_histogram_values", max_histogram_values),
            recommender=check_optional("recommender", recommender, RecommenderMetrics),
            run_directory=check_choice("run_directory", run_directory, WAYS),
            control=check_bool("control", control),
            collect_freq=check_int("collect_freq", collect_freq),
            collect_tensor_freq=check_int_or_none("collect_tensor_freq", collect_tensor_freq),
            gradients=check_optional("gradients", gradients, GradientMetrics),
        )
        options.files.create_directory("summary_dir")
        self._troubles = Troubles()
        self._control = Control(options, self._troubles)
        self._recorder = Recorder(options.files, self._troubles, self._poll if control else None)
        self._health = Health(self._recorder)
        self._recommender: RecommenderTelemetry | None = None
        if recommender is not None:
            self._recommender = RecommenderTelemetry(recommender, self._recorder, self._troubles)
        self._depth = 0  # fit enters its callbacks again for each evaluation
        self._progress = TrainingProgress()
        self._run: TrainRun | None = None
        self._signals = InterruptSignals(self._complete)
        self._interrupted: str | None = None  # by a signal, or by an exception like it
        self._evaluated: Mapping[str, Any] | None = None  # the last recorded evaluation
        self._recorded_step = 0  # the last one in the directory before this training
        self._rank, self._rank_size = 0, 1
        self._checkpoints: LandscapeCheckpoints | None = None

    @property
    def summary_dir(self) -> str:
        """The record directory as an absolute path; when training begins, the one it chose."""
        return self._recorder.directory

    @property
    def troubles(self) -> dict[str, int]:
        """The number of telemetry failures of each kind; empty without failures."""
        return self._troubles.counts

    def flush(self) -> bool:
        """Refreshes the lineage and waits until the operating system has all records.

        Returns:
            Whether it has them.
        """
        if self._run is not None:
            self._refresh_lineage(self._run, RunState.RUNNING)
        if self._recommender is not None:
            self._recommender.flush()
        return self._recorder.flush()

    def __enter__(self) -> SummaryCollector:
        self._depth += 1
        if self._depth == 1:
            self._signals = InterruptSignals(self._complete)
            with self._troubles.attempt("signals"):  # it needs a thread and two file descriptors
                self._signals.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._depth = 0
        try:
            with self._signals.deferring():
                self._close(error[1] if len(error) > 1 else None)
        finally:
            self._signals.__exit__(*error)

    def _close(self, error: BaseException | None) -> None:
        """Completes the records and closes them; logs an interruption, and failures."""
        self._finish(error)
        self._recorder.close()
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None:
            self._log_interrupted(interrupted)
        if failures := self._troubles.failures:
            problems = ", ".join(f"{kind} ({count})" for kind, count in failures.items())
            logger.warning("SummaryCollector: problems while recording: %s", problems)

    @_guarded
    def on_train_begin(self, run_context: Any) -> None:
        """Opens the files and writes the first lineage."""
        view, environment = StepView(run_context), this_environment()
        options, progress = self._options, self._progress
        if self._run is not None:
            self._troubles.report(
                "callbacks",
                "a training begins before the previous one has ended: use one SummaryCollector for "
                "each training, once among its callbacks",
            )
        self._control.reset()
        self._recorded_step = progress.step
        run = TrainRun(view, environment, progress, options, self._troubles)
        choice = self._begin(view, environment, run)
        progress.start_time = progress.start_time or time.time()
        self._run = run
        if options.control:
            run.use(options, self._control.in_force())
        if self._recommender is not None:
            directory = choice.path if choice.other is None else None
            with self._troubles.attempt("recommender metrics"):
                self._recommender.begin(view, environment, directory, resume=choice.resumes)
        if self._options.custom_lineage:
            with self._troubles.attempt("custom lineage"):
                self._write_lineage(custom_lineage(self._options.custom_lineage))
        dataset = view.get("train_dataset")
        if self._options.collect.dataset_graph and dataset is not None:
            with self._troubles.attempt("dataset graph"):
                self._write_lineage(dataset_graph(dataset))
        self._refresh_lineage(run, RunState.RUNNING)

    @_guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Finds the step at which a resumed run continues."""
        if self._run is not None:
            self._run.begin_epoch(StepView(run_context))

    @_guarded
    def on_train_step_begin(self, run_context: Any) -> None:
        """Drops the values of summary operators since the last step: they belong to no step."""
        operators.discard()
        if self._run is not None:
            self._run.snapshots.begin_step(self._progress.step + 1)
        if self._recommender is not None:
            self._recommender.begin_step()

    @_guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Copies the values of the step that are due, and queues them."""
        run = self._run
        if run is None:
            return
        begun = time.monotonic()
        view = StepView(run_context)
        step = run.end_step(view)
        if run.is_first_step and step <= self._recorded_step and self._rank == 0:
            announce_superseded(self.summary_dir, step, self._recorded_step)
        if self._control.is_due(step):
            self._apply_requests(run)
        if run.is_first_step and self._options.collect.graph:
            with self._troubles.attempt("graph"):
                self._record_graph(view)
        values = run.snapshots.take(view, *run.due())
        if self._recommender is not None:
            with self._troubles.attempt("recommender metrics"):
                self._recommender.end_step(view, step)
        if values:
            self._recorder.write_step(step, values)
            self._health.add_snapshot(time.monotonic() - begun)
        if self._checkpoints is not None:
            with self._troubles.attempt("landscape checkpoint"):
                self._checkpoints.add_rows(view.get("train_dataset_element"))
                if self._checkpoints.unit == "step":
                    self._checkpoints.take(lineage.backbone(view), step, view.batch_num)
        if run.lineage_due(begun):
            self._refresh_lineage(run, RunState.RUNNING)
        if self._health.due(begun):
            self._record_health()

    @_guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Records the evaluation of `Model.fit` at the end of this epoch."""
        view = StepView(run_context)
        if self._checkpoints is not None and self._checkpoints.unit == "epoch":
            with self._troubles.attempt("landscape checkpoint"):
                self._checkpoints.take(lineage.backbone(view), view.epoch, view.batch_num)
        self._record_evaluation(view)

    @_guarded
    def on_train_end(self, run_context: Any) -> None:
        """Completes the lineage."""
        if self._run is not None:
            self._run.reached_end = True
        self._finish(None)

    @_guarded
    def on_eval_begin(self, run_context: Any) -> None:
        """Opens the files if training has not."""
        operators.deliver()  # the values of the training step that has just ended
        options, environment = self._options, this_environment()
        if self._is_new:
            if options.run_directory != SAME:
                network = network_settings(StepView(run_context), self._troubles)
                self._recorder.directory = evaluation_directory(options.files.directory, network)
            with self._troubles.attempt("the last step"):
                self._recorded_step = last_step(self.summary_dir, environment.rank)
        self._open(environment)

    @_guarded
    def on_eval_step_begin(self, run_context: Any) -> None:
        """Drops the values of summary operators: in PyNative mode, MindSpore keeps all of them.

        Not at the end of the step: another callback may record them there.
        """
        operators.discard()

    @_guarded
    def on_eval_end(self, run_context: Any) -> None:
        """Records the metrics of the evaluation."""
        if self._run is not None:  # in `fit`: its values belong to no step of training
            operators.discard()
        self._record_evaluation(StepView(run_context))

    def _begin(self, view: StepView, environment: RunState, run: TrainRun) -> Choice:
        """Chooses the directory of a training, and opens the files."""
        if not self._is_new:
            self._open(environment)
            return Choice(self.summary_dir)
        options = self._options
        settings = training_settings(view, run.data, run.optimizers, options, self._troubles)
        who = Participant(settings, environment.rank_size)
        named, lock = options.files.directory, options.files.durability.lock
        with chosen_directory(named, options.run_directory, environment.rank, who, lock) as choice:
            self._recorder.directory = choice.path
            if choice.continues:
                with self._troubles.attempt("the last step"):
                    self._recorded_step = last_step(choice.path, environment.rank)
                with self._troubles.attempt("the samples before"):
                    run.go_on_from(totals_before(choice.path, environment.rank))
            self._open(environment)
        if self._recorder.is_open:
            announce(named, choice, environment.rank)
        return choice

    def _poll(self) -> None:
        """Checks for requests; the writer's thread calls this."""
        self._control.poll()
        stop, run = self._control.requested_stop, self._run
        if stop is not None and run is not None:  # no step has come: training waits for data
            run.stop(stop)
            end_waits()

    def _apply_requests(self, run: TrainRun) -> None:
        """Applies the requests of `rec-summary control`, and records the answers in the lineage."""
        control, step = self._control, self._progress.step
        with self._troubles.attempt("control"):
            answers = [
                self._carry_out(applied, run) for applied in control.apply(step, run.is_first_step)
            ]
            with self._troubles.attempt("control"):
                run.use(control.options, control.in_force())
            # Before the answers: a reader of an answer finds its settings in the lineage.
            self._refresh_lineage(run, RunState.RUNNING)
            for answer in answers:
                self._recorder.write_message(answer.note(step))
            self._recorder.flush(0)

    def _carry_out(self, applied: Applied, run: TrainRun) -> Applied:
        """Carries out the actions of a request; returns it with the failure, if there is one."""
        request = applied.request
        if request is None or applied.refusal is not None:
            return applied
        refusal = None
        try:
            self._act(request, run)
        except Exception as error:  # noqa: BLE001  # training continues
            self._troubles.report("control", error)
            refusal = f"{type(error).__name__}: {error}"
            if request.settings:
                refusal += "; the settings are in force"
        if "stop" in request.actions:
            # The other ranks stop as well: a rank that goes on waits for them for ever.
            if refusal is None or self._rank_size > 1:
                run.stop(request)
            else:
                refusal += "; training goes on"
        text = applied.text + _unmatched(request.settings, run.snapshots.names)
        return dataclasses.replace(applied, text=text, refusal=refusal)

    def _act(self, request: Request, run: TrainRun) -> None:
        step = self._progress.step
        if request.lineage:
            self._write_lineage(custom_lineage(request.lineage))
        if "checkpoint" in request.actions:
            save_checkpoint(run.view.network, self.summary_dir, self._rank, step)

    @property
    def _is_new(self) -> bool:
        """Whether neither a training nor an evaluation has begun to record."""
        return self._progress.start_time is None and not self._recorder.is_open

    def _open(self, environment: RunState) -> None:
        options = self._options
        self._rank, self._rank_size = environment.rank, environment.rank_size
        if options.control and not self._recorder.is_open:
            self._control.begin(self.summary_dir)
        self._recorder.open(environment.rank)
        if options.landscape is not None and environment.rank == 0 and self._checkpoints is None:
            with self._troubles.attempt("landscape checkpoints"):  # it needs a thread
                self._checkpoints = LandscapeCheckpoints(
                    self.summary_dir, options.landscape, options.files.durability, self._troubles
                )

    def _write_lineage(self, event: LineageEvent) -> None:
        if self._rank == 0 or self._options.lineage_on_all_ranks:
            self._recorder.write_message(event)

    def _record_graph(self, view: StepView) -> None:
        record = graph_record(view.network)
        if record is not None:
            self._recorder.write(record)
        else:
            self._troubles.limit(
                "no graph in PyNative mode",
                "the computation graph is not recorded, because PyNative mode has none; "
                "everything else is recorded",
            )

    def _refresh_lineage(self, run: TrainRun, status: RunState.Status, reason: str = "") -> None:
        if self._options.collect.train_lineage and self._recorder.is_open:
            with self._troubles.attempt("train lineage"):
                self._write_lineage(run.lineage(status, reason))

    @_guarded
    def _finish(self, error: BaseException | None) -> None:
        """Writes the last lineage of a run, with its status."""
        run, self._run = self._run, None
        if run is not None:
            self._recorder.drain()
            if self._control.is_due(self._progress.step):
                self._apply_requests(run)
            if self._recommender is not None:
                with self._troubles.attempt("recommender metrics"):
                    self._recommender.end()
            run.snapshots.close()
            status, reason = run.ending(error, self._signals.signal_name)
            self._refresh_lineage(run, status, reason)
            if status == RunState.STOPPED and reason.startswith(_INTERRUPTS):
                self._interrupted = reason
            self._record_health()

    def _complete(self, signal_name: str, stuck: bool) -> None:
        """Completes the records of a process that a signal ends.

        Args:
            signal_name: The name of the signal.
            stuck: Whether the main thread is inside MindSpore: no value is read from it then.
        """
        run = self._run
        if not stuck:
            self._close(SystemExit(signal_name))
        elif run is not None:
            if self._options.collect.train_lineage:
                self._write_lineage(run.lineage(RunState.STOPPED, signal_name, stuck=True))
            if self._recommender is not None:
                self._recommender.stop()
            self._recorder.close()
            self._log_interrupted(signal_name)

    def _log_interrupted(self, reason: str) -> None:
        # MindSpore turns Ctrl-C into SIGTERM.
        reason = "SIGTERM or Ctrl-C" if reason == "SIGTERM" else reason
        logger.warning(
            f"SummaryCollector: training was interrupted ({reason}); step {self._progress.step} is "
            f"the last one in {self.summary_dir}"
        )

    def _record_health(self) -> None:
        if self._options.collect.health and self._recorder.is_open:
            self._health.record(self._progress.step)

    def _record_evaluation(self, view: StepView) -> None:
        # eval_results also has the evaluation's loss; only `fit` sets it
        metrics = view.get("eval_results") or view.get("metrics")
        if not isinstance(metrics, Mapping) or metrics is self._evaluated:
            return  # in `fit`, a subclass receives it in both hooks
        self._evaluated = metrics
        step = self._progress.step or self._recorded_step
        if self._options.collect.metric:
            values = metric_values(metrics)
            if values:
                self._recorder.write_step(step, values)
        if self._options.collect.eval_lineage:
            data = lineage.describe_dataset(view.get("valid_dataset"), self._troubles)
            self._write_lineage(
                lineage.evaluation_lineage(metrics, data, step, self._options.metrics)
            )


def _unmatched(settings: Mapping[str, Any], names: list[str]) -> str:
    """Returns which patterns match no parameter, as text after an answer."""
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
