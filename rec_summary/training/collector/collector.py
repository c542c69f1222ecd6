"""The callback: thin hooks that look at a step and hand what they saw to the recorder."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from mindspore.train import Callback

from rec_summary._pb import lineage_pb2
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.background import DEFAULT_FLUSH_SECS
from rec_summary.records.writing.run_writer import Durability
from rec_summary.training.checks import made_directory
from rec_summary.training.collector import operators
from rec_summary.training.collector.graphs import dataset_graph, graph_record
from rec_summary.training.collector.health import Health
from rec_summary.training.collector.options import MOST_HISTOGRAM_VALUES, check_options
from rec_summary.training.collector.recorder import Recorder
from rec_summary.training.collector.session import Totals, TrainRun
from rec_summary.training.collector.snapshots import metric_values
from rec_summary.training.collector.step_record import StepRecord
from rec_summary.training.collector.step_view import StepView
from rec_summary.training.landscape.checkpoints import LandscapeCheckpoints
from rec_summary.training.lineage import lineage
from rec_summary.training.lineage.custom import CustomValue, custom_lineage
from rec_summary.training.lineage.dataset import describe_dataset
from rec_summary.training.lineage.environment import Environment, this_environment
from rec_summary.training.recommender.config import RecommenderMetrics, check_recommender
from rec_summary.training.recommender.hook import RecommenderTelemetry
from rec_summary.training.summary_record.npy_export import NpyExporter

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

    Recorded are the loss (`loss/auto`), the learning rate (`learning_rate/auto`), histograms
    of parameters (`<name>/auto`), images among the input (`input_data/auto`), what summary
    operators in the network put out, the metrics of evaluations (`eval/<metric>`), the
    computation graph, the pipeline of the data set, and the lineage of training and
    evaluation. The train lineage is written when training starts, refreshed on a schedule
    and at `flush`, and finished with a status when training ends, in whatever way.

    Steps never restart within one collector: a second call of `train` goes on counting.
    `docs/options.md` has each option beside MindSpore's.

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
        max_files: int | None = None,
        max_total_bytes: int | None = None,
        lineage_on_all_ranks: bool = False,
        flush_secs: float = DEFAULT_FLUSH_SECS,
        lineage_secs: float = 30.0,
        max_histogram_values: int | None = MOST_HISTOGRAM_VALUES,
        durability: Durability | None = None,
        recommender: RecommenderMetrics | None = None,
    ) -> None:
        """Checks the arguments and makes the directory.

        Args:
            summary_dir: The record directory; made (mode 0700) if it does not exist.
            collect_freq: Values are recorded at the first step and at every multiple of
                this number of steps (of epochs, when the device fetches its own data).
            num_process: Accepted for MindSpore's sake; one thread does the work here.
            collect_specified_data: What to collect, in MindSpore's dictionary:
                collect_metric, collect_graph, collect_train_lineage, collect_eval_lineage,
                collect_input_data, collect_dataset_graph and collect_health, the counters
                of telemetry itself under `rec_summary/` (bool); histogram_regular, a
                regular expression that is matched against the start of parameter names,
                where None takes the first five of the optimizer; and collect_landscape, a
                dictionary that turns on checkpoints for the loss landscape.
            keep_default_action: Whether what `collect_specified_data` does not name is
                collected as by default, or not at all.
            custom_lineage_data: Entries of your own for the lineage: str keys with str,
                int, float, bool, None or numpy values, or dictionaries of such.
            collect_tensor_freq: Tensors are recorded at the first step and at every
                multiple of this; None for a schedule that keeps them few.
            max_file_size: The size in bytes at which the next record file is begun.
            export_options: `{"tensor_format": "npy"}` also writes tensors as `.npy` files.
            max_files: The most record files of this run that are kept; the oldest go, but
                never lineage, nor the file with the graph. Needs `max_file_size`.
            max_total_bytes: The most bytes that these files may have together.
            lineage_on_all_ranks: Whether every rank writes lineage, and not rank 0 alone.
            flush_secs: How long a record may wait in memory, in seconds.
            lineage_secs: How often the train lineage is refreshed, in seconds.
            max_histogram_values: How many values of a parameter are counted at most, but for
                one row. Of a larger one, an embedding table as a rule, every k-th row is
                counted, each time others, and the record says of how many values that is a
                sample. None counts all, which copies the table on the training thread.
            durability: What is forced to the disk when, and what happens when the disk
                cannot keep up; None for the defaults of `Durability`.
            recommender: Metrics that only a recommender needs: quality of its predictions,
                health of its embedding tables, throughput, drift. None for none.

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
            max_files=max_files,
            max_total_bytes=max_total_bytes,
            lineage_on_all_ranks=lineage_on_all_ranks,
            flush_secs=flush_secs,
            lineage_secs=lineage_secs,
            max_histogram_values=max_histogram_values,
            durability=durability,
        )
        made_directory("summary_dir", self._options.summary_dir)
        self._troubles = Troubles()
        self._recorder = Recorder(
            self._options.summary_dir,
            self._options.retention,
            flush_secs,
            self._options.durability,
            self._troubles,
        )
        self._health = Health()
        wanted = check_recommender(recommender)
        self._recommender = None
        if wanted is not None:
            self._recommender = RecommenderTelemetry(
                wanted, self._options.summary_dir, self._recorder.write, self._troubles
            )
        self._depth = 0  # fit enters its callbacks again for each evaluation
        self._totals: Totals | None = None  # of all calls of train together
        self._run: TrainRun | None = None
        self._evaluated: Mapping[str, Any] | None = None  # the evaluation recorded last
        self._writes_lineage = True
        self._exporter: NpyExporter | None = None
        self._checkpoints: LandscapeCheckpoints | None = None

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
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None
        if self._troubles.counts:
            logger.warning(
                "SummaryCollector: training was not disturbed, but telemetry failed: %s",
                ", ".join(f"{kind} ({count})" for kind, count in self._troubles.counts.items()),
            )

    @_guarded
    def on_train_begin(self, run_context: Any) -> None:
        """Opens the files and writes the lineage as it stands."""
        view, environment = StepView(run_context), this_environment()
        self._open(environment)
        run = TrainRun(view, environment, self._totals, self._options, self._troubles)
        self._run = run
        recommender = self._recommender
        if recommender is not None:
            self._attempt("recommender metrics", lambda: recommender.begin(view, environment))
        if self._options.custom_lineage:
            self._write_lineage(custom_lineage(self._options.custom_lineage))
        if self._options.collect.dataset_graph and view.get("train_dataset") is not None:
            self._attempt(
                "dataset graph",
                lambda: self._write_lineage(dataset_graph(view.get("train_dataset"))),
            )
        self._refresh_lineage(run, lineage.Status.RUNNING)

    @_guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Finds out at which step a resumed run goes on."""
        if self._run is not None:
            self._run.begin_epoch(StepView(run_context))

    @_guarded
    def on_train_step_begin(self, run_context: Any) -> None:
        """Forgets what summary operators have put out since the last step: it is no step's."""
        operators.discard()
        if self._recommender is not None:
            self._recommender.step_begins()

    @_guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Takes the snapshot of a step that is due."""
        run = self._run
        if run is None:
            return
        begun = time.monotonic()
        view = StepView(run_context)
        step = run.note_step(view)
        if run.is_first_step and self._options.collect.graph:
            self._attempt("graph", lambda: self._record_graph(view))
        values = run.snapshots()
        recommender = self._recommender
        if recommender is not None:
            self._attempt("recommender metrics", lambda: recommender.step_ended(view, step))
        if values:
            self._recorder.write(
                StepRecord(step, time.time(), values, self._troubles, exporter=self._exporter)
            )
            self._health.note_snapshot(time.monotonic() - begun)
        if self._checkpoints is not None:
            self._checkpoints.see(view.get("train_dataset_element"))
            if self._checkpoints.unit == "step":
                self._checkpoints.take(lineage.backbone(view), step, view.batch_num)
        if run.lineage_due(begun):
            self._refresh_lineage(run, lineage.Status.RUNNING)
        if self._health.due(begun):
            self._record_health(step)

    @_guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Records what `Model.fit` evaluated at the end of this epoch."""
        view = StepView(run_context)
        if self._checkpoints is not None and self._checkpoints.unit == "epoch":
            self._checkpoints.take(lineage.backbone(view), view.epoch, view.batch_num)
        self._record_evaluation(view)

    @_guarded
    def on_train_end(self, run_context: Any) -> None:
        """Finishes the lineage."""
        if self._run is not None:
            self._run.reached_end = True
        self._finish(None)

    @_guarded
    def on_eval_begin(self, run_context: Any) -> None:
        """Opens the files, if no training has."""
        self._open(this_environment())

    @_guarded
    def on_eval_end(self, run_context: Any) -> None:
        """Records what the evaluation gave."""
        self._record_evaluation(StepView(run_context))

    def _open(self, environment: Environment) -> None:
        self._recorder.open(environment.rank)
        self._writes_lineage = environment.rank == 0 or self._options.lineage_on_all_ranks
        if self._options.export_npy and self._exporter is None:
            self._exporter = NpyExporter(self._options.summary_dir)
        landscape = self._options.collect.landscape
        if landscape is not None and environment.rank == 0 and self._checkpoints is None:
            self._checkpoints = LandscapeCheckpoints(
                self._options.summary_dir,
                landscape,
                self._troubles,
                self._options.durability.lock,
            )

    def _write_lineage(self, event: lineage_pb2.LineageEvent) -> None:
        if self._writes_lineage:
            self._recorder.write_message(event)

    def _record_graph(self, view: StepView) -> None:
        record = graph_record(view.network)
        if record is not None:
            self._recorder.write(record)
        else:
            logger.info("SummaryCollector: there is no computation graph in PyNative mode")

    def _refresh_lineage(self, run: TrainRun, status: lineage.Status, reason: str = "") -> None:
        if self._options.collect.train_lineage and self._recorder.is_open:
            self._write_lineage(run.lineage(status, reason, self._troubles.counts))

    @_guarded
    def _finish(self, error: BaseException | None) -> None:
        """Writes the last lineage of a run: how it ended."""
        run, self._run = self._run, None
        if run is not None:
            self._totals = run.totals
            if self._recommender is not None:
                self._attempt("recommender metrics", self._recommender.end)
            run.close()
            status, reason = run.ending(error)
            self._refresh_lineage(run, status, reason)
            self._record_health(run.totals.step)

    def _record_health(self, step: int) -> None:
        if not (self._options.collect.health and self._recorder.is_open):
            return
        record = self._health.record(step, self._recorder.counters, lambda: self._troubles.total)
        if record is not None:
            self._recorder.write(record)

    def _record_evaluation(self, view: StepView) -> None:
        # eval_results has the evaluation's loss besides; only `fit` gives it
        metrics = view.get("eval_results") or view.get("metrics")
        if not isinstance(metrics, Mapping) or metrics is self._evaluated:
            return  # a subclass in `fit` sees it at both hooks
        self._evaluated = metrics
        totals = self._run.totals if self._run is not None else self._totals
        step = totals.step if totals is not None else 0
        if self._options.collect.metric:
            values = metric_values(metrics)
            if values:
                self._recorder.write(StepRecord(step, time.time(), values, self._troubles))
        if self._options.collect.eval_lineage:
            data = describe_dataset(view.get("valid_dataset"))
            self._write_lineage(lineage.evaluation_lineage(metrics, data, step))

    def _attempt(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  # training goes on
            self._troubles.report(what, error)
