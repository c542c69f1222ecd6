"""How record files are named, by MindSpore and by us.

    <prefix>.out.events.summary.<unix seconds>.<rank>.<host>_MS        summary records
    <prefix>.out.events.summary.<unix seconds>.<rank>.<host>_lineage   lineage records

MindSpore lets its users choose prefix and suffix of the first kind, so names are read
leniently and written strictly. MindInsight takes the names that match `summary\\.\\d+`.
"""

from __future__ import annotations

import enum
import re
import socket
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(
    r"^(?P<prefix>.*)\.out\.events\.summary\.(?P<stamp>\d{1,19})"
    r"(?:\.(?P<rank>\d{1,9})(?=\.))?\.?(?P<rest>.*)$",
    re.DOTALL,
)
_LINEAGE_SUFFIX: Final = "_lineage"


class Kind(enum.Enum):
    """What a record file holds."""

    SUMMARY = "_MS"
    LINEAGE = _LINEAGE_SUFFIX


@dataclass(frozen=True)
class RecordName:
    """The parts of a record file's name.

    Attributes:
        stamp: When the file was begun, in whole seconds since the epoch.
        rank: The rank of the process that wrote it.
        host: The host that wrote it, with MindSpore's suffix removed.
        kind: What it holds.
    """

    stamp: int
    rank: int
    host: str
    kind: Kind

    def __post_init__(self) -> None:
        assert self.stamp >= 0
        assert self.rank >= 0

    def __str__(self) -> str:
        return f"events.out.events.summary.{self.stamp}.{self.rank}.{self.host}{self.kind.value}"

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Sorts names as the files were begun."""
        return (self.stamp, self.rank, self.host, self.kind.value)


def parse_name(name: str) -> RecordName | None:
    """Returns the parts of a file's name, or None if it is not the name of a record file."""
    match = _NAME.match(name)
    if match is None:
        return None
    kind = Kind.LINEAGE if name.endswith(_LINEAGE_SUFFIX) else Kind.SUMMARY
    return RecordName(
        stamp=int(match["stamp"]),
        rank=int(match["rank"] or 0),
        host=match["rest"].removesuffix(kind.value),
        kind=kind,
    )


def this_host() -> str:
    """Returns this host's name, with what cannot stand in a file name replaced."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()) or "localhost"
