"""Where a collector or a summary record writes, the record of one step, and the writer's thread."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rec_summary._pb.lineage_pb2 import LineageEvent, UserDefinedInfo
from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.records.files import make_directory
from rec_summary.records.format.limits import (
    LONGEST_METRICS,
    LONGEST_TAG,
    LONGEST_TEXT,
    MOST_ENTRIES,
)
from rec_summary.records.format.names import DEFAULT_PREFIX, DEFAULT_SUFFIX
from rec_summary.records.writing.background import (
    BLOCK_SECS,
    CLOSE_SECS,
    DEFAULT_FLUSH_SECS,
    BackgroundWriter,
    Limits,
)
from rec_summary.records.writing.record import MessageRecord, Record
from rec_summary.records.writing.run_writer import Durability, Rotation, RunWriter
from rec_summary.training.npy_export import NpyExporter
from rec_summary.training.process import provenance
from rec_summary.values.summary import TENSOR, SummaryValue, encode_event


@dataclass(frozen=True)
class RecorderOptions:
    """The record files of a collector or a summary record.

    Attributes:
        directory: The record directory that the user has named.
        rotation: The size of a full file, and what becomes of full files.
        durability: When files are synchronised, and what happens when the queue is full.
        export_npy: Whether tensors are also written as `.npy` files.
        flush_secs: The longest time between two flushes, in seconds.
        prefix: The beginning of the names of the files.
        suffix: The end of the names of summary files.
    """

    directory: str
    rotation: Rotation = field(default_factory=Rotation)
    durability: Durability = field(default_factory=Durability)
    export_npy: bool = False
    flush_secs: float = DEFAULT_FLUSH_SECS
    prefix: str = DEFAULT_PREFIX
    suffix: str = DEFAULT_SUFFIX

    def create_directory(self, name: str) -> None:
        """Creates the record directory that the argument `name` gives.

        Raises:
            OSError: It cannot be created, or a file has its name. The error keeps its number.
            ValueError: The records that it has leave no room in the budget.
        """
        try:
            make_directory(self.directory)
        except OSError as error:
            received = verbatim(f"{self.directory!r} ({error.strerror or error})")
            expected = "a directory that can be made and written to, not a file"
            raise OSError(error.errno or 0, three_part(name, received, expected)) from error
        if self.rotation.retention is not None:
            self.rotation.retention.check(self.directory)


def step_record(
    step: int,
    wall_time: float,
    values: Sequence[SummaryValue],
    troubles: Troubles,
    exporter: NpyExporter | None = None,
) -> Record:
    """Returns all values of one step, as one record. The writer's thread encodes them.

    Args:
        step: The step of the values, from 1 on.
        wall_time: The time of the snapshots, in seconds since the epoch.
        values: The snapshots.
        troubles: Receives each value that cannot be encoded or exported. The other values are
            kept.
        exporter: Also receives each tensor.
    """

    def encode() -> bytes:
        encoded = []
        for value in values:
            with troubles.attempt(f"value {value.tag[:100]}"):
                encoded.append(value.encode())
            if exporter is not None and value.kind == TENSOR:
                try:
                    exporter.export(value.tag, step, value.content)
                except Exception as error:  # noqa: BLE001  # the record is written without it
                    # One kind for all tags, or a full disk would be logged once for each tag.
                    text = f"tensor {value.tag}: {type(error).__name__}: {error}"
                    troubles.report("npy export", text)
        return encode_event(step, wall_time, encoded)

    return Record(encode, sum(value.nbytes for value in values))


def _fitted(info: UserDefinedInfo, names: set[str], prefix: str = "") -> Iterator[str]:
    """Removes or shortens what no reader takes; yields what was done.

    Args:
        info: The entries; those of dictionaries have dotted names.
        names: The names that are recorded already; those of the entries are added.
        prefix: What all names begin with.
    """
    for part in list(info.user_info):
        yield from _fitted(part, names, prefix)
        if not part.ByteSize():  # MindInsight shows no run then
            info.user_info.remove(part)
    for kind, entries in info.ListFields():  # `none` has names of other fields
        for key in () if kind.name in ("user_info", "none") else list(entries):
            name = prefix + key
            if kind.name == "map_dict":
                yield from _fitted(entries[key], names, name + ".")
                if not entries[key].ByteSize():
                    del entries[key]
            elif len(name) > LONGEST_TAG:
                yield f"{name[:40]}… is left out: names have at most {LONGEST_TAG:,} characters"
                del entries[key]
            elif name not in names and len(names) >= MOST_ENTRIES:
                yield f"{name} is left out: a run has at most {MOST_ENTRIES:,} entries"
                del entries[key]
            else:
                names.add(name)
                if kind.name == "map_str" and len(entries[key]) > LONGEST_TEXT:
                    yield f"the text of {name} is cut: it has {len(entries[key]):,} characters"
                    entries[key] = entries[key][:LONGEST_TEXT]


class Recorder:
    """Passes records to the writer's thread while it is open, and ignores them while it is not.

    A failure to create the files is reported once, and training continues without telemetry.
    Each later opening tries again.

    Attributes:
        directory: The record directory. A change has an effect at the next opening.
    """

    def __init__(
        self,
        options: RecorderOptions,
        troubles: Troubles,
        poll: Callable[[], object] | None = None,
    ) -> None:
        """Prepares a recorder. It creates no files yet.

        Args:
            options: The record files.
            troubles: Receives every failure.
            poll: Called by the writer's thread while the recorder is open, at most once a second.
        """
        self.directory = options.directory
        self._options = options
        self._troubles = troubles
        self._poll = poll
        self._files: RunWriter | None = None
        self._writer: BackgroundWriter | None = None
        self._exporter: NpyExporter | None = None
        # Of closed files.
        self._before = dict.fromkeys(("records", "bytes", "dropped", "errors", "queue_length"), 0)
        self._failed = False  # the last opening or closing
        self._custom: set[str] = set()  # the names of all custom data so far
        self._close_secs = CLOSE_SECS
        provenance.begin()

    @property
    def is_open(self) -> bool:
        """Whether `write` accepts records."""
        return self._writer is not None

    def open(self, rank: int) -> None:
        """Begins the next pair of files of a rank unless it is open, and reports a failure."""
        if self._writer is not None:
            return
        try:
            self._start(rank)
        except (OSError, RuntimeError) as error:  # RuntimeError: no room for another thread
            text = f"no record file can be created in {self.directory}: {error}"
            self._troubles.report("open", f"{text}; this training is not recorded")
            self._failed = True

    def _start(self, rank: int) -> None:
        options = self._options
        files = RunWriter(
            self.directory,
            rank,
            options.rotation,
            prefix=options.prefix,
            suffix=options.suffix,
            durability=options.durability,
            troubles=self._troubles,
        )
        try:
            self._writer = BackgroundWriter(
                files,
                self._troubles,
                Limits(block_secs=options.durability.block_secs),
                flush_secs=options.flush_secs,
                poll=self._poll,
            )
        except BaseException:
            files.close()
            for path in files.paths:
                os.unlink(path)
            raise
        self._files = files
        if options.export_npy:
            self._exporter = NpyExporter(self.directory)
        # A custom loop may never close its recorder; its last records must not be lost.
        atexit.register(self.close)

    @property
    def path(self) -> str | None:
        """The current summary file; None while it is closed."""
        return None if self._files is None else self._files.paths[0]

    def write(self, record: Record) -> None:
        """Queues a record for the writer's thread."""
        writer = self._writer  # another thread may close it
        if writer is not None:
            writer.write(record)

    def write_step(
        self, step: int, values: Sequence[SummaryValue], wall_time: float | None = None
    ) -> None:
        """Queues the snapshots of a step, taken now unless a time in seconds is given."""
        wall_time = time.time() if wall_time is None else wall_time
        self.write(step_record(step, wall_time, values, self._troubles, self._exporter))

    def write_message(self, message: Any) -> None:
        """Queues a protobuf message, without the custom data that no reader takes.

        A lineage of this process is completed: see `provenance`.
        """
        if isinstance(message, LineageEvent):
            with self._troubles.attempt("custom data"):  # a user's message may hold any text
                for problem in _fitted(message.user_defined_info, self._custom):
                    self._troubles.report("custom data", problem)
            if (size := len(message.evaluation_lineage.metric)) > LONGEST_METRICS:
                text = f"as JSON, they have {size:,} characters; only the beginning can be shown"
                self._troubles.report("evaluation metrics", text)
            if message.train_lineage.run_state.pid == os.getpid():
                provenance.complete(message.train_lineage.run_state)
        self.write(MessageRecord(message))

    def flush(self, timeout: float = CLOSE_SECS) -> bool:
        """Waits until the operating system has all records, for at most `timeout` seconds.

        Returns:
            Whether it has them. False also if no file could be created, or if the last records
            of closed files could not be written.
        """
        writer = self._writer
        return not self._failed if writer is None else writer.flush(timeout)

    def drain(self, timeout: float = CLOSE_SECS) -> None:
        """Waits as `flush`, so that a full queue has room for the last records.

        After a wait in vain, closing waits less.
        """
        self._close_secs = CLOSE_SECS if self.flush(timeout) else BLOCK_SECS

    def counters(self) -> dict[str, int]:
        """Returns counters since the first opening, by name.

        `records` were written, `bytes` went to the operating system, `dropped` records and tasks
        found a full queue, `errors` are all failures. `queue_length` is the longest queue since the
        last call.
        """
        counts, files, writer = dict(self._before), self._files, self._writer
        counts["errors"] = sum(self._troubles.failures.values())
        if files is not None and writer is not None:
            counts["records"] += writer.records
            counts["bytes"] += files.bytes_written
            counts["dropped"] += writer.dropped.total()
            counts["queue_length"] = writer.take_longest()
        return counts

    def close(self) -> None:
        """Writes the queued records and closes the files. You may call it at any time."""
        writer = self._writer
        if writer is not None:
            writer.close(self._close_secs)
            self._failed = not writer.flush(0)
            self._before = self.counters()
            self._writer = self._files = None
            self._close_secs = CLOSE_SECS
            atexit.unregister(self.close)
