"""A tree of record directories that is the same on every machine, at every time.

Nothing of the package but its protobufs is used: the records are framed here. So the read side
can be rewritten, and modules renamed, without a change of this file.

Everything is fixed: wall times, names of hosts, numbers (quotients of integers, which no
mathematical library rounds in its own way), pictures (PNG without compression).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c

from rec_summary._pb import anf_ir_pb2, lineage_pb2
from rec_summary._pb.anf_ir_pb2 import TensorProto
from rec_summary._pb.lineage_pb2 import (
    DatasetGraph,
    EvaluationLineage,
    LineageEvent,
    Operation,
    RunState,
    TrainLineage,
    UserDefinedInfo,
)
from rec_summary._pb.summary_pb2 import (
    Event,
    Explain,
    LossLandscape,
    MetricStates,
    PrCurve,
    Reliability,
    Summary,
    TopIds,
)

STAMP: Final = 1_700_000_000
START: Final = STAMP + 0.125  # a float64 holds it exactly
VERSION: Final = "MindSpore.Event:1"
NAN, INF = math.nan, math.inf
Value = Summary.Value

# Files


def masked(data: bytes) -> int:
    """Returns the masked CRC-32C of some bytes."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """Returns a framed record."""
    length = struct.pack("<Q", len(payload))
    head = length + struct.pack("<I", masked(length))
    return head + payload + struct.pack("<I", masked(payload))


def framed(message: Any) -> bytes:
    """Returns a message as a framed record."""
    return frame(message.SerializeToString(deterministic=True))


def name_of(stamp: int, rank: int = 0, host: str = "host", kind: str = "MS") -> str:
    """Returns the name of a record file; `stamp` counts from `STAMP`."""
    return f"events.out.events.summary.{STAMP + stamp}.{rank}.{host}_{kind}"


def put(
    directory: Path, *events: Any, stamp: int = 0, rank: int = 0, host: str = "host", at: float = 0
) -> Path:
    """Writes a summary file and, if there is any lineage among the events, a lineage file.

    Returns the summary file. `at` is how long after `START` the files were begun.
    """
    directory.mkdir(parents=True, exist_ok=True)
    summary = directory / name_of(stamp, rank, host)
    parts = [framed(Event(wall_time=START + at, version=VERSION))]
    parts += [framed(each) for each in events if isinstance(each, Event)]
    summary.write_bytes(b"".join(parts))
    lineages = [framed(each) for each in events if isinstance(each, LineageEvent)]
    if lineages:
        first = framed(LineageEvent(wall_time=START + at, version=VERSION))
        path = directory / name_of(stamp, rank, host, "lineage")
        path.write_bytes(first + b"".join(lineages))
    return summary


# Records


def event(step: int, *values: Value, at: float | None = None) -> Event:
    """Returns a summary; it comes a quarter of a second per step after `START`."""
    wall_time = START + step / 4 if at is None else at
    return Event(wall_time=wall_time, step=step, summary=Summary(value=values))


def scalar(tag: str, number: float) -> Value:
    """Returns a scalar."""
    return Value(tag=tag, scalar_value=number)


def loss(step: int, salt: int = 0) -> float:
    """Returns a number that falls, with noise; a multiple of 1/1024."""
    return (2048 // (step + 1) + (step * 7919 + salt * 104_729) % 512) / 1024


def losses(steps: Iterable[int], tag: str = "loss", salt: int = 0, after: float = 0) -> list[Event]:
    """Returns a series of scalars."""
    found = []
    for step in steps:
        at = START + step / 4 + after
        found.append(event(step, scalar(tag, loss(step, salt)), at=at))
    return found


def histo(tag: str, counts: Sequence[int], *, left: float = -1.0, **more: Any) -> Value:
    """Returns a histogram with buckets of width 1/2, as both collectors write them."""
    buckets = [
        Summary.Histogram.bucket(left=left + index / 2, width=0.5, count=count)
        for index, count in enumerate(counts)
    ]
    stated = {
        "nan_count": 0,
        "pos_inf_count": 0,
        "neg_inf_count": 0,
        "max": left + len(counts) / 2,
        "min": left,
        "sum": float(sum(counts)) / 4,
        "count": sum(counts),
    }
    stated.update(more)
    return Value(tag=tag, histogram=Summary.Histogram(buckets=buckets, **stated))


def png(width: int, height: int, salt: int = 0) -> bytes:
    """Returns an RGB picture, stored without compression."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows += bytes(((x * 16 + salt) % 256, (y * 16) % 256, (x * y + salt) % 256))
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
            _chunk(b"IDAT", stored(bytes(rows))),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def stored(data: bytes) -> bytes:
    """Returns a zlib stream that compresses nothing, so that no version of zlib matters."""
    assert len(data) < 1 << 16
    block = b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    return b"\x78\x01" + block + struct.pack(">I", zlib.adler32(data))


def image(tag: str, width: int = 6, height: int = 4, salt: int = 0, data: bytes = b"") -> Value:
    """Returns an image."""
    encoded = data or png(width, height, salt)
    picture = Summary.Image(height=height, width=width, colorspace=3, encoded_image=encoded)
    return Value(tag=tag, image=picture)


def tensor(tag: str, dims: Sequence[int], data: Sequence[float], kind: int, **more: Any) -> Value:
    """Returns a tensor; `more` are the fields beside `float_data`."""
    message = TensorProto(dims=dims, data_type=kind, float_data=data, **more)  # type: ignore[arg-type]
    return Value(tag=tag, tensor=message)


def floats(tag: str, *dims: int, salt: int = 0) -> Value:
    """Returns a tensor of float32, multiples of 1/64 of either sign."""
    count = math.prod(dims)
    data = [((index * 37 + salt) % 129 - 64) / 64 for index in range(count)]
    return tensor(tag, dims, data, anf_ir_pb2.DT_FLOAT32)


def landscape(tag: str = "landscape", *, own: bool = True, hole: bool = False) -> Value:
    """Returns a loss landscape, a bowl with the path of a training into it."""
    x, y = [index / 4 - 1 for index in range(9)], [index / 4 - 1 for index in range(7)]
    z = [1 + a * a / 2 + b * b for b in y for a in x]
    if hole:
        z[12], z[13] = NAN, INF
    message = LossLandscape()
    _points(message.landscape, x, y, z, (len(y), len(x)))
    track = [1 - index / 4 for index in range(5)]
    _points(message.loss_path.points, track, track, [1 + 1.5 * a * a for a in track], (5,))
    message.loss_path.intervals.extend((2, 4, 6, 8, 10))
    _points(message.convergence_point, [0.0], [0.0], [1.0], (1,))
    message.metadata.decomposition, message.metadata.unit = "PCA", "step"
    message.metadata.step_per_epoch = 5
    if own:
        message.metadata.seed, message.metadata.samples = 7, 1 << 33
        message.metadata.explained_variance.extend((0.75, 0.125))
        message.metadata.eigenvalues.extend((2.5, 0.5))
        message.metadata.selection, message.metadata.moved = "dense", 1234
    return Value(tag=tag, loss_landscape=message)


def _points(
    points: Any,
    x: Sequence[float],
    y: Sequence[float],
    z: Sequence[float],
    shape: Sequence[int],
) -> None:
    for name, data, dims in (("x", x, (len(x),)), ("y", y, (len(y),)), ("z", z, shape)):
        getattr(points, name).CopyFrom(
            TensorProto(dims=dims, data_type=anf_ir_pb2.DT_FLOAT32, float_data=data)
        )


def curves() -> list[Value]:
    """Returns what only recommenders have, but for states."""
    curve = PrCurve(
        true_positives=[8, 6, 3, 0],
        false_positives=[8, 2, 1, 0],
        true_negatives=[0, 6, 7, 8],
        false_negatives=[0, 2, 5, 8],
        precision=[0.5, 0.75, 0.75, 1],
        recall=[1, 0.75, 0.375, 0],
    )
    groups = Reliability(
        predicted=[0.125, 0.5, 0.875], observed=[0.25, 0.5, 0.75], weights=[4, 8, 2]
    )
    top = TopIds(ids=[7, -1, 1 << 40], counts=[900, 40, 3], low=[900, 38, 0], high=[900, 41, 9])
    return [
        Value(tag="recommender/pr_curve/1h", pr_curve=curve),
        Value(tag="recommender/reliability/1h", reliability=groups),
        Value(tag="recommender/table/user/top_ids", top_ids=top),
    ]


def states(step: int, rank: int, *, final: bool = False, kind: str = "RatingErrors") -> Value:
    """Returns the states of a metric of one rank: sums of the errors of ratings."""
    parts = {"weights": 16, "errors": rank - 2, "absolute": 8 + step, "squared": 20 + step + rank}
    array = MetricStates.Array
    arrays = [array(name="refused", dtype="<i8", data=struct.pack("<q", rank))]
    for name, total in parts.items():
        units = total << 1074  # how an exact sum is stored
        size = units.bit_length() // 8 + 1
        data = units.to_bytes(size, "little", signed=True)
        deflated = name == "squared"
        arrays.append(
            array(
                name=f"{name}.units",
                dtype="|u1",
                shape=[size],
                data=stored(data) if deflated else data,
                deflated=deflated,
            )
        )
    message = MetricStates(
        states=[MetricStates.State(key="quality/1h", kind=kind, arrays=arrays)],
        rank=rank,
        rank_size=2,
        step=step,
        wall_time=START + step / 4,
        examples=16 * step,
        final=final,
        settings="1h",
    )
    return Value(tag="recommender/states", metric_states=message)


def graph(scale: int = 8) -> anf_ir_pb2.GraphProto:
    """Returns a small computation graph with parameters, constants and a control edge."""
    ir = anf_ir_pb2
    shape = ir.TensorShapeProto(dim=[ir.TensorShapeProto.Dimension(size=s) for s in (64, scale)])
    kind = ir.TypeProto(
        data_type=ir.DT_TENSOR,
        tensor_type=ir.TypeProto.Tensor(elem_type=ir.DT_FLOAT32, shape=shape),
    )

    def node(name: str, op: str, full: str, *inputs: str, **more: Any) -> anf_ir_pb2.NodeProto:
        edges = [ir.InputProto(name=each) for each in inputs]
        return ir.NodeProto(name=name, op_type=op, full_name=full, input=edges, **more)

    scope = "Default/net/emb-Embedding"
    return ir.GraphProto(
        name="train",
        node=[
            node("1", "Load", f"{scope}/Load-op0", "emb.table", "cst1"),
            node("2", "Gather", f"{scope}/Gather-op0", "1", "inputs0", "cst2", output_type=kind),
            node("3", "UpdateState", "Default/opt/UpdateState-op0", "cst1", "1"),
            node("4", "Assign", "Default/opt/Assign-op0", "moment1.emb.table", "2", "3"),
        ],
        parameters=[
            ir.ParameterProto(name=name, type=kind)
            for name in ("inputs0", "emb.table", "moment1.emb.table")
        ],
        const_vals=[
            ir.NamedValueProto(key="cst1", value=ir.ValueProto(str_val="U")),
            ir.NamedValueProto(key="cst2", value=ir.ValueProto(dtype=ir.DT_INT64, int_val=7)),
            ir.NamedValueProto(key="cst3", value=ir.ValueProto(dtype=ir.DT_BOOL, bool_val=False)),
        ],
        outputs=[ir.OutputProto(name="2", type=kind)],
    )


def graph_event(scale: int = 8, at: float = START) -> Event:
    """Returns the record of a computation graph; it has no step, as MindSpore's has none."""
    return Event(wall_time=at, graph_def=graph(scale))


def lineage(at: float, **what: Any) -> LineageEvent:
    """Returns a lineage record, `at` seconds after `START`."""
    return LineageEvent(wall_time=START + at, **what)


def train(
    *, optimizer: str = "Adam", rate: float = 0.125, network: str = "DeepFM", **state: Any
) -> TrainLineage:
    """Returns a train lineage; without a state, one as MindSpore writes it."""
    message = TrainLineage(
        hyper_parameters=TrainLineage.HyperParameters(
            optimizer=optimizer,
            learning_rate=rate,
            loss_function="BCELoss",
            epoch=3,
            parallel_mode="stand_alone",
            device_num=1,
            batch_size=64,
        ),
        train_dataset=TrainLineage.TrainDataset(
            train_dataset_path="/data/clicks", train_dataset_size=6400
        ),
        algorithm=TrainLineage.Algorithm(network=network, loss=0.25),
        model=TrainLineage.Model(path='{"ckpt": null}', size=0),
    )
    if state:
        message.run_state.CopyFrom(RunState(start_time=START, host="worker-1", pid=4711, **state))
    return message


def finished(at: float, step: int, **more: Any) -> LineageEvent:
    """Returns the last train lineage of a run that has reached its end."""
    more = {"status": RunState.FINISHED, "step": step, "samples": 64 * step, **more}
    return lineage(at, train_lineage=train(**more))


def evaluation(at: float, metric: str, step: int | None = None) -> LineageEvent:
    """Returns the lineage of an evaluation; MindSpore's has no step."""
    message = EvaluationLineage(
        metric=metric,
        valid_dataset=EvaluationLineage.ValidDataset(
            valid_dataset_path="/data/valid", valid_dataset_size=640
        ),
    )
    if step is not None:
        message.train_step, message.valid_dataset_size64 = step, 1 << 33
    return lineage(at, evaluation_lineage=message)


def custom(at: float, *, own: bool = True) -> LineageEvent:
    """Returns custom data, packed as MindSpore does: a list of messages of one entry each."""
    info = UserDefinedInfo()
    info.user_info.add().map_str["note"] = "a|b `c` <i>x</i>\nnext"
    info.user_info.add().map_int32["depth"] = 3
    info.user_info.add().map_double["dropout"] = 0.25
    info.user_info.add().map_dict["opt"].user_info.add().map_double["beta"] = 0.5
    if own:
        info.user_info.add().map_int64["budget"] = 1 << 40
        info.user_info.add().map_bool["warm"] = True
        info.user_info.add().map_double["nan"] = NAN
    return lineage(at, user_defined_info=info)


def pipeline(at: float, size: int = 64) -> LineageEvent:
    """Returns the graph of a data pipeline."""
    parameters = lineage_pb2.OperationParameter
    source = DatasetGraph(
        parameter=parameters(
            mapStr={"op_type": "GeneratorDataset"}, mapBool={"shuffle": False}, mapInt={"n": 6400}
        ),
        sampler=Operation(
            operationParam=parameters(mapStr={"sampler_name": "RandomSampler"}), size=[8, 2]
        ),
    )
    mapped = DatasetGraph(
        parameter=parameters(
            mapStr={"op_type": "MapDataset"},
            mapStrList={"columns": lineage_pb2.StrList(strValue=["user", "item"])},
        ),
        children=[source],
        operations=[
            Operation(
                operationParam=parameters(
                    mapStr={"tensor_op_name": "Rescale"}, mapDouble={"shift": -0.5}
                ),
                weights=[0.5, 0.25],
            )
        ],
    )
    batch = DatasetGraph(
        parameter=parameters(mapStr={"op_type": "BatchDataset"}, mapInt={"batch_size": size}),
        children=[mapped],
    )
    return lineage(at, dataset_graph=batch)


# Our own runs


def everything(run: Path) -> None:
    """A run of ours with every kind of record."""
    put(
        run,
        graph_event(),
        event(1, scalar("loss", 0.75), histo("fc.weight", [1, 5, 2]), image("picture")),
        event(2, scalar("loss", 0.5), scalar("üñí//°", 1.5), floats("hidden", 4, 6)),
        event(2, landscape()),
        event(3, scalar("loss", 0.375), histo("fc.weight", [2, 4, 2]), *curves()),
        event(4, scalar("loss", 0.25), image("picture", salt=9), floats("hidden", 4, 6, salt=5)),
        pipeline(0),
        lineage(0, train_lineage=train(status=RunState.RUNNING, step=1)),
        custom(0),
        evaluation(0.75, '{"auc": 0.75, "curve": [1, 2], "logloss": NaN}', 2),
        evaluation(1.25, '{"auc": 0.875}', 4),
        finished(1.5, 4, reason="all epochs done", troubles={"write": 2}, rank=0, rank_size=1),
    )


def rotations(run: Path) -> None:
    """One run in several files; three of them were begun in one second and named ahead of it."""
    for number, (first, last) in enumerate(((1, 9), (9, 11), (11, 13), (13, 40))):
        more = [finished(10, 39)] if number == 3 else []
        begun = first / 4
        put(run, *losses(range(first, last)), *more, stamp=number, at=begun)


def same_second(run: Path) -> None:
    """Two files of one second, of two hosts, one after the other."""
    put(run, *losses(range(1, 5)), host="a", stamp=3)
    put(run, *losses(range(5, 9)), host="b", stamp=3, at=1.25)


def ranks(run: Path) -> None:
    """Two ranks in one directory, each with a lineage of its own."""
    for rank in (0, 1):
        put(
            run,
            *losses(range(1, 6), salt=rank),
            event(6, histo("w", [rank, 2, 1])),
            finished(2, 6, rank=rank, rank_size=2),
            rank=rank,
        )


def late_rank(run: Path) -> None:
    """A second rank whose file is begun a minute after the first one's."""
    put(run, *losses(range(1, 30)), lineage(0, train_lineage=train(status=RunState.RUNNING)))
    put(run, *losses(range(20, 30), salt=1, after=60), rank=1, stamp=60, at=60)


def foretold_ranks(run: Path) -> None:
    """One rank so far; its lineage says that there are more."""
    state = train(status=RunState.RUNNING, step=2, rank=1, rank_size=4)
    put(run, *losses(range(1, 3)), lineage(0, train_lineage=state), rank=1)


def two_writers(run: Path) -> None:
    """Two processes that record as the same rank at the same time."""
    put(run, *losses(range(1, 200)), finished(50, 199), host="a")
    put(run, *losses(range(1, 200), salt=3, after=0.5), finished(50.5, 199), host="b", stamp=1)


def restart_in_file(run: Path) -> None:
    """Steps that go back within one file, for scalars and histograms, twice."""
    first = [event(s, scalar("loss", s), histo("w", [s, 1])) for s in (1, 2, 3, 4)]
    second = [event(s, scalar("loss", -s), histo("w", [s, 9]), at=START + 5 + s) for s in (3, 4, 5)]
    third = [event(s, scalar("loss", 10 + s), at=START + 20 + s) for s in (2, 3)]
    rest = [event(6, histo("w", [0, 7]), scalar("loss", 16), at=START + 30)]
    put(run, *first, *second, *third, *rest)


def restart_of_some(run: Path) -> None:
    """A restart that one series takes part in, and another kind that may go back at any time."""
    put(
        run,
        *(event(s, scalar("a", s), scalar("b", s)) for s in (1, 2, 3)),
        event(1, landscape(), image("picture"), floats("t", 2, 3)),
        event(2, scalar("b", 20.0), at=START + 3),
        event(4, scalar("a", 40.0), scalar("b", 40.0), at=START + 4),
    )


def restart_other_parameters(run: Path) -> None:
    """A restart in files of its own, with another optimizer and another graph."""
    put(run, graph_event(), *losses(range(1, 21)), custom(0), pipeline(0), finished(5, 20))
    again = train(optimizer="Lamb", rate=0.5, status=RunState.FINISHED, step=25)
    put(
        run,
        graph_event(16, START + 100),
        *losses(range(11, 26), salt=4, after=100),
        pipeline(100, 128),
        lineage(107, train_lineage=again),
        stamp=100,
        at=100,
    )


def status(state: int, **more: Any) -> Callable[[Path], None]:
    """Returns what makes a short run that ended in some way."""

    def make(run: Path) -> None:
        described = train(status=state, step=3, samples=192, **more)
        put(run, *losses(range(1, 4)), lineage(1, train_lineage=described))

    make.__doc__ = f"A run whose last status is {RunState.Status.Name(state)}."
    return make


def evaluations(run: Path) -> None:
    """Evaluations with and without a step, of which some is no number."""
    put(
        run,
        *losses(range(1, 11)),
        event(5, scalar("eval/auc", 0.5)),
        evaluation(1, '{"auc": 0.5, "loss": 2}', 5),
        evaluation(2, '{"auc": Infinity, "note": "x", "deep": {"a": 1}}', 10),
        evaluation(3, '{"mae": 0.125}'),
        evaluation(4, "no JSON at all"),
        evaluation(5, "[1, 2]"),
        finished(6, 10),
    )


def lineage_only(run: Path) -> None:
    """A run without any value."""
    put(run, finished(6, 10), custom(1))


# Odd values


def numbers(run: Path) -> None:
    """Scalars that are not finite, denormal, negative zero."""
    series = [0.5, NAN, 2.5, INF, -INF, -0.0, 1e-45, -3.4028234663852886e38, NAN]
    put(run, *(event(s, scalar("loss", n)) for s, n in enumerate(series, 1)))


def times(run: Path) -> None:
    """Wall times that are no numbers, zero, negative, and that go back."""
    at = [START, NAN, INF, -INF, 0.0, -5.0, START + 100, START + 2]
    put(run, *(event(s, scalar("loss", s), at=t) for s, t in enumerate(at, 1)))


def steps(run: Path) -> None:
    """Steps that are zero, huge and negative."""
    order = (0, 1, 2**31 - 1, 2**31, 2**40, 2**53 + 1, 2**63 - 1)
    put(
        run,
        *(event(step, scalar("loss", n), at=START + n) for n, step in enumerate(order)),
        *(event(s, scalar("other", s), at=START + 9) for s in (-(2**63), -7, -1, 0, 5)),
        event(-3, histo("w", [1]), image("picture"), at=START + 10),
    )


def no_step(run: Path) -> None:
    """Records that leave the step out, and summaries without values."""
    value = Summary(value=[scalar("loss", 1.0)])
    bare = Event(wall_time=START, summary=value)
    empty = Event(wall_time=START + 1, step=1, summary=Summary())
    put(run, bare, empty, event(2, Value(tag="nothing")), event(3, scalar("loss", 3.0)))


def tags(run: Path) -> None:
    """Unusual tags."""
    odd = (
        *("", "/", "//", "a//b", "/a", "a/", ".", "..", " ", "a b", "tab\tnew\nline"),
        *("üñí/°", "日本語", "🙂", "e\u0301", "%41", "<b>&|`", "x" * 300, "nul\0", "\u202eabc"),
        *("lineage", "_hparams_/session_start_info", "custom_scalars__config__", "loss/nan_count"),
    )
    for step in (1, 2):
        values = [scalar(tag, index + step / 2) for index, tag in enumerate(odd)]
        put(run, event(step, *values), stamp=step, at=step / 4)


def clash(run: Path) -> None:
    """One tag for several kinds, and tags that are taken by what is derived."""
    put(
        run,
        event(1, scalar("w", 1.0), scalar("v/nan_count", -1.0), scalar("t/statistics", 1.0)),
        event(2, histo("w", [1, 2]), histo("v", [1], nan_count=1, count=2), floats("t", 2, 2)),
        event(3, scalar("w", 3.0), image("w"), scalar("lineage", 4.0)),
        event(4, scalar("w", 4.0), scalar("w", 5.0), histo("w", [3])),
        finished(2, 4),
    )


def repeats(run: Path) -> None:
    """Steps recorded several times: the same again, and others."""
    put(
        run,
        event(1, scalar("loss", 1.0), histo("w", [1])),
        event(1, scalar("loss", 1.0), histo("w", [1])),
        event(2, scalar("loss", 2.0), histo("w", [2]), image("p")),
        event(2, scalar("loss", 2.5), histo("w", [5]), image("p", salt=7), at=START + 0.75),
        event(2, scalar("other", 9.0)),
        event(3, scalar("loss", 3.0), scalar("loss", 3.5)),
        stamp=0,
    )
    put(run, event(3, scalar("loss", 3.75), at=START + 1), *losses((4, 5)), stamp=1, at=1)


# Kinds of values


def histograms(run: Path) -> None:
    """Histograms of awkward arrays, samples, and ones that do not add up."""
    empty = {"max": 0.0, "min": 0.0, "sum": 0.0}
    put(
        run,
        event(1, histo("one", [3]), histo("empty", [], **empty), histo("zeros", [0, 0, 0])),
        event(1, histo("sick", [1, 2])),
        event(2, histo("sick", [], nan_count=2, pos_inf_count=1, neg_inf_count=1, count=4)),
        event(3, histo("sick", [1, 2], nan_count=1, count=4)),
        event(4, histo("sick", [1, 2])),
        event(4, histo("sampled", [10, 20, 10], population=1 << 40)),
        event(4, histo("sampled_sick", [10, 20], population=900, nan_count=5, count=35)),
        event(5, histo("lies", [1, 2], count=1 << 40, min=5.0, max=-5.0, sum=NAN)),
        event(5, histo("negative", [-1, 2])),
        event(6, histo("wide", list(range(90)), left=-1e30)),
        event(6, histo("not_finite", [1, 2], left=INF)),
        event(7, Value(tag="bare", histogram=Summary.Histogram())),
    )


def images(run: Path) -> None:
    """Images: small and larger, of another size than stated, and no picture at all."""
    cut = png(8, 8)[:-20]
    put(
        run,
        *(event(s, image("picture", salt=s)) for s in (1, 2, 3)),
        event(3, image("large", 60, 40), image("sized", 6, 4, data=png(12, 9))),
        event(4, image("cut", 8, 8, data=cut), image("text", data=b"not a picture")),
        event(5, image("none", 0, 0, data=png(2, 2)), scalar("loss", 1.0)),
    )


def tensors(run: Path) -> None:
    """Tensors of several types and shapes, and ones that cannot be."""
    ir = anf_ir_pb2
    large = [2**24 + 1, -(2**40), 2**62, 0]
    put(
        run,
        event(1, floats("matrix", 5, 8), floats("vector", 30), floats("cube", 2, 3, 4)),
        event(1, tensor("odd", [2, 2], [NAN, INF, -INF, 0.5], ir.DT_FLOAT32)),
        event(2, tensor("single", [], [2.5], ir.DT_FLOAT32), tensor("one", [1], [3], ir.DT_INT32)),
        event(2, tensor("empty", [0, 3], [], ir.DT_FLOAT32), floats("matrix", 5, 8, salt=11)),
        event(3, tensor("bools", [4], [0, 1, 1, 0], ir.DT_BOOL)),
        event(3, tensor("bytes", [2, 2], [0, 1, 254, 255], ir.DT_UINT8)),
        event(3, tensor("half", [3], [0.5, -1.5, 65504], ir.DT_FLOAT16)),
        event(3, tensor("long", [4], large, ir.DT_INT64, int64_data=large)),
        event(3, tensor("double", [2], [0.1, 1e300], ir.DT_FLOAT64, double_data=[0.1, 1e300])),
        event(4, tensor("short", [2, 2], [1, 2, 3], ir.DT_FLOAT32)),
        event(4, tensor("brain", [2], [1, 2], ir.DT_BFLOAT16), tensor("s", [1], [1], ir.DT_STRING)),
        event(5, floats("a/b c", 2, 3), floats("user.embedding", 12, 4)),
    )


def graphs(run: Path) -> None:
    """Several graphs of both kinds, one of them twice."""
    put(
        run,
        graph_event(8),
        event(1, scalar("loss", 1.0)),
        graph_event(8, START + 1),
        graph_event(16, START + 2),
        Event(wall_time=START + 3, graph_def=anf_ir_pb2.GraphProto()),
        pipeline(0),
        pipeline(1),
        pipeline(2, 128),
    )


def landscapes(run: Path) -> None:
    """Landscapes: a whole one, one with a hole, one whose parts do not fit."""
    broken = landscape("broken")
    broken.loss_landscape.landscape.z.dims[0] = 3
    put(run, *losses(range(1, 4)), event(3, landscape()), event(3, landscape("hole", hole=True)))
    put(run, event(10, landscape(own=False), at=START + 5), event(10, broken), stamp=5, at=5)


def recommender(run: Path) -> None:
    """Curves and frequent ids of several steps; of some, the columns differ in length."""
    crooked = PrCurve(true_positives=[1, 2], recall=[1])
    put(
        run,
        *(event(s, *curves(), scalar("recommender/auc/1h", 0.5 + s / 64)) for s in (10, 20)),
        event(30, Value(tag="crooked", pr_curve=crooked), Value(tag="bare", top_ids=TopIds())),
        event(30, Value(tag="empty", reliability=Reliability()), states(30, 0)),
    )


def merged_ranks(run: Path) -> None:
    """States of two ranks, from which their metrics are merged."""
    for rank in (0, 1):
        put(
            run,
            *(event(s, states(s, rank), scalar("recommender/rmse/1h", s / 8)) for s in (10, 20)),
            event(30 + rank, states(30 + rank, rank, final=True)),
            finished(9, 30, rank=rank, rank_size=2),
            rank=rank,
        )


def merged_so_far(run: Path) -> None:
    """States of two ranks, of which one is behind, and of which one was started again."""
    again = [event(s, states(s, 0), at=START + 50 + s) for s in (20, 30, 40)]
    put(run, *(event(s, states(s, 0)) for s in (10, 20, 30)), *again)
    put(run, *(event(s, states(s, 1)) for s in (10, 20, 30)), rank=1)
    put(run, event(20, states(20, 1), at=START + 70), rank=1, stamp=70, at=70)


def odd_states(run: Path) -> None:
    """States of which one rank's are of an unknown kind."""
    for rank, kind in enumerate(("RatingErrors", "Nonsense")):
        put(run, event(10, states(10, rank, kind=kind), scalar("loss", 1.0)), rank=rank)


def unknown(run: Path) -> None:
    """Records that nobody shows: explanations, and fields of a later format."""
    later = event(2, scalar("loss", 2.0)).SerializeToString() + b"\xfa\x3f\x03new"
    value = b"\x0a\x01n" + b"\xa2\x7d\x02hi"  # a tag, and field 2004
    summary = b"\x0a" + bytes([len(value)]) + value
    head = Event(wall_time=START + 1, step=3).SerializeToString()
    path = put(run, Event(wall_time=START, explain=Explain(sample_id=1)), *losses((1,)))
    with path.open("ab") as file:
        file.write(frame(later) + frame(head + b"\x2a" + bytes([len(summary)]) + summary))
        file.write(framed(event(4, scalar("loss", 4.0))))


# Damage


def _pieces(path: Path) -> list[tuple[int, int]]:
    """Returns where each record of a file begins and ends."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        end = at + 16 + struct.unpack_from("<Q", data, at)[0]
        found.append((at, end))
        at = end
    return found


def _patch(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(bytes(data))


def _flip(path: Path, at: int) -> None:
    _patch(path, at, bytes([path.read_bytes()[at] ^ 1]))


def bad_data(run: Path) -> None:
    """A wrong checksum of data in the middle, and in the lineage."""
    path = put(run, *losses(range(1, 11)), finished(1, 5), finished(3, 10))
    _flip(path, _pieces(path)[4][1] - 2)
    other = path.with_name(path.name.replace("_MS", "_lineage"))
    _flip(other, _pieces(other)[2][0] + 30)


def bad_length(run: Path) -> None:
    """A wrong checksum of a length in the first of two files."""
    path = put(run, *losses(range(1, 11)), finished(3, 10))
    put(run, *losses(range(11, 15)), stamp=3, at=3)
    _flip(path, _pieces(path)[5][0] + 9)


def torn(run: Path) -> None:
    """A file that ends in the middle of a record."""
    path = put(run, *losses(range(1, 11)), lineage(0, train_lineage=train(status=RunState.RUNNING)))
    path.write_bytes(path.read_bytes()[:-9])


def torn_head(run: Path) -> None:
    """A file that ends in the middle of a length, and one that goes on."""
    path = put(run, *losses(range(1, 6)))
    path.write_bytes(path.read_bytes() + b"\x10\0\0")
    put(run, *losses(range(6, 9)), stamp=2, at=2)


def zeroed(run: Path) -> None:
    """A block of zeros over several records, and zeros at the end of another file."""
    path = put(run, *losses(range(1, 41)))
    start, _ = _pieces(path)[12]
    _patch(path, start + 5, bytes(200))
    tail = put(run, *losses(range(41, 45)), stamp=10, at=10.25)
    tail.write_bytes(tail.read_bytes() + bytes(512))


def garbage(run: Path) -> None:
    """A file of garbage, an empty one, and one that is sound."""
    put(run, *losses(range(1, 6)), stamp=2)
    noise = bytes((index * index * 31 + index) % 251 for index in range(600))
    (run / name_of(0)).write_bytes(noise)
    (run / name_of(1)).write_bytes(b"")
    (run / name_of(1, kind="lineage")).write_bytes(noise[:40])


def nothing_readable(run: Path) -> None:
    """A run of garbage alone."""
    run.mkdir(parents=True)
    (run / name_of(0)).write_bytes(b"no record at all, but long enough for a length")


def empty_file(run: Path) -> None:
    """A run of one empty file."""
    run.mkdir(parents=True)
    (run / name_of(0)).write_bytes(b"")


def no_event(run: Path) -> None:
    """Sound frames around what is no event, and no version in front."""
    run.mkdir(parents=True)
    parts = [frame(b"\xff\xff\xff"), framed(event(1, scalar("loss", 1.0))), frame(b"")]
    parts += [frame(b"\x10\x05"), framed(event(2, scalar("loss", 2.0)))]
    (run / name_of(0)).write_bytes(b"".join(parts))


# As MindSpore writes


def mindspore(run: Path) -> None:
    """What MindSpore's collector leaves: the graph first, the last step of each epoch twice."""
    found = [graph_event()]
    for step in range(1, 11):
        values = [scalar("loss/auto", loss(step)), histo("fc.weight/auto", [step, 5, 2])]
        values += [image("input_data/auto", salt=step)] if step % 5 == 1 else []
        found.append(event(step, *values))
        if step % 5 == 0:
            found.append(event(step, *values, at=START + step / 4 + 0.0625))
    found += [event(10, floats("features/all", 3, 4)), event(10, landscape(own=False))]
    put(run, *found, pipeline(0), lineage(3, train_lineage=train()), custom(0, own=False))
    put(run, evaluation(4, '{"mae": 0.375, "auc": 0.5}'), stamp=4, at=4)


def mindspore_restarted(run: Path) -> None:
    """MindSpore counts from 1 again, with another learning rate."""
    put(run, graph_event(), *losses(range(1, 21), "loss/auto"), lineage(6, train_lineage=train()))
    again = lineage(66, train_lineage=train(rate=0.0625, optimizer="Momentum"))
    second = losses(range(1, 11), "loss/auto", 2, after=60)
    put(run, graph_event(at=START + 60), *second, again, stamp=60, at=60)


def mindspore_ranks(run: Path) -> None:
    """Four ranks of MindSpore, with a lineage each."""
    for rank in range(4):
        described = train(rate=0.125 * (rank + 1))
        values = losses(range(1, 9), "loss/auto", rank)
        put(run, *values, lineage(3, train_lineage=described), rank=rank, stamp=rank // 2)


def renamed(run: Path) -> None:
    """Files with a prefix and a suffix of the user's own."""
    path = put(run, *losses(range(1, 5)))
    path.rename(run / f"my-run.out.events.summary.{STAMP}.0.hostmine")
    path = put(run, *losses(range(5, 9)), stamp=1, at=1.25)
    path.rename(run / f"events.out.events.summary.{STAMP + 1}.host_MS")


# Trees


def nested(run: Path) -> None:
    """A run in a run in a run, and an empty directory."""
    put(run, *losses(range(1, 4)), finished(1, 3))
    put(run / "inner", *losses(range(1, 4), salt=1), finished(1, 3))
    put(run / "inner" / "eval", *losses(range(1, 3), salt=2))
    put(run / "odd #1 %41 Ünï & <b>|", *losses((1,)))
    (run / "empty").mkdir()


def foreign(run: Path) -> None:
    """Files of others among the records."""
    put(run, *losses(range(1, 4)))
    (run / "notes.txt").write_text("nothing to see\n")
    (run / f"events.out.tfevents.{STAMP}.someone").write_bytes(b"TensorBoard's")
    (run / f"{name_of(0)}.tmp").mkdir()
    exported = run / f"export_{STAMP}" / "tensor"
    exported.mkdir(parents=True)
    (exported / "w_1.npy").write_bytes(b"\x93NUMPY")


def checkpoint(run: Path) -> None:
    """A run with a checkpoint, from which embedding tables can be taken."""
    put(run, *losses(range(1, 4)), event(3, floats("user.embedding", 5, 3)))
    folder = run / "ckpt_dir"
    folder.mkdir()
    table = [(index % 17 - 8) / 4 for index in range(24)]
    table[5] = NAN
    parameters = (("user.embedding", (8, 3), table), ("fc.bias", (4,), [0.5] * 4))
    data = b""
    for name, dims, numbers_ in parameters:
        content = struct.pack(f"<{len(numbers_)}f", *numbers_)
        sizes = b"".join(b"\x08" + bytes([size]) for size in dims)
        inner = sizes + _field(2, b"Float32") + _field(3, content)
        data += _field(1, _field(1, name.encode()) + _field(2, inner))
    (folder / "DeepFM_3_step.ckpt").write_bytes(data)


def _field(number: int, data: bytes) -> bytes:
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


# Long series, which are read in blocks


def _both(step: int, salt: int = 0, after: float = 0) -> Event:
    """Returns a record of two scalars and a histogram."""
    counts = [(step * 7 + salt) % 50, step % 9, 3]
    values = (scalar("loss", loss(step, salt)), scalar("rate", 1 / (1 + step // 500)))
    return event(step, *values, histo("fc.weight", counts), at=START + step / 4 + after)


def long_scalars(run: Path) -> None:
    """Three thousand steps with the same two scalars."""
    found = [
        event(s, scalar("loss", loss(s)), scalar("auc", (s % 997) / 1024)) for s in range(1, 3001)
    ]
    put(run, *found, finished(750, 3000))


def long_mixed(run: Path) -> None:
    """Scalars and histograms in one record, for three thousand steps."""
    put(run, *(_both(step) for step in range(1, 3001)), finished(750, 3000))


def long_changing(run: Path) -> None:
    """The layout changes in the middle, for good and now and then."""
    found = []
    for step in range(1, 3001):
        values = [scalar("loss", loss(step))]
        if step > 1500:
            values.append(scalar("late", step / 4))
        if step % 100 == 0:
            values.append(scalar("seldom", -step))
        if step % 250 == 0:
            values += [image("picture", salt=step), histo("w", [step % 7, 2], nan_count=step % 2)]
        if step == 2000:
            values.append(floats("tensor", 3, 3))
        if step in (700, 2500):
            values[0] = scalar("loss", NAN)
        found.append(event(step, *values))
    put(run, *found)


def long_restarted(run: Path) -> None:
    """A restart in the middle of a block, for scalars and histograms, and a step twice."""
    first = [_both(step) for step in range(1, 1801)]
    second = [_both(step, 5, 600) for step in range(1201, 2401)]
    second.insert(300, _both(1500, 6, 600.0625))
    put(run, *first, *second, finished(1300, 2400))


def long_damaged(run: Path) -> None:
    """A wrong checksum and a strange record within blocks; a torn end."""
    found = [*losses(range(1, 1001)), *losses((1001,), after=NAN), *losses(range(1002, 2001))]
    path = put(run, *found)
    _flip(path, _pieces(path)[400][1] - 1)
    _flip(path, _pieces(path)[1500][0] + 13)
    path.write_bytes(path.read_bytes()[:-7])


def long_ranks(run: Path) -> None:
    """Two ranks, each in two files, long enough for blocks."""
    for rank in (0, 1):
        for part in (0, 1):
            first = 1 + 600 * part
            found = losses(range(first, first + 600), salt=rank)
            put(run, *found, rank=rank, stamp=150 * part, at=150 * part)


def several_blocks(run: Path) -> None:
    """More than one block of two MiB, by way of long tags."""
    tag = "a long tag/" + "x" * 700
    put(run, *losses(range(1, 4001), tag))


CASES: Final[dict[str, Callable[[Path], None]]] = {
    "everything": everything,
    "rotations": rotations,
    "same_second": same_second,
    "ranks": ranks,
    "late_rank": late_rank,
    "foretold_ranks": foretold_ranks,
    "two_writers": two_writers,
    "restart/in_file": restart_in_file,
    "restart/of_some": restart_of_some,
    "restart/other_parameters": restart_other_parameters,
    "status/running": status(RunState.RUNNING),
    "status/success": status(RunState.FINISHED, reason="all epochs done"),
    "status/stopped": status(RunState.STOPPED, reason="Ctrl-C"),
    "status/failure": status(RunState.FAILED, reason="ValueError: x"),
    "status/unknown": status(RunState.UNKNOWN, unbounded=True),
    "evaluations": evaluations,
    "lineage_only": lineage_only,
    "odd/numbers": numbers,
    "odd/times": times,
    "odd/steps": steps,
    "odd/no_step": no_step,
    "odd/tags": tags,
    "odd/clash": clash,
    "odd/repeats": repeats,
    "kinds/histograms": histograms,
    "kinds/images": images,
    "kinds/tensors": tensors,
    "kinds/graphs": graphs,
    "kinds/landscapes": landscapes,
    "kinds/recommender": recommender,
    "kinds/merged_ranks": merged_ranks,
    "kinds/merged_so_far": merged_so_far,
    "kinds/odd_states": odd_states,
    "kinds/unknown": unknown,
    "damage/bad_data": bad_data,
    "damage/bad_length": bad_length,
    "damage/torn": torn,
    "damage/torn_head": torn_head,
    "damage/zeroed": zeroed,
    "damage/garbage": garbage,
    "damage/nothing_readable": nothing_readable,
    "damage/empty_file": empty_file,
    "damage/no_event": no_event,
    "mindspore/everything": mindspore,
    "mindspore/restarted": mindspore_restarted,
    "mindspore/ranks": mindspore_ranks,
    "mindspore/renamed": renamed,
    "tree/nested": nested,
    "tree/foreign": foreign,
    "tree/checkpoint": checkpoint,
    "long/scalars": long_scalars,
    "long/mixed": long_mixed,
    "long/changing": long_changing,
    "long/restarted": long_restarted,
    "long/damaged": long_damaged,
    "long/ranks": long_ranks,
    "long/several_blocks": several_blocks,
}
"""What makes each record directory, by its path below the tree."""


def build(root: Path) -> None:
    """Writes every case below `root`."""
    for name, make in CASES.items():
        make(root / name)


def cut(source: Path, destination: Path) -> None:
    """Copies a case as it was in the middle of being written.

    Of the files, ordered by when they were begun, the later half is missing, and those that
    were being written have half of their bytes. All other files are there.
    """
    stamps = sorted({_stamp(path) for path in source.rglob("*") if _stamp(path) is not None})
    last = stamps[(len(stamps) - 1) // 2] if stamps else None
    for path in sorted(source.rglob("*")):
        target = destination / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        stamp, data = _stamp(path), path.read_bytes()
        if stamp is not None and last is not None:
            if stamp > last:
                continue
            if stamp == last:
                data = data[: len(data) // 2]
        target.write_bytes(data)


def _stamp(path: Path) -> int | None:
    _, mark, rest = path.name.partition(".out.events.summary.")
    return int(rest.partition(".")[0]) if mark and path.is_file() else None
