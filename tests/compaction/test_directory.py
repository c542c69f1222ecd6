"""Which files of a directory are compacted, and how much room each has."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from pathlib import Path

import pytest

from rec_summary.compaction import commit
from rec_summary.compaction.directory import (
    BudgetError,
    _compact_run,
    _RankWork,
    compact,
    keep_within,
)
from rec_summary.compaction.rewriting import compacted_name, rewrite
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run, find_runs, list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from tests.support.compacting import BUDGET, check, shown, write_records
from tests.support.record_dirs import custom, event, lineage, scalar, write_segment

OLD = 1_700_000_000  # no process writes a file that has not changed since then


def rested(directory: Path) -> None:
    """Makes files look as if nobody had written them for a long time."""
    for path in directory.iterdir():
        os.utime(path, (OLD, OLD))


def damaged(path: Path) -> None:
    """Changes a bit of a record in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("late", [False, True])
def test_files_that_another_process_has_compacted_meanwhile_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    records = write_records(tmp_path / "run")
    rested(records)
    [listed] = find_runs(records)
    files = listed.files_of(Kind.SUMMARY, 0)[:4]

    def join(*_: object) -> None:
        with commit.replacing(files, compacted_name(files)) as out:
            rewrite(Run("run", str(records), files), out, 10**6, 0)

    if late:
        monkeypatch.setattr(commit, "recover", join)  # just before this process has the lock
    else:
        join()
    done = _compact_run(BUDGET, False, False, (listed, None))
    check(records)
    [run] = find_runs(records)
    assert run.nbytes == done.bytes_after <= BUDGET
    assert not [name for name in os.listdir(records) if "superseded" in name]


def test_damaged_files_leave_the_others_their_room(tmp_path: Path) -> None:
    records = tmp_path / "run"
    paths = []
    for number in range(10):
        steps = range(number * 200 + 1, number * 200 + 201)
        summary, _ = write_segment(records, *(event(step, scalar("loss", step)) for step in steps))
        paths.append(summary)
    size = paths[0].stat().st_size
    for number in (2, 6):
        damaged(paths[number])
    rested(records)
    [done] = compact(records, 7 * size // 2)
    assert {path for path, _ in done.left} == {str(paths[2]), str(paths[6])}
    assert 5 * size // 2 < done.bytes_after <= 7 * size // 2
    steps, _ = shown(records)
    assert (steps["loss"][0], steps["loss"][-1]) == (1, 2000)


def test_the_budget_that_an_error_asks_for_is_enough_for_all_ranks(tmp_path: Path) -> None:
    records = tmp_path / "run"
    for rank, count in enumerate((300, 20, 600)):
        for number in range(2):
            steps = range(number * 500 + 1, number * 500 + 501)
            notes = lineage(user_defined_info=custom({f"n{n}": n for n in range(count)}))
            losses = [event(step, scalar("loss", step)) for step in steps]
            summary, _ = write_segment(records, notes, *losses, rank=rank)
            if rank == 1 and number == 0:
                damaged(summary)
    rested(records)
    copy, budget = tmp_path / "copy", 100
    for _ in range(4):  # the others may lack room as well
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(copy)
        shutil.copytree(records, copy)
        try:
            compact(copy, budget)
            break
        except BudgetError as error:
            found = re.search(r"at least ([\d,]+) for the run", str(error))
            assert found is not None
            least = int(found[1].replace(",", ""))
            assert least > budget
            budget = least
    else:
        pytest.fail("no budget is enough")
    [run] = find_runs(records)
    assert 100 < budget < run.nbytes


def test_a_budget_that_is_too_small_leaves_no_replaced_files(tmp_path: Path) -> None:
    records = tmp_path / "run"
    for first in (1, 501):
        notes = lineage(user_defined_info=custom({f"n{n}": n for n in range(500)}))
        losses = [event(step, scalar("loss", step)) for step in range(first, first + 500)]
        write_segment(records, notes, *losses)
    rested(records)
    with pytest.raises(BudgetError):
        compact(records, 100)
    assert any("compacted" in name for name in os.listdir(records))  # the lineage
    assert not [name for name in os.listdir(records) if "superseded" in name]


def test_files_without_records_need_no_room(tmp_path: Path) -> None:
    records = tmp_path / "run"
    _, path = write_segment(records, lineage(user_defined_info=custom({"notes": "x" * 1000})))
    for summary in records.glob("*_MS"):
        summary.write_bytes(b"")
    rested(records)
    [done] = compact(records, 100)
    assert path.exists()
    assert done.left == ()


def test_where_files_cannot_be_locked_none_is_compacted(tmp_path: Path) -> None:
    """There, those that are being written look like the others."""
    writer = RunWriter(tmp_path, 0, Rotation(max_file_size=3000))
    for step in range(1, 1000):
        writer.write(MessageRecord(event(step, scalar("loss", step))))
    writer.flush()
    own = {file.name.stamp for file in list_files(str(tmp_path))}
    for segment in writer._open.values():
        fcntl.flock(segment._fd, fcntl.LOCK_UN)  # as if it had never been
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="a file system with flock"):
        keep_within(str(tmp_path), 0, 32_000, own=own)
    assert set(os.listdir(tmp_path)) >= set(before)
    writer.close()
    assert shown(tmp_path)[0] == {"loss": list(range(1, 1000))}


def test_a_file_that_was_being_created_is_not_replaced(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, 0, Rotation(max_file_size=3000))
    for step in range(1, 200):
        writer.write(MessageRecord(event(step, scalar("loss", step))))
    writer.flush()
    newest = writer._open[Kind.SUMMARY]
    fcntl.flock(newest._fd, fcntl.LOCK_UN)  # as at the moment between creation and lock
    work = _RankWork()
    rows, _ = work.rows(list_files(str(tmp_path)))
    fcntl.flock(newest._fd, fcntl.LOCK_EX)
    assert [row[-1].file.path for row in rows] == [newest.path]
    work.join(rows[0], 10**6, 0)
    assert (work.done, list(work.left)) == ([], [newest.path])
    writer.close()
    assert shown(tmp_path)[0] == {"loss": list(range(1, 200))}


def test_a_file_whose_name_is_no_text_is_left(tmp_path: Path) -> None:
    records = tmp_path / "run"
    paths = []
    for number in range(5):
        steps = range(number * 200 + 1, number * 200 + 201)
        paths += write_segment(records, *(event(step, scalar("loss", step)) for step in steps))
    odd = os.fsencode(paths[4]).replace(b"events.out", b"\xff.out")
    os.rename(paths[4], odd)
    rested(records)
    [done] = compact(records, 20_000)
    assert done.left == ((os.fsdecode(odd), "its name is not UTF-8"),)
    assert done.bytes_after <= 20_000
    assert shown(records)[0]["loss"][-1] == 1000
