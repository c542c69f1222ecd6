"""Which files of a directory are compacted, and how much room each has."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.compaction import commit
from rec_summary.compaction.directory import BudgetError, RunWork, compact, keep_within
from rec_summary.compaction.rewriting import compacted_name, rewrite
from rec_summary.errors import ArgumentError
from rec_summary.records.format.names import Kind, hidden_path
from rec_summary.records.liveness import hold
from rec_summary.records.reading.runs import Run, compaction_of, find_runs, list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.retention import MOST_FILES
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from tests.support import record_dirs
from tests.support.compacting import BUDGET, check, shown, write_records
from tests.support.damage import flip
from tests.support.record_dirs import event, lineage, losses, scalar, tree, write_segment

OLD = 1_700_000_000  # no process writes a file that has not changed since then


def rested(directory: Path) -> None:
    """Makes files look as if nobody had written them for a long time."""
    for path in directory.iterdir():
        os.utime(path, (OLD, OLD))


def segments(directory: Path, count: int, size: int, *also: object, rank: int = 0) -> list[Path]:
    """Writes files of so many losses each, the first one at step 1; returns the summary files."""
    firsts = range(1, count * size + 1, size)
    return [
        write_segment(directory, *also, *losses(range(first, first + size)), rank=rank)[0]
        for first in firsts
    ]


def notes(**entries: object) -> object:
    """Returns a record of the lineage with these entries."""
    return lineage(user_defined_info=record_dirs.custom(entries))


def test_files_that_another_process_has_compacted_meanwhile_count_once(tmp_path: Path) -> None:
    records = write_records(tmp_path / "run")
    rested(records)
    files = find_runs(records)[0].files_of(Kind.SUMMARY, 0)[:4]
    sizes: list[int] = []

    def join(*_: object) -> None:  # when the files are listed
        if not sizes:
            with commit.replacing(files, compacted_name(files)) as out:
                rewrite(Run("run", str(records), files), out, [0])
            sizes.append(find_runs(records)[0].nbytes)

    [done] = compact(records, BUDGET, progress=join)
    assert [done.bytes_before] == sizes
    check(records)
    [run] = find_runs(records)
    assert run.nbytes == done.bytes_after <= BUDGET
    assert not [name for name in os.listdir(records) if "superseded" in name]


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=20, max_size=400),
    st.integers(1, 40),
    st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)),
)
def test_whatever_the_budget_the_extremes_of_each_bucket_stay_exact(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[float],
    gap: int,
    parts: tuple[float, float],
) -> None:
    records = tmp_path_factory.mktemp("tree") / "run"
    recorded = {gap * number: value for number, value in enumerate(values)}
    messages = [event(step, scalar("loss", value)) for step, value in recorded.items()]
    for first in range(0, len(messages), 150):
        write_segment(records, *messages[first : first + 150])
    rested(records)
    for part in parts:  # a compacted directory is compacted again
        with contextlib.suppress(BudgetError):
            compact(records, max(int(find_runs(records)[0].nbytes * part), 1))
        [run] = find_runs(records)
        heads = [head for head in map(compaction_of, run.files) if head is not None]
        width = max((head.bucket_steps for head in heads), default=1)
        [(_, columns)] = finished_scalars(run, EVERYTHING, Report())
        kept = dict(zip(columns.steps.tolist(), columns.values.tolist(), strict=True))
        assert kept.items() <= recorded.items()
        for bucket in {step // width for step in recorded}:
            before, after = (
                [value for step, value in each.items() if step // width == bucket]
                for each in (recorded, kept)
            )
            assert (min(before), max(before)) == (min(after), max(after))
        rested(records)


def test_a_dry_run_a_copy_and_a_replacement_do_the_same(tmp_path: Path) -> None:
    records, output = tmp_path / "run", tmp_path / "small"
    flip(segments(records, 4, 200)[2])
    *_, last = segments(records, 2, 200, rank=1)
    rested(records)
    for name in (".rec_summary-compacting-0.tmp", os.path.basename(hidden_path(str(last)))):
        (records / name).write_bytes(b"x")  # of a compaction that was killed
    before = tree(records)
    budget = 2 * find_runs(records)[0].nbytes // 3
    seen: list[tuple[str, int, int]] = []
    [dry] = compact(records, budget, dry_run=True, progress=lambda *args: seen.append(args))
    assert seen == [("run", 0, dry.bytes_before), ("run", dry.bytes_before, dry.bytes_before)]
    assert compact(records, budget, dry_run=True, output=output) == [dry]
    assert not output.exists()
    assert compact(records, budget, output=output) == [dry]
    assert tree(records) == before
    assert compact(records, budget) == [dry]
    after = {name: data for name, data in tree(records).items() if not name.endswith(".lock")}
    assert tree(output) == after
    assert dry.bytes_before == sum(len(data) for name, data in before.items() if name[0] != ".")
    assert dry.bytes_after == sum(map(len, after.values())) <= budget
    assert {replacement.rank for replacement in dry.replaced} == {0, 1}
    assert [why[:6] for _, why in dry.left] == ["offset"]
    widths = {(replacement.kind, replacement.bucket_steps == 1) for replacement in dry.replaced}
    assert widths == {("lineage", True), ("summary", False)}


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        *(("total_bytes", value, "total_bytes is invalid") for value in (True, 1e6, 0)),
        *(("output", name, "an empty directory, or one that do") for name in ("file", "full")),
        ("source", "http://host/records", "a local directory, or an output as well"),
    ],
)
def test_arguments_are_checked_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    record_dirs.write_payloads(Path("file"))
    record_dirs.write_payloads(Path("full/file"))
    arguments: dict[str, Any] = {"source": "nothing", "total_bytes": 1, name: value}
    with pytest.raises(ArgumentError, match=what):
        compact(**arguments)


def test_a_copy_may_be_made_in_an_empty_directory(tmp_path: Path) -> None:
    paths = write_segment(tmp_path / "run", *losses([1]))
    rested(tmp_path / "run")
    paths[0].chmod(0o4640)
    (tmp_path / "empty").mkdir()
    compact(tmp_path / "run", 10**6, output=tmp_path / "empty")
    assert shown(tmp_path / "empty")[0] == {"loss": [1]}
    assert (tmp_path / "empty" / paths[0].name).stat().st_mode & 0o7777 == 0o640
    # Readers leave files out by their times.
    assert {(tmp_path / "empty" / path.name).stat().st_mtime for path in paths} == {OLD}


def test_records_at_a_url_are_compacted_as_those_in_a_directory(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    records, url = tmp_path / "runs" / "run", f"memory://{tmp_path.name}"
    paths = segments(records, 3, 500)
    flip(paths[0])
    rested(records)
    fsspec.filesystem("memory").put(str(tmp_path / "runs"), f"/{tmp_path.name}", recursive=True)
    budget = find_runs(records)[0].nbytes * 3 // 4
    [local] = compact(tmp_path / "runs", budget, output=tmp_path / "local")
    assert len(local.left) == 1
    for dry_run in (True, False):
        [done] = compact(url, budget, output=tmp_path / "small", dry_run=dry_run)
        assert done.path == f"{url}/run"
        assert (done.run, done.bytes_before, done.bytes_after, done.replaced) == (
            (local.run, local.bytes_before, local.bytes_after, local.replaced)
        )
        assert [path for path, _ in done.left] == [f"{url}/run/{paths[0].name}"]
        assert (tmp_path / "small").exists() != dry_run
    assert tree(tmp_path / "small") == tree(tmp_path / "local")
    [dry] = compact(url, budget, dry_run=True)  # the files were put there a moment ago
    assert len(dry.left) == 3


def test_files_of_a_writer_that_rests_are_left(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.flush()
    rested(tmp_path)
    [done] = compact(tmp_path, 10)
    assert dict(done.left) == dict.fromkeys(writer.paths, "a process is writing it")
    writer.close()


def test_damaged_files_leave_the_others_their_room(tmp_path: Path) -> None:
    records = tmp_path / "run"
    paths = segments(records, 10, 200)
    size = paths[0].stat().st_size
    for number in (2, 6):
        flip(paths[number])
    rested(records)
    [done] = compact(records, 7 * size // 2)
    assert {path for path, _ in done.left} == {str(paths[2]), str(paths[6])}
    assert 5 * size // 2 < done.bytes_after <= 7 * size // 2
    steps, _ = shown(records)
    assert (steps["loss"][0], steps["loss"][-1]) == (1, 2000)


def test_the_budget_that_an_error_asks_for_is_enough_for_all_ranks(tmp_path: Path) -> None:
    records = tmp_path / "run"
    for rank, count in enumerate((300, 20, 600)):
        entries = {f"n{n}": n for n in range(count)}
        first, _ = segments(records, 2, 500, notes(**entries), rank=rank)
        if rank == 1:
            flip(first)
    rested(records)
    copy, budget = tmp_path / "copy", 100
    for _ in range(6):  # the others may lack room as well
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
    segments(records, 2, 500, notes(**{f"n{n}": n for n in range(500)}))
    rested(records)
    with pytest.raises(BudgetError):
        compact(records, 100)
    assert any("compacted" in name for name in os.listdir(records))  # the lineage
    assert not [name for name in os.listdir(records) if "superseded" in name]


def test_files_without_records_need_no_room(tmp_path: Path) -> None:
    records = tmp_path / "run"
    _, path = write_segment(records, notes(notes="x" * 1000))
    for summary in records.glob("*_MS"):
        summary.write_bytes(b"")
    rested(records)
    [done] = compact(records, 100)
    assert path.exists()
    assert done.left == ()


def test_where_files_cannot_be_locked_none_is_compacted(tmp_path: Path) -> None:
    """There, those that are being written look like the others."""
    segments(tmp_path, 10, 100)
    own = {file.name.stamp for file in list_files(str(tmp_path))}
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="a file system with flock"):
        keep_within(str(tmp_path), 0, 32_000, own=own)
    assert set(os.listdir(tmp_path)) >= set(before)
    assert shown(tmp_path)[0] == {"loss": list(range(1, 1001))}


def write_both(directory: Path, ours: int, theirs: int) -> tuple[list[RunWriter], list[set[int]]]:
    """Writes steps of two writers of a rank at once; returns the stamps of each as well."""
    writers = [RunWriter(directory, 0, Rotation(max_file_size=1000)) for _ in range(2)]
    paths: list[set[str]] = [set(), set()]
    for step in range(1, max(ours, theirs) + 1):
        for writer, last, written in zip(writers, (ours, theirs), paths, strict=True):
            if step <= last:
                writer.write(MessageRecord(event(step, scalar("loss", step), at=1e9 + step)))
            written.update(writer.paths)
    for writer in writers:
        writer.flush()
    files = list_files(str(directory))
    return writers, [{file.name.stamp for file in files if file.path in own} for own in paths]


@pytest.mark.parametrize("steps_of_theirs", [0, 200, 2000])
def test_a_writer_has_the_room_that_another_one_of_its_rank_leaves_or_half_of_the_budget(
    tmp_path: Path, steps_of_theirs: int
) -> None:
    writers, (own, other) = write_both(tmp_path, 1000, steps_of_theirs)
    budget = 32_000
    files = [file for file in list_files(str(tmp_path)) if file.name.stamp in other]
    theirs = {file.path: Path(file.path).read_bytes() for file in files}
    assert keep_within(str(tmp_path), 0, budget, own=own)
    part = max(budget - sum(map(len, theirs.values())), budget // 2)
    ours = sum(file.nbytes for file in list_files(str(tmp_path)) if file.name.stamp in own)
    assert 0.75 * part < ours <= part
    assert {path: Path(path).read_bytes() for path in theirs} == theirs
    for writer in writers:
        writer.close()


def test_a_writer_compacts_the_files_of_those_that_have_ended(tmp_path: Path) -> None:
    writers, (own, _) = write_both(tmp_path, 310, 2000)
    writers[1].close()
    keep_within(str(tmp_path), 0, 32_000, own=own)
    assert sum(file.nbytes for file in list_files(str(tmp_path))) <= 32_000
    writers[0].close()
    [run] = find_runs(tmp_path)
    found = {
        writer.number: columns.steps[[0, -1]].tolist()
        for writer, columns in finished_scalars(run, EVERYTHING, Report())
    }
    assert found == {1: [1, 310], 2: [1, 2000]}  # two writers, of which none continues the other


def test_what_was_written_after_a_file_was_listed_says_whose_it_is(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, 0)
    writer.write(MessageRecord(event(1, scalar("loss", 1), at=10)))
    writer.flush()
    work = RunWork()
    files = list_files(str(tmp_path))
    rows, writers = work.rows(files)
    assert (rows, work.lineage_groups(files, writers)) == ([], [])  # they are being written
    writer.write(MessageRecord(event(2, scalar("loss", 2), at=20)))
    writer.close()
    write_segment(tmp_path, event(1, scalar("loss", 3), at=15))  # of another writer at this time
    rows, _ = work.rows(list_files(str(tmp_path)))
    assert [len(row) for row in rows] == [1, 1]


@pytest.mark.parametrize(("count", "is_damaged", "left"), [(8, 0, 8), (9, 0, 1), (10, 1, 2)])
def test_more_than_a_number_of_lineage_files_are_joined(
    tmp_path: Path, count: int, left: int, *, is_damaged: bool
) -> None:
    paths = [write_segment(tmp_path, notes(start=start))[1] for start in range(count)]
    if is_damaged:
        flip(paths[3])
    keep_within(str(tmp_path), 0, 10**6)
    files = [file for file in list_files(str(tmp_path)) if file.name.kind is Kind.LINEAGE]
    assert len(files) == left


def test_the_states_of_a_long_training_become_one_before_they_take_the_room_of_values(
    tmp_path: Path,
) -> None:
    states = [record_dirs.train(status=RunState.RUNNING, step=step) for step in range(99)]
    _, path = write_segment(tmp_path, *(lineage(train_lineage=state) for state in states))
    nbytes = path.stat().st_size
    assert keep_within(str(tmp_path), 0, nbytes * 100) == []  # it takes little
    [done] = keep_within(str(tmp_path), 0, nbytes * 32)
    assert (done.kind, done.bytes_before) == ("lineage", nbytes)
    assert done.bytes_after < nbytes / 20
    assert keep_within(str(tmp_path), 0, nbytes * 32) == []  # once


def test_what_always_stays_may_be_larger_than_its_part(tmp_path: Path) -> None:
    for first in range(1, 2001, 500):
        write_segment(tmp_path, *losses(range(first, first + 500), tag="eval/auc"))
    assert keep_within(str(tmp_path), 0, 10_000)
    assert shown(tmp_path)[0] == {"eval/auc": list(range(1, 2001))}


def test_a_run_may_be_a_quarter_larger_than_its_budget(tmp_path: Path) -> None:
    records = tmp_path / "run"
    write_segment(records, *losses(range(9000), tag="eval/auc"))
    rested(records)
    nbytes = find_runs(records)[0].nbytes
    with pytest.raises(BudgetError):
        compact(records, int(nbytes * 0.75))
    assert find_runs(records)[0].nbytes == nbytes
    compact(records, int(nbytes * 0.85))


@pytest.mark.parametrize("count", [MOST_FILES, MOST_FILES + 1])
def test_many_files_are_joined_although_there_is_room(tmp_path: Path, count: int) -> None:
    records = tmp_path / "run"
    for message in losses(range(1, count + 1)):
        path = records / record_dirs.summary_name(message.step)
        record_dirs.write_payloads(path, message.SerializeToString())
    rested(records)
    [done] = compact(records, find_runs(records)[0].nbytes)  # exactly
    assert len(done.replaced) == (count > MOST_FILES)


def test_many_files_without_records_are_within_any_budget(tmp_path: Path) -> None:
    for stamp in range(200):
        record_dirs.write_payloads(tmp_path / record_dirs.summary_name(stamp))
    rested(tmp_path)
    [done] = compact(tmp_path, 100)
    assert (done.bytes_after, done.replaced) == (0, ())


def test_a_file_that_was_being_created_is_not_replaced(tmp_path: Path) -> None:
    segments(tmp_path, 2, 100)
    work = RunWork()
    rows, _ = work.rows(list_files(str(tmp_path)))
    newest = rows[0][-1].file.path
    with open(newest, "rb") as file:
        hold(file.fileno())  # as its writer does, a moment after it has created the file
        work.join(rows[0], 1)
    assert (work.done, list(work.left)) == ([], [newest])
    assert shown(tmp_path)[0] == {"loss": list(range(1, 201))}


def test_a_file_whose_name_is_no_text_is_left(tmp_path: Path) -> None:
    records = tmp_path / "run"
    path = segments(records, 5, 200)[2]
    odd = os.fsencode(path).replace(b"events.out", b"\xff.out")
    os.rename(path, odd)
    rested(records)
    [done] = compact(records, 20_000)
    assert done.left == ((os.fsdecode(odd), "its name is not UTF-8"),)
    assert done.bytes_after <= 20_000
    assert shown(records)[0]["loss"][-1] == 1000
