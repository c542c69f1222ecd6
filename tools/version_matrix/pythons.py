"""Looks for a Python of a given version on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SHOW_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def version_of(python: str) -> str | None:
    """Returns the version such as "3.10" of a Python; None where it does not start."""
    try:
        done = subprocess.run([python, "-c", _SHOW_VERSION], capture_output=True, text=True)
    except OSError:
        return None
    # A shim of pyenv's is there for every version, and fails for those not chosen.
    return done.stdout.strip() if done.returncode == 0 else None


def _candidates(version: str) -> Iterator[str]:
    named = os.environ.get(f"PYTHON{version.replace('.', '_')}")
    if named:
        yield named
    yield f"python{version}"
    roots = [os.environ.get("PYENV_ROOT", ""), Path.home() / ".pyenv"]
    for root in filter(None, roots):
        # Newest patch release first: 3.10.13 before 3.10.4.
        found = Path(root, "versions").glob(f"{version}.*/bin/python")
        yield from map(str, sorted(found, key=lambda path: (len(str(path)), path), reverse=True))


def find_python(version: str) -> tuple[str, str]:
    """Returns a Python, and a note: empty when it is of the version asked for."""
    for candidate in _candidates(version):
        if version_of(candidate) == version:
            return candidate, ""
    running = "{}.{}".format(*sys.version_info[:2])
    if running == version:
        return sys.executable, ""
    return sys.executable, (
        f"no Python {version} on PATH, among pyenv's or in PYTHON{version.replace('.', '_')}: "
        f"Python {running} instead"
    )
