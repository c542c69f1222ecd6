"""Protection against tests that hang, and the mode in which a test begins."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Iterator

import pytest

_HANG_SECONDS = 600


@pytest.fixture(autouse=True)
def end_process_when_hanging() -> Iterator[None]:
    # A main thread that waits in C++ cannot be interrupted by an exception, so nothing milder does.
    faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def begin_in_graph_mode() -> None:
    # MindSpore's default is PyNative: a test alone would not be what it is after others.
    mindspore = sys.modules.get("mindspore")
    if mindspore is not None:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
