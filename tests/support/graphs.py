"""Computation graphs and data pipelines, as MindSpore records them."""

from __future__ import annotations

from typing import Any

from rec_summary._pb import anf_ir_pb2, lineage_pb2

FLOAT = anf_ir_pb2.TypeProto(
    data_type=anf_ir_pb2.DT_TENSOR,
    tensor_type=anf_ir_pb2.TypeProto.Tensor(
        elem_type=anf_ir_pb2.DT_FLOAT32,
        shape=anf_ir_pb2.TensorShapeProto(
            dim=[anf_ir_pb2.TensorShapeProto.Dimension(size=size) for size in (64, 8)]
        ),
    ),
)


def node(name: str, op: str, full_name: str, *inputs: str, **more: Any) -> anf_ir_pb2.NodeProto:
    return anf_ir_pb2.NodeProto(
        name=name,
        op_type=op,
        full_name=full_name,
        input=[anf_ir_pb2.InputProto(name=each) for each in inputs],
        **more,
    )


def constant(key: str, **value: Any) -> anf_ir_pb2.NamedValueProto:
    return anf_ir_pb2.NamedValueProto(key=key, value=anf_ir_pb2.ValueProto(**value))


def parameter(name: str) -> anf_ir_pb2.ParameterProto:
    return anf_ir_pb2.ParameterProto(name=name, type=FLOAT)


GRAPH = anf_ir_pb2.GraphProto(
    node=[
        node("1", "Load", "Default/net/emb-Embedding/Load-op0", "emb.table", "cst1"),
        node("2", "Gather", "Default/net/emb-Embedding/Gather-op0", "1", "inputs0", "cst2"),
        node("3", "UpdateState", "Default/opt/UpdateState-op0", "cst1", "1"),
        node("4", "Assign", "Default/opt/Assign-op0", "moment1.emb.table", "2", "3"),
    ],
    parameters=[parameter("inputs0"), parameter("emb.table"), parameter("moment1.emb.table")],
    const_vals=[
        constant("cst1", str_val="U"),
        constant("cst2", dtype=anf_ir_pb2.DT_INT64, int_val=7),
        constant("cst3", dtype=anf_ir_pb2.DT_BOOL, bool_val=False),
    ],
    outputs=[anf_ir_pb2.OutputProto(name="2", type=FLOAT)],
)
GRAPH.node[1].output_type.CopyFrom(FLOAT)


def operation(name: str, **parameters: str) -> lineage_pb2.Operation:
    fields = {"tensor_op_name": name, **parameters}
    return lineage_pb2.Operation(operationParam={"mapStr": fields}, size=[32, 32])


def dataset(op_type: str, *children: Any, **more: Any) -> lineage_pb2.DatasetGraph:
    graph = lineage_pb2.DatasetGraph(children=children, **more)
    graph.parameter.mapStr["op_type"] = op_type
    graph.parameter.mapInt["num_parallel_workers"] = 4
    return graph
