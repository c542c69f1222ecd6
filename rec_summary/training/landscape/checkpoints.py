"""Checkpoints for the loss landscape, at chosen steps or epochs.

Files and metadata are MindSpore's: `ckpt_dir/<Network>_<number>_<unit>.ckpt` and
`ckpt_dir/train_metadata.json`. The metadata is rewritten at each checkpoint, because an online run
has no end. A file gets its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mindspore
import numpy as np

from rec_summary.arrays import Array
from rec_summary.records.checkpoints import FOLDER, METADATA_NAME, REPLAY_NAME
from rec_summary.records.checkpoints.sparse import is_large, sparse_parameters
from rec_summary.records.failures import Troubles
from rec_summary.records.files import FILE_MODE, make_directory, write_atomically
from rec_summary.records.locks import LOCK_NAME, file_lock
from rec_summary.records.writing.background import Limits, TaskQueue
from rec_summary.records.writing.record import Task
from rec_summary.records.writing.run_writer import Durability
from rec_summary.training.landscape.options import LandscapeOptions
from rec_summary.training.landscape.replay import ReplayBuffer
from rec_summary.training.tensors import as_array

logger = logging.getLogger("rec_summary")

_LOCK_SECS: Final = 60.0
_WAITING: Final = 2  # snapshots; each is a copy of all parameters
_INT32_MAX: Final = 2**31 - 1
_HIDDEN_NAME: Final = ".saving.ckpt"


@dataclass(frozen=True)
class Snapshot:
    """The parameters of a network at one step or epoch.

    Attributes:
        number: The step or epoch.
        network: The name of the network's class.
        parameters: Copies of all parameters, by name.
        steps_per_epoch: 0 if unknown.
        rows: The input rows for replay, if they have changed; see `ReplayBuffer`.
    """

    number: int
    network: str
    parameters: Mapping[str, Array]
    steps_per_epoch: int
    rows: dict[str, Array] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The memory of the copies, in bytes."""
        arrays = (*self.parameters.values(), *self.rows.values())
        return sum(array.nbytes for array in arrays)


class LandscapeCheckpoints:
    """Saves the parameters of a run at chosen steps or epochs.

    The training thread copies the parameters; a thread of its own writes them. All ranks of a run
    have the same parameters, so use it on rank 0 only. A lock prevents another run from writing to
    the same directory at the same time. Files of another or an earlier run are replaced, and never
    treated as files of this run.
    """

    def __init__(
        self,
        summary_dir: str,
        options: LandscapeOptions,
        durability: Durability,
        troubles: Troubles,
    ) -> None:
        """Starts the writer's thread.

        Args:
            summary_dir: The record directory.
            options: The checkpoints to save.
            durability: What a step does when the disk is too slow, and the kind of lock.
            troubles: Receives every failure.
        """
        self.unit = options.unit
        self._wanted = {number for interval in options.intervals for number in interval}
        self._policy = options.policy
        self._last: int | None = None
        self._last_time = time.monotonic()
        self._troubles = troubles
        self._replay = ReplayBuffer(options.replay, options.num_samples) if options.replay else None
        self._files = _Files(os.path.join(summary_dir, FOLDER), options, durability.lock)
        limits = Limits(tasks=_WAITING, block_secs=durability.block_secs)
        self._queue = TaskQueue(troubles, limits)

    def take(self, network: Any, number: int, steps_per_epoch: int) -> None:
        """Copies the parameters of a network if a checkpoint is due.

        Args:
            network: The user's own network, a Cell.
            number: The step or epoch that has just ended.
            steps_per_epoch: 0 if unknown.
        """
        if not self._is_due(number):
            return
        self._wanted.discard(number)
        self._last, self._last_time = number, time.monotonic()
        parameters = {}
        for parameter in network.get_parameters():
            parameter.init_data()
            parameters[parameter.name] = np.array(as_array(parameter, parameter.name), copy=True)
        rows = {} if self._replay is None else self._replay.take_changes()
        name = type(network).__name__
        snapshot = Snapshot(number, name, parameters, steps_per_epoch, rows)
        write = functools.partial(self._files.write, snapshot)
        self._queue.put(Task("landscape checkpoint", write, snapshot.nbytes))

    def add_rows(self, element: Any) -> None:
        """Adds the input rows of a step; copies those that are kept for replay.

        Args:
            element: MindSpore's data of the step: a list of tensors, or None.
        """
        replay = self._replay
        if replay is None or not isinstance(element, list | tuple) or not replay.wants_more:
            return
        try:
            replay.add([as_array(column, "a column of the input") for column in element])
        except (TypeError, ValueError) as error:
            self._replay = None  # the rows on disk stay
            self._troubles.report("replay buffer", error)

    def _is_due(self, number: int) -> bool:
        if self._policy is None:
            return number in self._wanted
        seconds = time.monotonic() - self._last_time
        return self._policy.when.due(number, self._last, seconds)

    def close(self) -> None:
        """Writes all snapshots and ends the thread."""
        self._queue.close()


class _Files:
    """The directory of the checkpoints; only the writer's thread uses it."""

    def __init__(self, directory: str, options: LandscapeOptions, lock: str | None) -> None:
        self._directory = directory
        self._options = options
        self._lock = lock
        self._written: dict[int, str] = {}  # file names of this run, by number
        self._base: tuple[int, dict[str, Array]] | None = None  # number, large tables

    def write(self, snapshot: Snapshot) -> None:
        """Writes a checkpoint, then the metadata that names it.

        Raises:
            OSError: A file cannot be written; no partial file stays.
        """
        make_directory(self._directory)
        name = f"{snapshot.network}_{snapshot.number}_{self._options.unit}.ckpt"
        path = os.path.join(self._directory, LOCK_NAME)
        with file_lock(path, timeout=_LOCK_SECS, kind=self._lock):
            parameters = [
                {"name": key, "data": mindspore.Tensor(array)}
                for key, array in self._to_write(snapshot).items()
            ]
            save_atomically(parameters, self._directory, name, _HIDDEN_NAME)
            self._written[snapshot.number] = name
            size = os.path.getsize(os.path.join(self._directory, name))
            logger.info("checkpoint %s: %s bytes (%s in memory)", name, size, snapshot.nbytes)
            if snapshot.rows:
                replay = os.path.join(self._directory, REPLAY_NAME)
                with write_atomically(replay, FILE_MODE, sync=True) as file:
                    np.savez(file, **snapshot.rows)
            dropped = self._drop()
            metadata = os.path.join(self._directory, METADATA_NAME)
            with write_atomically(metadata, FILE_MODE, sync=True) as file:
                file.write(json.dumps(self._metadata(snapshot.steps_per_epoch), indent=1).encode())
            for old in dropped:  # only after the metadata no longer names them
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, old))

    def _to_write(self, snapshot: Snapshot) -> Mapping[str, Any]:
        """Returns the parameters of a checkpoint, or their difference from the first one."""
        if not self._options.sparse:
            return snapshot.parameters
        if self._base is None:
            tables = {name: array for name, array in snapshot.parameters.items() if is_large(array)}
            self._base = (snapshot.number, tables)
            return snapshot.parameters
        number, tables = self._base
        return sparse_parameters(snapshot.parameters, tables, number)

    def _drop(self) -> list[str]:
        """Removes the checkpoints that the policy does not keep; returns their files."""
        if self._options.policy is None:
            return []
        kept = self._options.policy.keep.kept(sorted(self._written))
        if self._base is not None and self._base[0] not in kept:
            # Sparse checkpoints need the first one, which takes the place of the oldest one.
            kept = {*sorted(kept)[1:], self._base[0]}
        gone = [number for number in self._written if number not in kept]
        return [self._written.pop(number) for number in gone]

    def _metadata(self, steps_per_epoch: int) -> dict[str, Any]:
        """Returns MindSpore's metadata of the checkpoints so far.

        MindSpore's reader does not accept unknown keys, and does not resolve paths, so they are
        absolute. All files are in the directory of the metadata, so a reader also finds them after
        the directory has been moved.
        """
        options, numbers = self._options, sorted(self._written)
        intervals = options.intervals if options.policy is None else (numbers,)
        groups = [[n for n in interval if n in self._written] for interval in intervals]
        return {
            "epoch_group": {str(i): group for i, group in enumerate(groups) if group},
            "model_params_file_map": {
                str(n): os.path.join(self._directory, self._written[n]) for n in numbers
            },
            "step_per_epoch": max(1, min(steps_per_epoch, _INT32_MAX)),
            "unit": options.unit,
            "num_samples": options.num_samples,
            "landscape_size": options.landscape_size,
            "create_landscape": options.create_landscape,
        }


def save_atomically(parameters: Any, directory: str, name: str, hidden: str) -> None:
    """Saves a checkpoint, which replaces `name` when it is complete and on the disk.

    Args:
        parameters: What MindSpore saves.
        directory: The directory of both names.
        name: The name of the file.
        hidden: Its name until then, with the ending `.ckpt`. The next checkpoint with the same
            hidden name overwrites what a killed process has left.

    Raises:
        OSError: The file cannot be written; the old one stays.
    """
    temporary = os.path.join(directory, hidden)
    try:
        mindspore.save_checkpoint(parameters, temporary)
        os.chmod(temporary, FILE_MODE)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, os.path.join(directory, name))
    except BaseException:
        prefix = os.path.splitext(hidden)[0]
        for entry in os.listdir(directory):  # MindSpore leaves a temporary file of its own
            if entry.startswith(prefix):
                os.unlink(os.path.join(directory, entry))
        raise
