"""The record directories that MindInsight is asked about, written by the package's own writer.

One function for each train job. MindInsight keeps the records of 15 jobs only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary._pb.summary_pb2 import Summary
from rec_summary.compaction.directory import compact
from rec_summary.landscape.summary_landscape import Options, SummaryLandscape
from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.runs import find_runs, list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.values.summary import IMAGE, TENSOR, SummaryValue
from tests.support import quadratic
from tests.support.record_dirs import START, event, histo, lineage, scalar, train

RunState: Final = lineage_pb2.RunState

STEPS: Final = range(1, 21)
LONG: Final = 250  # steps of the run that is compacted
WEIGHTS: Final = np.linspace(-1, 2, 500, dtype=np.float32)
TABLE: Final = np.array([[0.5, -1.5, 2.0], [4.0, 8.25, -16.0]], dtype=np.float32)
IDS: Final = np.array([1, (1 << 40) + 1])  # the second one is too large for float32
PIXELS: Final = np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3)
GRAPH_NODES: Final = {"Default/fc-Dense/MatMul-op1", "Default/relu-ReLU/ReLU-op2"}
ROTATED: Final = Rotation(max_file_size=100)  # some two scalars
# A field that no version knows yet: number 1000, varint 7.
FOREIGN_FIELD: Final = b"\xc0\x3e\x07"


def loss(step: int) -> float:
    """The loss that every run has at a step; float32 holds it exactly."""
    return 1 / 2 ** (step % 16) + step


def losses(steps: Iterable[int]) -> list[summary_pb2.Event]:
    """Returns the scalar events of some steps."""
    return [event(step, scalar("loss", loss(step))) for step in steps]


def points(steps: Iterable[int]) -> list[tuple[float, int, float]]:
    """Returns what MindInsight is to show of `losses`: wall time, step and value."""
    return [(START + step / 4, step, loss(step)) for step in steps]


def write(writer: RunWriter, *messages: Any) -> None:
    """Writes messages and hands them to the operating system."""
    for message in messages:
        writer.write(MessageRecord(message))
    writer.flush()


def write_run(run: Path, *messages: Any, rank: int = 0) -> tuple[Path, Path]:
    """Writes messages to a new pair of files; returns the summary file and the lineage file."""
    writer = RunWriter(run, rank)
    write(writer, *messages)
    writer.close()
    summary, lineage_file = writer.paths
    return Path(summary), Path(lineage_file)


def state(status: lineage_pb2.RunState.Status, step: int, loss: float) -> lineage_pb2.LineageEvent:
    """Returns a train lineage as a run of ours refreshes it while it goes on."""
    message = train(status=status, step=step, samples=1 << 40, troubles={"write": 2})
    message.algorithm.loss = loss
    return lineage(START + step, step=step, train_lineage=message)


def evaluation(step: int, **metrics: float) -> lineage_pb2.LineageEvent:
    """Returns the lineage of an evaluation, with our own fields."""
    message = lineage_pb2.EvaluationLineage(
        metric=json.dumps(metrics), train_step=step, valid_dataset_size64=1 << 33
    )
    message.valid_dataset.valid_dataset_size = 2**31 - 1
    return lineage(START + step, step=step, evaluation_lineage=message)


def custom(*entries: lineage_pb2.UserDefinedInfo) -> lineage_pb2.LineageEvent:
    """Returns custom lineage data, one message for each entry as MindSpore packs it."""
    return lineage(user_defined_info=lineage_pb2.UserDefinedInfo(user_info=entries))


def entry(**maps: dict[str, Any]) -> lineage_pb2.UserDefinedInfo:
    """Returns a custom entry: its value by the map that holds it."""
    return lineage_pb2.UserDefinedInfo(**maps)


def everything(run: Path) -> None:
    """Every kind of record that MindInsight shows."""
    write_run(
        run,
        summary_pb2.Event(wall_time=START, step=0, graph_def=graph()),
        *losses(STEPS),
        event(3, histo("fc.weight", WEIGHTS), histo("odd", [1.0, np.nan, np.inf, 2.0])),
        event(4, histo("fc.weight", WEIGHTS * 2)),
        event(
            5,
            Summary.Value.FromString(SummaryValue(TENSOR, "table", TABLE).encode()),
            Summary.Value.FromString(SummaryValue(TENSOR, "ids", IDS).encode()),
        ),
        event(6, Summary.Value.FromString(SummaryValue(IMAGE, "input", PIXELS).encode())),
        custom(entry(map_str={"team": "ads"}), entry(map_double={"decay": 0.5})),
        lineage(dataset_graph=dataset_graph()),
        state(RunState.FINISHED, 20, 0.25),
        evaluation(20, auc=0.875),
    )


def graph() -> anf_ir_pb2.GraphProto:
    """Returns a graph as MindSpore writes it: parameters, constants, two scoped nodes."""
    result = anf_ir_pb2.GraphProto(name="construct")
    for name, shape in (("inputs0", (4, 2)), ("fc.weight", (2, 3))):
        result.parameters.add(name=name, type=tensor_type(*shape))
    constant = result.const_vals.add(key="cst1")
    constant.value.dtype, constant.value.bool_val = anf_ir_pb2.DT_BOOL, False
    for name, kind, scope, inputs in (
        ("1", "MatMul", "Default/fc-Dense", ("inputs0", "fc.weight", "cst1")),
        ("2", "ReLU", "Default/relu-ReLU", ("1",)),
    ):
        node = result.node.add(name=name, op_type=kind, scope=scope, output_type=tensor_type(4, 3))
        node.full_name = f"{scope}/{kind}-op{name}"
        for each in inputs:
            node.input.add(name=each, type=anf_ir_pb2.InputProto.DATA_EDGE)
    result.outputs.add(name="2", type=tensor_type(4, 3))
    return result


def tensor_type(*shape: int) -> anf_ir_pb2.TypeProto:
    """Returns the type of a float32 tensor."""
    result = anf_ir_pb2.TypeProto(data_type=anf_ir_pb2.DT_TENSOR)
    result.tensor_type.elem_type = anf_ir_pb2.DT_FLOAT32
    for size in shape:
        result.tensor_type.shape.dim.add(size=size)
    return result


def dataset_graph() -> lineage_pb2.DatasetGraph:
    """Returns a data pipeline of a generator and a batch."""
    batch = lineage_pb2.OperationParameter(
        mapStr={"op_type": "Batch"}, mapInt={"batch_size": 64}, mapBool={"drop_remainder": True}
    )
    source = lineage_pb2.OperationParameter(mapStr={"op_type": "GeneratorDataset"})
    child = lineage_pb2.DatasetGraph(parameter=source)
    return lineage_pb2.DatasetGraph(parameter=batch, children=[child])


def refreshed(run: Path) -> None:
    """A run that refreshed its lineage again and again, evaluating in between."""
    write_run(
        run,
        *losses(STEPS),
        custom(entry(map_str={"team": "ads"})),
        state(RunState.RUNNING, 0, 9.0),
        state(RunState.RUNNING, 5, 0.5),
        evaluation(5, auc=0.5),
        state(RunState.RUNNING, 10, 0.25),
        evaluation(10, auc=0.75),
        state(RunState.FINISHED, 20, 0.125),
    )


def resumed(run: Path) -> None:
    """Two trainings and then an evaluation alone, each with a pair of files of its own.

    The second training begins again at step 8 and has a loss of -1 throughout.
    """
    first = custom(entry(map_str={"first": "only"}))
    write_run(
        run, *losses(range(1, 11)), first, state(RunState.STOPPED, 10, 0.5), evaluation(10, auc=0.5)
    )
    again = [event(step, scalar("loss", -1)) for step in range(8, 13)]
    write_run(run, *again, state(RunState.FINISHED, 12, 0.25))
    write_run(run, evaluation(12, auc=0.75))


def rotated(run: Path) -> None:
    """A run in several summary files, of which the first alone has a lineage file beside it."""
    writer = RunWriter(run, 0, ROTATED)
    write(writer, state(RunState.RUNNING, 0, 0.5), *losses(STEPS))
    write(writer, state(RunState.FINISHED, 20, 0.25))
    writer.close()


def dropped(run: Path) -> None:
    """A run of which the two newest summary files are left, without the lineage's partner."""
    rotated(run)
    drop_oldest(run)


def drop_oldest(run: Path) -> None:
    """Removes all summary files of a run but the two newest, as somebody who needs room does."""
    summaries = [file for file in list_files(str(run)) if file.name.kind is Kind.SUMMARY]
    for file in summaries[:-2]:
        os.unlink(file.path)


def compacted(run: Path) -> None:
    """A run whose files were made one, in half of their size: the last steps are complete."""
    write_run(run, state(RunState.FINISHED, LONG, 0.25), *losses(range(1, LONG + 1)))
    for name in os.listdir(run):
        os.utime(run / name, (1, 1))  # nobody writes it
    [done] = compact(run, find_runs(run)[0].nbytes // 2)
    assert done.replaced


def stamps(run: Path, kind: Kind) -> list[int]:
    """Returns the stamps of a run's files of one kind, in order."""
    return [file.name.stamp for file in list_files(str(run)) if file.name.kind is kind]


def lineage_alone(run: Path) -> None:
    """A lineage without any summary file."""
    summary, _ = write_run(run, state(RunState.FINISHED, 20, 0.25))
    summary.unlink()


def ranks(run: Path, seconds_apart: int) -> None:
    """Two ranks in one directory, with one tag in common, each with its own lineage.

    Args:
        run: The directory.
        seconds_apart: How much later rank 1 began, by the names of its files.
    """
    for rank in (0, 1):
        written = write_run(
            run,
            *(event(step, scalar("loss", rank), scalar(f"of rank {rank}", step)) for step in STEPS),
            state(RunState.FINISHED, 20, 0.5 + rank),
            rank=rank,
        )
        for path, kind in zip(written, (Kind.SUMMARY, Kind.LINEAGE), strict=True):
            name = RecordName(int(START) + rank * seconds_apart, rank, "host", kind)
            path.rename(run / str(name))


def extended(run: Path) -> None:
    """Records without a step, and with fields that MindInsight has never heard of."""
    stepless = event(0, scalar("stepless", 1.5))
    stepless.ClearField("step")
    foreign = losses([1, 2])
    for each in foreign:
        each.MergeFromString(FOREIGN_FIELD)
    nothing = summary_pb2.Event(wall_time=START, step=3)
    unknown_value = event(4, summary_pb2.Summary.Value(tag="nothing"))
    finished = state(RunState.FINISHED, 4, 0.25)
    finished.MergeFromString(FOREIGN_FIELD)
    write_run(run, stepless, *foreign, nothing, unknown_value, *losses([5]), finished)


def custom_values(run: Path) -> None:
    """Custom lineage data of every type: in our own maps alone, and in MindSpore's besides."""
    nested = lineage_pb2.UserDefinedInfo(user_info=[entry(map_double={"beta": 0.5})])
    write_run(
        run,
        *losses([1]),
        custom(
            entry(map_int32={"small": 7}),
            entry(map_int64={"large": 1 << 40}),
            entry(map_bool={"flag": True}),
            entry(map_int64={"large, twice": 1 << 40}, map_str={"large, twice": str(1 << 40)}),
            entry(map_bool={"flag, twice": True}, map_int32={"flag, twice": 1}),
            entry(map_dict={"nested": nested}),
            entry(map_str={"after": "them"}),
        ),
        state(RunState.FINISHED, 1, 0.25),
    )


def torn(run: Path, age: float) -> None:
    """A run whose process died in the middle of a record, and then went on in new files.

    Args:
        run: The directory.
        age: How many seconds ago that happened.
    """
    summary, _ = write_run(run, *losses(range(1, 11)), state(RunState.RUNNING, 10, 0.5))
    with summary.open("ab") as file:
        file.write(frame(losses([11])[0].SerializeToString())[:-7])
    then = time.time() - age
    os.utime(summary, (then, then))
    write_run(run, *losses(range(11, 21)), state(RunState.FINISHED, 20, 0.25))


def landscape(run: Path) -> None:
    """Loss landscapes that our SummaryLandscape has computed."""
    metadata = quadratic.write_run(run)
    options = Options(engine="sequential")
    SummaryLandscape(run).compute(quadratic.Maker(), metadata, options)


RUNS: Final[dict[str, Callable[[Path], object]]] = {
    "everything": everything,
    "refreshed": refreshed,
    "resumed": resumed,
    "rotated": rotated,
    "dropped": dropped,
    "compacted": compacted,
    "lineage_alone": lineage_alone,
    "ranks_together": lambda run: ranks(run, seconds_apart=0),
    "ranks_apart": lambda run: ranks(run, seconds_apart=1),
    "extended": extended,
    "custom_values": custom_values,
    "landscape": landscape,
    "torn": lambda run: torn(run, age=3600),
}
