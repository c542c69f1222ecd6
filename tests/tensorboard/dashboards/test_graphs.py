"""Computation graphs and data pipelines as GraphDefs."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import config_pb2, types_pb2

from rec_summary._pb import anf_ir_pb2, lineage_pb2
from rec_summary.tensorboard.dashboards.graphs import (
    NodeNames,
    dataset_graph_def,
    fit,
    graph_def,
    tagged_graph,
    value_text,
)
from tests.support.graphs import FLOAT, GRAPH, constant, dataset, node, operation, parameter
from tests.support.versions import needs_lenient_strings


def nodes(graph: anf_ir_pb2.GraphProto) -> dict[str, Any]:
    found = graph_def(graph).node
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


def assert_sound(graph: Any) -> None:
    """Checks that names are unique and not scopes, and that every edge begins at a node."""
    names = [each.name for each in graph.node]
    known = set(names)
    assert len(known) == len(names)
    assert {source.lstrip("^") for each in graph.node for source in each.input} <= known
    scopes = {name[:end] for name in names for end in range(len(name)) if name[end] == "/"}
    assert not scopes & known


def test_operators_have_their_full_names_and_data_flows_along_edges() -> None:
    gather = nodes(GRAPH)["Default/net/emb-Embedding/Gather-op0"]
    assert gather.op == "Gather"
    assert list(gather.input) == [
        "Default/net/emb-Embedding/Load-op0",
        "inputs/inputs0",
        "Default/net/emb-Embedding/cst2",
    ]


def test_parameters_are_in_the_scope_of_their_first_reader() -> None:
    found = nodes(GRAPH)
    table = found["Default/net/emb-Embedding/emb.table"]
    assert (table.op, table.attr["parameter"].s) == ("Parameter", b"emb.table")
    assert "Default/opt/moment1.emb.table" in found
    assert "inputs/inputs0" in found


def test_constants_show_their_values_even_if_nothing_reads_them() -> None:
    found = {name: each for name, each in nodes(GRAPH).items() if each.op == "Const"}
    assert found["Default/net/emb-Embedding/cst2"].attr["value"].s == b"7"
    assert found["Default/net/emb-Embedding/cst2"].attr["dtype"].type == types_pb2.DT_INT64
    assert found["unused/cst3"].attr["value"].s == b"False"


def test_edges_that_only_keep_order_are_control_edges() -> None:
    found = nodes(GRAPH)
    assert list(found["Default/opt/UpdateState-op0"].input) == [
        "^Default/opt/cst1",
        "^Default/net/emb-Embedding/Load-op0",
    ]
    assert found["Default/opt/Assign-op0"].input[-1] == "^Default/opt/UpdateState-op0"


def test_an_input_that_is_only_waited_for_is_a_control_edge() -> None:
    graph = anf_ir_pb2.GraphProto(
        node=[
            node("1", "Loss", "loss"),
            node("2", "Adam", "adam"),
            node("3", "Depend", "depend", "1", "2"),
        ]
    )
    assert list(nodes(graph)["depend"].input) == ["loss", "^adam"]


def test_control_edges_of_the_record_stay_control_edges() -> None:
    graph = anf_ir_pb2.GraphProto(node=[node("1", "A", "a"), node("2", "B", "b", "1")])
    graph.node[1].input[0].type = anf_ir_pb2.InputProto.CONTROL_EDGE
    assert list(nodes(graph)["b"].input) == ["^a"]


def test_scalars_have_a_shape_and_elements_of_tuples_have_none() -> None:
    scalar = anf_ir_pb2.TypeProto(tensor_type={"elem_type": anf_ir_pb2.DT_FLOAT32})
    graph = anf_ir_pb2.GraphProto(
        node=[node("1", "Loss", "loss"), node("2", "Split", "split")],
    )
    graph.node[0].output_type.CopyFrom(scalar)
    graph.node[1].output_type.sequence_type.elem_types.extend([scalar, FLOAT])
    found = nodes(graph)
    [loss] = found["loss"].attr["_output_shapes"].list.shape
    assert (loss.unknown_rank, len(loss.dim)) == (False, 0)
    first, second = found["split"].attr["_output_shapes"].list.shape
    assert first.unknown_rank  # MindSpore writes no shapes into tuples of any size
    assert [dim.size for dim in second.dim] == [64, 8]
    assert list(found["split"].attr["dtypes"].list.type) == [types_pb2.DT_FLOAT] * 2


def test_shapes_and_types_are_in_the_attributes_that_the_page_reads() -> None:
    gather = nodes(GRAPH)["Default/net/emb-Embedding/Gather-op0"]
    [shape] = gather.attr["_output_shapes"].list.shape
    assert [dim.size for dim in shape.dim] == [64, 8]
    assert gather.attr["dtype"].type == types_pb2.DT_FLOAT
    assert nodes(GRAPH)["output"].input == ["Default/net/emb-Embedding/Gather-op0"]


def test_repeated_names_and_scopes_get_a_number() -> None:
    graph = anf_ir_pb2.GraphProto(
        node=[node("1", "A", "s/a"), node("2", "B", "s/a"), node("3", "C", "s/a/c")]
    )
    assert list(nodes(graph)) == ["s/a_2", "s/a_3", "s/a/c"]


def test_a_network_with_branches_is_an_operator_without_inputs() -> None:
    graph = anf_ir_pb2.GraphProto(
        node=[anf_ir_pb2.NodeProto()],
        parameters=[parameter("d.weight")],
        outputs=[anf_ir_pb2.OutputProto(name="1", type=FLOAT)],
    )
    edges = {name: list(each.input) for name, each in nodes(graph).items()}
    assert edges == {"inputs/d.weight": [], "unknown": [], "output": []}


def test_a_cycle_and_a_node_that_reads_itself_are_kept() -> None:
    graph = anf_ir_pb2.GraphProto(node=[node("1", "A", "a", "1", "2"), node("2", "B", "b", "1")])
    edges = {name: list(each.input) for name, each in nodes(graph).items()}
    assert edges == {"a": ["a", "b"], "b": ["a"]}


@needs_lenient_strings
def test_strings_that_are_not_unicode_are_replaced() -> None:
    graph = anf_ir_pb2.GraphProto(node=[node("1", "AB", "s/CD")])
    wire = graph.SerializeToString().replace(b"AB", b"\xff\xfe").replace(b"CD", b"\xff\xfe")
    [found] = graph_def(anf_ir_pb2.GraphProto.FromString(wire)).node
    assert (found.name, found.op) == ("s/__", "\ufffd\ufffd")


def size(graph: anf_ir_pb2.GraphProto) -> float:
    """Returns how many times larger than a graph its GraphDef is."""
    result = graph_def(graph)
    assert_sound(result)
    return float(result.ByteSize() / graph.ByteSize())


def readers(count: int, source: str, scope: str = "") -> list[anf_ir_pb2.NodeProto]:
    return [node(f"r{i}", "B", scope or f"s{i}/b", source) for i in range(count)]


def test_the_size_of_a_long_name_with_many_readers_is_limited() -> None:
    source = node("1", "A", "n" * 10_000)
    assert size(anf_ir_pb2.GraphProto(node=[source, *readers(500, "1")])) < 50
    scope = node("1", "A", "n" * 10_000 + "/a", *map(str, range(500)))
    parameters = [parameter(str(number)) for number in range(500)]
    assert size(anf_ir_pb2.GraphProto(node=[scope], parameters=parameters)) < 50


def test_a_large_constant_is_read_once_for_all_its_copies() -> None:
    graph = anf_ir_pb2.GraphProto(node=readers(20, "c"), const_vals=[constant("c", str_val="x")])
    graph.const_vals[0].value.str_val = "x" * 100_000
    found = nodes(graph)
    assert [found[f"s{i}/c"].attr["value"].s for i in range(20)] == [b"x" * 397 + b"..."] * 20
    assert size(graph) < 1


def nested(width: int, depth: int) -> anf_ir_pb2.ValueProto:
    value = anf_ir_pb2.ValueProto(int_val=7)
    for _ in range(depth):
        value = anf_ir_pb2.ValueProto(values=[value] * width)
    return value


def test_values_that_are_deep_or_large_are_cut() -> None:
    assert value_text(nested(1, depth=2)) == "((7))"
    assert value_text(nested(1, depth=40)) == "((((((...))))))"
    graph = anf_ir_pb2.GraphProto(node=[node("1", "A", "a")])
    graph.node[0].attribute.add(name="wide").value.CopyFrom(nested(13, depth=3))
    text = nodes(graph)["a"].attr["wide"].s
    assert (len(text), text[:8], text[-3:]) == (400, b"(((7, 7,", b"...")


def test_an_input_without_a_definition_is_left_out() -> None:
    graph = anf_ir_pb2.GraphProto(node=[node("1", "A", "a", "nowhere")])
    assert list(nodes(graph)["a"].input) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"dtype": anf_ir_pb2.DT_NONE, "str_val": "None"}, "None"),
        ({"float_val": 0.5}, "0.5"),
        ({"int_vals": range(3)}, "(0, 1, 2)"),
        ({"int_vals": range(99)}, "(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...)"),
        ({"str_vals": ["a", "b"]}, "(a, b)"),
        ({"tensor_vals": [{}, {}]}, "2 values"),
        ({"graph": {"name": "body"}}, "graph body"),
        ({}, ""),
        ({"values": [{"int_val": 1}, {"values": [{"bool_val": True}]}]}, "(1, (True))"),
        ({"dtype": anf_ir_pb2.DT_TUPLE}, "()"),
        ({"tensor_val": {"data_type": anf_ir_pb2.DT_INT32, "dims": [2]}}, "int32 tensor [2]"),
        ({"type_val": {"data_type": anf_ir_pb2.DT_FLOAT32}}, "float32"),
    ],
)
def test_values_as_text(value: dict[str, Any], text: str) -> None:
    assert value_text(anf_ir_pb2.ValueProto(**value)) == text


NAMES = st.text(st.sampled_from("ab/ _-é\x00"), max_size=6)
NODES = st.lists(
    st.builds(
        lambda name, full, op, scope, inputs: node(name, op, full, *inputs, scope=scope),
        *(NAMES, NAMES, NAMES, NAMES, st.lists(NAMES, max_size=3)),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(NODES, st.lists(NAMES, max_size=4), st.lists(NAMES, max_size=4))
def test_any_graph_has_one_node_for_each_name(
    operators: list[Any], parameters: list[str], constants: list[str]
) -> None:
    graph = anf_ir_pb2.GraphProto(
        node=operators,
        parameters=[parameter(name) for name in parameters],
        const_vals=[constant(key, int_val=1) for key in constants],
        outputs=[anf_ir_pb2.OutputProto(name=name) for name in parameters],
    )
    assert_sound(graph_def(graph))


@given(NAMES | st.builds(lambda part, count: part * count, NAMES, st.integers(0, 300)))
def test_a_valid_name_is_not_changed(name: str) -> None:
    assert fit(fit(name)) == fit(name) != ""
    assert len(fit(name)) <= 500
    assert fit(name).count("/") <= 40
    assert NodeNames([]).give(name) == fit(name)


def test_long_names_with_the_same_beginning_stay_different() -> None:
    scope = "s" * 499
    graph = anf_ir_pb2.GraphProto(
        node=[node(str(i), "A", f"{scope}/a{i}", "c") for i in range(3)],
        const_vals=[constant("c", int_val=1)],
    )
    assert_sound(graph_def(graph))


def test_edges_of_a_pipeline_lead_from_its_sources() -> None:
    source = dataset("TFRecord", sampler={"operationParam": {"mapStr": {"sampler_name": "Random"}}})
    mapped = dataset("Map", source, operations=[operation("Decode"), operation("Resize")])
    graph = dataset_graph_def(dataset("Batch", mapped, dataset("Generator")))
    edges = {each.name: list(each.input) for each in graph.node}
    assert edges == {
        "TFRecord/Random": [],
        "TFRecord/TFRecord": ["TFRecord/Random"],
        "Map/Decode": ["TFRecord/TFRecord"],
        "Map/Resize": ["Map/Decode"],
        "Map/Map": ["Map/Resize"],
        "Generator": [],
        "Batch": ["Map/Map", "Generator"],
    }
    [resize] = [each for each in graph.node if each.op == "Resize"]
    assert resize.attr["size"].s == b"32, 32"


def test_a_repeated_type_is_numbered() -> None:
    graph = dataset_graph_def(dataset("Zip", dataset("Batch", dataset("A")), dataset("Batch")))
    assert [each.name for each in graph.node] == ["A", "Batch", "Batch_2", "Zip"]


def test_an_empty_pipeline_is_one_node() -> None:
    assert [each.name for each in dataset_graph_def(lineage_pb2.DatasetGraph()).node] == ["Dataset"]


def test_a_function_is_named_without_its_brackets() -> None:
    graph = dataset_graph_def(dataset("Map", operations=[operation("<lambda>"), operation("<>")]))
    assert [each.name for each in graph.node] == ["Map/lambda", "Map/unnamed", "Map/Map"]
    assert graph.node[0].op == "<lambda>"


OPERATIONS = st.builds(operation, NAMES, sampler_name=NAMES)
PIPELINES = st.recursive(
    st.builds(dataset, NAMES),
    lambda children: st.builds(
        lambda kind, children, operations, sampler: dataset(
            kind, *children, operations=operations, sampler=sampler
        ),
        *(NAMES, st.lists(children, max_size=3)),
        *(st.lists(OPERATIONS, max_size=3), st.none() | OPERATIONS),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(PIPELINES)
def test_any_pipeline_has_one_node_for_each_name(pipeline: Any) -> None:
    graph = dataset_graph_def(pipeline)
    assert_sound(graph)
    [last] = {each.name for each in graph.node} - {name for n in graph.node for name in n.input}
    assert last == graph.node[-1].name


@given(st.binary(max_size=60))
def test_any_message_is_a_pipeline(data: bytes) -> None:
    graph = dataset("Batch", dataset("A"), operations=[operation("x")])
    try:
        graph.MergeFromString(data)
    except DecodeError:
        return
    assert_sound(dataset_graph_def(graph))


def test_a_tagged_graph_is_found_by_tensorboard() -> None:
    point = tagged_graph("dataset", graph_def(GRAPH))
    metadata = config_pb2.RunMetadata.FromString(point.value.tensor.string_val[0])
    [part] = metadata.function_graphs
    assert part.pre_optimization_graph == graph_def(GRAPH)
    assert point.plugin.dashboard == "graphs"
