"""Records from a training loop of the user's own, with MindSpore's interface."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from mindspore.nn import Cell

from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import DEFAULT_PREFIX, DEFAULT_SUFFIX, check_affixes
from rec_summary.records.writing.background import DEFAULT_FLUSH_SECS
from rec_summary.records.writing.run_writer import Durability, RunWriter
from rec_summary.training.checks import (
    check_directory,
    check_positive_int,
    check_type,
    made_directory,
)
from rec_summary.training.collector import operators
from rec_summary.training.collector.graphs import graph_record
from rec_summary.training.collector.options import (
    check_durability,
    check_export_options,
    check_retention,
)
from rec_summary.training.collector.recorder import background
from rec_summary.training.lineage.environment import this_environment
from rec_summary.training.summary_record.npy_export import NpyExporter
from rec_summary.training.summary_record.plugins import GRAPH, Item, Pool, make_item

_INT64: Final = range(-(2**63), 2**63)

PluginFilter = Callable[[str], bool]


class SummaryRecord:
    """Takes values that a training loop hands it, and writes a record for each step.

    A drop-in for `mindspore.SummaryRecord`, with the same argument names. Several may be
    open at once, also on one directory: each writes files of its own. `add_value` makes a
    copy; histograms, images and files are the business of a thread of its own.

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
    ) -> None:
        """Makes the directory and the files, and starts the writer's thread.

        Args:
            log_dir: The record directory; made (mode 0700) if it does not exist.
            file_prefix: What the names of the files begin with.
            file_suffix: What the name of the summary file ends with.
            num_process: Accepted for MindSpore's sake; one thread does the work here.
            network: Its compiled graph is recorded once, as soon as there is one.
            max_file_size: The size in bytes at which the next summary file is begun; None
                for never. Nothing is dropped.
            raise_exception: Whether a failure to write is raised, by the next `record`,
                `flush` or `close`. Otherwise it is logged once, and counted in `troubles`.
            export_options: `{"tensor_format": "npy"}` also writes tensors as `.npy` files.
            durability: What is forced to the disk when, and what happens when the disk
                cannot keep up; None for the defaults of `Durability`.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument has a value that is not allowed.
            OSError: The directory or the files cannot be made.
        """
        directory = check_directory("log_dir", log_dir)
        check_affixes(file_prefix, file_suffix)
        check_positive_int("num_process", num_process)
        check_type("network", network, (Cell, type(None)), "a Cell or None")
        check_type("raise_exception", raise_exception, bool, "a bool")
        retention = check_retention(max_file_size, None, None)
        exports = check_export_options(export_options)
        durability = check_durability(durability)
        made_directory("log_dir", directory)
        self._network = network
        self._failures = _Failures() if raise_exception else None
        self._troubles = self._failures or Troubles()
        self._exporter = NpyExporter(directory) if exports else None
        files = RunWriter(
            directory,
            this_environment().rank,
            retention,
            prefix=file_prefix,
            suffix=file_suffix,
            durability=durability,
            troubles=self._troubles,
        )
        self._path = files.paths[0]
        self._writer = background(files, self._troubles, durability, DEFAULT_FLUSH_SECS)
        self._mailbox = operators.Mailbox(self._troubles)
        self._mode = "train"
        self._pool = Pool()
        self._wants_graph = True
        self._closed = False
        atexit.register(self._shut)  # a script without `close` must not lose the last second

    @property
    def log_dir(self) -> str:
        """The path of the summary file (MindSpore's name for it), the first if there are more."""
        return self._path

    @property
    def troubles(self) -> dict[str, int]:
        """How often each kind of failure has happened; empty if all is well."""
        return self._troubles.counts

    def __enter__(self) -> SummaryRecord:
        """Raises ValueError if it has been closed."""
        if self._closed:
            received = verbatim("one that has been closed")
            raise ValueError(three_part("the SummaryRecord", received, "an open one"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._shut() and kind is None:  # an error in the loop matters more than ours
            self._raise_failure()

    def set_mode(self, mode: str) -> None:
        """Says what the network is running for.

        Args:
            mode: `"train"` or `"eval"`. What summary operators put out during evaluation is
                never recorded.

        Raises:
            ValueError: It is neither.
        """
        if mode not in ("train", "eval"):
            raise ValueError(three_part("mode", mode, "'train' or 'eval'"))
        self._mode = mode
        if mode == "eval":
            self._mailbox.pause()
        else:
            self._mailbox.resume()

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value for the next `record`. Of several with one name, the newest stays.

        Args:
            plugin: What `value` is to be shown as, and so what it has to be:
                scalar: one number. tensor, histogram: numbers of any shape. image: numbers
                of shape [N, C, H, W] or [N, H, W, C] with C of 1 or 3. All four take a
                MindSpore Tensor, a numpy array, a Python or numpy number, or a list of such.
                train_lineage, eval_lineage, dataset_graph, custom_lineage_data: a
                TrainLineage, EvaluationLineage, DatasetGraph, UserDefinedInfo; landscape: a
                LossLandscape: protobuf messages of MindSpore or of rec_summary.
                graph: a ModelProto, or its bytes.
            name: The tag of a scalar, tensor, histogram, image or landscape.
            value: The value. It is copied, and may be changed afterwards.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument has a value that is not allowed.
        """
        item = make_item(plugin, name, value)
        if not self._is_closed():
            self._pool.put(item)

    def record(
        self,
        step: int,
        train_network: Cell | None = None,
        plugin_filter: PluginFilter | None = None,
    ) -> bool:
        """Hands everything since the last call to the writer's thread, as one step.

        In mode `"train"`, that includes what the network's summary operators have put out.

        Args:
            step: The step that the values belong to.
            train_network: Its compiled graph is recorded if `network` has none; once.
            plugin_filter: Says for the name of a plugin whether its values are to be
                written; the others are dropped. None writes all.

        Returns:
            Whether the values were taken: False after `close`.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: The step does not fit into 64 bits.
            OSError, RuntimeError: An earlier value could not be written, and
                `raise_exception` is set. The values of this call are taken all the same.
        """
        check_type("step", step, (int, np.integer), "an int")
        step = int(step)
        if step not in _INT64:
            raise ValueError(three_part("step", step, "an int of 64 bits"))
        check_type("train_network", train_network, (Cell, type(None)), "a Cell or None")
        if plugin_filter is not None and not callable(plugin_filter):
            expected = "a function of a plugin's name, or None"
            raise TypeError(three_part("plugin_filter", plugin_filter, expected))
        if self._is_closed():
            return False
        if self._mode == "train":
            self._take_operators()
        else:
            operators.deliver()  # to others; MindSpore's list must not grow
        wanted = plugin_filter or (lambda plugin: True)
        pool, self._pool = self._pool, Pool()
        networks = [net for net in (self._network, train_network) if net is not None]
        if networks and self._wants_graph and wanted(GRAPH):
            self._write_graph(networks)
        for record in pool.records(step, time.time(), wanted, self._troubles, self._exporter):
            self._writer.write(record)
        self._raise_failure()
        return True

    def flush(self) -> bool:
        """Waits until all that was recorded is with the operating system.

        Returns:
            Whether it is; False after `close`.

        Raises:
            OSError, RuntimeError: Something could not be written, and `raise_exception` is
                set.
        """
        if self._is_closed():
            return False
        done = self._writer.flush()
        self._raise_failure()
        return done

    def close(self) -> None:
        """Writes what was recorded and closes the files; closing twice is allowed.

        Raises:
            OSError, RuntimeError: Something could not be written, and `raise_exception` is
                set. The files are closed all the same.
        """
        if self._shut():
            self._raise_failure()

    def _take_operators(self) -> None:
        for (kind, tag), value in self._mailbox.take().items():
            try:
                self._pool.put(Item(kind, tag, operators.snapshot(kind, tag, value)))
            except Exception as error:  # noqa: BLE001  # one bad value must not cost the others
                self._troubles.report(f"{kind} operator {tag}", error)

    def _write_graph(self, networks: Sequence[Cell]) -> None:
        try:
            graphs = [graph for net in networks if (graph := graph_record(net)) is not None]
        except Exception as error:  # noqa: BLE001  # MindSpore's compiler, not the user's mistake
            self._troubles.report("graph", error)
            self._wants_graph = False
            return
        if graphs:
            self._writer.write(graphs[0])
            self._wants_graph = False

    def _is_closed(self) -> bool:
        if self._closed:
            self._troubles.report("record after close", "the SummaryRecord is closed already")
        return self._closed

    def _shut(self) -> bool:
        """Closes everything; says whether it had been open."""
        if self._closed:
            return False
        self._closed = True
        atexit.unregister(self._shut)
        self._mailbox.close()
        self._writer.close()
        return True

    def _raise_failure(self) -> None:
        failure = self._failures.take() if self._failures is not None else None
        if isinstance(failure, (OSError, RuntimeError)):
            raise failure
        if failure is not None:
            raise RuntimeError(f"{type(failure).__name__}: {failure}") from failure


class _Failures(Troubles):
    """Also keeps the first failure since somebody asked."""

    def __init__(self) -> None:
        super().__init__()
        self._first: BaseException | None = None

    def report(self, kind: str, error: BaseException | str) -> None:
        super().report(kind, error)
        if self._first is None:
            self._first = RuntimeError(f"{kind}: {error}") if isinstance(error, str) else error

    def take(self) -> BaseException | None:
        """Returns that failure, and forgets it."""
        first, self._first = self._first, None
        return first
