"""kill -9 of a compaction, at any call of the operating system."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from rec_summary.compaction import commit
from rec_summary.compaction.directory import keep_within
from rec_summary.records.reading.runs import list_files
from rec_summary.records.writing.retention import LEAST_BYTES, rank_bytes
from tests.faults.children import left_in, start
from tests.faults.ledger import Ledger, times
from tests.support.compacting import BUDGET, check, compact, write_records
from tests.support.shadowing import shadow_modules
from tests.support.waiting import eventually

_PAGE: Final = 4096  # of a file system in memory
_STEPS: Final = 20_000  # more than the least budget has room for
_MOST_ROOM: Final = 3  # pages: fewer than a compacted file needs


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
        keep_within(str(killed), 0, BUDGET)  # what was begun is completed
        check(killed)
        ledger.survived(fault, 1, 1)
        shutil.rmtree(killed)


def test_a_disk_that_is_full_while_records_are_compacted_costs_none(
    tmp_path: Path, ledger: Ledger
) -> None:
    records = write_records(tmp_path / "run")
    pages = sum(-(-path.stat().st_size // _PAGE) for path in records.iterdir())
    chance = random.Random(18)
    fault = "disk full while records are compacted"
    for number in range(times(2, 50)):
        disk = tmp_path / f"disk-{number}"
        disk.mkdir()
        with mounted(disk, _PAGE * (pages + chance.randint(0, _MOST_ROOM))) as grow:
            ledger.tried(fault)
            folder = shutil.copytree(records, disk / "run")
            with pytest.raises(OSError, match="No space left"):
                keep_within(str(folder), 0, BUDGET)
            check(folder, complete=True)
            grow()
            assert keep_within(str(folder), 0, BUDGET)
            check(folder)
            ledger.survived(fault, 1, 1)


@contextlib.contextmanager
def mounted(folder: Path, nbytes: int) -> Iterator[Callable[[], None]]:
    """Mounts a file system with little room; yields what makes it larger."""

    def mount(options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)

    try:
        mount(f"size={nbytes}")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    try:
        yield lambda: mount(f"remount,size={2 * nbytes}")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


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
            keep_within(str(folder), 0, LEAST_BYTES)  # what was begun is completed
        ledger.survived(fault, 1, 1)
        shutil.rmtree(folder)


def test_a_compaction_that_hangs_costs_no_record(tmp_path: Path, ledger: Ledger) -> None:
    fault = "a compaction that is stopped for good"
    for number in range(times(1, 20)):
        ledger.tried(fault)
        folder = tmp_path / str(number)
        process = start("tests.faults.write", folder, 0, _STEPS, 0, 0, LEAST_BYTES)
        program = psutil.Process(process.pid)
        [child] = eventually(program.children, rest_secs=0.001)
        # Until it runs a program of its own, its parent waits for it without Python's lock.
        eventually(child.cmdline, lambda words: "-I" in words, rest_secs=0.001)
        child.suspend()  # it is still loading
        _, errors = process.communicate()  # all pipes end, so the child has ended as well
        assert process.returncode == 0, errors
        assert "compaction, process" in errors
        assert rank_bytes(str(folder), 0) > LEAST_BYTES  # it went on beyond the budget
        ledger.survived(fault, set(range(1, _STEPS + 1)), set(left_in(folder).steps))
        shutil.rmtree(folder)


def test_modules_in_the_working_directory_do_not_hinder_compaction(
    tmp_path: Path, ledger: Ledger
) -> None:
    fault = "modules of all names in the working directory of a collector that compacts"
    modules = tmp_path / "modules"
    imported = shadow_modules(modules)
    script = Path(__file__).with_name("write.py")
    for number in range(times(1, 10)):
        ledger.tried(fault)
        folder = tmp_path / str(number)
        process = start(sys.executable, script, folder, 0, 10**9, 0, 0, LEAST_BYTES, cwd=modules)
        eventually(lambda: _is_compacted(folder), despite=FileNotFoundError)  # noqa: B023
        process.kill()
        output, _ = process.communicate()
        assert not imported.exists(), imported.read_text()
        eventually(lambda: _is_unlocked(folder))  # noqa: B023  # its process ends with it
        flushed = int(output.splitlines()[-1].split()[1])
        kept = {1, *range(flushed - 99, flushed + 1)}  # the first step, and the newest part
        ledger.survived(fault, kept, set(left_in(folder).steps))
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
