from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from rec_summary.errors import DestinationError
from rec_summary.series.exports.claims import LOCK_NAME, held
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
