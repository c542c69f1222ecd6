"""What sub-commands share: an event that signals set."""

from __future__ import annotations

import subprocess
import sys

# The main thread takes and releases the lock of the event all the time.
PROGRAM = """
import os, signal, threading, time
from rec_summary.cli.common import stopping

def interrupt():
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

with stopping() as stop:
    threading.Thread(target=interrupt).start()
    while not stop.wait(0):
        pass
print("stopped")
"""


def test_a_signal_sets_the_event_at_any_moment() -> None:
    for _ in range(8):
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "stopped\n"
