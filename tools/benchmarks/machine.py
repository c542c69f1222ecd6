"""The machine that a measurement was made on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from typing import Any

from .contest import ROOT

_PACKAGES = (
    *("numpy", "protobuf", "google-crc32c", "pandas", "tensorboard"),
    *("tensorboardX", "torch", "tbparse", "mindspore"),
)


def describe() -> dict[str, Any]:
    """Returns processor, cores, memory, and versions."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
        "commit": _commit(),
    }


def in_words(machine: dict[str, Any]) -> str:
    """Returns a machine and its software in words."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}, {versions}"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"
