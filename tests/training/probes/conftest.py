"""Both modes of MindSpore."""

import pytest


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    """The name of the mode in which the test runs."""
    mindspore = pytest.importorskip("mindspore")
    modes = {"graph": mindspore.GRAPH_MODE, "pynative": mindspore.PYNATIVE_MODE}
    mindspore.set_context(mode=modes[request.param])
    yield request.param
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
