"""A lock on a place in a store that has no locks: a file there says who writes.

Where the store can create a file only if there is none (S3, Google), two writers cannot
both succeed; elsewhere the time between looking and writing is left. Who dies leaves the
file behind, and ten minutes later it counts no more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from typing import Any, Final

from rec_summary.errors import DestinationError, RecSummaryError, three_part, verbatim
from rec_summary.records.remote.places import DESTINATION, talking

LOCK_NAME: Final = ".rec_summary-export.lock"
_LEASE_SECS: Final = 600.0
_BEAT_SECS: Final = 60.0

logger = logging.getLogger("rec_summary")


class Lease:
    """The right to write to a place; use it as a context, which renews it meanwhile."""

    def __init__(self, fs: Any, root: str, url: str) -> None:
        """Prepares.

        Args:
            fs: The file system.
            root: The place in it.
            url: What the place is called, for messages.
        """
        self._fs, self._url = fs, url
        self._path = f"{root}/{LOCK_NAME}"
        self._id = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rec_summary-lease", daemon=True)

    def __enter__(self) -> Lease:
        """Takes it.

        Raises:
            DestinationError: Another writer holds it, or the place cannot be used.
        """
        path = self._path
        with talking(self._url, DESTINATION):
            holder = self._holder(path)
            if holder is not None and time.time() - holder["time"] < _LEASE_SECS:
                raise self._held(holder)
            self._claim(path, mode="create" if holder is None else "overwrite")
            holder = self._holder(path)
            if holder is None or holder["id"] != self._id:  # somebody was quicker
                raise self._held(holder or {})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2.0)
        with talking(self._url, DESTINATION), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path)

    def _claim(self, path: str, mode: str) -> None:
        text = json.dumps(
            {"id": self._id, "host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        )
        try:
            self._fs.pipe_file(path, text.encode(), mode=mode)
        except FileExistsError:
            raise self._held(self._holder(path) or {}) from None

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_SECS):
            try:
                with talking(self._url, DESTINATION):
                    self._claim(self._path, mode="overwrite")
            except RecSummaryError as error:
                logger.warning("rec_summary: the lock cannot be renewed: %s", error)

    def _holder(self, path: str) -> dict[str, Any] | None:
        self._fs.invalidate_cache()
        try:
            found = json.loads(self._fs.cat_file(path))
            return {**found, "time": float(found["time"]), "id": str(found["id"])}
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return {"time": 0.0, "id": ""}  # not of ours, or torn: it holds nobody off

    def _held(self, holder: dict[str, Any]) -> DestinationError:
        who = f"host {holder.get('host', '?')!s:.100}, process {holder.get('pid', '?')!s:.20}"
        received = verbatim(f"{self._url}, to which another export writes ({who})")
        expected = (
            f"a place that no other export uses: wait for that one to end; {LOCK_NAME} there "
            "counts for ten minutes after its end by force"
        )
        return DestinationError(three_part(DESTINATION, received, expected))
