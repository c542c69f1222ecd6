"""What all tests share."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# A busy machine makes single examples slow; no test measures time.
settings.register_profile("rec_summary", deadline=None)
settings.load_profile("rec_summary")

# A shell lets its jobs in the background ignore Ctrl-C, and every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# At the end of a run in several processes, these would keep one of them busy alone.
_LONGEST = (
    "tests/tools/test_acceptance.py",
    "tests/test_pinned.py",
    "tests/examples/test_examples.py",
    "tests/training/online/test_signals.py",
    "tests/tools/test_demo_command.py",
    "tests/tools/test_acceptance_tampering.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the longest modules first if pytest-xdist distributes the modules."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


pytest_plugins = ["tests.support.s3", "tests.support.tensorboard_servers"]
