"""Serving the records below a log directory to the TensorBoard of this process."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Any, Final

from rec_summary.records.reading.runs import directories, list_files
from rec_summary.tensorboard.provider.combined import CombinedDataProvider, add_event_files
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.grpc_server import GrpcServer
from rec_summary.tensorboard.provider.run_index import RunIndex, location

_SERVERS: Final[list[GrpcServer]] = []  # a server ends when nothing refers to it

_SHOWN: Final = (
    "rec_summary: showing the records below {}. To have the loss and the AUC at the top, open "
    "data/plugin/rec_summary/first_screen below TensorBoard's address.\n"
)


def serve_records(flags: Any) -> RunIndex | None:
    """Makes a TensorBoard with these flags show the records below its log directory.

    Args:
        flags: TensorBoard's options. `grpc_data_provider` is set, unless there is nothing to do.

    Returns:
        The runs that are shown; None if there is nothing to do.
    """
    if not flags.logdir or flags.grpc_data_provider or flags.inspect or flags.version_tb:
        return None
    logdir = os.path.expanduser(flags.logdir)
    if flags.rec_summary != "on" and not has_records(logdir):
        return None
    if str(flags.grpc_creds_type) != "local":
        sys.stderr.write("rec_summary: records need --grpc_creds_type local, the default\n")
        return None
    index = RunIndex(logdir)
    combined = CombinedDataProvider(RecordDataProvider(index))
    server = GrpcServer(combined)
    _SERVERS.append(server.__enter__())
    index.start()
    # It takes half a second, and there may be no event files at all.
    threading.Thread(target=add_event_files, args=(combined, flags), daemon=True).start()
    sys.stderr.write(_SHOWN.format(location(logdir)))
    flags.grpc_data_provider = server.address
    return index


def has_records(path: str) -> bool:
    """Whether there is a record file below a local directory; links are not followed."""
    for directory in directories(path):
        with contextlib.suppress(OSError):
            if list_files(directory):
                return True
    return False
