"""The computed losses of a landscape on disk, so that a killed computation continues.

<folder>/plane.bin     origin and directions: the elements of all parameters, one after another
<folder>/plan.json     the computation; if it differs, everything is computed again. Also where each
                       parameter is in the plane, and the checksum of that
<folder>/losses.bin    the loss of each point, and of how many samples it is: 0 if it is unknown
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import filelock
import numpy as np
import numpy.typing as npt

from rec_summary.arrays import Floats
from rec_summary.errors import RecSummaryError, three_part, verbatim
from rec_summary.landscape.plane import Plane, Vector
from rec_summary.records import files
from rec_summary.records.locks import LOCK_NAME, file_lock

_LOSSES: Final = "losses.bin"
_PLAN: Final = "plan.json"
_PLANE: Final = "plane.bin"
_HOLDER: Final = "holder.json"
_SAVE_SECS: Final = 1.0
_POINT: Final = np.dtype([("loss", "<f8"), ("samples", "<i8")])
_AT_ONCE: Final = 1 << 20  # bytes
_ALIGNED: Final = 64  # bytes
_MOST_OF_PLAN: Final = 1 << 28
_MOST_OF_HOLDER: Final = 1000
_PARTS: Final = ("origin", "first", "second")


class BusyError(RecSummaryError):
    """Another process computes the same landscape."""


class Store:
    """The points of one landscape: those of the grid, then those of the path.

    Attributes:
        folder: The directory of the store.
        points: The coordinates of all points, shape (points, 2).
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
            self._losses = np.zeros(len(self.points), _POINT)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, _PLAN))  # the plan of the old plane is invalid
            places = _write_plane(folder, plane)
            self.save()
            stored = {"plan": text, "places": places, "checksum": _checksum(folder, places)}
            _replace(os.path.join(folder, _PLAN), json.dumps(stored).encode())

    @property
    def missing(self) -> npt.NDArray[np.intp]:
        """The indices of the points with unknown losses."""
        return np.flatnonzero(self._losses["samples"] <= 0)

    @property
    def samples(self) -> int:
        """How many samples each known loss is of; 0 before the first one is known."""
        return int(self._losses["samples"].max())

    @property
    def grid(self) -> Floats:
        """The losses on the grid, shape (rows, columns)."""
        count = self._shape[0] * self._shape[1]
        return self._losses["loss"][:count].reshape(self._shape)

    @property
    def path(self) -> Floats:
        """The losses on the path, or the loss of the origin if there is no path."""
        return self._losses["loss"][self._shape[0] * self._shape[1] :]

    def put(self, indices: Sequence[int], losses: Sequence[float], samples: int) -> None:
        """Adds losses of so many samples, and saves all about once a second.

        Raises:
            OSError: They cannot be saved.
        """
        self._losses["loss"][indices] = losses
        self._losses["samples"][indices] = samples
        if time.monotonic() - self._saved > _SAVE_SECS:
            self.save()

    def save(self) -> None:
        """Saves all losses atomically.

        Raises:
            OSError: They cannot be saved.
        """
        _replace(os.path.join(self.folder, _LOSSES), self._losses.tobytes())
        self._saved = time.monotonic()

    def _resume(self, text: str) -> bool:
        try:
            stored = _stored_plan(self.folder)
            places, checksum = stored["places"], stored["checksum"]
            if stored["plan"] != text or checksum != _checksum(self.folder, places):
                return False
            most = len(self.points) * _POINT.itemsize
            data = files.read_plain(os.path.join(self.folder, _LOSSES), most)
            self._losses = np.frombuffer(bytearray(data), _POINT)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
        return len(self._losses) == len(self.points)


def _stored_plan(folder: str) -> Any:
    return json.loads(files.read_plain(os.path.join(folder, _PLAN), _MOST_OF_PLAN))


def _write_plane(folder: str, plane: Plane) -> list[list[Any]]:
    """Writes origin and directions to the disk; returns where each parameter is.

    That is its part and name, the type and the shape, and the offset in bytes.
    """
    places = []
    with files.write_atomically(os.path.join(folder, _PLANE), files.FILE_MODE, sync=True) as file:
        for part in _PARTS:
            for name, array in getattr(plane, part).items():
                file.write(bytes(-file.tell() % _ALIGNED))
                places.append([part, name, array.dtype.str, array.shape, file.tell()])
                file.write(np.ascontiguousarray(array).data)
    return places


def read_plane(folder: str) -> tuple[Vector, Vector, Vector]:
    """Returns origin and directions of a store, memory-mapped so that processes share them.

    Raises:
        OSError: They cannot be read.
    """
    path = os.path.join(folder, _PLANE)
    os.close(files.open_plain(path))  # no link, no pipe
    data = np.memmap(path, mode="r")
    vectors: dict[str, Vector] = {part: {} for part in _PARTS}
    for part, name, dtype, shape, start in _stored_plan(folder)["places"]:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        vectors[part][name] = data[start : start + nbytes].view(dtype).reshape(shape)
    return vectors["origin"], vectors["first"], vectors["second"]


def _checksum(folder: str, places: list[list[Any]]) -> int:
    """Returns the CRC-32 of a plane, and of where each parameter is."""
    checksum = zlib.crc32(json.dumps(places).encode())
    with os.fdopen(files.open_plain(os.path.join(folder, _PLANE)), "rb") as file:
        while data := file.read(_AT_ONCE):
            checksum = zlib.crc32(data, checksum)
    return checksum


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Creates a directory and holds its lock.

    Raises:
        BusyError: Another process holds the lock; the message names the process.
        OSError: The directory cannot be created.
    """
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    files.refuse_link(os.path.dirname(folder))
    files.refuse_link(folder)
    files.make_directory(folder)
    holder = os.path.join(folder, _HOLDER)
    lock = file_lock(os.path.join(folder, LOCK_NAME), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        try:
            who = files.read_plain(holder, _MOST_OF_HOLDER).decode("utf-8", "replace")
        except OSError:
            who = "an unknown process"
        received = verbatim(f"one that is being computed by {who}")
        expected = "one that no process computes: wait for that process, or end it"
        raise BusyError(three_part(f"the landscape in {folder}", received, expected)) from error
    try:
        _replace(holder, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        lock.release()


def _replace(path: str, data: bytes) -> None:
    with files.write_atomically(path, files.FILE_MODE) as file:
        file.write(data)
