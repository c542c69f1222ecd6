"""Memory and processor time of the training process, from `psutil` if it is installed."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HostUsage:
    """The resources that the process uses.

    Attributes:
        rss_bytes: Resident memory.
        memory_share: Resident memory divided by the memory of the machine.
        cores: Processor seconds per second since the previous measurement; 1.0 is one core. NaN at
            the first measurement.
        cpu_share: `cores` divided by the number of cores of the machine.
    """

    rss_bytes: int
    memory_share: float
    cores: float
    cpu_share: float


class HostMeter:
    """Measures the resources that this process uses."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Opens the process. `psutil` comes with the extra `recommender`.

        Args:
            clock: A monotonic clock in seconds.
        """
        self._clock = clock
        self._psutil: Any = None
        self._process: Any = None
        self._before: tuple[float, float] | None = None
        try:
            self._psutil = importlib.import_module("psutil")
        except ImportError:
            return
        self._process = self._psutil.Process()

    def read(self) -> HostUsage | None:
        """Returns the usage since the previous call; None if psutil is missing or fails."""
        if self._psutil is None:
            return None
        try:
            rss = int(self._process.memory_info().rss)
            times = self._process.cpu_times()
            memory = int(self._psutil.virtual_memory().total)
        except (self._psutil.Error, OSError):
            return None
        now, used = self._clock(), float(times.user + times.system)
        cores = math.nan
        if self._before is not None and now > self._before[0]:
            cores = (used - self._before[1]) / (now - self._before[0])
        self._before = now, used
        count = self._psutil.cpu_count() or 1
        return HostUsage(rss, rss / memory, cores, cores / count)
