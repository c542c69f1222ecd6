from __future__ import annotations

import math
import sys
import time

import pytest

from rec_summary.metrics.host import HostMeter


def test_without_psutil_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert HostMeter().read() is None


def test_memory_and_processor_of_this_process() -> None:
    pytest.importorskip("psutil")
    meter = HostMeter()
    first = meter.read()
    assert first is not None
    assert math.isnan(first.cores)
    assert first.rss_bytes > 10_000_000  # Python with numpy
    assert 0 < first.memory_share < 1
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    second = meter.read()
    assert second is not None
    assert second.cores > 0
    assert 0 < second.cpu_share <= second.cores
