"""kill -9 of a compaction, at any call of the operating system."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from rec_summary.compaction.directory import keep_within
from tests.faults.ledger import Ledger, times
from tests.support.compacting import BUDGET, check, compact, write_records


def test_a_killed_compaction_loses_nothing_and_shows_nothing_twice(
    tmp_path: Path, ledger: Ledger
) -> None:
    records = write_records(tmp_path / "run")
    whole = shutil.copytree(records, tmp_path / "whole")
    calls = int(compact(whole, 0).stdout)
    chance = random.Random(18)
    fault = "kill -9 of a compaction"
    for number in range(times(3, 50)):
        ledger.tried(fault)
        killed = shutil.copytree(records, tmp_path / f"killed-{number}")
        place = chance.randint(1, calls)
        assert compact(killed, place).returncode == -9, f"at call {place} of {calls}"
        check(killed)
        keep_within(str(killed), 0, BUDGET, grace=0.0)  # what was begun is completed
        check(killed)
        ledger.survived(fault, 1, 1)
        shutil.rmtree(killed)
