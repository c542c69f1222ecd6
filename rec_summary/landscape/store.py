"""The computed losses of a landscape on disk, so that a killed computation continues.

<folder>/plan.json                 the computation; if it differs, everything is computed again
<folder>/plane/<part>_<n>.npy      origin and directions, a file for each parameter
<folder>/plane/checksums.json      the CRC-32 of each file of the plane
<folder>/losses.npz                the losses, and which of them are known
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import filelock
import numpy as np
import numpy.typing as npt

from rec_summary.errors import RecSummaryError, three_part, verbatim
from rec_summary.landscape.npz import read_npz
from rec_summary.landscape.plane import Plane, Vector
from rec_summary.records.files import (
    create_plain,
    make_directory,
    open_plain,
    read_plain,
    refuse_link,
    sync_directory,
    write_atomically,
)
from rec_summary.records.locks import file_lock

_LOSSES: Final = "losses.npz"
_PLAN: Final = "plan.json"
_PLANE: Final = "plane"
_NAMES: Final = "names.json"
_CHECKSUMS: Final = "checksums.json"
_LOCK: Final = ".rec_summary.lock"
_HOLDER: Final = "holder.json"
_SAVE_SECS: Final = 1.0
_FILE_MODE: Final = 0o600
_HEADERS: Final = 4096
_AT_ONCE: Final = 1 << 20  # bytes
_MOST_NAMES: Final = 1 << 28
_MOST_OF_HOLDER: Final = 1000
_PARTS: Final = ("origin", "first", "second")


class BusyError(RecSummaryError):
    """Another process computes the same landscape."""


class Store:
    """The points of one landscape: those of the grid, then those of the path.

    Attributes:
        folder: The directory of the store.
        points: The coordinates of all points, shape (points, 2).
        losses: The losses of all points, NaN if they are unknown, shape (points,).
        known: Which losses are known, shape (points,).
    """

    def __init__(self, folder: str, plane: Plane, plan: dict[str, Any]) -> None:
        """Opens or creates a store; call it while you hold the lock.

        Args:
            folder: The directory of the store.
            plane: The plane.
            plan: A description that identifies the computation, to be written as JSON.

        Raises:
            OSError: The store cannot be written.
        """
        self.folder = folder
        grid = np.stack(np.meshgrid(plane.x, plane.y), axis=-1).reshape(-1, 2)
        ends = plane.path if len(plane.path) else np.zeros((1, 2))
        self.points = np.concatenate([grid, ends])
        self._saved = 0.0
        self._shape = (len(plane.y), len(plane.x))
        text = json.dumps(plan, sort_keys=True)
        if not self._resume(text):
            self.losses = np.full(len(self.points), np.nan)
            self.known = np.zeros(len(self.points), dtype=bool)
            self._write_plane(plane)
            self.save()
            _replace(os.path.join(folder, _PLAN), text.encode())

    @property
    def missing(self) -> npt.NDArray[np.intp]:
        """The indices of the points with unknown losses."""
        return np.flatnonzero(~self.known)

    @property
    def grid(self) -> npt.NDArray[np.float64]:
        """The losses on the grid, shape (rows, columns)."""
        count = self._shape[0] * self._shape[1]
        return self.losses[:count].reshape(self._shape)

    @property
    def path(self) -> npt.NDArray[np.float64]:
        """The losses on the path, or the loss of the origin if there is no path."""
        return self.losses[self._shape[0] * self._shape[1] :]

    def put(self, indices: Sequence[int], losses: Sequence[float]) -> None:
        """Adds losses, and saves all about once a second.

        Raises:
            OSError: They cannot be saved.
        """
        self.losses[list(indices)] = losses
        self.known[list(indices)] = True
        if time.monotonic() - self._saved > _SAVE_SECS:
            self.save()

    def save(self) -> None:
        """Saves all losses atomically.

        Raises:
            OSError: They cannot be saved.
        """
        with write_atomically(os.path.join(self.folder, _LOSSES), _FILE_MODE) as file:
            np.savez(file, losses=self.losses, known=self.known)
        self._saved = time.monotonic()

    def _resume(self, text: str) -> bool:
        try:
            plan = os.path.join(self.folder, _PLAN)
            if read_plain(plan, len(text.encode())) != text.encode():
                return False
            # Nine bytes for each point, and two headers.
            most = 16 * len(self.points) + _HEADERS
            found = read_npz(os.path.join(self.folder, _LOSSES), most)
            self.losses, self.known = found["losses"], found["known"]
            if not self._plane_is_intact():
                return False
        except (OSError, ValueError, KeyError):
            return False
        return (
            self.losses.shape == self.known.shape == (len(self.points),)
            and self.losses.dtype == np.dtype(np.float64)
            and self.known.dtype == np.dtype(np.bool_)
        )

    def _plane_is_intact(self) -> bool:
        """Whether the files of the plane are those that were written."""
        folder = os.path.join(self.folder, _PLANE)
        refuse_link(folder)
        stored = json.loads(read_plain(os.path.join(folder, _CHECKSUMS), _MOST_NAMES))
        names = [name for name in os.listdir(folder) if name != _CHECKSUMS]
        return bool(stored == {name: _checksum(os.path.join(folder, name)) for name in names})

    def _write_plane(self, plane: Plane) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, _PLAN))  # the plan of the old plane is invalid
        folder = os.path.join(self.folder, _PLANE)
        refuse_link(folder)  # the target of a link would be emptied
        make_directory(folder)
        for left in os.listdir(folder):
            os.unlink(os.path.join(folder, left))
        names = list(plane.origin)
        vectors: list[Vector] = [getattr(plane, part) for part in _PARTS]
        for part, vector in zip(_PARTS, vectors, strict=True):
            for index, name in enumerate(names):
                if name in vector:
                    with _written(_part_path(folder, part, index)) as file:
                        np.save(file, vector[name], allow_pickle=False)
        with _written(os.path.join(folder, _NAMES)) as file:
            file.write(json.dumps(names).encode())
        checksums = {name: _checksum(os.path.join(folder, name)) for name in os.listdir(folder)}
        with _written(os.path.join(folder, _CHECKSUMS)) as file:
            file.write(json.dumps(checksums).encode())
        sync_directory(folder)


def read_plane(folder: str) -> tuple[Vector, Vector, Vector]:
    """Returns origin and directions of a store, memory-mapped so that processes share them.

    Raises:
        OSError: They cannot be read.
    """
    folder = os.path.join(folder, _PLANE)
    refuse_link(folder)
    names = json.loads(read_plain(os.path.join(folder, _NAMES), _MOST_NAMES))

    def arrays(part: str) -> Vector:
        found = {}
        for index, name in enumerate(names):
            path = _part_path(folder, part, index)
            if os.path.lexists(path):
                os.close(open_plain(path))  # no link, no pipe
                found[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        return found

    origin, first, second = (arrays(part) for part in _PARTS)
    return origin, first, second


def _part_path(folder: str, part: str, index: int) -> str:
    return os.path.join(folder, f"{part}_{index}.npy")


@contextlib.contextmanager
def _written(path: str) -> Iterator[IO[bytes]]:
    """Creates a file whose content is on the disk when the block ends."""
    with create_plain(path, _FILE_MODE) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _checksum(path: str) -> int:
    """Returns the CRC-32 of a file."""
    found = 0
    with os.fdopen(open_plain(path), "rb") as file:
        while data := file.read(_AT_ONCE):
            found = zlib.crc32(data, found)
    return found


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Creates a directory and holds its lock.

    Raises:
        BusyError: Another process holds the lock; the message names the process.
        OSError: The directory cannot be created.
    """
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    refuse_link(os.path.dirname(folder))
    refuse_link(folder)
    make_directory(folder)
    holder = os.path.join(folder, _HOLDER)
    lock = file_lock(os.path.join(folder, _LOCK), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        try:
            who = read_plain(holder, _MOST_OF_HOLDER).decode("utf-8", "replace")
        except OSError:
            who = "an unknown process"
        raise BusyError(
            three_part(
                f"the landscape in {folder}",
                verbatim(f"one that is being computed by {who}"),
                "one that no process computes: wait for that process, or end it",
            )
        ) from error
    try:
        _replace(holder, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        lock.release()


def _replace(path: str, data: bytes) -> None:
    with write_atomically(path, _FILE_MODE) as file:
        file.write(data)
