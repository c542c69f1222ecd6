"""`SummaryCollector`: a callback with thin hooks that copy values and queue records."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from mindspore import Tensor
from mindspore.train import Callback

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.checks import (
    check_bool,
    check_choice,
    check_directory,
    check_int,
    check_int_or_none,
    check_optional,
    check_seconds,
    check_that,
)
from rec_summary.metrics.directions import check_metrics
from rec_summary.metrics.slices.gate import Gate
from rec_summary.records.failures import NO_GRAPH, Troubles
from rec_summary.records.writing.background import DEFAULT_FLUSH_SECS
from rec_summary.records.writing.retention import Retention
from rec_summary.records.writing.run_writer import Durability, Rotation
from rec_summary.training import operators
from rec_summary.training.collector.health import Health
from rec_summary.training.collector.options import (
    MOST_HISTOGRAM_VALUES,
    CollectorOptions,
    check_specified,
)
from rec_summary.training.collector.settings import network_settings, training_settings
from rec_summary.training.collector.snapshots import metric_values
from rec_summary.training.collector.train_run import TrainRun
from rec_summary.training.graphs import dataset_graph, graph_record
from rec_summary.training.incidents import INCIDENT, Incident, Incidents
from rec_summary.training.landscape.checkpoints import LandscapeCheckpoints
from rec_summary.training.lineage import lineage
from rec_summary.training.lineage.custom import (
    CustomValue,
    check_custom_lineage,
    with_environment,
)
from rec_summary.training.npy_export import check_export_options
from rec_summary.training.probes.gradient_metrics import GradientMetrics, not_finite_share
from rec_summary.training.process.ending import this_environment
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.step_reader import StepReader, column_names
from rec_summary.training.recommender.tables import network_tables
from rec_summary.training.recorder import RecorderOptions
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
from rec_summary.training.session.session import Session
from rec_summary.training.step_view import StepView
from rec_summary.training.tensors import is_on_cpu

logger = logging.getLogger("rec_summary.training")


def _guarded(hook: Callable[..., None]) -> Callable[..., None]:
    """Reports a failure of telemetry in place of raising it, so that training continues."""

    @functools.wraps(hook)
    def run(self: SummaryCollector, *args: Any) -> None:
        with self._session.signals.deferring():
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
        latest_good: Gate | None = None,
        gradients: GradientMetrics | None = None,
        incident: Incident | None = None,
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
            latest_good: Moves the link `latest-good` in `checkpoints/` of the record directory to
                the newest checkpoint there for which this gate has held. It judges the examples of
                rank 0, and needs a task with `served`. None for no link.
            gradients: Norms of gradients, updates and the optimizer's states, and gradients that
                are not finite. None for none.
            incident: The last batches are kept, and written when the loss or a gradient breaks.
                None for not: they are data of users.
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
            latest_good=check_optional("latest_good", latest_good, Gate),
            run_directory=check_choice("run_directory", run_directory, WAYS),
            control=check_bool("control", control),
            collect_freq=check_int("collect_freq", collect_freq),
            collect_tensor_freq=check_int_or_none("collect_tensor_freq", collect_tensor_freq),
            gradients=check_optional("gradients", gradients, GradientMetrics),
            incident=check_optional("incident", incident, Incident),
        )
        importance = None if recommender is None else recommender.importance
        predict = None if importance is None else importance.predict
        check_that(predict is None, "predict of importance", predict, "None: it is the network")
        options.files.create_directory("summary_dir")
        self._troubles = Troubles()
        self._session = Session("SummaryCollector", options, self._troubles, self._close)
        self._recorder, self._progress = self._session.recorder, self._session.progress
        self._health = Health(self._recorder)
        self._depth = 0  # fit enters its callbacks again for each evaluation
        self._run: TrainRun | None = None
        self._evaluated: Mapping[str, Any] | None = None  # the last recorded evaluation
        self._recorded_step = 0  # the last one in the directory before this training
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
        self._session.refresh()
        return self._session.flush()

    def __enter__(self) -> SummaryCollector:
        self._depth += 1
        if self._depth == 1:
            self._session.enter()
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._depth = 0
        self._session.leave(error[1] if len(error) > 1 else None)

    def _close(self, error: BaseException | None) -> None:
        """Completes the records and closes them; logs failures."""
        self._finish(error)
        self._session.close(error)
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None
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
        session = self._session
        session.control.reset()
        self._recorded_step = progress.step
        run = TrainRun(
            view, environment, progress, options, self._troubles, lambda: self.summary_dir
        )
        choice = self._begin(view, environment, run)
        self._run = run
        if options.incident is not None:
            with self._troubles.attempt(INCIDENT):
                names = column_names(view.get("train_dataset"))
                lasting = Tensor if is_on_cpu() else None
                who = environment.rank, self._recorder, self._troubles
                run.incidents = Incidents(options.incident, names, lasting, *who)
        session.begin(run)
        metrics = session.recommender
        if metrics is not None:
            directory = choice.path if choice.other is None else None
            with self._troubles.attempt("recommender metrics"):
                metrics.begin(
                    StepReader(metrics.roles, view, self._troubles),
                    lambda: network_tables(view.network, metrics.tables, self._troubles),
                    environment,
                    directory,
                    resume=choice.resumes,
                )
        session.write_custom_lineage()
        dataset = view.get("train_dataset")
        if self._options.collect.dataset_graph and dataset is not None:
            with self._troubles.attempt("dataset graph"):
                session.write_lineage(dataset_graph(dataset))
        session.refresh()

    @_guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Finds the step at which a resumed run continues."""
        if self._run is not None:
            self._run.begin_epoch(StepView(run_context))

    @_guarded
    def on_train_step_begin(self, run_context: Any) -> None:
        """Drops the values of summary operators since the last step: they belong to no step."""
        metrics = self._session.recommender
        if metrics is not None:
            metrics.begin_step()
            metrics.predict(run_context)
        operators.discard()
        if self._run is not None:
            self._run.snapshots.begin_step(self._progress.step + 1)

    @_guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Copies the values of the step that are due, and queues them."""
        run = self._run
        if run is None:
            return
        begun = time.monotonic()
        view, session = StepView(run_context), self._session
        step = run.end_step(view)
        if run.is_first_step and step <= self._recorded_step and session.rank == 0:
            announce_superseded(self.summary_dir, step, self._recorded_step)
        incidents = run.incidents
        if incidents is not None:
            with self._troubles.attempt(INCIDENT):
                incidents.add(step, view.get("train_dataset_element"), view.outputs)
        session.apply_requests(is_first=run.is_first_step)
        if run.is_first_step and self._options.collect.graph:
            with self._troubles.attempt("graph"):
                self._record_graph(view)
        values = run.snapshots.take(view, *run.due())
        session.end_step(view, step)
        if values:
            self._recorder.write_step(step, values)
            if incidents is not None and (share := not_finite_share(values)) is not None:
                incidents.add_gradients(step, share)
            self._health.add_snapshot(time.monotonic() - begun)
        if self._checkpoints is not None:
            with self._troubles.attempt("landscape checkpoint"):
                self._checkpoints.add_rows(view.get("train_dataset_element"))
                if self._checkpoints.unit == "step":
                    self._checkpoints.take(lineage.backbone(view), step, view.batch_num)
        session.refresh_if_due(begun, is_first=run.is_first_step)
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

    @property
    def _is_new(self) -> bool:
        """Whether neither a training nor an evaluation has begun to record."""
        return self._progress.start_time is None and not self._recorder.is_open

    def _open(self, environment: RunState) -> None:
        self._session.open(environment)
        options = self._options
        if options.landscape is not None and environment.rank == 0 and self._checkpoints is None:
            with self._troubles.attempt("landscape checkpoints"):  # it needs a thread
                self._checkpoints = LandscapeCheckpoints(
                    self.summary_dir, options.landscape, options.files.durability, self._troubles
                )

    def _record_graph(self, view: StepView) -> None:
        record = graph_record(view.network)
        if record is not None:
            self._recorder.write(record)
        else:
            self._troubles.limit(
                NO_GRAPH,
                "the computation graph is not recorded, because PyNative mode has none; "
                "everything else is recorded",
            )

    @_guarded
    def _finish(self, error: BaseException | None) -> None:
        """Writes the last lineage of a run, with its status."""
        run, self._run = self._run, None
        if run is not None:
            with self._troubles.attempt(INCIDENT):
                run.end_incidents()
            try:
                self._session.finish(error)
            finally:
                run.snapshots.close()
                if run.incidents is not None:
                    run.incidents.close()
            self._record_health()

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
            self._session.write_lineage(
                lineage.evaluation_lineage(metrics, data, step, self._options.metrics)
            )
