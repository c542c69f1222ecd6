"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# A busy machine makes single examples slow; no test measures time.
settings.register_profile("rec_summary", deadline=None)
settings.load_profile("rec_summary")

# A shell lets its jobs in the background ignore Ctrl-C, and every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.support.s3", "tests.support.tensorboard_servers"]
