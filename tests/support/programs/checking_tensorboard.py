"""Runs TensorBoard, and writes down which directories it checks for new records.

python checking_tensorboard.py FILE ARGUMENTS...
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tensorboard.main import run_main

from rec_summary.series.discovery import run_poller
from rec_summary.series.discovery.run_poller import RunPoller

checked = open(sys.argv.pop(1), "a", buffering=1, encoding="utf-8")  # noqa: SIM115 - until the end
# What is checked cannot be seen from outside of a TensorBoard, which makes the poller itself.
check = RunPoller._check


def checking(poller: RunPoller, path: str, depth: int = 0) -> Iterator[str]:
    """Writes a path down, and checks it."""
    print(path, file=checked)
    return check(poller, path, depth)


RunPoller._check = checking  # type: ignore[method-assign]
run_poller._WATCHED_TURN_SECS = 1e9  # type: ignore[misc] - only what is reported
run_main()
