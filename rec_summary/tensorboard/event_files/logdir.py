"""The log directory: run directories in it, each with one event file of this package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import ClassVar, Final

from rec_summary.errors import DestinationError, three_part, verbatim
from rec_summary.series.exports.directory import ExportDirectory, unusable
from rec_summary.series.text import printable

EVENTS: Final = "tfevents"
"""TensorBoard reads every file with this in its name."""

_OURS: Final = re.compile(r"events\.out\.tfevents\.\d{1,19}\.rec_summary")


def event_file_name(stamp: int) -> str:
    """Returns the name of our event file for records begun at `stamp`, in whole seconds."""
    return f"events.out.tfevents.{stamp}.rec_summary"


class LogDir(ExportDirectory):
    """A log directory, which one exporter at a time writes to."""

    what: ClassVar[str] = "the log directory"

    def check(self, run: str) -> None:
        """Makes sure that no other program writes to a run's directory.

        Raises:
            DestinationError: There is an event file of another writer, or the directory
                cannot be reached without following a link.
        """
        with self.opened(run) as fd:
            if fd is None:
                return
            with os.scandir(fd) as entries:
                foreign = sorted(
                    entry.name
                    for entry in entries
                    if is_foreign(entry.name) and not entry.is_dir(follow_symlinks=False)
                )
        if foreign:
            raise DestinationError(
                three_part(
                    f"the run directory {printable(os.path.join(self.path, run))}",
                    verbatim(f"an event file of another writer, {printable(foreign[0])}"),
                    "one writer for each run directory: export to another log directory, or "
                    "move that file away",
                )
            )

    def directories(self, run: str = "") -> Iterator[tuple[str, list[str], int]]:
        """Yields each directory below: its path from here, the names of its files, its descriptor.

        Args:
            run: Only directories below that of this run.

        Raises:
            DestinationError: One cannot be read.
        """
        with unusable(self.what, self.path), self._below(run) as above:
            for path, _, names, fd in os.fwalk(".", dir_fd=above) if above is not None else ():
                if path != ".":
                    yield os.path.join(run, path.removeprefix("./")), names, fd

    def remove(self, run: str) -> bool:
        """Removes our event file from a run's directory; returns whether there was one.

        Raises:
            DestinationError: It cannot be removed.
        """
        with self.opened(run) as fd:
            if fd is None:
                return False
            names = ours(fd)
            for name in names:
                os.unlink(name, dir_fd=fd)
        self.remove_empty([run])
        return bool(names)


def ours(fd: int) -> list[str]:
    """Returns the names of our event files in a directory."""
    return [name for name in os.listdir(fd) if _OURS.fullmatch(name)]


def is_foreign(name: str) -> bool:
    """Whether a file is read by TensorBoard and is of another program."""
    return EVENTS in name and not _OURS.fullmatch(name)
