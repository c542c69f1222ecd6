"""What all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.command import end_all

# A busy machine makes examples slow; no test measures time. The examples are the same in each run:
# `--hypothesis-profile=random` tries others, and `tools/check fuzz` many more.
_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("random", **_SLOW)
settings.register_profile("rec_summary", derandomize=True, **_SLOW)
settings.load_profile("rec_summary")

# A shell lets its jobs in the background ignore Ctrl-C, and every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# At the end of a run in several processes, these would keep one of them busy alone.
_LONGEST = (
    "tests/tools/test_acceptance.py",
    "tests/test_pinned.py",
    "tests/examples/test_examples.py",
    "tests/training/test_signals.py",
    "tests/training/recommender/test_telemetry.py",
    "tests/tools/test_demo_command.py",
    "tests/tools/test_acceptance_tampering.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the longest modules first if pytest-xdist distributes the modules."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """Kills the programs that a failed test has left: they would take time from the others."""
    yield
    end_all()


pytest_plugins = ["tests.support.s3", "tests.support.tensorboard_servers"]
