"""The metrics that HParams shows of a log directory, in an event file of their own.

TensorBoard takes the description of an experiment from one tag, for all runs, and reads the
metadata of a tag once. So the description is the only content of a TensorBoard run, and each time
when it changes, it is written to a new one, and the old one is removed: a TensorBoard that is
running shows the new one, with both of its loaders.

It is made of the cursors in the log directory, so it also has the runs of earlier exports.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from tensorboard.compat.proto import event_pb2

from rec_summary.records.files import read_plain
from rec_summary.records.format import framing
from rec_summary.tensorboard.dashboards.hparams import START_TAG, start_point
from rec_summary.tensorboard.dashboards.points import SCALARS
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME, Cursor, load_cursor
from rec_summary.tensorboard.event_files.event_file import FILE_VERSION
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name, is_foreign
from rec_summary.tensorboard.hparams_metrics import experiment

EXPERIMENT_RUN: Final = ".hparams"
"""The directory of the TensorBoard run that describes the experiment; it has a number below."""

_NAME: Final = event_file_name(0)
_MOST_BYTES: Final = 1 << 24
_Contents = dict[str, bytes]  # of the tags of HParams
_Series = dict[str, Any]  # of scalars, by tag


class ExperimentFile:
    """Keeps the description of the experiment up to date."""

    def __init__(self, logdir: LogDir) -> None:
        """Begins; nothing is read.

        Args:
            logdir: The log directory, entered.
        """
        self._logdir = logdir
        self._known: dict[str, tuple[Any, dict[str, tuple[_Contents, _Series]]]] = {}

    def update(self) -> None:
        """Describes the runs that are there now, unless the description says the same.

        There is none where TensorBoard infers the same, nor beside event files of other programs,
        whose hyper-parameters it would hide.

        Raises:
            DestinationError: The log directory cannot be read or written.
        """
        with self._logdir.claims.alone():
            self._update()

    def _update(self) -> None:
        runs: dict[str, tuple[_Contents, _Series]] = {}
        old: dict[str, bytes] = {}
        numbers, is_shared = [0], False
        for path, names in self._logdir.directories():
            is_shared |= any(map(is_foreign, names))
            number = re.fullmatch(rf"{re.escape(EXPERIMENT_RUN)}/([0-9]{{1,18}})", path)
            if number:
                numbers.append(int(number[1]))
            if CURSOR_NAME in names:
                runs.update(self._outputs(path))
            elif number and _NAME in names:
                old[path] = self._content(path)
        described = None if is_shared else _described(runs)
        if list(old.values()) == [described] or (not old and described is None):
            return
        if described is not None:
            with self._logdir.replacing(f"{EXPERIMENT_RUN}/{max(numbers) + 1}/{_NAME}") as file:
                file.write(described)
        for run in old:
            self._logdir.remove(run)
        if described is None:
            self._logdir.remove_empty([EXPERIMENT_RUN])

    def _outputs(self, run: str) -> dict[str, tuple[_Contents, _Series]]:
        """Returns the TensorBoard runs of a recorded run, by name."""
        with self._logdir.opened(run) as directory:
            status = os.stat(CURSOR_NAME, dir_fd=directory, follow_symlinks=False)
        mark = status.st_ino, status.st_size, status.st_mtime_ns
        known = self._known.get(run)
        if known is None or known[0] != mark:
            cursor = load_cursor(self._logdir, run)
            known = self._known[run] = mark, dict(_read(run, cursor)) if cursor else {}
        return known[1]

    def _content(self, run: str) -> bytes:
        with self._logdir.opened(run) as directory:
            return read_plain(_NAME, _MOST_BYTES, dir_fd=directory)


def _read(run: str, cursor: Cursor) -> Iterator[tuple[str, tuple[_Contents, _Series]]]:
    rank = cursor.description.session_rank
    content = b""
    if rank is not None:
        start = start_point(run, cursor.description.lineages[rank], 0.0)
        content = start.plugin.metadata.plugin_data.content
    for name, output in cursor.outputs.items():
        tags = {(plugin, shown) for _, plugin, _, shown in output.tags}
        is_session = content and any(shown == START_TAG for _, shown in tags)
        series = SimpleNamespace(plugin_content=b"")
        scalars = {shown: series for plugin, shown in tags if plugin == SCALARS.name}
        yield name, ({START_TAG: content} if is_session else {}, scalars)


def _described(runs: dict[str, tuple[_Contents, _Series]]) -> bytes | None:
    """Returns the content of the event file; None if there is nothing to describe."""
    sessions = {name: contents for name, (contents, _) in sorted(runs.items()) if contents}
    scalars = {name: series for name, (_, series) in runs.items()}
    provider = SimpleNamespace(list_scalars=lambda *_, **__: scalars)
    point = experiment(sessions, provider) if sessions else None
    if point is None:
        return None
    event = event_pb2.Event()
    point.value.tag = point.tag
    point.value.metadata.CopyFrom(point.plugin.metadata)
    event.summary.value.append(point.value)
    version = event_pb2.Event(file_version=FILE_VERSION)
    return b"".join(framing.frame(each.SerializeToString()) for each in (version, event))
