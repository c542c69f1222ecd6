"""Memory and processor time of the training process, from `psutil` if it is installed."""

from __future__ import annotations

import contextlib
import importlib
import math
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

    def __init__(self) -> None:
        """Opens the process. `psutil` comes with the extra `recommender`."""
        self._psutil: Any = None
        self._is_first = True
        with contextlib.suppress(ImportError):
            self._psutil = importlib.import_module("psutil")
            self._process = self._psutil.Process()

    def read(self) -> HostUsage | None:
        """Returns the usage since the previous call; None if psutil is missing or fails."""
        if self._psutil is None:
            return None
        try:
            rss = int(self._process.memory_info().rss)
            cores = float(self._process.cpu_percent()) / 100
            memory = int(self._psutil.virtual_memory().total)
        except (self._psutil.Error, OSError):
            return None
        cores, self._is_first = math.nan if self._is_first else cores, False
        return HostUsage(rss, rss / memory, cores, cores / (self._psutil.cpu_count() or 1))
