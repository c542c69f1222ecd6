"""What the suite tried and found, for the table in `docs/reliability.md`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_MODE: Final = os.environ.get("REC_SUMMARY_FAULTS")  # of `tools/check faults`: quick or slow
SLOW: Final = _MODE == "slow"
TABLE: Final = os.environ.get("REC_SUMMARY_FAULTS_TABLE")
BEGIN: Final = "<!-- written by tools/check faults: begin -->"
_HEAD: Final = (
    "| fault | tried | survived | records promised | records found |\n|---|---:|---:|---:|---:|"
)
END: Final = "<!-- written by tools/check faults: end -->"


in_check_only = pytest.mark.skipif(
    _MODE is None, reason="takes seconds, and other tests cover the mechanism; run by tools/check"
)


def times(quick: int, slow: int) -> int:
    """Returns how often a fault is tried: `quick` in CI, `slow` in the slow mode."""
    return slow if SLOW else quick


@dataclass
class Row:
    """One kind of fault.

    Attributes:
        tried: How often.
        survived: How often everything that was promised held.
        promised: Records that the contract promised, in all.
        found: Those of them that were found.
    """

    tried: int = 0
    survived: int = 0
    promised: int = 0
    found: int = 0


class Ledger:
    """Adds up, by the name of the fault."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def tried(self, fault: str) -> None:
        """Notes a try; it counts as survived once `survived` says so."""
        self.rows.setdefault(fault, Row()).tried += 1

    def survived(self, fault: str, promised: set[int] | int, found: set[int] | int) -> None:
        """Checks the promise and notes it.

        Args:
            fault: Its name, as told to `tried`.
            promised: The steps (or the number of records) that had to be there.
            found: What was there.
        """
        row = self.rows[fault]
        if isinstance(promised, int) or isinstance(found, int):
            wanted, there = promised, found
            assert isinstance(wanted, int)
            assert isinstance(there, int)
            kept = min(wanted, there)
        else:
            wanted, kept = len(promised), len(promised & found)
        row.promised += wanted
        row.found += kept
        assert kept == wanted, f"{fault}: {wanted - kept} of {wanted} promised records are missing"
        row.survived += 1

    def lines(self) -> dict[str, str]:
        """Returns the lines of the table, by fault."""
        numbers = {
            name: (row.tried, row.survived, row.promised, row.found)
            for name, row in self.rows.items()
        }
        return {
            name: f"| {name} | {' | '.join(f'{number:,}' for number in four)} |"
            for name, four in numbers.items()
        }


def write_table(path: Path, lines: dict[str, str]) -> None:
    """Puts the lines into the table of a document; those of faults not tried now stay."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {
        line.split("|")[1].strip(): line for line in table.splitlines()[3:] if line.startswith("|")
    }
    body = "\n".join({**kept, **lines}.values())
    path.write_text(f"{before}{BEGIN}\n{_HEAD}\n{body}\n{END}{after}", encoding="utf-8")
