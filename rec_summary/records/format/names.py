"""How record files are named, by MindSpore and by us.

    <prefix>.out.events.summary.<unix seconds>.<rank>.<host>_MS        summary records
    <prefix>.out.events.summary.<unix seconds>.<rank>.<host>_lineage   lineage records

MindSpore lets its users choose prefix and suffix of the first kind, so names are read
leniently and written strictly. As in MindInsight, every name that has `summary.<number>`
anywhere is the name of a record file: of lineage records if it ends with `_lineage`.

A file that compaction has made of others has the name of the first of them, and after its prefix
`.compacted-<unix seconds>-<number>`: the latest stamp of these files, and a number greater than
theirs. So it is read in their place, and its name says which files it covers.
"""

from __future__ import annotations

import enum
import os
import re
import socket
from dataclasses import dataclass
from typing import Final

from rec_summary.errors import three_part

DEFAULT_PREFIX: Final = "events"
DEFAULT_SUFFIX: Final = "_MS"

_NAME: Final = re.compile(
    r"^(?:(?P<prefix>.*?)(?:\.compacted-(?P<last>\d{1,19})-(?P<generation>\d{1,9}))?\.out\.events\."
    r"|(?P<other>.*?))summary\.(?P<stamp>\d{1,19})"
    r"(?:\.(?P<rank>\d{1,9})(?=\.))?\.?(?P<rest>.*)$",
    re.DOTALL,
)
_LINEAGE_SUFFIX: Final = "_lineage"
_HIDDEN: Final = ".rec_summary-superseded."

# MindSpore's rule for both parts, and the hyphen: no separators, nothing hidden, ASCII only.
_PREFIX: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SUFFIX: Final = re.compile(r"[A-Za-z0-9_.-]*")
_MARK: Final = re.compile(r"summary\.\d")  # what MindInsight and `parse_name` look for


class Kind(enum.Enum):
    """The kind of a record file."""

    SUMMARY = DEFAULT_SUFFIX
    LINEAGE = _LINEAGE_SUFFIX


@dataclass(frozen=True)
class RecordName:
    """The parts of a record file's name.

    Attributes:
        stamp: When the file was created, in whole seconds since the epoch.
        rank: The rank of the process that wrote it.
        host: The host that wrote it, with MindSpore's suffix removed.
        kind: The kind of the file.
        prefix: The text in front of `.out.events.summary`; of `summary` in other names.
        suffix: The text after the host of a summary file; that of a lineage file is fixed.
        last: The latest stamp of the files that a compacted file is made of; None for a file as it
            was recorded.
        generation: 0 for a file as it was recorded; else greater than those of the files that it is
            made of.
    """

    stamp: int
    rank: int
    host: str
    kind: Kind
    prefix: str = DEFAULT_PREFIX
    suffix: str = DEFAULT_SUFFIX
    last: int | None = None
    generation: int = 0

    def __str__(self) -> str:
        suffix = self.suffix if self.kind is Kind.SUMMARY else self.kind.value
        mark = "" if self.last is None else f".compacted-{self.last}-{self.generation:04}"
        head = f"{self.prefix}{mark}.out.events.summary"
        return f"{head}.{self.stamp}.{self.rank}.{self.host}{suffix}"

    @property
    def order(self) -> tuple[int, int, str, str]:
        """A key that sorts names in the order of creation."""
        return (self.stamp, self.rank, self.host, self.kind.value)

    @property
    def end(self) -> int:
        """The latest stamp of the files that it is made of, itself included."""
        return self.stamp if self.last is None else max(self.stamp, self.last)

    def covers(self, other: RecordName) -> bool:
        """Whether the file may be made of another one, among others.

        Of two files, at most one covers the other: of the same stamps, the later compaction.
        """
        return (
            (self.rank, self.kind) == (other.rank, other.kind)
            and self.stamp <= other.stamp
            and other.end <= self.end
            and (
                self.stamp < other.stamp
                or other.end < self.end
                or other.generation < self.generation
            )
        )


def parse_name(name: str) -> RecordName | None:
    """Returns the parts of a file's name, or None if it is not the name of a record file.

    Nothing separates the host from a suffix that the user has chosen: both are the host then.
    """
    match = _NAME.match(name)
    if match is None:
        return None
    kind = Kind.LINEAGE if name.endswith(_LINEAGE_SUFFIX) else Kind.SUMMARY
    return RecordName(
        stamp=int(match["stamp"]),
        rank=int(match["rank"] or 0),
        host=match["rest"].removesuffix(kind.value),
        kind=kind,
        prefix=match["other"] if match["prefix"] is None else match["prefix"],
        suffix=DEFAULT_SUFFIX if name.endswith((DEFAULT_SUFFIX, _LINEAGE_SUFFIX)) else "",
        last=None if match["last"] is None else int(match["last"]),
        generation=int(match["generation"] or 0),
    )


def hidden_path(path: str) -> str:
    """Returns where a file is for a while after a compacted file has replaced it.

    No reader takes the name for that of a record file.
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, _HIDDEN + name.replace("summary.", "summary-"))


def replaced_name(name: str) -> RecordName | None:
    """Returns the parts of a name that `hidden_path` has hidden; None for another name."""
    if not name.startswith(_HIDDEN):
        return None
    return parse_name(name[len(_HIDDEN) :].replace("summary-", "summary."))


def check_affixes(prefix: str, suffix: str) -> None:
    """Checks the prefix and the suffix that a user chooses for summary files.

    Raises:
        TypeError: One is not a str.
        ValueError: One is not allowed in a file's name, or would hide the file from readers.
    """
    for what, text in (("file_prefix", prefix), ("file_suffix", suffix)):
        if not isinstance(text, str):
            raise TypeError(three_part(what, text, "a str"))
    characters = "letters, digits, `_`, `.` and `-` (ASCII)"
    if not _PREFIX.fullmatch(prefix) or _MARK.search(prefix):
        expected = f"{characters}, not beginning with `.` or `-`, without `summary.<digit>`"
        raise ValueError(three_part("file_prefix", prefix, expected))
    if not _SUFFIX.fullmatch(suffix) or _MARK.search(suffix) or suffix.endswith(_LINEAGE_SUFFIX):
        expected = f"{characters}, not ending in `_lineage`, without `summary.<digit>`"
        raise ValueError(three_part("file_suffix", suffix, expected))


def this_host(name: str | None = None) -> str:
    """Returns a host's name, with other characters than letters, digits, `.`, `-` replaced.

    Args:
        name: What the host says; None to ask this host.
    """
    name = socket.gethostname() if name is None else name
    return re.sub(r"[^A-Za-z0-9.-]", "-", name) or "localhost"
