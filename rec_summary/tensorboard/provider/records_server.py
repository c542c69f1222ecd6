"""Serving the records below a log directory to the TensorBoard of this process.

This runs at the start of every TensorBoard. So what needs time or other packages is imported after
records have been found.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import threading
from typing import Any, Final

from rec_summary.records.files import follows_links
from rec_summary.records.format.names import parse_name

_SERVERS: Final[list[Any]] = []  # a server ends when nothing refers to it
_DEEPEST: Final = 64

_SHOWN: Final = (
    "rec_summary: showing the records below {}. Of recommenders, open #rec_summary below "
    "TensorBoard's address.\n"
)


def serve_records(flags: Any) -> Any:
    """Makes a TensorBoard with these flags show the records below its log directory.

    Args:
        flags: TensorBoard's options. `grpc_data_provider` is set, unless there is nothing to do.

    Returns:
        The `RunIndex` of what is shown; None if there is nothing to do.

    Raises:
        RuntimeError: This TensorBoard is too old.
    """
    others = ("grpc_data_provider", "inspect", "version_tb")
    if not flags.logdir or any(getattr(flags, name, None) for name in others):
        return None
    logdir = os.path.expanduser(flags.logdir)
    if flags.rec_summary != "on" and not has_records(logdir):
        return None
    if str(flags.grpc_creds_type) != "local":
        sys.stderr.write("rec_summary: records need --grpc_creds_type local, the default\n")
        return None
    if not hasattr(flags, "grpc_data_provider"):
        raise RuntimeError("this TensorBoard has no option --grpc_data_provider")
    from rec_summary.tensorboard.provider.data_provider import RecordDataProvider, add_event_files
    from rec_summary.tensorboard.provider.grpc_server import GrpcServer
    from rec_summary.tensorboard.provider.run_index import RunIndex, location

    index = RunIndex(
        logdir,
        group_by=getattr(flags, "rec_summary_group_by", None),
        x=getattr(flags, "rec_summary_x", "step"),
    )
    records = RecordDataProvider(index)
    server = GrpcServer(records)
    _SERVERS.append(server.__enter__())
    index.start()

    def add_others() -> None:
        index.event_files.wait()  # their loader takes time and memory
        add_event_files(records, flags)

    threading.Thread(target=add_others, daemon=True).start()
    sys.stderr.write(_SHOWN.format(location(logdir)))
    flags.grpc_data_provider = server.address
    return index


def has_records(
    path: str, seconds: float = 5.0, most_directories: int = 1000, most_names: int = 50_000
) -> bool:
    """Whether there is a record file below a local directory.

    Every TensorBoard waits for this, so the search is bounded: a directory that is larger or slower
    than its bounds has no records as far as is known, and standard error says so.

    Args:
        path: The directory.
        seconds: How long to wait at most.
        most_directories: How many are searched; so many take a second on a network file system.
        most_names: How many names are looked at.
    """
    results: list[bool | None] = []
    # In a thread, since a call to a file system that does not answer never ends.
    search = threading.Thread(
        target=lambda: results.append(_search(path, most_directories, most_names)), daemon=True
    )
    search.start()
    search.join(seconds)
    has = results[0] if results else None
    if has is None:
        sys.stderr.write(
            "rec_summary: --logdir is too large or too slow to be searched for MindSpore records; "
            "--rec_summary on shows them, off does not search\n"
        )
    return bool(has)


def _search(path: str, most_directories: int, most_names: int) -> bool | None:
    """Returns whether there is a record file; None if none is among the first names."""
    waiting = collections.deque([(path, 0)])
    directories, names = 0, 0
    while waiting:
        directory, depth = waiting.popleft()
        directories += 1
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                names += 1
                if directories > most_directories or names > most_names:
                    return None
                if parse_name(entry.name) is not None and entry.is_file():
                    return True
                if depth < _DEEPEST and entry.is_dir(follow_symlinks=follows_links()):
                    waiting.append((entry.path, depth + 1))
    return False
