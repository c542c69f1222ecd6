"""What the suite tried and found, for the table `docs/faults.csv`."""

from __future__ import annotations

import csv
import os
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

import pytest

_MODE: Final = os.environ.get("REC_SUMMARY_FAULTS")  # of `tools/check faults`: quick or slow
SLOW: Final = _MODE == "slow"
TABLE: Final = os.environ.get("REC_SUMMARY_FAULTS_TABLE")


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


def write_table(path: Path, rows: dict[str, Row]) -> None:
    """Puts the rows into the table; those of faults not tried now stay."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *old = csv.reader(file)
    new = {name: [name, *map(str, astuple(row))] for name, row in rows.items()}
    with path.open("w", encoding="utf-8", newline="") as file:
        table = {**{row[0]: row for row in old}, **new}
        csv.writer(file, lineterminator="\n").writerows([head, *table.values()])
