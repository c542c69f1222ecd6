"""`SummaryRecord`: records from a custom training loop, with MindSpore's interface."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState, TrainLineage
from rec_summary.checks import (
    check_bool,
    check_directory,
    check_int,
    check_optional,
    check_that,
    check_type,
    valid_unicode,
)
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import DEFAULT_PREFIX, DEFAULT_SUFFIX, check_affixes
from rec_summary.records.writing.retention import Retention
from rec_summary.records.writing.run_writer import Durability, Rotation
from rec_summary.training import loaded, operators
from rec_summary.training.ending import ended_by, this_environment
from rec_summary.training.graphs import graph_record
from rec_summary.training.npy_export import check_export_options
from rec_summary.training.recorder import Recorder, RecorderOptions
from rec_summary.training.run_directory import came_second, other_writer, own_lineage
from rec_summary.training.summary_record.plugins import GRAPH, PendingValues, own_content

if TYPE_CHECKING:
    from mindspore.nn import Cell

logger = logging.getLogger("rec_summary.training")

_INT64: Final = range(-(2**63), 2**63)

PluginFilter = Callable[[str], bool]


class SummaryRecord:
    """Writes the values of a custom training loop, one record for each step.

    A drop-in for `mindspore.SummaryRecord`, with the same argument names. It also works without
    MindSpore, for the loops of other frameworks. Several may be open at once, also on one
    directory: each writes its own files. `add_value` only makes a copy. A thread of its own
    computes histograms, encodes images and writes files.

    Example:
        with SummaryRecord("records", network=network) as record:
            for step, batch in enumerate(batches, start=1):
                record.add_value("scalar", "loss", train_step(*batch))
                record.record(step)
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
        files = RecorderOptions(
            directory=check_directory("log_dir", log_dir),
            rotation=Rotation(max_file_size, retention=retention),
            durability=check_optional("durability", durability, Durability) or Durability(),
            export_npy=check_export_options(export_options),
            prefix=file_prefix,
            suffix=file_suffix,
        )
        files.create_directory("log_dir")
        self._network = network
        self._troubles = Troubles(keep_first=raise_exception)
        self._recorder = Recorder(files, self._troubles)
        rank = loaded.rank_and_size()[0]
        other = other_writer(files.directory, rank)
        if other is not None:
            logger.warning("SummaryRecord: %s", came_second(other, files.directory))
        self._recorder.open(rank)
        self._raise_failure()
        self._path = self._recorder.path or files.directory
        self._mailbox = operators.Mailbox(self._troubles)
        self._mode = "train"
        self._pending = PendingValues()
        self._swap = threading.RLock()  # a signal handler may record as well
        self._wants_graph = True
        self._closed = False
        self._pid = os.getpid()
        self._begun = time.time()
        self._handled = sys.exc_info()[1]  # an exception that is handled already
        self._step = -1  # the last one
        self._train: TrainLineage | None = None  # what the user has said of the training

    @property
    def log_dir(self) -> str:
        """The path of the first summary file, or the directory without one; MindSpore's name."""
        return self._path

    @property
    def troubles(self) -> dict[str, int]:
        """The number of failures of each kind; empty without failures."""
        return self._troubles.counts

    def __enter__(self) -> SummaryRecord:
        """Raises ValueError after `close`."""
        received = verbatim("a closed SummaryRecord")
        check_that(not self._closed, "the SummaryRecord", received, "an open one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        if self._shut(error) and kind is None:  # an error in the loop has precedence
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

    def record(
        self,
        step: int,
        train_network: Cell | None = None,
        plugin_filter: PluginFilter | None = None,
    ) -> bool:
        """Queues all values since the last call for the writer's thread, as one step.

        In mode `"train"`, these include the values of the network's summary operators.

        Args:
            step: The step of the values.
            train_network: A Cell. Its compiled graph is recorded once, if `network` has none.
            plugin_filter: Returns whether the values of a plugin are written, from the plugin's
                name; other values are dropped. None writes all.

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
        if self._refuses():
            return False
        if self._mode == "train":
            self._take_operators()
        else:
            operators.deliver()  # to other mailboxes; MindSpore's list must not grow
        wanted = plugin_filter or (lambda plugin: True)
        with self._swap:
            pending, self._pending = self._pending, PendingValues()
        networks = [net for net in (self._network, train_network) if net is not None]
        if networks and self._wants_graph and wanted(GRAPH):
            self._write_graph(networks)
        self._train = pending.write(self._recorder, step, wanted) or self._train
        self._step = max(self._step, step)
        self._raise_failure()
        return True

    def flush(self) -> bool:
        """Waits until the operating system has all records.

        Returns:
            Whether it has them; False where `record` accepts nothing.

        Raises:
            OSError, RuntimeError: A record could not be written, and `raise_exception` is set.
        """
        if self._refuses():
            return False
        done = self._recorder.flush()
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
        if self._shut(sys.exc_info()[1]):
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
        if self._step >= 0:
            with self._troubles.attempt("train lineage"):
                self._write_end(None if error is self._handled else error)
        self._recorder.close()
        return True

    def _write_end(self, error: BaseException | None) -> None:
        """Writes how the training has ended, unless another recorder says it."""
        state = this_environment()
        last = own_lineage(os.path.dirname(self._path), state.rank)
        if last is None:
            return
        train = TrainLineage()
        train.CopyFrom(self._train or last)
        if self._train is None:
            train.ClearField("run_state")  # of an earlier process
        status, reason = (RunState.FINISHED, "") if error is None else ended_by(error)
        state.MergeFrom(
            RunState(
                status=status,
                reason=valid_unicode(reason) or None,
                step=self._step,
                start_time=self._begun,
                troubles=self._troubles.counts,
            )
        )
        train.run_state.MergeFrom(state)
        event = LineageEvent(wall_time=time.time(), step=self._step, train_lineage=train)
        self._recorder.write_message(event)

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
