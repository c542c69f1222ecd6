"""The original `RecModel`, as published: loaded by path from the wheel of mindspore_rec 0.3.0.

The package itself no longer imports on current MindSpore; this one module does. The wheel is
downloaded at test time and never becomes part of this repository.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

_CACHE = Path(__file__).parents[2] / ".cache" / "mindspore_rec"
_WHEEL = "mindspore_rec-0.3.0-py3-none-any.whl"
_SHA256 = "12813a2c471cd5b546d15c09fffb1fa098085b57fab275a4680c063db57180b0"


@functools.cache
def original_rec_model() -> Any:
    """Returns the original class; skips the test if the wheel cannot be had."""
    wheel = _CACHE / _WHEEL
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        done = subprocess.run(
            [*command, "--dest", str(_CACHE), "mindspore_rec==0.3.0"],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"mindspore_rec 0.3.0 cannot be downloaded: {done.stderr.strip()[-200:]}")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == _SHA256
    with tempfile.TemporaryDirectory() as folder:
        path = zipfile.ZipFile(wheel).extract("mindspore_rec/train/rec_model.py", folder)
        spec = importlib.util.spec_from_file_location("original_rec_model", path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module.RecModel
