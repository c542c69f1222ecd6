"""Graphs as TensorBoard serves them, with both of its loaders, and as its page shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium")

from google.protobuf import text_format
from tensorboard.compat.proto.graph_pb2 import GraphDef

from rec_summary._pb import anf_ir_pb2
from rec_summary.series.report import Report
from rec_summary.tensorboard.dashboards.graphs import dataset_graph_def, graph_def, tagged_graph
from rec_summary.tensorboard.event_files.event_file import EventFile, FilePosition
from rec_summary.tensorboard.event_files.logdir import LogDir
from tests.support.graphs import (
    FLOAT,
    GRAPH,
    dataset,
    node,
    operation,
    parameter,
)
from tests.support.record_dirs import START
from tests.support.tensorboard_servers import serving
from tools.tensorboard_pages.browser import Browser, available
from tools.tensorboard_pages.server import TensorBoardServer

PIPELINE = dataset("Batch", dataset("Map", dataset("TFRecord"), operations=[operation("Hash")]))
LAYERS = 2000
OPERATORS = 20_000


def large() -> anf_ir_pb2.GraphProto:
    """Returns a graph of many operators, each of which reads the one before and a weight."""
    graph = anf_ir_pb2.GraphProto(
        parameters=[parameter(f"{layer}.weight") for layer in range(LAYERS)]
    )
    for number in range(OPERATORS):
        layer = number % LAYERS
        scope = f"Default/block{layer // 100}-Block/layer{layer}-Dense"
        full_name = f"{scope}/MatMul-op{number}"
        inputs = (str(number - 1), f"{layer}.weight")
        graph.node.append(node(str(number), "MatMul", full_name, *inputs, output_type=FLOAT))
    return graph


# Names of scopes and operators that a page or a reader could fail on.
ODD = anf_ir_pb2.GraphProto(
    node=[
        node("1", "A", "a/b", "1", "2", "nowhere"),
        node("2", "B", "a", "1"),
        node("3", "C", "\u00fc \n\x00:1//^/", "2"),
        node("4", "D", "/".join("d" * 5000)),
        anf_ir_pb2.NodeProto(),
    ],
    parameters=[parameter(""), parameter("2")],
    outputs=[anf_ir_pb2.OutputProto(name="4"), anf_ir_pb2.OutputProto()],
)
COMPUTATIONS = {"small": GRAPH, "large": large(), "odd": ODD}
TAGGED = {"dataset_graph": dataset_graph_def(PIPELINE), "graph_2": graph_def(ODD)}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for each computation graph; one has its data pipeline and a second graph, too."""
    base = tmp_path_factory.mktemp("graphs") / "logs"
    with LogDir(str(base)) as entered:
        for run, graph in COMPUTATIONS.items():
            file = EventFile(entered, run, FilePosition(1))
            file.write_graph(START, graph_def(graph).SerializeToString())
            if run == "small":
                for tag, tagged in TAGGED.items():
                    point = tagged_graph(tag, tagged)
                    point.value.tag = point.tag
                    point.value.metadata.CopyFrom(point.plugin.metadata)
                    file.write(0, START, [point.value])
            file.settle()
            file.close(Report())
    return base


@pytest.fixture(scope="module")
def both(
    logdir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TensorBoardServer]]:
    with serving(logdir, COMPUTATIONS, tmp_path_factory.mktemp("tensorboard")) as servers:
        yield servers


@pytest.fixture(params=["rust", "python"])
def server(request: pytest.FixtureRequest, both: dict[str, TensorBoardServer]) -> TensorBoardServer:
    return both[request.param]


def served(server: TensorBoardServer, **query: str) -> Any:
    """Returns a graph as the page gets it; large attributes are left out."""
    limits = {"limit_attr_size": "1024", "large_attrs_key": "_too_large_attrs"}
    text = server.fetch_query("plugin/graphs/graph", **query, **limits)
    return text_format.Parse(text.decode(), GraphDef())


def by_name(graph: Any) -> dict[str, Any]:
    return {each.name: each for each in graph.node}


def test_the_runs_and_their_tags_are_listed(server: TensorBoardServer) -> None:
    def loaded() -> Any:
        found = server.get("plugin/graphs/info") or {}
        tags = found.get("small", {}).get("tags", {})
        has_graph = {run for run, each in found.items() if each["run_graph"]}
        return found if has_graph == set(COMPUTATIONS) and tags.keys() == TAGGED.keys() else None

    info = server.eventually(loaded)
    assert [run for run, each in info.items() if each["tags"]] == ["small"]
    assert info["small"]["tags"]["dataset_graph"]["op_graph"] is True


@pytest.mark.parametrize("run", COMPUTATIONS)
def test_a_run_graph_is_served_as_it_was_made(server: TensorBoardServer, run: str) -> None:
    found = by_name(served(server, run=run))
    assert found == by_name(graph_def(COMPUTATIONS[run]))


def test_a_large_graph_is_complete(server: TensorBoardServer) -> None:
    found = by_name(served(server, run="large"))
    assert len(found) == OPERATORS + LAYERS
    last = found["Default/block19-Block/layer1999-Dense/MatMul-op19999"]
    assert list(last.input) == [
        "Default/block19-Block/layer1998-Dense/MatMul-op19998",
        "Default/block19-Block/layer1999-Dense/1999.weight",
    ]


@pytest.mark.parametrize("tag", TAGGED)
def test_a_tagged_graph_is_served_beside_it(server: TensorBoardServer, tag: str) -> None:
    found = by_name(served(server, run="small", tag=tag))
    assert found == by_name(TAGGED[tag])


# The scopes and nodes that are drawn, and those that annotate them.
_DRAWN = """
const names = new Set();
const walk = (node) => {
  if (node.matches && node.matches('g[data-name]')) names.add(node.dataset.name);
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.children) walk(child);
};
walk(document.body);
return [...names];
"""


@pytest.mark.browser
def test_the_page_shows_scopes_and_opens_them(logdir: Path, tmp_path: Path) -> None:
    if not available():
        pytest.skip("Chromium and chromedriver are not installed: tools/test installs them")
    with (
        TensorBoardServer(logdir / "small", tmp_path / "log", load_fast=True) as server,
        Browser() as browser,
    ):
        server.eventually(lambda: server.get("plugin/graphs/info"))
        browser.open(f"{server.url}/#graphs", ("Main Graph",))
        # The words Default, inputs and output are on the page before any graph is drawn.
        top = {"Default", "inputs", "output"}
        server.eventually(lambda: set(browser.run(_DRAWN)) == top)
        scope = "Default/net/emb-Embedding"
        for closed in ("Default", "Default/net", scope):
            browser.double_click_node(closed)
        inside = {f"{scope}/{leaf}" for leaf in ("emb.table", "Load-op0", "Gather-op0", "cst2")}
        server.eventually(lambda: inside <= set(browser.run(_DRAWN)))
