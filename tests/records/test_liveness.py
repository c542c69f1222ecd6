"""Signs of life of writers: the lock on their files, and the process on this host."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.format.names import this_host
from rec_summary.records.liveness import hold, is_held, open_record_files, writer_is_alive
from rec_summary.records.writing.run_writer import RunWriter
from tests.support.forked import in_child

PROGRAM = """
import sys
from rec_summary.records.writing.run_writer import RunWriter
writer = RunWriter(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def state(pid: int, rank: int = 0, host: str | None = None) -> RunState:
    return RunState(rank=rank, host=this_host() if host is None else host, pid=pid)


def dead_pid() -> int:
    """Returns a number that no process has, now or later."""
    return 1 + int(Path("/proc/sys/kernel/pid_max").read_text())


def test_a_killed_writer_is_not_alive(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    assert writer_is_alive(tmp_path, state(child.pid)) is True
    assert writer_is_alive(str(tmp_path), state(child.pid, host="elsewhere")) is True
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert writer_is_alive(tmp_path, state(child.pid)) is False  # its parent has not asked yet
    child.communicate()
    assert writer_is_alive(tmp_path, state(child.pid)) is False
    assert writer_is_alive(tmp_path, state(child.pid, host="elsewhere")) is None


def test_each_rank_has_its_own_sign_of_life(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, rank=1)
    assert open_record_files(str(tmp_path), 1) == [writer.paths[1]]
    assert open_record_files(str(tmp_path), 0) == []
    assert writer_is_alive(tmp_path, state(dead_pid(), rank=1)) is True
    assert writer_is_alive(tmp_path, state(dead_pid(), rank=0)) is False
    own = {Path(writer.paths[1]).name}
    assert writer_is_alive(tmp_path, state(dead_pid(), rank=1), own) is True
    assert writer_is_alive(tmp_path, state(dead_pid(), rank=1), {"another's"}) is False
    writer.close()
    assert writer_is_alive(tmp_path, state(dead_pid(), rank=1)) is False


@contextlib.contextmanager
def process_of_another_user() -> Iterator[int]:
    """Gives the number of a process that this one must not signal."""
    if os.geteuid():
        yield 1
        return
    with subprocess.Popen(["sleep", "3600"], user=65534) as process:
        os.seteuid(65533)
        try:
            yield process.pid
        finally:
            os.seteuid(0)
            process.kill()


def test_what_cannot_be_known(tmp_path: Path) -> None:
    assert writer_is_alive(tmp_path, state(os.getpid())) is None  # the number may be another's
    assert writer_is_alive(tmp_path, RunState()) is None  # of MindSpore's own collector
    assert writer_is_alive(tmp_path, state(-dead_pid())) is None  # it would be a group's
    assert writer_is_alive(tmp_path / "gone", state(dead_pid())) is False
    (tmp_path / "file").touch()
    assert writer_is_alive(tmp_path / "file", state(dead_pid())) is False

    with process_of_another_user() as pid:
        with pytest.raises(PermissionError):
            os.kill(pid, 0)
        assert writer_is_alive(tmp_path, state(pid)) is None


def test_questions_do_not_disturb_each_other_nor_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        assert not is_held(str(path))
        hold(file.fileno())
        assert is_held(str(path))
        assert is_held(str(path))
        (tmp_path / "link").symlink_to(path)
        assert not is_held(str(tmp_path / "link"))
        file.write(b"x")
    assert not is_held(str(path))
    with path.open("rb") as reader:  # another reader's question
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert not is_held(str(path))
    assert not is_held(str(tmp_path / "missing"))


def test_a_question_at_the_moment_of_the_lock_does_not_prevent_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file, path.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)

        def flock(fd: int, operation: int) -> None:
            try:
                fcntl.flock(fd, operation)
            finally:
                fcntl.flock(reader, fcntl.LOCK_UN)

        hold(file.fileno(), flock)
        assert is_held(str(path))


@pytest.mark.parametrize(("code", "held"), [(errno.ENOLCK, False), (errno.EACCES, True)])
def test_what_odd_file_systems_say_of_a_lock(tmp_path: Path, code: int, *, held: bool) -> None:
    """Some have no locks, and some say of a lock that is taken that access is denied."""

    def refuse(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    path = tmp_path / "file"
    with path.open("wb") as file:
        hold(file.fileno(), refuse)  # the file is written all the same
        assert is_held(str(path), refuse) is held


def test_a_forked_child_does_not_keep_its_parents_files_open(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    begin, end = os.pipe()
    started, running = os.pipe()

    def wait() -> None:
        os.close(end)
        os.write(running, b"1")
        os.read(begin, 1)  # until the parent has looked

    child = in_child(wait)
    os.close(begin)
    os.read(started, 1)  # the child gives its copies up when it starts
    os.close(started)
    os.close(running)
    assert open_record_files(str(tmp_path), 0)
    size = os.path.getsize(writer.paths[0])
    writer.close()
    assert not open_record_files(str(tmp_path), 0)
    os.close(end)
    os.waitpid(child, 0)
    assert os.path.getsize(writer.paths[0]) == size
