"""Both modes of MindSpore, and nothing that earlier tests have left behind."""

import gc

import pytest

from rec_summary.training import operators


@pytest.fixture(autouse=True)
def nobody_collects():
    """A record that an earlier test has not closed would collect what these tests compute."""
    gc.collect()
    operators.discard()


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    """The name of the mode in which the test runs."""
    mindspore = pytest.importorskip("mindspore")
    modes = {"graph": mindspore.GRAPH_MODE, "pynative": mindspore.PYNATIVE_MODE}
    mindspore.set_context(mode=modes[request.param])
    yield request.param
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
