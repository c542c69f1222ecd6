"""Memory and processor time of the training process, from `psutil` if it is installed."""

from __future__ import annotations

import contextlib
import importlib
import math
from typing import Any


class HostMeter:
    """Measures the resources that this process uses."""

    def __init__(self) -> None:
        """Opens the process. `psutil` comes with the extra `recommender`."""
        self._psutil: Any = None
        self._is_first = True
        with contextlib.suppress(ImportError):
            self._psutil = importlib.import_module("psutil")
            self._process = self._psutil.Process()

    def report(self) -> dict[str, float]:
        """Returns the usage since the previous call by tag; nothing if psutil is missing or fails.

        Cores are processor seconds per second, NaN at the first call. The shares are those of the
        machine's memory and of its cores.
        """
        if self._psutil is None:
            return {}
        try:
            rss = int(self._process.memory_info().rss)
            cores = float(self._process.cpu_percent()) / 100
            memory = int(self._psutil.virtual_memory().total)
        except (self._psutil.Error, OSError):
            return {}
        cores, self._is_first = math.nan if self._is_first else cores, False
        return {
            "host/rss_bytes": rss,
            "host/memory_share": rss / memory,
            "host/cores": cores,
            "host/cpu_share": cores / (self._psutil.cpu_count() or 1),
        }
