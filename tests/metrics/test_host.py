from __future__ import annotations

import math
import sys
import time

import pytest

from rec_summary.metrics.host import HostMeter


def test_without_psutil_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert HostMeter().report() == {}


def test_memory_and_processor_of_this_process() -> None:
    psutil = pytest.importorskip("psutil")
    meter = HostMeter()
    first = meter.report()
    assert math.isnan(first["host/cores"])
    assert first["host/rss_bytes"] > 10_000_000  # Python with numpy
    assert 0 < first["host/memory_share"] < 1
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    second = meter.report()
    assert 0 < second["host/cores"] < 2 * psutil.cpu_count()
    assert second["host/cpu_share"] == second["host/cores"] / psutil.cpu_count()
