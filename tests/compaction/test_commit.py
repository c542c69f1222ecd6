"""Replacing files: a crash at any moment loses nothing and shows nothing twice."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rec_summary._pb.summary_pb2 import Event
from rec_summary.compaction import commit, directory
from rec_summary.compaction.directory import CompactionError, keep_within
from rec_summary.compaction.rewriting import compacted_name, rewrite
from rec_summary.records.format.names import hidden_path
from rec_summary.records.reading.runs import Run, find_runs, list_files
from rec_summary.records.writing.retention import rank_bytes
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import recorded_values
from tests.support.compacting import BUDGET, EDGES, ROOT, check, compact, write_records
from tests.support.record_dirs import losses, summary_name, write_payloads, write_segment


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "run")


def test_a_kill_at_each_step_loses_nothing(records: Path, tmp_path: Path) -> None:
    whole = tmp_path / "copy"
    shutil.copytree(records, whole)
    finished = compact(whole, 0)
    calls = int(finished.stdout)
    assert finished.stderr == ""
    assert calls > 20
    check(whole)
    for number in (2, 7, 9, calls // 2):
        killed = tmp_path / str(number)
        shutil.copytree(records, killed)
        assert compact(killed, number).returncode == -9
        check(killed)
        assert keep_within(str(killed), 0, BUDGET) or number > calls // 2
        check(killed)
        commit.sweep(str(killed), 0)
        names = {name for name in os.listdir(killed) if "summary" in name and "_MS" in name}
        assert not any(name.startswith(".") for name in names if "superseded" in name)
        assert names == {name for name in os.listdir(whole) if "_MS" in name}


def test_the_files_are_replaced_when_the_new_one_gets_its_name(records: Path) -> None:
    files = [file for file in list_files(str(records)) if file.name.kind.name == "SUMMARY"][:4]
    for number, file in enumerate(files):
        os.utime(file.path, (1.6e9 + number, 1.6e9 + number))
    name = compacted_name(files)
    with commit.replacing(files, name) as out:
        rewrite(Run("run", str(records), tuple(files)), out, [2])
        assert (records / ".rec_summary-compacting-0.tmp").exists()  # `recover` removes it
        check(records, complete=True)
    check(records)
    assert (records / name).stat().st_mtime == 1.6e9 + 3  # by which readers leave files out
    assert [os.path.exists(file.path) for file in files] == [False] * 4
    assert all(os.path.exists(hidden_path(file.path)) for file in files)
    before = rank_bytes(str(records), 0)
    other_rank = write_payloads(Path(hidden_path(str(records / summary_name(5, rank=1)))), b"")
    odd = Path(hidden_path(str(records / summary_name(6))))
    odd.mkdir()
    commit.sweep(str(records), 0)
    assert other_rank.exists()
    odd.rmdir()
    assert rank_bytes(str(records), 0) < before
    assert not any(os.path.exists(hidden_path(file.path)) for file in files)
    check(records)


def test_a_file_that_somebody_has_removed_meanwhile_is_no_failure(records: Path) -> None:
    files = [file for file in list_files(str(records)) if file.name.kind.name == "SUMMARY"][:4]
    with commit.replacing(files, compacted_name(files)) as out:
        rewrite(Run("run", str(records), tuple(files)), out, [2])
        os.unlink(files[1].path)
    check(records)


def test_a_reader_with_a_list_from_before_goes_on(records: Path) -> None:
    [run] = find_runs(records)
    values = recorded_values(run, ("scalar_value",), EVERYTHING, report := Report())
    first = next(values)
    assert keep_within(str(records), 0, _roomy(records))
    steps = [first.step, *(value.step for value in values if value.recorded.tag == "metric_0")]
    assert steps == list(EDGES)
    assert report.problems == []


def _roomy(records: Path) -> int:
    """Returns a budget that has room for the replaced files as well."""
    return find_runs(records)[0].nbytes * 114 // 100


def test_readers_at_each_moment(records: Path) -> None:
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            check(records)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            assert keep_within(str(records), 0, _roomy(records))
        finally:
            done.set()
        reading.result()
    check(records)


def test_a_full_disk_leaves_the_old_files(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = [name for name in sorted(os.listdir(records)) if "lock" not in name]
    monkeypatch.setattr(os, "fsync", full)  # no disk here fills up just then
    with pytest.raises(OSError, match="No space left"):
        keep_within(str(records), 0, BUDGET)
    monkeypatch.undo()
    left = sorted(os.listdir(records))
    assert [name for name in left if "lock" not in name] == before
    check(records, complete=True)


_LIMITED = """
import resource, sys
from rec_summary.compaction.directory import keep_within
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
try:
    keep_within(sys.argv[1], 0, int(sys.argv[2]))
except OSError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)  # coverage writes a file at the end
"""


def test_a_limit_on_the_size_of_files_leaves_the_old_files(records: Path) -> None:
    # In a process of its own: it is about all files of a process.
    command = [sys.executable, "-c", _LIMITED, str(records), str(BUDGET)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{errno.EFBIG}\n", "")
    check(records, complete=True)
    assert not [name for name in os.listdir(records) if name.endswith(".tmp")]


@pytest.mark.parametrize("output", [False, True])
def test_links_are_neither_followed_nor_removed(
    records: Path, tmp_path: Path, *, output: bool
) -> None:
    [message] = losses([1], tag="secret")
    secret = write_payloads(tmp_path / "secret", message.SerializeToString())
    before = secret.read_bytes()
    link = records / "events.out.events.summary.1700000000.0.host_MS"
    link.symlink_to(secret)
    for hidden in (".rec_summary-compacting-0.tmp", ".rec_summary.compaction-0.lock"):
        (records / hidden).symlink_to(tmp_path / "secret")
    place = tmp_path / "out" if output else None
    with pytest.raises(CompactionError, match="it is a link"):
        directory.compact(records, BUDGET, output=place)
    if not output:
        (records / ".rec_summary.compaction-0.lock").unlink()
        [run] = directory.compact(records, BUDGET)
        assert str(link) in dict(run.left)
        assert run.bytes_after <= BUDGET
    assert link.is_symlink()
    assert secret.read_bytes() == before
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.glob("out/*"))


@pytest.mark.parametrize(("kind", "ending"), [("flock", "lock"), ("soft", "lock.soft")])
def test_one_process_compacts_at_a_time(records: Path, kind: str, ending: str) -> None:
    left = records / ".rec_summary-compacting-0.tmp"  # of one that was killed
    left.touch()
    with commit.locked(str(records), 0, kind):
        assert not left.exists()
        assert (records / f".rec_summary.compaction-0.{ending}").exists()
        left.touch()  # of the one that has the lock
        assert keep_within(str(records), 0, BUDGET, lock=kind) == []
        assert left.exists()
    check(records, complete=True)


def write_head(directory: Path, name: str, *superseded: str) -> None:
    """Writes a compacted file of which there is the head only."""
    head = Event(wall_time=1.0, version="MindSpore.Event:1")
    head.compaction.superseded.extend(superseded)
    write_payloads(directory / f"events.compacted-{name}.host_MS", head.SerializeToString())


def test_a_head_cannot_remove_files_that_are_not_its_own(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *losses([1]))
    (tmp_path / "outside").write_text("x")
    outside = write_payloads(tmp_path / summary_name(20), b"")
    names = [
        *("../outside", f"../{outside.name}", str(outside), "/etc/passwd", "notes.txt"),
        *(summary_name(5), summary_name(10**9, 3)),
    ]
    (tmp_path / "run" / "notes.txt").write_text("x")
    stranger = write_payloads(tmp_path / "run" / summary_name(10**9, 3), b"")
    write_head(tmp_path / "run", "99-0001.out.events.summary.10.0", *names)
    commit.recover(str(tmp_path / "run"), 0)
    others = [tmp_path / "outside", outside, tmp_path / "run" / "notes.txt", stranger]
    assert [path for path in others if not path.exists()] == []
    assert len(list_files(str(tmp_path / "run"))) == 4


def test_what_another_rank_has_begun_is_left_to_it(tmp_path: Path) -> None:
    replaced = write_payloads(tmp_path / summary_name(15, rank=1))
    write_head(tmp_path, "20-0001.out.events.summary.10.1", replaced.name)
    commit.recover(str(tmp_path), 0)
    assert replaced.exists()
    commit.recover(str(tmp_path), 1)
    assert not replaced.exists()


def test_heads_cannot_hide_each_other_or_a_file_that_is_written(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    live = Path(writer.paths[0])
    stamp = list_files(str(tmp_path))[0].name.stamp
    heads = [f"{stamp}-000{number}.out.events.summary.{stamp - 5}.0" for number in (1, 2)]
    names = [f"events.compacted-{head}.host_MS" for head in heads]
    directory = summary_name(stamp - 1)
    (tmp_path / directory).mkdir()
    for head in heads:
        write_head(tmp_path, head, *names, live.name, directory)
    shown = {os.path.basename(file.path) for file in list_files(str(tmp_path))}
    assert names[1] in shown  # the later compaction of the two
    commit.recover(str(tmp_path), 0)
    assert live.exists()
    assert (tmp_path / directory).is_dir()
    assert (tmp_path / names[1]).exists()
    writer.close()
