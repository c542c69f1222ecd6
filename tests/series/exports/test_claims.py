from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from rec_summary.errors import DestinationError
from rec_summary.series.exports.claims import LOCK_NAME
from rec_summary.series.exports.directory import ExportDirectory


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
