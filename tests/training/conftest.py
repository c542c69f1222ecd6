"""The mode in which a test begins."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def begin_in_graph_mode() -> None:
    # MindSpore's default is PyNative: a test alone would not be what it is after others.
    mindspore = sys.modules.get("mindspore")
    if mindspore is not None:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
