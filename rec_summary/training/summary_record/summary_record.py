"""`SummaryRecord`: records from a custom training loop, with MindSpore's interface."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.checks import (
    check_bool,
    check_directory,
    check_int,
    check_optional,
    check_that,
    check_type,
)
from rec_summary.errors import three_part, verbatim
from rec_summary.metrics.directions import check_metrics
from rec_summary.metrics.slices.gate import Gate
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import DEFAULT_PREFIX, DEFAULT_SUFFIX, check_affixes
from rec_summary.records.writing.retention import Retention
from rec_summary.records.writing.run_writer import Durability, Rotation
from rec_summary.training import loaded, operators
from rec_summary.training.graphs import graph_record
from rec_summary.training.lineage.custom import CustomValue, check_custom_lineage
from rec_summary.training.npy_export import check_export_options
from rec_summary.training.process.ending import this_environment
from rec_summary.training.recommender.config import RecommenderMetrics
from rec_summary.training.recommender.rows import EmbeddingTable
from rec_summary.training.recorder import RecorderOptions
from rec_summary.training.run_directory import came_second, other_writer, own_lineage
from rec_summary.training.session.options import SessionOptions
from rec_summary.training.session.session import Session
from rec_summary.training.summary_record.loop import Loop
from rec_summary.training.summary_record.observed import Batch, Observed
from rec_summary.training.summary_record.plugins import GRAPH, PendingValues, own_content

if TYPE_CHECKING:
    from mindspore.nn import Cell

    from rec_summary.training.probes.gradient_metrics import GradientMetrics

logger = logging.getLogger("rec_summary.training")

_INT64: Final = range(-(2**63), 2**63)

_RANKS: Final = 2**31 - 1
# Kinds of failures that are not those to record what the loop gives.
_NOT_RAISED: Final = ("control", "recommender", "observe", "gradients", "signals", "the samples")

PluginFilter = Callable[[str], bool]
BatchT = TypeVar("BatchT")


class SummaryRecord:
    """Writes the values of a custom training loop, one record for each step.

    A drop-in for `mindspore.SummaryRecord`, with the same argument names. It also works without
    MindSpore, for the loops of other frameworks. Several may be open at once, also on one
    directory: each writes its own files. `add_value` only makes a copy. A thread of its own
    computes histograms, encodes images and writes files.

    A `with` that ends says that the training has finished; an exception, SIGTERM and Ctrl-C are how
    it has ended otherwise.

    Example:
        metrics = RecommenderMetrics(predictions="score", labels="click", users="user")
        with SummaryRecord("records", recommender=metrics) as record:
            for step, batch in enumerate(record.batches(stream), start=1):
                score, loss = train(batch)
                record.observe(score=score, click=batch.click, user=batch.user)
                record.add_value("scalar", "loss", loss)
                record.record(step)
                if record.should_stop:
                    break
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        file_prefix: str = DEFAULT_PREFIX,
        file_suffix: str = DEFAULT_SUFFIX,
        num_process: int = 32,
        network: Cell | None = None,
        max_file_size: int | None = None,
        raise_exception: bool = False,
        export_options: Mapping[str, Any] | None = None,
        *,
        durability: Durability | None = None,
        retention: Retention | None = None,
        hyper_parameters: Mapping[str, CustomValue] | None = None,
        metrics: Mapping[str, str] | None = None,
        recommender: RecommenderMetrics | None = None,
        latest_good: Gate | None = None,
        tables: Mapping[str, EmbeddingTable] | None = None,
        gradients: GradientMetrics | None = None,
        control: bool = True,
        rank: int | None = None,
        rank_size: int | None = None,
    ) -> None:
        """Creates the directory and the files, and starts the writer's thread.

        Args:
            log_dir: The record directory; created (mode 0700) if it does not exist.
            file_prefix: The beginning of the names of the files.
            file_suffix: The end of the name of the summary file.
            num_process: Has no effect; MindSpore has it. One thread writes the records.
            network: A Cell. Its compiled graph is recorded once, as soon as it exists.
            max_file_size: The size in bytes at which the next summary file begins; None for no
                limit. No file is deleted.
            raise_exception: Whether a failure to create the files is raised here, and a failure
                to write by the next `record`, `flush` or `close`. Otherwise it is logged once, and
                counted in `troubles`.
            export_options: `{"tensor_format": "npy"}` also writes tensors as `.npy` files.
            durability: When files are synchronised to the disk, and what happens when the disk is
                too slow; None for the defaults of `Durability`.
            retention: A budget of bytes within which the whole history stays: old records become
                coarser. None for no budget. Do not combine it with `max_file_size`.
            hyper_parameters: What the training is made of, for `rec-summary lineage` and the
                HParams page: str keys with str, int, float, bool, None or numpy numbers, or lists
                and dictionaries of these.
            metrics: Which scalars are metrics, and which of their values are better, `"greater"` or
                `"less"`, by tag. Scalars with names such as `auc` and `eval/...` are metrics
                without that. A metric is a column of `rec-summary lineage` and of HParams.
            recommender: Metrics of recommenders, of the columns that `observe` is called with.
                All places are names of columns. None for none.
            latest_good: As of `SummaryCollector`, for checkpoints that the loop saves in
                `checkpoints/` of the record directory.
            tables: How rows of the tables in `ids` of `recommender` are read, by name, for the
                norms of rows. A table without an entry has its lookups counted only.
            gradients: Norms of gradients and updates, of each `GradientProbe` in `network`. None
                for none.
            control: Whether `rec-summary control` reaches the loop: its notes and entries are
                recorded, and `should_stop` says that somebody has asked for a stop.
            rank: The rank of this process, from 0 on, where several train together. By default
                that of MindSpore's communication, else of the variable `RANK`, else 0.
            rank_size: The number of these processes; by default as `rank`, from `WORLD_SIZE`.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument has an invalid value.
            OSError: The directory cannot be created.
            RuntimeError: The files or the writer's thread cannot be created, and
                `raise_exception` is set.
        """
        check_affixes(file_prefix, file_suffix)
        check_int("num_process", num_process)
        _check_network("network", network)
        check_bool("raise_exception", raise_exception)
        options = SessionOptions(
            files=RecorderOptions(
                directory=check_directory("log_dir", log_dir),
                rotation=Rotation(max_file_size, retention=retention),
                durability=check_optional("durability", durability, Durability) or Durability(),
                export_npy=check_export_options(export_options),
                prefix=file_prefix,
                suffix=file_suffix,
            ),
            recommender=check_optional("recommender", recommender, RecommenderMetrics),
            latest_good=check_optional("latest_good", latest_good, Gate),
            custom_lineage=check_custom_lineage(hyper_parameters, "hyper_parameters"),
            metrics=check_metrics(metrics),
            lineage_on_all_ranks=True,
            control=check_bool("control", control),
        )
        environment = _environment(rank, rank_size)
        self._troubles = troubles = Troubles(
            lambda kind: raise_exception and not kind.startswith(_NOT_RAISED)
        )
        self._session = session = Session("SummaryRecord", options, troubles, self._shut)
        known = _check_tables(tables, recommender)
        self._observed: Observed | None = None
        if session.recommender is not None:
            importance = None if recommender is None else recommender.importance
            self._observed = Observed(session.recommender.roles, importance, troubles)
        self._gradients = _gradient_reader(gradients, network, troubles)
        options.files.create_directory("log_dir")
        directory = options.files.directory
        self._network = network
        self._recorder = session.recorder
        other = other_writer(directory, environment.rank)
        if other is not None:
            logger.warning("SummaryRecord: %s", came_second(other, directory))
        is_alone = other is None and own_lineage(directory, environment.rank) is not None
        session.open(environment, is_alone=is_alone)
        self._raise_failure()
        self._path = self._recorder.path or directory
        self._mailbox = operators.Mailbox(troubles)
        self._mode = "train"
        self._pending = PendingValues()
        self._batches: list[Batch] = []  # of the next step
        self._trained = 0  # examples since the last step with batches
        self._swap = threading.RLock()  # a signal handler may record as well
        self._wants_graph = True
        self._closed = False
        self._pid = os.getpid()
        self._handled = sys.exc_info()[1]  # an exception that is handled already
        self._loop = Loop(directory, environment, session.progress, options.metrics, troubles)
        session.begin(self._loop)
        session.write_custom_lineage()
        if session.recommender is not None and self._observed is not None:
            state = directory if other is None else None
            with troubles.attempt("recommender metrics"):  # they need a thread
                session.recommender.begin(self._observed, lambda: known, environment, state)

    @property
    def log_dir(self) -> str:
        """The path of the first summary file, or the directory without one; MindSpore's name."""
        return self._path

    @property
    def troubles(self) -> dict[str, int]:
        """The number of failures of each kind; empty without failures."""
        return self._troubles.counts

    @property
    def should_stop(self) -> bool:
        """Whether somebody has asked for a stop by `rec-summary control --stop`: end the loop."""
        return self._loop.should_stop

    def __enter__(self) -> SummaryRecord:
        """Completes the records from now on where SIGTERM or Ctrl-C ends the process.

        Raises:
            ValueError: It is closed.
        """
        received = verbatim("a closed SummaryRecord")
        check_that(not self._closed, "the SummaryRecord", received, "an open one")
        if self._recorder.is_open:
            self._session.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        was_open = not self._closed
        self._session.leave(error)
        if was_open and kind is None:  # an error in the loop has precedence
            self._raise_failure()

    def set_mode(self, mode: str) -> None:
        """Sets the mode of the network.

        Args:
            mode: `"train"` or `"eval"`. The values of summary operators during evaluation are
                never recorded.

        Raises:
            ValueError: The mode is unknown.
        """
        check_that(mode in ("train", "eval"), "mode", mode, "'train' or 'eval'")
        self._mode = mode
        self._mailbox.pause(mode == "eval")

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Adds a value to the next `record`. It replaces an earlier value of the same name.

        Args:
            plugin: The kind of value:
                scalar: one number. tensor, histogram: numbers of any shape. image: numbers
                of shape [N, C, H, W] or [N, H, W, C] with C of 1 or 3. All four accept a
                MindSpore Tensor, a numpy array, a Python or numpy number, or a list of these.
                train_lineage, eval_lineage, dataset_graph, custom_lineage_data: a
                TrainLineage, EvaluationLineage, DatasetGraph, UserDefinedInfo; landscape: a
                LossLandscape: protobuf messages of MindSpore or of rec_summary.
                custom_lineage_data also accepts a dict, as `SummaryCollector` does.
                graph: a ModelProto, or its bytes.
            name: The tag of a scalar, tensor, histogram, image or landscape.
            value: The value. It is copied; you may change it afterwards.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument has an invalid value.
        """
        content = own_content(plugin, name, value)
        if not self._refuses():
            with self._swap:
                self._pending.put(plugin, content)

    def observe(self, **columns: Any) -> None:
        """Shows a batch to the metrics of recommenders: its columns are copied.

        Several batches before a `record` are those of one step. The first batch with a mistake is
        an error if it is the first of all; later ones are left out and counted in `troubles`.

        Args:
            **columns: The columns that `recommender` names, each with one row per example: NumPy
                arrays, MindSpore Tensors, and whatever has `__array__` or DLPack, such as PyTorch's
                CPU tensors and JAX's arrays. With `importance`, also those that its `predict`
                needs. Call it before the update then, for passes on a batch that is not trained.

        Raises:
            TypeError: In the first batch, a column is no array; or there is no `recommender`.
            ValueError: In the first batch, columns are missing or unknown, or differ in length.
        """
        if self._observed is None:
            what, expected = "observe", "a SummaryRecord(..., recommender=RecommenderMetrics(...))"
            raise TypeError(three_part(what, verbatim("no metrics of recommenders"), expected))
        if not self._refuses():
            batch = self._observed.copied(columns)
            if batch is not None:
                if self._session.recommender is not None:
                    self._session.recommender.predict(columns)
                with self._swap:
                    if self._observed.has_room(self._batches, batch):
                        self._batches.append(batch)

    def batches(self, stream: Iterable[BatchT]) -> Iterator[BatchT]:
        """Yields the batches of a stream, and measures how long the training waits for them.

        Args:
            stream: What the loop reads; without `batches`, the share of waiting is not known.
        """
        metrics, iterator = self._session.recommender, iter(stream)
        while True:
            begun = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            if metrics is not None:
                metrics.add_wait(time.perf_counter() - begun)
            yield batch

    def record(
        self,
        step: int,
        train_network: Cell | None = None,
        plugin_filter: PluginFilter | None = None,
        *,
        samples: int | None = None,
    ) -> bool:
        """Queues all values since the last call for the writer's thread, as one step.

        In mode `"train"`, these include the values of the network's summary operators.

        Args:
            step: The step of the values.
            train_network: A Cell. Its compiled graph is recorded once, if `network` has none.
            plugin_filter: Returns whether the values of a plugin are written, from the plugin's
                name; other values are dropped. None writes all.
            samples: The number of examples since the last call; None for those that were observed.

        Returns:
            Whether the values were accepted: False after `close`, in a forked child, and where the
            files could not be created.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: The step does not fit into 64 bits.
            OSError, RuntimeError: An earlier value could not be written, and
                `raise_exception` is set. The values of this call are accepted nevertheless.
        """
        check_type("step", step, (int, np.integer), "an int")
        step = int(step)
        check_that(step in _INT64, "step", step, "an int of 64 bits")
        _check_network("train_network", train_network)
        if plugin_filter is not None and not callable(plugin_filter):
            expected = "a function of a plugin's name, or None"
            raise TypeError(three_part("plugin_filter", plugin_filter, expected))
        samples = samples if samples is None else check_int("samples", samples, 0)
        if self._refuses():
            return False
        earlier, self._troubles.first = self._troubles.first, None
        with self._session.signals.deferring():
            self._record(step, train_network, plugin_filter, samples)
        self._troubles.first = earlier or self._troubles.first
        if earlier is not None:  # what fails from now on, the next call raises
            self._raise_failure()
        return True

    def _record(
        self,
        step: int,
        train_network: Cell | None,
        plugin_filter: PluginFilter | None,
        samples: int | None,
    ) -> None:
        if self._gradients is not None:
            with self._troubles.attempt("gradients"):
                for value in self._gradients.take():
                    self._pending.put(value.kind, value)
                self._gradients.begin_step(step + 1)
                self._gradients.choose_graph()
        if self._mode == "train":
            self._take_operators()
        else:
            operators.deliver()  # to other mailboxes; MindSpore's list must not grow
        wanted = plugin_filter or (lambda plugin: True)
        with self._swap:
            pending, self._pending = self._pending, PendingValues()
            batches, self._batches = self._batches, []
        networks = [net for net in (self._network, train_network) if net is not None]
        if networks and self._wants_graph and wanted(GRAPH):
            self._write_graph(networks)
        session, loop = self._session, self._loop
        loop.said = pending.write(self._recorder, step, wanted) or loop.said
        if samples is None:
            samples = sum(count for _, count in batches)
        self._trained += samples
        is_first = loop.end_step(step, samples)
        session.apply_requests(is_first=is_first)
        if batches:
            session.end_step((batches, self._trained), step)
            self._trained = 0
        session.refresh_if_due(time.monotonic(), is_first=is_first)

    def flush(self) -> bool:
        """Waits until the operating system has all records.

        Returns:
            Whether it has them; False where `record` accepts nothing.

        Raises:
            OSError, RuntimeError: A record could not be written, and `raise_exception` is set.
        """
        if self._refuses():
            return False
        done = self._session.flush()
        self._raise_failure()
        return done

    def close(self) -> None:
        """Writes all records and how the training has ended, and closes the files.

        It has failed, or was stopped, if `close` is called while an exception is handled, also by
        `finally`. You may call it twice.

        Raises:
            OSError, RuntimeError: A record could not be written, and `raise_exception` is set. The
                files are closed nevertheless.
        """
        with self._session.signals.deferring():
            was_open = self._shut(sys.exc_info()[1])
        if was_open:
            self._raise_failure()

    def _take_operators(self) -> None:
        for (kind, tag), value in self._mailbox.take().items():
            with self._troubles.attempt(f"{kind} operator {tag}"):
                snapshot = operators.snapshot(kind, tag, value)
                with self._swap:
                    self._pending.put(kind, snapshot)

    def _write_graph(self, networks: Sequence[Cell]) -> None:
        try:
            graphs = [graph for net in networks if (graph := graph_record(net)) is not None]
        except Exception as error:  # noqa: BLE001  # MindSpore's compiler failed
            self._troubles.report("graph", error)
            self._wants_graph = False
            return
        if graphs:
            self._recorder.write(graphs[0])
            self._wants_graph = False

    def _refuses(self) -> bool:
        """Whether nothing is accepted, which has been or is reported."""
        if self._closed:
            self._troubles.report("record after close", "the SummaryRecord is closed")
        elif os.getpid() != self._pid:
            text = f"process {self._pid} made this SummaryRecord; make one in each process"
            self._troubles.report("record after fork", text)
        elif self._recorder.is_open:
            return False
        return True

    def _shut(self, error: BaseException | None) -> bool:
        """Closes everything; returns whether it was open.

        Args:
            error: The exception that ends the training, or None.
        """
        if self._closed:
            return False
        self._closed = True
        self._mailbox.close()
        if count := sum(count for _, count in self._batches):
            text = "they were observed after the last `record`"
            self._troubles.report("recommender metrics: examples not counted", text, count)
        if self._gradients is not None:
            self._gradients.close()
            self._gradients.choose_graph()
        self._session.close(None if error is self._handled else error)
        return True

    def _raise_failure(self) -> None:
        if self._troubles.first is None:
            return
        (kind, failure), self._troubles.first = self._troubles.first, None
        if isinstance(failure, str):
            raise RuntimeError(f"{kind}: {failure}")
        if isinstance(failure, (OSError, RuntimeError)):
            raise failure
        raise RuntimeError(f"{type(failure).__name__}: {failure}") from failure


def _check_network(name: str, network: object) -> None:
    if network is not None and not loaded.is_cell(network):
        raise TypeError(three_part(name, network, "a Cell or None"))


def _environment(rank: int | None, rank_size: int | None) -> RunState:
    """Returns this process, with the rank that the user or a launcher has said.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The rank is none of so many.
    """
    state = this_environment()
    launched = state.rank, state.rank_size
    if state.rank_size == 1:
        with contextlib.suppress(KeyError, ValueError):  # another program may use these names
            place, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            launched = (place, size) if 0 <= place < size <= _RANKS else launched
    state.rank_size = check_int(
        "rank_size", launched[1] if rank_size is None else rank_size, 1, _RANKS
    )
    rank = launched[0] if rank is None else rank
    state.rank = check_int("rank", rank, 0, state.rank_size - 1)
    return state


def _check_tables(
    tables: Mapping[str, EmbeddingTable] | None, recommender: RecommenderMetrics | None
) -> dict[str, EmbeddingTable]:
    """Returns the table of each name of `ids`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A name is not one of `ids`.
    """
    names = () if recommender is None else tuple(recommender.ids)
    given = check_type("tables", tables, (Mapping, type(None)), "a dict or None") or {}
    for name, table in given.items():
        expected = f"a table of recommender.ids ({', '.join(names) or 'there are none'})"
        check_that(name in names, "tables", name, expected)
        check_type(f"tables[{name!r}]", table, EmbeddingTable, "a rec_summary.EmbeddingTable")
    return {name: given.get(name, EmbeddingTable(None)) for name in names}


def _gradient_reader(gradients: Any, network: Cell | None, troubles: Troubles) -> Any:
    """Returns what reads norms of gradients; None without `gradients`.

    Raises:
        TypeError: It has the wrong type.
        ValueError: There is no network.
    """
    if gradients is None:
        return None
    from rec_summary.training.probes.gradient_metrics import GradientMetrics, GradientReader

    check_optional("gradients", gradients, GradientMetrics)
    check_that(network is not None, "network", network, "a Cell, because `gradients` is given")
    reader = GradientReader(gradients, network, troubles, always=False)
    reader.begin_step(1)
    reader.choose_graph()
    return reader
