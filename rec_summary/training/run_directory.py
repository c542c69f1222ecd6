"""The directory of a training: that of the training which it continues, or one of its own.

Each rank of a training chooses by itself, and all come to the same directory. For that, a hidden
file of the directory has the settings of each rank that has recorded there, and a lock lets one
process choose at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Meta, Struct

from rec_summary._pb.lineage_pb2 import LineageEvent, RunState, TrainLineage
from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.errors import RecordError
from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.files import FILE_MODE, make_directory, read_plain, write_atomically
from rec_summary.records.format.names import Kind, this_host
from rec_summary.records.liveness import open_record_files, writer_is_alive
from rec_summary.records.locks import file_lock
from rec_summary.records.reading import runs
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.repair import find_record, sound_records
from rec_summary.records.reading.totals import Totals
from rec_summary.records.writing.segment import is_open_here

logger = logging.getLogger("rec_summary.training")

SETTINGS_NAME: Final = ".rec_summary.settings"
LOCK_NAME: Final = ".rec_summary.settings.lock"

SIBLING: Final = "sibling"
SAME: Final = "same"
NEW: Final = "new"
WAYS: Final = (SIBLING, SAME, NEW)

_LOCK_SECS: Final = 10.0
_JOIN_SECS: Final = 600.0  # between the starts of two ranks of one training
_MOST_BYTES: Final = 1 << 26  # some 20,000 ranks
_TAILS: Final = (1 << 18, 1 << 22, 1 << 26)  # bytes at the end of a record file

_NETWORK: Final = ("network", "parameters")  # the settings that say what is trained
_LONGEST_SHOWN: Final = 40

Settings = Mapping[str, str]
Differences = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Choice:
    """The directory of a training.

    Attributes:
        path: The directory.
        differences: The settings that differ from those of the training in the directory that
            was named: the earlier and the new value by name.
        resumes: Whether the state of metrics in `path` is that of this training.
        other: Another process that records as the same rank in `path` at this moment, in words;
            None if there is none.
        continues: Whether `path` has records of this rank of the training, and no other process
            records there.
    """

    path: str
    differences: Differences = field(default_factory=dict)
    resumes: bool = True
    other: str | None = None
    continues: bool = False


_Int32 = Annotated[int, Meta(ge=0, lt=1 << 31)]


class Participant(Struct):
    """A rank of a training, as it is stored in the directory.

    Attributes:
        settings: The settings of its training.
        rank_size: The number of ranks.
        host: Its host.
        pid: Its process.
        time: When it began, in seconds since the epoch.
    """

    settings: dict[str, str]
    rank_size: _Int32
    host: str = msgspec.field(default_factory=this_host)
    pid: _Int32 = msgspec.field(default_factory=os.getpid)
    time: float = msgspec.field(default_factory=time.time)


@contextlib.contextmanager
def chosen_directory(
    named: str, way: str, rank: int, who: Participant, lock: str | None
) -> Iterator[Choice]:
    """Chooses the directory of a training; no other process chooses meanwhile.

    Open the record files in the context: a rank that chooses next sees that this one is alive.
    Where a directory cannot be made, the choice is `named`.

    Args:
        named: The directory that the user has named; it exists.
        way: `SIBLING` for `named` if it holds no other training, else the next sibling; `SAME` for
            `named` in any case; `NEW` for a directory below `named`.
        rank: The rank that begins to train.
        who: Its training.
        lock: The kind of lock (see `records.locks`).
    """
    with contextlib.ExitStack() as stack:
        # Without locks, two processes that start at the same time may choose differently.
        with contextlib.suppress(OSError):
            path = os.path.join(named, LOCK_NAME)
            stack.enter_context(file_lock(path, timeout=_LOCK_SECS, kind=lock))
        with contextlib.suppress(OSError):
            if all(name.startswith(".") for name in os.listdir(named)):  # as `rm DIR/*` leaves it
                os.unlink(os.path.join(named, SETTINGS_NAME))
        differences = {} if way == NEW else _differences(named, rank, who)
        path = named
        with contextlib.suppress(OSError):
            if way == NEW:
                path = _below(named, rank, who)
            elif differences and way == SIBLING:
                path = _sibling(named, rank, who)
        other = other_writer(path, rank)
        continues = other is None and _has_recorded(path, rank)
        if other is None:  # otherwise its settings stay
            _store(path, rank, who)
        resumes = path != named or not differences.keys() & _NETWORK
        yield Choice(path, differences, resumes, other, continues)


def evaluation_directory(named: str, network: Settings) -> str:
    """Returns the directory of the last training of a network; one line says what is unusual.

    Args:
        named: The directory that the user has named.
        network: The settings of the network.

    Returns:
        `named`, a sibling of it, or a directory below it; `named` if there is no such training.
    """
    matching, other_trainings = [], 0
    for path in _trainings(named):
        for training in _stored(path).values():
            if network and network.items() <= training.settings.items():
                matching.append((training.time, path))
            else:
                other_trainings += 1
    path = max(matching)[1] if matching else named
    if path != named:
        text = "SummaryCollector: this network was trained in %s: the evaluation is recorded there"
        logger.warning(text, path)
    elif other_trainings and not matching:
        text = "SummaryCollector: no training of this network is recorded in %s, or beside it; "
        logger.warning(text + "the evaluation is recorded there", named)
    return path


def _trainings(named: str) -> Iterator[str]:
    """Yields the directories in which trainings record if this directory is named."""
    yield named
    for number in itertools.count(2):
        if not os.path.isdir(f"{named}-{number}"):
            break
        yield f"{named}-{number}"
    with contextlib.suppress(OSError):
        yield from runs.directories_below(runs.list_directory(named))


def last_step(directory: str, rank: int) -> int:
    """Returns the last step that a rank has recorded in a directory; 0 if there is none.

    It is that of its last scalar or histogram, or without these that of the last train lineage. An
    evaluation by another process may be behind the training that it was of, which goes on.
    """
    evaluated = 0
    files = (file for file in runs.list_files(directory) if file.name.kind is Kind.SUMMARY)
    for file in reversed([file for file in files if file.name.rank == rank]):
        with contextlib.suppress(OSError):
            trained, step = _last_steps_of(file)
            evaluated = max(evaluated, step)
            if trained:
                return max(trained, evaluated)
    return evaluated or int(_last_train_lineage(directory).run_state.step)


def totals_before(directory: str, rank: int) -> Totals:
    """Returns the examples that a rank had seen by step, as the end of its last lineage states."""
    totals = Totals()
    files = (file for file in runs.list_files(directory) if file.name.kind is Kind.LINEAGE)
    for file in reversed([file for file in files if file.name.rank == rank]):
        for payload in _end_of(file, _TAILS[0]):
            with contextlib.suppress(DecodeError, UnicodeDecodeError):
                event = LineageEvent.FromString(payload)
                if event.train_lineage.run_state.samples:
                    totals.take(event.train_lineage)
        if totals.known:
            break
    return totals


def _end_of(file: runs.RecordFile, nbytes: int) -> list[bytes]:
    """Returns the sound records among the last bytes of a file, which may be large and torn."""
    start = max(file.nbytes - nbytes, 0)
    offset = find_record(file.path, start) if start else 0
    if offset is None:
        return []
    with RecordReader(file.path, offset) as reader:
        return [payload for _, payload in sound_records(reader)]


def _last_steps_of(file: runs.RecordFile) -> tuple[int, int]:
    """Returns the last step of a file, and of evaluations behind it.

    The steps are those of scalars and histograms; 0 if there are none.
    """
    evaluated = 0
    for nbytes in _TAILS:
        for payload in reversed(_end_of(file, nbytes)):
            # Beside MindSpore 2.7, a tag that is not UTF-8 is a UnicodeDecodeError, else a `bytes`.
            with contextlib.suppress(DecodeError, UnicodeDecodeError):
                event = Event.FromString(payload)
                tags = [value.tag for value in event.summary.value if _is_of_step(value)]
                # An evaluation at step 0 is by a process that did not know the step.
                if event.step and tags:
                    if not all(str(tag).startswith(EVALUATION) for tag in tags):
                        return int(event.step), evaluated
                    evaluated = max(evaluated, int(event.step))
        if nbytes >= file.nbytes:
            break
    return 0, evaluated


def _is_of_step(value: Summary.Value) -> bool:
    return value.WhichOneof("value") in ("scalar_value", "histogram")


def announce_superseded(directory: str, step: int, before: int) -> None:
    """Logs which records a training supersedes, and how it would go on after them.

    Args:
        directory: The directory of the training.
        step: The first step of the training.
        before: The last step that was recorded there before it.
    """
    logger.warning(
        f"SummaryCollector: this training begins at step {step}, and {directory} has records up to "
        f"step {before}: those from step {step} on are superseded. If the training continues from "
        "a checkpoint of a later step N, use online_train(..., initial_step=N), or train(..., "
        "initial_epoch=...); to keep these records, use SummaryCollector(..., run_directory='new')"
    )


def other_writer(directory: str, rank: int) -> str | None:
    """Returns who records as this rank in a directory at this moment, or None."""
    paths = open_record_files(directory, rank)
    if not paths:
        return None
    if any(is_open_here(path) for path in paths):
        return f"another recorder of this process (pid {os.getpid()}, host {this_host()})"
    participant = _stored(directory).get(rank)
    if participant is not None and participant.host:
        return f"the process {participant.pid} on the host {participant.host}"
    return f"the process that writes {os.path.basename(paths[-1])}"


def own_lineage(directory: str, rank: int) -> TrainLineage | None:
    """Returns the last train lineage of a rank for a recorder that is about to close.

    Returns:
        None if another recorder says how the training ends: one that is open as well, or a
        `SummaryCollector`, which has stored its settings.
    """
    if _stored(directory) or len(open_record_files(directory, rank)) > 1:
        return None
    return _last_train_lineage(directory, rank)


def announce(named: str, choice: Choice, rank: int) -> None:
    """Logs where a training records, and what is unusual about it.

    Args:
        named: The directory that the user has named.
        choice: The directory of the training.
        rank: The rank of this process; the others repeat only that they came second.
    """
    path = choice.path
    if choice.other is not None:
        text = "SummaryCollector: %s; the state of recommender metrics stays that of the first"
        logger.warning(text, came_second(choice.other, path))
    if rank:
        return
    changes = ", ".join(
        f"{name} {_shortened(before)} -> {_shortened(now)}"
        for name, (before, now) in choice.differences.items()
    )
    if changes and path != named:
        logger.warning(
            f"SummaryCollector: {named} holds the records of another training ({changes}): this "
            f"training is recorded in {path}. If it continues the other one, use "
            "SummaryCollector(..., run_directory='same')"
        )
    elif changes:
        state = "goes on, as you said that it is a restart" if choice.resumes else "begins again"
        logger.warning(
            f"SummaryCollector: this training continues the one in {path} with other settings "
            f"({changes}); the state of recommender metrics {state}"
        )
    text = f"SummaryCollector: records are in {path}; "
    if choice.continues and not (changes and path == named):
        text = f"SummaryCollector: this training continues its records in {path} "
        text += "(to begin others: run_directory='new'); "
    inform(f"{text}to see them: rec-summary view {shlex.quote(path)}")


def inform(text: str) -> None:
    """Logs a line that a user sees also where logging is not set up."""
    if logger.hasHandlers():
        logger.info(text)
        return
    # Python's default shows warnings only. The stream may be missing, closed, or on a full disk.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text + "\n")


def came_second(other: str, directory: str) -> str:
    """Returns the warning for a recorder that finds another one in its directory."""
    return (
        f"{other} records in {directory} at this moment. Use a directory for each: readers show "
        "two runs here, or a restart if both record for at most a second (five seconds from two "
        "hosts) at the same time"
    )


def _shortened(text: str) -> str:
    # The earlier value comes from a file that anybody may have written.
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _differences(directory: str, rank: int, who: Participant) -> Differences:
    """Returns the settings that differ from those of the training in a directory.

    A rank is compared with itself, since ranks may differ from each other, for example in their
    data. A rank that has not recorded there is compared with rank 0, or joins it.
    """
    stored = _stored(directory)
    participant = stored.get(rank)
    if participant is None and rank:
        participant = stored.get(0)
        if participant is not None and _is_joinable(directory, 0, participant, who):
            return {}
    before = {} if stored else _recorded(directory)
    if participant is not None:
        before = participant.settings
    return {
        name: (before[name], value)
        for name, value in who.settings.items()
        if name in before and before[name] != value
    }


def _sibling(named: str, rank: int, who: Participant) -> str:
    """Returns the first sibling with the same settings, or the first that does not exist."""
    for number in range(2, 1 << 31):
        path = f"{named}-{number}"
        if not os.path.isdir(path):
            if not os.path.lexists(path):
                break
        elif _stored(path) and not _differences(path, rank, who):
            return path
    try:
        make_directory(path)
    except OSError:  # the user may write to the named directory only
        return _below(named, rank, who)
    return path


def _below(named: str, rank: int, who: Participant) -> str:
    """Returns a directory below: one that another rank of this training has made, or the next."""
    if who.rank_size > 1:
        for path in reversed(runs.directories_below(runs.list_directory(named))):
            stored = _stored(path)
            if rank not in stored and any(
                _is_joinable(path, other, participant, who) for other, participant in stored.items()
            ):
                return path
    first = os.path.join(named, time.strftime("%Y-%m-%d_%H-%M-%S"))
    paths = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    path = next(path for path in paths if not os.path.lexists(path))
    make_directory(path)
    return path


def _is_joinable(directory: str, rank: int, other: Participant, who: Participant) -> bool:
    """Whether a rank that has recorded in a directory trains together with `who`."""
    if other.rank_size != who.rank_size or who.rank_size == 1:
        return False
    alive = writer_is_alive(directory, RunState(rank=rank, host=other.host, pid=other.pid))
    if alive is None:  # on another host
        return time.time() - other.time < _JOIN_SECS
    return alive


def _stored(directory: str) -> dict[int, Participant]:
    """Returns what each rank has stored in a directory; nothing if it cannot be read."""
    try:
        content = read_plain(os.path.join(directory, SETTINGS_NAME), _MOST_BYTES)
        return msgspec.json.decode(content, type=dict[_Int32, Participant])
    except (OSError, ValueError, msgspec.DecodeError, RecursionError):
        return {}


def _store(directory: str, rank: int, who: Participant) -> None:
    """Stores the settings of a rank. Where that fails, the next training compares lineage."""
    content = msgspec.json.encode({**_stored(directory), rank: who})
    with (
        contextlib.suppress(OSError),
        write_atomically(os.path.join(directory, SETTINGS_NAME), FILE_MODE) as file,
    ):
        file.write(msgspec.json.format(content, indent=1))


def _has_recorded(directory: str, rank: int) -> bool:
    """Whether a directory has records of a rank that trained; hidden files outlive them."""
    stored = _stored(directory)
    if not (rank in stored if stored else _recorded(directory)):
        return False
    with contextlib.suppress(OSError):
        return any(file.name.rank == rank for file in runs.list_files(directory))
    return False


def _recorded(directory: str) -> dict[str, str]:
    """Returns the settings in the last train lineage: of MindSpore, or of an earlier version."""
    last = _last_train_lineage(directory)
    values = {
        "network": last.algorithm.network,
        "optimizer": last.hyper_parameters.optimizer,
        "loss_function": last.hyper_parameters.loss_function,
        "train_dataset_path": last.train_dataset.train_dataset_path,
    }
    return {name: value for name, value in values.items() if value}


def _last_train_lineage(directory: str, rank: int | None = None) -> TrainLineage:
    """Returns the last train lineage in a directory, of a rank or of all, as far as it is read."""
    last = TrainLineage()
    with contextlib.suppress(OSError):
        for file in runs.list_files(directory):
            if file.name.kind is not Kind.LINEAGE or rank not in (None, file.name.rank):
                continue
            damage = contextlib.suppress(OSError, RecordError, DecodeError)
            with damage, RecordReader(file.path) as reader:
                for record in reader:
                    event = LineageEvent.FromString(record.payload)
                    if event.HasField("train_lineage"):
                        last = event.train_lineage
    return last
