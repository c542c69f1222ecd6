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
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Final, NamedTuple

from tensorboard.compat.proto import event_pb2

from rec_summary.records.files import read_plain
from rec_summary.records.format import framing
from rec_summary.tensorboard.dashboards.hparams import START_TAG, start_point
from rec_summary.tensorboard.dashboards.points import SCALARS
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME, Cursor, load_cursor, mark_of
from rec_summary.tensorboard.event_files.event_file import FILE_VERSION
from rec_summary.tensorboard.event_files.logdir import LogDir, event_file_name, is_foreign

EXPERIMENT_RUN: Final = ".hparams"
"""The directory of the TensorBoard run that describes the experiment; it has a number below."""

_NAME: Final = event_file_name(0)
_MOST_BYTES: Final = 1 << 24


class Described(NamedTuple):
    """What the description is made of, of a recorded run.

    Attributes:
        mark: Which cursor it was read from, as `mark_of` says.
        outputs: The content of the session's tag, empty if it has none, and the tags of the
            scalars, by the names of TensorBoard runs.
    """

    mark: tuple[int, ...]
    outputs: dict[str, tuple[bytes, list[str]]]


class ExperimentFile:
    """Keeps the description of the experiment up to date.

    Attributes:
        known: What is known of recorded runs, by name; cursors that it is made of are not read.
    """

    def __init__(self, logdir: LogDir) -> None:
        """Begins; nothing is read.

        Args:
            logdir: The log directory, entered.
        """
        self._logdir = logdir
        self.known: dict[str, Described] = {}

    def update(self) -> None:
        """Describes the runs that are there now, unless the description says the same.

        There is none where TensorBoard infers the same, nor beside event files of other programs,
        whose hyper-parameters it would hide.

        Raises:
            DestinationError: The log directory cannot be read or written.
        """
        runs: dict[str, tuple[bytes, list[str]]] = {}
        old: dict[str, bytes] = {}
        numbers, is_shared = [0], False
        for path, names, fd in self._logdir.directories():
            is_shared |= any(map(is_foreign, names))
            number = re.fullmatch(rf"{re.escape(EXPERIMENT_RUN)}/([0-9]{{1,18}})", path)
            if number:
                numbers.append(int(number[1]))
            if CURSOR_NAME in names:
                runs.update(self._outputs(path, fd))
            elif number and _NAME in names:
                old[path] = self._content(path)
        described = None if is_shared else _described(runs)
        if list(old.values()) == [described]:
            return
        if described is not None:
            with self._logdir.replacing(f"{EXPERIMENT_RUN}/{max(numbers) + 1}/{_NAME}") as file:
                file.write(described)
        for run in old:
            self._logdir.remove(run)
        if described is None:
            self._logdir.remove_empty([EXPERIMENT_RUN])

    def _outputs(self, run: str, directory: int) -> dict[str, tuple[bytes, list[str]]]:
        """Returns the TensorBoard runs of a recorded run, by name."""
        mark = mark_of(os.stat(CURSOR_NAME, dir_fd=directory, follow_symlinks=False))
        description = self.known.get(run)
        if description is None or description.mark != mark:
            cursor = load_cursor(self._logdir, run)
            description = self.known[run] = described(run, cursor, mark)
        return description.outputs

    def _content(self, run: str) -> bytes:
        with self._logdir.opened(run) as directory:
            return read_plain(_NAME, _MOST_BYTES, dir_fd=directory)


def described(run: str, cursor: Cursor | None, mark: tuple[int, ...]) -> Described:
    """Returns what the description is made of, of a recorded run."""
    content, outputs = b"", {}
    if cursor is not None and (rank := cursor.description.session_rank) is not None:
        start = start_point(run, cursor.description.lineages[rank], 0.0)
        content = start.plugin.metadata.plugin_data.content
    for name, output in cursor.outputs.items() if cursor is not None else ():
        is_session = any(shown == START_TAG for *_, shown in output.tags)
        scalars = [shown for _, plugin, _, shown in output.tags if plugin == SCALARS.name]
        outputs[name] = content if is_session else b"", scalars
    return Described(mark, outputs)


def _described(runs: Mapping[str, tuple[bytes, list[str]]]) -> bytes | None:
    """Returns the content of the event file; None if there is nothing to describe."""
    sessions = {
        name: {START_TAG: content} for name, (content, _) in sorted(runs.items()) if content
    }
    if not sessions:
        return None
    series = SimpleNamespace(plugin_content=b"")
    scalars = {name: dict.fromkeys(tags, series) for name, (_, tags) in runs.items()}
    from rec_summary.tensorboard.hparams_metrics import experiment  # late: it loads a lot

    # Without last values, no metric is left out: they are not stored, and not read for that.
    provider = SimpleNamespace(
        list_scalars=lambda *_, **__: scalars, read_last_scalars=lambda *_, **__: {}
    )
    point = experiment(sessions, provider)
    if point is None:
        return None
    event = event_pb2.Event()
    point.value.tag = point.tag
    point.value.metadata.CopyFrom(point.plugin.metadata)
    event.summary.value.append(point.value)
    version = event_pb2.Event(file_version=FILE_VERSION)
    return b"".join(framing.frame(message.SerializeToString()) for message in (version, event))
