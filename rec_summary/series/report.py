"""What was read and written: counted during an export, returned when it ends."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_KEPT: Final = 1000  # problems and notes that are kept word by word; the rest is only counted

Progress = Callable[[str, int, int], None]
"""Takes the name of what is being worked on, how much is done, and how much there is."""


@dataclass(frozen=True)
class Problem:
    """A place in a record file that could not be exported.

    Attributes:
        path: The record file.
        offset: Where in it the record begins, in bytes.
        text: What is wrong, and what was done about it.
    """

    path: str
    offset: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}, offset {self.offset}: {self.text}"


@dataclass
class Report:
    """What was read and written: counted meanwhile, complete at the end.

    Kinds are named after the fields of the records' protobuf, for example `scalar_value`,
    `histogram`, `train_lineage` or `graph_def`.

    Attributes:
        runs: The TensorBoard runs that something was written to, in the order of writing.
        replaced: Those of them that replace the output of an earlier export.
        files: How many record files were read.
        records: How many records were read, by kind of file: `summary` and `lineage`.
        exported: How many values and lineage records were exported, by kind.
        unknown: How many were not, because no dashboard shows their kind, by kind.
        left_out: How many values were not, because they are not selected.
        repeated: How many values were recorded again at the same step; the last one is kept.
        wall_times_replaced: How many records had a wall time that is not finite.
        notes: Other facts about the export, one sentence each.
        problems: What could not be read; at most a thousand of them.
        problem_count: How many problems there were in all.
        bytes_read: The size of what was read.
        bytes_written: The size of what was written.
    """

    runs: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    files: int = 0
    records: collections.Counter[str] = field(default_factory=collections.Counter)
    exported: collections.Counter[str] = field(default_factory=collections.Counter)
    unknown: collections.Counter[str] = field(default_factory=collections.Counter)
    left_out: int = 0
    repeated: int = 0
    wall_times_replaced: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def problem(self, path: str, offset: int, text: str) -> None:
        """Counts a problem, and keeps it unless there are very many already."""
        self.problem_count += 1
        if len(self.problems) < _KEPT:
            self.problems.append(Problem(path, offset, text))

    def note(self, text: str) -> None:
        """Keeps a note unless it is the last one, or there are very many already."""
        if len(self.notes) < _KEPT and text not in self.notes[-1:]:
            self.notes.append(text)

    def add(self, other: Report) -> None:
        """Adds what another report has counted."""
        for counter in dataclasses.fields(self):
            mine, theirs = getattr(self, counter.name), getattr(other, counter.name)
            if isinstance(mine, collections.Counter):
                mine.update(theirs)
            else:
                mine += theirs
                setattr(self, counter.name, mine)
        del self.notes[_KEPT:], self.problems[_KEPT:]

    def add_again(self, other: Report) -> None:
        """Adds what was counted when the same files were read again: a problem counts once."""
        new = [problem for problem in dict.fromkeys(other.problems) if problem not in self.problems]
        count = other.problem_count - len(other.problems) + len(new)
        self.add(dataclasses.replace(other, problems=new, problem_count=count))
