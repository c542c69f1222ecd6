"""TensorBoard shows all that is recorded, by our collector and by MindSpore's, and no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.versions import skip_without_their_collector
from tools.checks.acceptance.trees import ROOT


@pytest.mark.mindspore
def test_everything_that_is_recorded_is_shown() -> None:
    skip_without_their_collector()
    command = [sys.executable, "-m", "tools.checks.acceptance"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("dashboard ") == 6, "two trees, in three ways"
