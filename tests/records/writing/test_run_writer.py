import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.failures import Troubles
from rec_summary.records.format.bounds import MOST_BYTES
from rec_summary.records.format.names import Kind, parse_name
from rec_summary.records.locks import LOCK_NAME, file_lock
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import find_runs, list_files
from rec_summary.records.writing.record import MessageRecord, Record
from rec_summary.records.writing.retention import LEAST_BYTES, MOST_FILES, Retention
from rec_summary.records.writing.run_writer import FILE_VERSION, Durability, Rotation, RunWriter
from tests.support.disk import Disk
from tests.support.waiting import PATIENCE_SECS, eventually


def payloads(run, kind):
    [file] = run.files_of(kind, run.ranks[0])
    with RecordReader(file.path) as reader:
        return [record.payload for record in reader]


def test_records_go_into_the_file_of_their_kind_behind_a_version(tmp_path):
    writer = RunWriter(tmp_path / "records", rank=3)
    event = summary_pb2.Event(wall_time=12.5, step=7)
    event.summary.value.add(tag="loss", scalar_value=0.5)
    lineage = lineage_pb2.LineageEvent(wall_time=13.5)
    lineage.train_lineage.algorithm.network = "WideDeep"
    writer.write(MessageRecord(event))
    writer.write(MessageRecord(lineage))
    writer.close()
    [run] = find_runs(tmp_path)
    assert run.ranks == (3,)
    first, second = map(summary_pb2.Event.FromString, payloads(run, Kind.SUMMARY))
    assert first.version == FILE_VERSION
    assert second == event
    first, second = map(lineage_pb2.LineageEvent.FromString, payloads(run, Kind.LINEAGE))
    assert first.version == FILE_VERSION
    assert second == lineage


def test_a_record_that_no_reader_takes_is_refused(tmp_path):
    writer = RunWriter(tmp_path)
    with pytest.raises(OSError, match=r"a record of 268,435,457 bytes; readers take 268,435,456"):
        writer.write(Record(lambda: bytes(MOST_BYTES + 1), 0))
    writer.write(MessageRecord(summary_pb2.Event(wall_time=1, step=1)))
    writer.close()
    _, last = map(summary_pb2.Event.FromString, payloads(find_runs(tmp_path)[0], Kind.SUMMARY))
    assert last.step == 1


def test_two_writers_on_one_directory_have_files_of_their_own(tmp_path):
    writers = [RunWriter(tmp_path) for _ in range(3)]
    paths = [path for writer in writers for path in writer.paths]
    for writer in writers:
        writer.close()
    assert len(set(paths)) == 6


class Sized:
    """A summary record of a known size."""

    kind = Kind.SUMMARY
    nbytes = 0

    def __init__(self, step, size=200):
        event = summary_pb2.Event(wall_time=1.0, step=step)
        event.summary.value.add(tag="x" * size, scalar_value=step)
        self._payload = event.SerializeToString()

    def encode(self):
        return self._payload


def steps_of_files(directory):
    [run] = find_runs(directory)
    found = []
    for file in run.files_of(Kind.SUMMARY, 0):
        with RecordReader(file.path) as reader:
            events = [summary_pb2.Event.FromString(record.payload) for record in reader]
        assert events[0].version == FILE_VERSION
        found.append([event.step for event in events[1:]])
    return found


def steps(directory):
    return [step for of_file in steps_of_files(directory) for step in of_file]


def put(writer, *steps, ends=True):
    """Writes records of some steps, and closes the writer; returns it."""
    for step in steps:
        writer.write(Sized(step))
    if ends:
        writer.close()
    return writer


def limited(directory, max_file_size, **options):
    """Returns a writer of files of a limited size."""
    return RunWriter(directory, rotation=Rotation(max_file_size=max_file_size), **options)


def begun_and_deleted(directory, **options):
    """Returns a writer whose files are deleted after the first record."""
    writer = put(RunWriter(directory, **options), 1, ends=False)
    writer.flush()
    shutil.rmtree(directory)
    return writer


def test_a_full_file_is_followed_by_the_next_and_nothing_is_lost(tmp_path):
    writer = put(limited(tmp_path, 1000), *range(1, 101), ends=False)
    writer.write(MessageRecord(lineage_pb2.LineageEvent(wall_time=1.0, step=100)))
    writer.close()
    found = steps_of_files(tmp_path)
    assert len(found) > 10
    assert steps(tmp_path) == list(range(1, 101))
    [run] = find_runs(tmp_path)
    sizes = [os.path.getsize(file.path) for file in run.files_of(Kind.SUMMARY, 0)]
    assert max(sizes) < 1000 + 300
    assert len(run.files_of(Kind.LINEAGE, 0)) == 1


def test_a_limit_below_one_record_still_records_everything(tmp_path):
    # MindSpore's collector stops at the limit, and at 300 bytes loses the lineage too
    put(limited(tmp_path, 1), *range(1, 6))
    assert steps_of_files(tmp_path) == [[1], [2], [3], [4], [5]]


def test_a_file_of_exactly_the_limit_is_full(tmp_path):
    writer = put(RunWriter(tmp_path / "one"), 1)
    limit = os.path.getsize(writer.paths[0])
    put(limited(tmp_path / "two", limit), 1, 2)
    assert steps_of_files(tmp_path / "two") == [[1], [2]]


def test_prefix_and_suffix_stay_the_same_in_every_file(tmp_path):
    put(limited(tmp_path, 1000, prefix="mine", suffix="_v2"), *range(1, 21))
    assert steps(tmp_path) == list(range(1, 21))
    [run] = find_runs(tmp_path)
    names = [os.path.basename(file.path) for file in run.files_of(Kind.SUMMARY, 0)]
    assert len(names) > 2
    assert all(name.startswith("mine.out.") and name.endswith("_v2") for name in names)
    [lineage] = run.files_of(Kind.LINEAGE, 0)
    assert os.path.basename(lineage.path).startswith("mine.out.")


def test_deleted_files_are_begun_again(tmp_path):
    troubles = Troubles()
    writer = begun_and_deleted(tmp_path / "records", troubles=troubles)
    writer.write(Sized(2))
    writer.flush()
    assert sorted(held_below(tmp_path)) == sorted(writer.paths)
    now = sum(map(os.path.getsize, writer.paths))
    assert writer.bytes_written > now  # with those that were deleted
    put(writer, 3)
    assert steps(tmp_path / "records") == [2, 3]
    assert troubles.counts == {"record file deleted": 2}


def test_a_moved_directory_goes_on_where_it_is_and_rotates_at_the_old_place(tmp_path):
    writer = put(limited(tmp_path / "old", 500), 1, ends=False)
    (tmp_path / "old").rename(tmp_path / "new")
    put(writer, *range(2, 6))
    assert steps(tmp_path / "new") + steps(tmp_path / "old") == [1, 2, 3, 4, 5]


@pytest.fixture
def disk():
    return Disk()


@pytest.mark.parametrize(
    ("policy", "flushed", "closed"), [("never", 0, 0), ("close", 0, 2), ("flush", 2, 2)]
)
def test_files_are_forced_to_the_disk_as_chosen(tmp_path, disk, policy, flushed, closed):
    writer = put(
        RunWriter(tmp_path, durability=Durability(fsync=policy), system=disk), 1, ends=False
    )
    writer.flush()
    assert len(disk.synced) == flushed
    del disk.synced[:]
    writer.close()
    assert len(set(disk.synced)) == closed


def test_the_name_of_the_next_file_and_a_full_one_are_forced_to_the_disk(tmp_path, monkeypatch):
    real, synced = os.fsync, []

    def fsync(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)  # nobody can see what is on the disk
    writer = limited(tmp_path, 1)
    full = writer.paths[0]
    writer.write(Sized(1))
    del synced[:]
    writer.write(Sized(2))
    assert synced == [str(tmp_path), full]
    writer.close()


def test_bytes_are_counted_over_all_files(tmp_path):
    writer = put(limited(tmp_path, 500), *range(1, 9))
    assert writer.bytes_written == sum(path.stat().st_size for path in tmp_path.glob("events*"))


def test_a_rotation_on_a_full_disk_loses_nothing(tmp_path, disk):
    """A new file can be created there, but what the old one still holds fits nowhere."""
    writer = put(limited(tmp_path, 1000, system=disk), *range(1, 4), ends=False)
    disk.failing = errno.ENOSPC
    writer.write(Sized(4))  # the file is full now
    for step in range(5, 31):
        with pytest.raises(OSError, match="No space left"):
            writer.write(Sized(step))
    disk.failing = None
    put(writer, 31)
    assert steps(tmp_path) == list(range(1, 32))


def test_the_records_that_fit_are_forced_to_the_disk(tmp_path, disk):
    writer = put(
        RunWriter(tmp_path, durability=Durability(fsync="flush"), system=disk), 1, ends=False
    )
    disk.failing = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    assert sorted(disk.synced) == sorted(writer.paths)
    del disk.synced[:]
    with pytest.raises(OSError, match="No space left"):
        writer.close()
    assert len(disk.synced) == 2


def held_below(directory):
    """Returns what this process holds open below a directory, deleted files included."""
    paths = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [path for path in paths if path.startswith(str(directory))]


def test_a_writer_that_cannot_begin_leaves_no_files_and_holds_none(tmp_path, disk):
    disk.failing = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            RunWriter(tmp_path / "records", system=disk)
    assert list_files(str(tmp_path / "records")) == ()
    assert held_below(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, None])
def test_a_full_disk_or_a_large_record_asks_for_compaction(tmp_path, disk, number):
    """Nothing else asks between two rotations: the directory is listed each time."""
    retention = Rotation(retention=Retention(LEAST_BYTES))
    writer = put(RunWriter(tmp_path, rotation=retention, system=disk), 1, ends=False)
    for step in range(2, MOST_FILES + 4):
        put(RunWriter(tmp_path), step)
    writer.write(Sized(1000))
    before = len(list_files(str(tmp_path)))
    if number is None:
        writer.write(Sized(1001, size=LEAST_BYTES // 32))
    else:
        disk.failing = number
        with pytest.raises(OSError, match=os.strerror(number)):
            writer.flush()
        disk.failing = None
    eventually(lambda: len(list_files(str(tmp_path))) < before)
    writer.close()
    assert {1, 1000} <= set(steps(tmp_path))


def test_a_deleted_file_is_noticed_before_it_is_full(tmp_path):
    troubles = Troubles()
    rotation = Rotation(max_file_size=1000)
    writer = begun_and_deleted(tmp_path / "records", rotation=rotation, troubles=troubles)
    put(writer, *range(2, 20))
    assert steps(tmp_path / "records") == list(range(2, 20))
    assert troubles.counts == {"record file deleted": 2}


def test_what_waits_when_files_are_deleted_is_written_at_the_end(tmp_path):
    writer = put(RunWriter(tmp_path / "records"), 1, ends=False)
    shutil.rmtree(tmp_path / "records")
    writer.close()
    assert steps_of_files(tmp_path / "records") == [[1]]


def test_a_directory_that_is_deleted_behind_the_last_record_stays_so(tmp_path):
    begun_and_deleted(tmp_path / "records").close()
    assert not (tmp_path / "records").exists()


def test_where_no_file_can_be_begun_again_records_wait_and_the_other_file_is_served(tmp_path):
    writer = RunWriter(tmp_path / "records")
    os.unlink(writer.paths[0])
    os.rename(tmp_path / "records", tmp_path / "moved")  # with the lineage, which is not lost
    (tmp_path / "records").write_bytes(b"in the way")
    event = lineage_pb2.LineageEvent(wall_time=1.0, step=5)
    for record in (Sized(1), MessageRecord(event)):
        with pytest.raises(OSError, match="not a directory"):
            writer.write(record)
    with pytest.raises(FileNotFoundError, match="was deleted"):
        writer.flush()
    [moved] = find_runs(tmp_path / "moved")
    assert lineage_pb2.LineageEvent.FromString(payloads(moved, Kind.LINEAGE)[1]) == event
    (tmp_path / "records").unlink()
    writer.flush()
    assert steps_of_files(tmp_path / "records") == [[1]]
    writer.close()


def begun(directory, **options):
    """Returns the paths of the files of a writer that writes nothing."""
    writer = RunWriter(directory, **options)
    writer.close()
    return writer.paths


def test_directory_and_files_are_private(tmp_path):
    paths = begun(tmp_path / "deep" / "records")
    assert (tmp_path / "deep" / "records").stat().st_mode & 0o777 == 0o700
    assert [os.stat(path).st_mode & 0o777 for path in paths] == [0o600, 0o600]


def test_pairs_share_a_stamp_and_later_ones_sort_later_within_a_second(tmp_path):
    stamps = []
    for _ in range(4):
        begun(tmp_path)
        stamps += {f.name.stamp for f in list_files(str(tmp_path))} - {*stamps}
    assert len(stamps) == 4
    assert stamps == sorted(stamps)


def test_a_clock_that_steps_back_does_not_reorder_files(tmp_path):
    (tmp_path / "events.out.events.summary.9999999999.0.host_MS").write_bytes(b"")
    begun(tmp_path)
    assert list_files(str(tmp_path))[-1].name.stamp == 10_000_000_000
    begun(tmp_path, rank=1)  # behind its own files only
    assert list_files(str(tmp_path))[0].name.rank == 1


def test_names_are_chosen_under_the_lock_of_the_directory(tmp_path):
    found = []
    beginning = threading.Thread(target=lambda: found.extend(begun(tmp_path)))
    with file_lock(str(tmp_path / LOCK_NAME), timeout=0):
        beginning.start()
        time.sleep(0.2)  # without the lock, it would choose in this time
        (tmp_path / "events.out.events.summary.9999999999.0.host_MS").write_bytes(b"")
    beginning.join()
    assert [parse_name(os.path.basename(path)).stamp for path in found] == [10_000_000_000] * 2


def test_eight_processes_at_once_never_share_a_file(tmp_path):
    code = (
        "import sys; from rec_summary.records.writing.run_writer import RunWriter\n"
        "for _ in range(5): w = RunWriter(sys.argv[1]); w.close(); print(*w.paths)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    said = [process.communicate(timeout=PATIENCE_SECS)[0] for process in processes]
    paths = b" ".join(said).split()
    assert all(process.returncode == 0 for process in processes)
    assert len(paths) == len(set(paths)) == 8 * 5 * 2


def test_a_prefix_and_a_suffix_are_used_and_stamps_stay_unique_among_all(tmp_path):
    stamps = []
    for prefix, suffix in (("events", "_MS"), ("mine", "_v2"), ("events", "_MS")):
        names = [os.path.basename(path) for path in begun(tmp_path, prefix=prefix, suffix=suffix)]
        assert all(name.startswith(f"{prefix}.out.events.summary.") for name in names)
        assert names[0].endswith(suffix)
        assert names[1].endswith("_lineage")
        stamps.append({f.name.stamp for f in list_files(str(tmp_path))} - set().union(*stamps))
    assert [len(new) for new in stamps] == [1, 1, 1]
    [run] = find_runs(tmp_path)
    prefixes = [file.name.prefix for file in run.files_of(Kind.SUMMARY, 0)]
    assert prefixes == ["events", "mine", "events"]
