"""What is on disk, and when: the choices that a user has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rec_summary.errors import three_part
from rec_summary.records.locks import check_kind

FSYNC: Final = ("never", "close", "flush")
BACK_PRESSURE: Final = ("block", "drop")


@dataclass(frozen=True)
class Durability:
    """How hard records are held on to. `docs/reliability.md` says what each choice promises.

    Attributes:
        fsync: When a file is forced to the disk itself, so that it survives the death of
            the machine and not of the process alone: `"never"`, when it is `"close"`d (also
            on rotation; the default), or at each `"flush"`. Done on the writer's thread.
        back_pressure: What a step does when the disk cannot keep up and the queue is full:
            `"block"` waits, at most 5 s on a disk that stands still, then drops until it
            moves again; `"drop"` never waits. What is dropped is counted and reported.
        lock: `"flock"` or `"soft"`, see `records.locks`; None takes what the environment
            variable `REC_SUMMARY_LOCK` says, else `"flock"`.

    Raises:
        TypeError, ValueError: There is no such choice.
    """

    fsync: str = "close"
    back_pressure: str = "block"
    lock: str | None = None

    def __post_init__(self) -> None:
        for name, choices in (("fsync", FSYNC), ("back_pressure", BACK_PRESSURE)):
            value, expected = getattr(self, name), f"one of {', '.join(choices)}"
            if not isinstance(value, str):
                raise TypeError(three_part(f"durability.{name}", value, expected))
            if value not in choices:
                raise ValueError(three_part(f"durability.{name}", value, expected))
        object.__setattr__(self, "lock", check_kind("durability.lock", self.lock))
