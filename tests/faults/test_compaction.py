"""kill -9 of a compaction, at any call of the operating system."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from rec_summary.compaction import commit
from rec_summary.compaction.directory import keep_within
from rec_summary.records.reading.runs import list_files
from rec_summary.records.writing.retention import LEAST_BYTES
from tests.faults.children import left_in, start
from tests.faults.ledger import Ledger, times
from tests.support.compacting import BUDGET, check, compact, write_records
from tests.support.waiting import eventually


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


def test_a_collector_that_is_killed_while_it_compacts_loses_nothing(
    tmp_path: Path, ledger: Ledger
) -> None:
    fault = "kill -9 of a collector that compacts"
    for number in range(times(2, 50)):
        ledger.tried(fault)
        folder = tmp_path / str(number)
        process = start("tests.faults.write", folder, 0, 10**9, 0, 0, LEAST_BYTES)
        signs = _is_compacting if number % 2 else _is_compacted
        eventually(lambda: signs(folder), despite=(FileNotFoundError,))  # noqa: B023
        process.kill()
        output, _ = process.communicate()
        flushed = int(output.splitlines()[-1].split()[1])
        eventually(lambda: _is_unlocked(folder))  # noqa: B023  # its process ends with it
        for _ in range(2):
            left = left_in(folder)
            assert left.torn <= 2
            assert left.steps == sorted(set(left.steps))
            assert left.steps[0] == 1
            assert left.steps[-1] >= flushed
            assert left.steps[-1] - left.steps[-100] == 99  # the newest part is complete
            keep_within(str(folder), 0, LEAST_BYTES, grace=0.0)  # what was begun is completed
        ledger.survived(fault, 1, 1)
        shutil.rmtree(folder)


def _is_compacting(folder: Path) -> bool:
    names = os.listdir(folder)
    return any(name.startswith(".rec_summary-compacting") for name in names) or _is_compacted(
        folder
    )


def _is_compacted(folder: Path) -> bool:
    return any(file.name.last is not None for file in list_files(str(folder)))


def _is_unlocked(folder: Path) -> bool:
    try:
        with commit.locked(str(folder), 0):
            return True
    except TimeoutError:
        return False
