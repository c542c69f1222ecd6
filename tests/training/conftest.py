"""Protection against tests that hang, which is the failure that this room fears most."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

_HANG_SECONDS = 180


@pytest.fixture(autouse=True)
def end_process_when_hanging() -> Iterator[None]:
    # A main thread that waits in C++ cannot be interrupted by an exception, so nothing milder does.
    faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
