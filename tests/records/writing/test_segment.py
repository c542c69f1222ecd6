import contextlib
import errno
import os
import subprocess
import sys

import pytest

from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader, TruncatedRecord
from rec_summary.records.writing.segment import SegmentWriter, is_open_here
from tests.support.disk import Disk, mounted_disk


def read_all(path):
    with RecordReader(path) as reader:
        return [record.payload for record in reader]


def test_writes_what_the_reader_reads(tmp_path):
    writer = SegmentWriter(str(tmp_path / "s"))
    payloads = [b"", b"one", b"x" * 100_000]
    for payload in payloads:
        writer.write(payload)
    writer.close()
    assert read_all(tmp_path / "s") == payloads
    status = (tmp_path / "s").stat()
    assert writer.bytes_written == status.st_size
    assert status.st_mode & 0o777 == 0o600


def test_nothing_is_there_before_flush_and_all_of_it_after(tmp_path):
    writer = SegmentWriter(str(tmp_path / "s"))
    writer.write(b"one")
    assert read_all(tmp_path / "s") == []
    writer.flush()
    assert read_all(tmp_path / "s") == [b"one"]
    writer.close()
    writer.close()


def test_an_existing_file_is_never_touched(tmp_path):
    (tmp_path / "s").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        SegmentWriter(str(tmp_path / "s"))
    assert (tmp_path / "s").read_bytes() == b"somebody's"


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        SegmentWriter(str(tmp_path / "s"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def small_disk(tmp_path):
    with mounted_disk(tmp_path / "small", "256k") as folder:
        yield folder


def test_a_full_disk_leaves_whole_records_and_goes_on_when_there_is_room(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 150_000)
    writer = SegmentWriter(str(small_disk / "s"))
    payloads = [bytes([n]) * (100 if n % 2 else 20_000) for n in range(20)]
    failures = []
    for payload in payloads:
        try:
            writer.write(payload)
            writer.flush()
        except OSError as error:
            failures.append((error.errno, error.filename))
    assert len(failures) > 5
    assert set(failures) == {(errno.ENOSPC, writer.path)}  # an operator sees which disk is full
    survivors = read_all(small_disk / "s")  # raises if a torn record were there
    assert survivors == payloads[: len(survivors)]
    assert (small_disk / "s").stat().st_size == writer.bytes_written
    ballast.unlink()
    writer.close()
    assert read_all(small_disk / "s") == payloads


def test_with_too_little_room_for_all_records_the_first_ones_are_written(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 200_000)
    writer = SegmentWriter(str(small_disk / "s"))
    payloads = [bytes([n]) * 1000 for n in range(200)]
    for payload in payloads[:60]:
        writer.write(payload)
    with contextlib.suppress(OSError):
        for payload in payloads[60:]:
            writer.write(payload)
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    size = writer.bytes_written
    written = read_all(small_disk / "s")  # raises if a torn record were there
    assert len(written) > 5
    assert written == payloads[: len(written)]
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    assert writer.bytes_written >= size  # a reader never sees values that go again
    ballast.unlink()
    writer.close()
    read = read_all(small_disk / "s")
    assert len(read) > len(written)
    assert read == payloads[: len(read)]


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_them_all(tmp_path):
    disk = Disk()
    disk.at_once = 7
    writer = SegmentWriter(str(tmp_path / "s"), disk)
    writer.write(b"one")
    writer.write(b"two")
    writer.close()
    assert read_all(tmp_path / "s") == [b"one", b"two"]


def test_while_nothing_can_be_written_memory_stays_bounded(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * (256 << 10))
    writer = SegmentWriter(str(small_disk / "s"))
    refused = 0
    for _ in range(200):
        try:
            writer.write(b"x" * 100_000)
        except OSError:
            refused += 1
    assert refused > 0
    waiting = writer.size - writer.bytes_written
    assert (8 << 20) <= waiting < (8 << 20) + 2 * len(frame(b"x" * 100_000))
    with pytest.raises(OSError, match="No space left"):
        writer.close()


def test_a_kill_in_the_middle_leaves_at_most_one_torn_record(tmp_path):
    code = (
        "import sys\n"
        "from rec_summary.records.writing.segment import SegmentWriter\n"
        "w = SegmentWriter(sys.argv[1])\n"
        "n = 0\n"
        "while True:\n"
        "    w.write(n.to_bytes(4, 'big') * 5000); w.flush(); n += 1\n"
        "    print(n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")], stdout=subprocess.PIPE
    )
    flushed = 0
    while flushed < 50:
        flushed = int(process.stdout.readline())
    process.kill()
    flushed += len(process.stdout.read().splitlines())
    process.wait()
    seen = []
    with RecordReader(tmp_path / "s") as reader, contextlib.suppress(TruncatedRecord):
        seen.extend(record.payload for record in reader)
    assert len(seen) >= 50
    assert seen == [n.to_bytes(4, "big") * 5000 for n in range(len(seen))]
    assert os.path.getsize(tmp_path / "s") - reader.offset < len(frame(seen[0]))


class Uncut(Disk):
    """A disk that does not shorten a file while `refuses` is set."""

    refuses = True

    def ftruncate(self, fd, length):
        if self.refuses:
            raise OSError(errno.EIO, "cannot be cut")
        os.ftruncate(fd, length)


def test_nothing_is_appended_to_a_torn_record_that_cannot_be_cut_off(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * 200_000)
    disk = Uncut()
    writer = SegmentWriter(str(small_disk / "s"), disk)
    writer.write(b"whole")
    writer.flush()
    with pytest.raises(OSError, match="No space left"):
        writer.write(b"x" * 100_000)
    torn = (small_disk / "s").read_bytes()
    assert len(torn) > len(frame(b"whole"))  # half a record stands there
    (small_disk / "ballast").unlink()
    with pytest.raises(OSError, match="cannot be cut"):
        writer.flush()
    assert (small_disk / "s").read_bytes() == torn
    disk.refuses = False
    writer.close()
    assert read_all(small_disk / "s") == [b"whole", b"x" * 100_000]


def test_a_deleted_file_is_lost_and_a_moved_one_is_not(tmp_path):
    writer = SegmentWriter(str(tmp_path / "s"))
    assert not writer.is_lost
    (tmp_path / "s").rename(tmp_path / "moved")
    assert not writer.is_lost
    (tmp_path / "moved").unlink()
    assert writer.is_lost
    writer.close()
    assert not writer.is_lost


def test_what_is_not_written_yet_can_be_handed_over(tmp_path):
    old, new = SegmentWriter(str(tmp_path / "old")), SegmentWriter(str(tmp_path / "new"))
    old.write(b"one")
    old.flush()
    old.write(b"two")
    new.write(b"three")
    old.hand_over(new)
    assert not is_open_here(old.path)
    assert new.size == len(frame(b"three") + frame(b"two"))
    new.close()
    assert read_all(tmp_path / "old") == [b"one"]
    assert read_all(tmp_path / "new") == [b"three", b"two"]
    assert new.records == 2


def test_nothing_goes_into_a_deleted_file(tmp_path):
    writer = SegmentWriter(str(tmp_path / "s"))
    (tmp_path / "s").unlink()
    with pytest.raises(FileNotFoundError, match="was deleted"):
        writer.write(b"x" * 100_000)
    assert writer.has_pending
    assert writer.bytes_written == 0
    other = SegmentWriter(str(tmp_path / "s"))
    writer.hand_over(other)
    other.close()
    assert read_all(tmp_path / "s") == [b"x" * 100_000]


class Odd(Disk):
    """A file system that does not count the names of a file, or answers with an error."""

    def __init__(self, answer=None):
        super().__init__()
        self.answer = answer

    def fstat(self, fd):
        if self.answer is not None:
            raise OSError(self.answer, os.strerror(self.answer))
        return os.stat_result([0 if n == 3 else each for n, each in enumerate(os.fstat(fd))])


class Forgetful(Odd):
    """Counts the names of a file only when it is new."""

    is_new = True

    def fstat(self, fd):
        if self.is_new:
            self.is_new = False
            return os.fstat(fd)
        return super().fstat(fd)


@pytest.mark.parametrize(
    ("answer", "lost"), [(errno.ESTALE, True), (errno.EIO, False), (None, False)]
)
def test_what_odd_file_systems_say_of_a_file(tmp_path, answer, lost):
    """NFS knows no file that another host has deleted; some forget how many names one has."""
    writer = SegmentWriter(str(tmp_path / "s"), Forgetful(answer))
    assert writer.is_lost is lost
    writer.abandon()


def test_no_file_is_lost_where_names_are_not_counted(tmp_path):
    """A status that differs by the way of asking would begin a new file at each record."""
    writer = SegmentWriter(str(tmp_path / "s"), Odd())
    (tmp_path / "s").unlink()
    assert not writer.is_lost
    writer.abandon()


def test_a_file_is_open_here_until_it_is_closed(tmp_path):
    writers = [SegmentWriter(str(tmp_path / name)) for name in "st"]
    writers[0].close()
    assert [is_open_here(writer.path) for writer in writers] == [False, True]
    assert not is_open_here(str(tmp_path / "u"))
    writers[1].write(b"dropped")
    writers[1].abandon()
    writers[1].flush()
    assert not is_open_here(writers[1].path)
    assert (tmp_path / "t").read_bytes() == b""


class Unclosed(Disk):
    """A disk that reports a failure of each file that it closes."""

    def __init__(self):
        super().__init__()
        self.closed = []

    def close(self, fd):
        os.close(fd)
        self.closed.append(fd)
        raise OSError(errno.EIO, "Input/output error")


def test_a_file_that_cannot_even_be_closed_is_closed_once(tmp_path):
    """Its number may be another file's by then."""
    disk = Unclosed()
    writer, other = [SegmentWriter(str(tmp_path / name), disk) for name in "st"]
    with pytest.raises(OSError, match="Input/output"):
        writer.close()
    writer.close()
    assert len(disk.closed) == 1
    successor = SegmentWriter(str(tmp_path / "u"))
    other.hand_over(successor)  # no record is lost
    assert len(disk.closed) == 2
    successor.close()


def test_what_is_forced_to_the_disk(tmp_path):
    disk = Disk()
    writer = SegmentWriter(str(tmp_path / "s"), disk)
    writer.sync()
    assert disk.synced == [writer.path]
    writer.close()
    writer.sync()
    assert len(disk.synced) == 1


def test_a_process_without_an_input_writes_to_the_descriptor_0(tmp_path):
    code = (
        "import os, sys\n"
        "from rec_summary.records.writing.segment import SegmentWriter\n"
        "os.close(0)\n"
        "w = SegmentWriter(sys.argv[1])\n"
        "w.write(b'one'); w.sync(); w.close(); w.close()\n"
        "assert os.open('/dev/null', os.O_RDONLY) == 0\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=True)
    assert read_all(tmp_path / "s") == [b"one"]
