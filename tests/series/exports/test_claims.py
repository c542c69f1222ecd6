from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import re
import resource
import signal
import threading
from pathlib import Path

import pytest

from rec_summary.errors import DestinationError
from rec_summary.records.locks import file_lock
from rec_summary.series.exports.claims import LOCK_NAME, _flock, held
from rec_summary.series.exports.directory import ExportDirectory
from tests.support.waiting import eventually


def test_claims_that_a_full_disk_has_refused_are_made_again(tmp_path: Path) -> None:
    """The limit on a file's size stands in for a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ExportDirectory(str(tmp_path)) as first, ExportDirectory(str(tmp_path)) as second:
        first.claim(["a"])
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
        try:
            with pytest.raises(DestinationError, match="File too large"):
                first.claim(["b" * 100])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)
        with pytest.raises(DestinationError, match="the run a;"):
            second.claim(["a"])
        first.claim(["b" * 100])
        with pytest.raises(DestinationError, match=r"the run b+;"):
            second.claim(["b" * 100])
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_runs_of_another_exporter_are_refused_and_the_others_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rec_summary.series.exports.claims._WAIT_SECS", 0.1)
    with ExportDirectory(str(tmp_path)) as first, ExportDirectory(str(tmp_path)) as second:
        first.claim(["b", "é", "a/x"])
        first.claim(["b", "c"])
        [mark] = tmp_path.glob("*.runs")
        assert str(mark) == first.claims.mark
        assert list(map(json.loads, mark.read_text().splitlines())) == ["a/x", "b", "c", "é"]
        with pytest.raises(DestinationError) as error:
            second.claim(["c", "d", "b"])
        assert re.fullmatch(
            r"the directory of the export is invalid\. Received: .*: the run b and 1 more; "
            rf"{re.escape(str(mark))} says so\. Expected: runs that no other export writes: .*",
            str(error.value),
        )
        with pytest.raises(DestinationError, match=r": the run d; "):
            first.claim(["d"])
        with second.claims.alone():
            first.claim(["a/x", "é"])  # which needs no lock
            with pytest.raises(DestinationError, match="its lock is "):
                first.claim(["e"])
    with ExportDirectory(str(tmp_path)) as third:
        third.claim(["b", "d"])


@pytest.mark.parametrize("content", [None, b"a", b"\xff", b"[" * 100_000])
def test_files_of_strangers_claim_nothing(tmp_path: Path, content: bytes | None) -> None:
    name = ".rec_summary-export.0123456789abcdef"
    if content is not None:
        (tmp_path / f"{name}.runs").write_bytes(content)
    with (
        file_lock(str(tmp_path / f"{name}.lock"), timeout=0),
        ExportDirectory(str(tmp_path)) as exporter,
    ):
        exporter.claim(["a"])
        assert Path(exporter.claims.mark).read_text() == '"a"\n'


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.EWOULDBLOCK, False), (errno.EACCES, False), (errno.ENOLCK, True)],
)
def test_a_file_system_without_locks_has_nobody_to_wait_for(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: bool
) -> None:
    def fail(fd: int, kind: int) -> None:
        assert (fd, kind) == (5, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    assert _flock(5, fcntl.LOCK_EX) == expected


def _claim_and_die(folder: str) -> None:
    directory = ExportDirectory(folder).__enter__()
    directory.claim(["a"])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The mark of an exporter that was killed."""
    killed = multiprocessing.get_context("spawn").Process(
        target=_claim_and_die, args=[str(tmp_path)]
    )
    killed.start()
    killed.join()
    [mark] = tmp_path.glob("*.runs")
    return mark


def test_an_export_waits_for_the_workers_of_one_that_was_killed(tmp_path: Path, mark: Path) -> None:
    claimed = threading.Event()

    def claim() -> None:
        with ExportDirectory(str(tmp_path)) as other:
            other.claim(["a"])
            claimed.set()

    with held(str(mark)):
        thread = threading.Thread(target=claim)
        thread.start()
        eventually(lambda: not mark.exists())  # so the worker ends
        assert not claimed.wait(0.3)
    thread.join()
    assert claimed.is_set()
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


def test_an_export_that_waits_in_vain_leaves_it_to_the_next_one_to_wait(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rec_summary.series.exports.claims._WAIT_SECS", 0.1)
    with held(str(mark)):
        for _ in range(2):
            with (
                ExportDirectory(str(tmp_path)) as other,
                pytest.raises(DestinationError, match="workers of one that was killed go on"),
            ):
                other.claim(["a"])
    with ExportDirectory(str(tmp_path)) as other:
        other.claim(["a"])
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]
