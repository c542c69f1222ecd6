"""Serving the records below a log directory to the TensorBoard of this process."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Final

from tensorboard.backend.event_processing import data_ingester
from tensorboard.data import server_ingester

from rec_summary.records.format.names import parse_name
from rec_summary.series.text import printable
from rec_summary.tensorboard.provider.combined import CombinedDataProvider
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.grpc_server import GrpcServer
from rec_summary.tensorboard.provider.run_index import RunIndex

_SERVERS: Final[list[GrpcServer]] = []  # a server ends when nothing refers to it
_LOADERS: Final[list[Any]] = []  # so does a loader


def serve_records(flags: Any) -> None:
    """Makes a TensorBoard with these flags show the records below its log directory.

    Args:
        flags: TensorBoard's options. `grpc_data_provider` is set, unless there is nothing to do.
    """
    if not flags.logdir or flags.grpc_data_provider or flags.inspect or flags.version_tb:
        return
    logdir = os.path.expanduser(flags.logdir)
    if flags.rec_summary != "on" and not has_records(logdir):
        return
    if str(flags.grpc_creds_type) != "local":
        sys.stderr.write("rec_summary: records need --grpc_creds_type local, the default\n")
        return
    index = RunIndex(logdir)
    combined = CombinedDataProvider(RecordDataProvider(index))
    server = GrpcServer(combined)
    _SERVERS.append(server.__enter__())
    index.start()
    # It takes half a second, and there may be no event files at all.
    threading.Thread(target=add_event_files, args=(combined, flags), daemon=True).start()
    sys.stderr.write(f"rec_summary: showing the records below {printable(logdir)}\n")
    flags.grpc_data_provider = server.address


def has_records(path: str) -> bool:
    """Whether there is a record file below a local directory; links are not followed."""
    return any(parse_name(name) is not None for _, _, files in os.walk(path) for name in files)


def add_event_files(combined: CombinedDataProvider, flags: Any) -> None:
    """Adds what TensorBoard itself would show of its log directory, by the loader it would use."""
    if flags.load_fast != "false" and "://" not in flags.logdir:
        try:
            fast = server_ingester.SubprocessServerDataIngester(
                server_binary=server_ingester.get_server_binary(),
                logdir=flags.logdir,
                reload_interval=flags.reload_interval,
                channel_creds_type=flags.grpc_creds_type,
                samples_per_plugin=flags.samples_per_plugin,
            )
            fast.start()
        except (server_ingester.NoDataServerError, server_ingester.DataServerStartupError):
            pass  # TensorBoard then takes its other loader
        else:
            _LOADERS.append(fast)
            combined.other = fast.data_provider
            return
    slow = data_ingester.LocalDataIngester(flags)
    slow.start()
    combined.other = slow.data_provider
