"""Records that are small on the disk and would be large in memory, or long in time."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")

import pandas as pd
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError
from PIL import Image

import rec_summary
from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary.records.format import bounds
from rec_summary.records.format.framing import frame
from rec_summary.records.format.limits import LONGEST_METRICS, MOST_ENTRIES
from rec_summary.records.format.names import Kind
from rec_summary.records.reading import repair
from rec_summary.records.reading.reader import BadLength, LostRecord, RecordReader
from rec_summary.records.reading.runs import find_runs
from rec_summary.series import limits
from rec_summary.series.blocks.scan import scan_files
from rec_summary.series.cuts import Cuts
from rec_summary.series.overview import verify
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.tensorboard.dashboards.graphs import graph_def
from rec_summary.tensorboard.dashboards.images import ImageMapper, declared_size
from rec_summary.tensorboard.dashboards.landscape.mapper import LandscapeMapper
from rec_summary.tensorboard.dashboards.landscape.pictures import contour_picture, title
from rec_summary.tensorboard.dashboards.layout import layout_point
from rec_summary.tensorboard.dashboards.tensors import TensorMapper
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider.run_index import RunIndex
from rec_summary.values.landscape import Landscape, from_landscape
from rec_summary.values.tensor import from_tensor, to_tensor
from tests.support.crafted import WALL_TIME, field, good, header, nested, run, write, write_lineage
from tests.support.record_dirs import event, scalar, summary_name

COMMANDS = ("verify", "inspect", "lineage")
IN_PYTHON = api_implementation.Type() == "python"  # beside MindSpore 2.7, see docs/versions.md


def sparse(path: Path, length: int, *after: bytes) -> None:
    """Appends a record of zeros that take no space on the disk."""
    with open(path, "ab") as file:
        file.write(header(length))
        file.truncate(file.tell() + length)
        file.seek(0, os.SEEK_END)
        file.write(struct.pack("<I", 0))
        file.write(b"".join(after))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**32, 2**28 + 1])
def test_a_length_that_cannot_be_true_ends_the_file(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "records", good(), header(length), good(2))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 1}
    assert report.problems[0].offset == len(good())
    assert "cannot be true" in report.problems[0].text
    [finding] = verify.verify_file(path).findings[1:]
    assert finding.severity == verify.DAMAGE
    # The one behind it is found by a repair.
    [copied] = repair.repair(tmp_path / "records", tmp_path / "repaired").files
    assert copied.records == 2


@pytest.mark.parametrize("length", [2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_length_beyond_64_bits_behind_many_records_ends_its_file_alone(
    tmp_path: Path, length: int
) -> None:
    records = [good(step) for step in range(1, 300)]
    write(tmp_path / "records" / "sound", *records)
    write(tmp_path / "records" / "run", *records, header(length), bytes(50))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 2 * 299}
    [problem] = report.problems
    assert problem.offset == sum(map(len, records))
    with pytest.warns(UserWarning, match="1 problems"):
        assert len(rec_summary.load(tmp_path / "records").scalars()) == 2 * 299
    index = RunIndex(str(tmp_path / "records"))
    index.poll()
    assert index.failures == {}
    assert sorted(each.name for each in index.served()) == ["run", "sound"]
    # As one buffer with others.
    first, second = scan_files([b"".join([*records, header(length), bytes(50)]), b"".join(records)])
    assert first is None
    assert second is not None


def test_a_record_larger_than_the_limit_is_stepped_over_unread(tmp_path: Path) -> None:
    path = write(tmp_path / "records" / "run", good())
    sparse(path, 5 << 30, good(2))
    assert path.stat().st_size > 5 << 30
    with RecordReader(path) as reader:
        reader.read()
        with pytest.raises(LostRecord, match=r"5,368,709,120 bytes. Expected: at most 268,435,456"):
            reader.read()
        assert reader.read() is not None
    done = run("export", tmp_path / "records", tmp_path / "logs")
    assert done.returncode == 0
    assert "larger than 256 MiB" in done.stderr
    assert "2 scalar" in done.stdout
    for command in COMMANDS:
        assert run(command, tmp_path / "records").returncode == (command == "verify")
    [copied] = repair.repair(tmp_path / "records", tmp_path / "repaired").files
    assert (copied.records, copied.lost) == (2, ((len(good()), (5 << 30) + 16),))


def test_the_limit_can_be_raised_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "records" / "run", good())
    sparse(path, 300 << 20)
    monkeypatch.setenv(bounds.VARIABLE, "400")
    assert "checksum is wrong" in run("verify", tmp_path / "records").stdout
    program = f"from {bounds.__name__} import MOST_BYTES; print(MOST_BYTES)"
    for text in ("0", "-1", "x", "9" * 30, "²"):
        monkeypatch.setenv(bounds.VARIABLE, text)
        most = int(subprocess.check_output([sys.executable, "-c", program]))
        assert 1 << 20 <= most <= 2047 << 20


def test_a_repair_passes_over_holes(tmp_path: Path) -> None:
    path = write(tmp_path / "records", good(), b"x" * 20)
    with open(path, "ab") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(good(2))
    [copied] = repair.repair(tmp_path / "records", tmp_path / "repaired").files
    assert copied.records == 2


def test_a_repair_reads_in_vain_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    # Each header is sound and claims all that is left, which is not what its checksum says.
    count = 40_000
    data = b"".join(header((count - index - 1) * 12 - 3) for index in range(count - 1))
    path = write(tmp_path / "records", data, good())
    budget = repair.Budget(1 << 20)
    assert repair.find_record(path, 0, budget) == len(data)
    assert 0 <= budget.nbytes < 1 << 20


@pytest.mark.parametrize(
    "payload",
    [
        field(4, b"\x0a\x00" * 2_200_000),  # operators of a graph
        field(5, b"\x0a\x00" * 2_200_000),  # values
        field(5, field(1, field(1, b"t") + field(9, b"\x0a\x00" * 2_200_000))),  # buckets
    ],
    ids=["operators", "values", "buckets"],
)
def test_the_parts_of_a_record_are_counted(payload: bytes) -> None:
    assert bounds.has_too_many_parts(summary_pb2.Event, WALL_TIME + payload, 100_000)


def test_a_record_of_very_many_parts_is_not_decoded(tmp_path: Path) -> None:
    operators = field(4, b"\x0a\x00" * (bounds.MOST_PARTS + 1))
    path = write(tmp_path / "records", frame(WALL_TIME + operators), good())
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 1}
    assert "parts" in report.problems[0].text
    assert "parts" in verify.verify_file(path).findings[0].text


def test_parts_are_counted_as_protobuf_has_them() -> None:
    message = event(1, scalar("a", 1), scalar("b", 2))
    message.summary.value.add(tag="h").histogram.buckets.add(left=0, width=1, count=2)
    # A summary, three values, a histogram, a bucket.
    assert bounds.count_parts(summary_pb2.Event, message.SerializeToString(), 100) == 6
    info = lineage_pb2.UserDefinedInfo(map_str={"a": "b", "c": "d"})
    info.map_dict["x"].map_int32["y"] = 1
    assert bounds.count_parts(lineage_pb2.UserDefinedInfo, info.SerializeToString(), 100) == 5


@pytest.mark.parametrize("depth", [90, 200, 10_000])
@pytest.mark.parametrize("number", [1, 2])
def test_deep_nesting_is_reported_or_shown(tmp_path: Path, depth: int, number: int) -> None:
    write(tmp_path / "records", good())
    wrap = (lambda data: field(9, data)) if number == 1 else (lambda data: field(10, data))
    write_lineage(tmp_path / "records", WALL_TIME + wrap(nested(1, depth)))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported["scalar_value"] == 1
    # In Python, protobuf of before 5 knows no limit.
    assert report.problem_count == (depth > 100) or (IN_PYTHON and not report.problem_count)
    assert run("lineage", tmp_path / "records").returncode == 0
    assert run("inspect", tmp_path / "records").returncode == 0


@pytest.mark.parametrize(
    ("dims", "what"),
    [
        ([1 << 40, 1 << 40], "elements"),
        ([0, 1 << 62, 1 << 62], "too big|dimension"),  # in the words of NumPy
        ([-1, -1], "elements"),
        ([1] * 33, "dimensions"),
        ([1 << 62] * 100_000, "dimensions"),
    ],
)
def test_giant_dimensions_with_hardly_any_data(dims: list[int], what: str) -> None:
    tensor = anf_ir_pb2.TensorProto(dims=dims, data_type=anf_ir_pb2.DT_FLOAT32)
    with pytest.raises(ValueError, match=what):
        from_tensor(tensor)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-45])
@pytest.mark.parametrize("shape", [(0,), (0, 5), (1, 1), (2, 3), (7,), (1, 2000), (2, 2, 2)])
def test_tensors_of_extreme_numbers_are_shown(number: float, shape: tuple[int, ...]) -> None:
    for array in (np.full(shape, number, np.float32), np.full(shape, number)):
        array.reshape(-1)[::2] = -1
        value = summary_pb2.Summary.Value(tag="t", tensor=to_tensor(array))
        assert list(TensorMapper()("t", value))


def test_a_histogram_of_very_many_buckets_is_reported(tmp_path: Path) -> None:
    message = event(1, scalar("loss", 1))
    histogram = message.summary.value.add(tag="h").histogram
    for _ in range(limits.MOST_BUCKETS + 1):
        histogram.buckets.add(left=0, width=1, count=1)
    write(tmp_path / "records", frame(message.SerializeToString()))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 1}
    assert "the number of buckets is invalid. Received: 10,001. Expected: at most 10,000." in (
        report.problems[0].text
    )


def encoded(form: str, width: int, height: int) -> bytes:
    """Returns an image of 9 × 9 pixels that states another size."""
    buffer = io.BytesIO()
    Image.new("L", (9, 9)).save(buffer, form)
    at, order = {"GIF": (6, "<HH"), "BMP": (18, "<ii"), "JPEG": (None, ">HH")}[form]
    data = bytearray(buffer.getvalue())
    sides = (height, width) if form == "JPEG" else (width, height)
    struct.pack_into(order, data, data.index(b"\xff\xc0") + 5 if at is None else at, *sides)
    if form == "GIF":  # and of its first frame
        struct.pack_into(order, data, data.index(b",") + 5, *sides)
    return bytes(data)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02"


@pytest.mark.parametrize(
    "data",
    [
        png(60_000, 60_000),
        png(2**31 - 1, 2**31 - 1),
        *(encoded(form, width=60_000, height=60_000) for form in ("GIF", "BMP", "JPEG")),
        encoded("GIF", width=10_000, height=10_000),
    ],
    ids=["png", "png-2^31", "gif", "bmp", "jpeg", "gif-10000"],
)
def test_images_that_no_browser_can_bear_are_reported(tmp_path: Path, data: bytes) -> None:
    image = summary_pb2.Summary.Image(height=1, width=1, colorspace=3, encoded_image=data)
    value = summary_pb2.Summary.Value(tag="bomb", image=image)
    with pytest.raises(ValueError, match=r"the size of an image is invalid.*67,108,864 pixels"):
        list(ImageMapper()("bomb", value))
    write(tmp_path / "records", frame(event(1, value, scalar("loss", 1)).SerializeToString()))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 1}


def test_sizes_are_those_that_images_state() -> None:
    for form in ("GIF", "BMP", "JPEG"):
        assert declared_size(encoded(form, width=70, height=50)) == (70, 50)
    assert declared_size(png(7, 5)) == (7, 5)
    assert declared_size(b"\x89PNG\r\n\x1a\n") is None
    assert declared_size(b"\xff\xd8" + b"\xff" * 50) is None
    assert declared_size(b"<svg/>") is None


def test_custom_data_whose_names_would_multiply_is_reported(tmp_path: Path) -> None:
    # 20,000 short names below a long one: each would repeat it.
    info = lineage_pb2.UserDefinedInfo()
    below = info.user_info.add().map_dict["n" * 200_000]
    for index in range(20_000):
        below.map_int32[str(index)] = 1
    write(tmp_path / "records", good())
    write_lineage(
        tmp_path / "records",
        lineage_pb2.LineageEvent(wall_time=1, user_defined_info=info).SerializeToString(),
    )
    done = run("export", tmp_path / "records", tmp_path / "logs", memory=2 << 30)
    assert done.returncode == 0
    assert "the length of a name in custom data is invalid. Received: 200001" in done.stderr
    assert "1 scalar" in done.stdout
    assert run("lineage", tmp_path / "records", memory=2 << 30).returncode == 0


def test_custom_data_of_very_many_entries_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "records", good())
    for count in (MOST_ENTRIES, MOST_ENTRIES + 1):
        info = lineage_pb2.UserDefinedInfo(map_int32={str(n): n for n in range(count)})
        data = lineage_pb2.LineageEvent(wall_time=1, user_defined_info=info).SerializeToString()
        write_lineage(tmp_path / "records", data)
        report = export_tensorboard(tmp_path / "records", tmp_path / f"logs{count}")
        assert report.problem_count == (count > MOST_ENTRIES)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a": ' * 100_000,
        "9" * 100_000,
        '{"auc": ' + "9" * 4000 + "}",
        '{"auc": 1e999, "b": NaN, "c": "\\ud800", "d": [[[]]]}',
        "x" * (LONGEST_METRICS + 1),
        "{" + ",".join(f'"{n}": 1' for n in range(MOST_ENTRIES + 1)) + "}",
        '{"' + "m" * 5000 + '": 1}',
    ],
    ids=range(8),
)
def test_metrics_may_be_any_text(tmp_path: Path, text: str) -> None:
    write(tmp_path / "records", good())
    evaluation = lineage_pb2.EvaluationLineage(metric=text, train_step=1)
    write_lineage(
        tmp_path / "records",
        lineage_pb2.LineageEvent(wall_time=1, evaluation_lineage=evaluation).SerializeToString(),
    )
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported["evaluation_lineage"] == 1
    assert not report.problems
    size = sum(path.stat().st_size for path in (tmp_path / "logs").rglob("*") if path.is_file())
    assert size < 1_500_000
    assert len(rec_summary.load(tmp_path / "records").lineage()) == 1


def test_tags_are_bounded_in_length_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The exporters make the cuts; real tags beyond 100,000 take minutes.
    monkeypatch.setattr(Cuts.__init__, "__defaults__", ((), 3))
    values = [scalar(tag, 1) for tag in ("a", "b", "c", "d", "x" * 1001, "e")]
    write(tmp_path / "records", frame(event(1, *values).SerializeToString()), good(2, "a"))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 4}  # that of the second record among them
    assert [problem.text for problem in report.problems] == [
        "a tag beyond the first 3 of the run; skipped: 'd'",
        "a tag of 1,001 characters; at most 1,000 can be shown; skipped",
        "a tag beyond the first 3 of the run; skipped: 'e'",
    ]


def test_the_steps_of_a_run_are_those_of_all_tags(tmp_path: Path) -> None:
    records = [event(5, scalar("a", 1)), event(2, scalar("b", 1)), event(9, scalar("b", 1))]
    write(tmp_path, *(frame(record.SerializeToString()) for record in records[:1] + records[2:]))
    write(tmp_path, frame(records[1].SerializeToString()), name=summary_name(rank=1))
    [found] = inspect_run(find_runs(tmp_path)[0], most_series=1)
    assert [tag.tag for tag in found.tags] == ["a"]
    assert (found.first_step, found.last_step) == (2, 9)


def test_a_hundred_thousand_tags_are_exported_in_little_memory(tmp_path: Path) -> None:
    values = [scalar(f"t/{number}", 1) for number in range(20_000)]
    records = [
        frame(event(1, *values[start : start + 1000]).SerializeToString())
        for start in range(0, len(values), 1000)
    ]
    write(tmp_path / "records", *records)
    done = run("export", tmp_path / "records", tmp_path / "logs", memory=2 << 30)
    assert done.returncode == 0
    assert "20,000 scalar" in done.stdout


def test_the_layout_is_found_at_once_whatever_the_tags() -> None:
    # The patterns take the square of a tag's length in time: 10^10 steps here.
    assert layout_point(["loss" * 25_000 + "/"]) is None
    point = layout_point([f"eval/{number}" for number in range(1000)])
    assert point is not None
    assert point.value.tensor.string_val[0].count(b"Evaluation") == 2 * limits.MOST_CHARTS


def test_graphs_that_no_page_can_show_are_reported(tmp_path: Path) -> None:
    graph = anf_ir_pb2.GraphProto()
    graph.MergeFromString(b"\x0a\x00" * (limits.MOST_NODES + 1))
    with pytest.raises(ValueError, match=r"the number of nodes of a graph.*at most 250,000"):
        graph_def(graph)
    one = anf_ir_pb2.NodeProto.FromString(b"\x0a\x00" * (limits.MOST_EDGES + 1))
    with pytest.raises(ValueError, match="edges"):
        graph_def(anf_ir_pb2.GraphProto(node=[one]))
    message = summary_pb2.Event(wall_time=1, graph_def=graph)
    write(tmp_path / "records", good(), frame(message.SerializeToString()), good(2))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 2}
    assert report.problems[0].offset == len(good())


def test_of_very_many_graphs_the_first_are_shown(tmp_path: Path) -> None:
    records = []
    for number in range(limits.MOST_GRAPHS + 5):
        graph = anf_ir_pb2.GraphProto(node=[anf_ir_pb2.NodeProto(name=str(number), op_type="A")])
        records.append(frame(summary_pb2.Event(wall_time=1, graph_def=graph).SerializeToString()))
    write(tmp_path / "records", *records)
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert [note for note in report.notes if "graphs" in note] == [
        "run records: of its graphs, the first 100 are shown"
    ]


def landscape(x: object, y: object, z: object, **more: str) -> summary_pb2.LossLandscape:
    message = summary_pb2.LossLandscape()
    for name, array in zip("xyz", (x, y, z), strict=True):
        getattr(message.landscape, name).CopyFrom(to_tensor(np.asarray(array, np.float64)))
    for name, text in more.items():
        setattr(message.metadata, name, text)
    return message


def test_a_landscape_of_very_many_points_is_reported() -> None:
    side = 1025
    with pytest.raises(ValueError, match=r"the number of points of a landscape"):
        from_landscape(landscape(range(side), range(side), np.zeros(side * side)))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0])
@pytest.mark.parametrize("where", ["x", "z", "both", "one"])
def test_landscapes_of_extreme_numbers_are_shown_or_reported(number: float, where: str) -> None:
    x, z = np.linspace(-1, 1, 3), np.arange(9.0)
    if where in ("x", "both"):
        x = np.array([-number, 0, number])
    if where in ("z", "both"):
        z = np.full(9, number)
    if where == "one":
        z[4] = number
    value = summary_pb2.Summary.Value(tag="l", loss_landscape=landscape(x, x, z))
    try:
        points = list(LandscapeMapper()("l", value))
    except (ValueError, ArithmeticError):
        return
    assert points


def test_words_in_a_landscape_are_drawn_as_they_are() -> None:
    bomb = "$" + r"\frac{" * 2000
    found = from_landscape(
        landscape([0, 1], [0, 1], range(4), decomposition=bomb, unit="\x1b[31m" + "u" * 10**6)
    )
    assert contour_picture(found).startswith(b"\x89PNG")
    name = title(Landscape(**{**vars(found), "intervals": (1, 2)}))
    assert len(name) < 300
    assert "\x1b" not in name


def test_of_very_many_landscapes_the_first_get_pictures() -> None:
    mapper = LandscapeMapper()
    value = summary_pb2.Summary.Value(
        tag="l", loss_landscape=landscape([0, 1], [0, 1], range(4), decomposition="PCA")
    )
    counts = [len(list(mapper("l", value))) for _ in range(limits.MOST_PICTURES + 1)]
    assert counts == [*[6] * limits.MOST_PICTURES, 4]
    assert mapper.note is not None
    assert f"the first {limits.MOST_PICTURES} get pictures" in mapper.note


def test_steps_of_evaluations_are_exact_beside_missing_ones(tmp_path: Path) -> None:
    write(tmp_path / "records", good())
    steps = (2**53 + 1, None, -(2**63))
    found = (lineage_pb2.EvaluationLineage(metric='{"auc": 1}', train_step=step) for step in steps)
    events = (lineage_pb2.LineageEvent(wall_time=1, evaluation_lineage=each) for each in found)
    write_lineage(tmp_path / "records", *(each.SerializeToString() for each in events))
    table = rec_summary.load(tmp_path / "records").evaluations()
    assert [None if each is pd.NA else each for each in table["step"]] == list(steps)


def test_a_wide_table_that_fits_no_memory_is_reported(tmp_path: Path) -> None:
    assert limits.MOST_CELLS < 10_000 * 10_001
    wide = event(0, *(scalar(f"t{number}", 1) for number in range(10_000)))
    long = (good(step, "t0") for step in range(1, 10_001))
    write(tmp_path / "records", frame(wide.SerializeToString()), *long)
    with pytest.raises(ValueError, match="10,001 steps × 10,000 tags"):
        rec_summary.load(tmp_path / "records").scalars(wide=True)


def test_what_protobuf_cannot_decode_is_reported(tmp_path: Path) -> None:
    payloads = [b"\xff" * 50, WALL_TIME + field(5, b"\x0b" * 50), b"", WALL_TIME + b"\x1a\xff"]
    for payload in payloads[:2]:
        with pytest.raises(DecodeError):
            summary_pb2.Event.FromString(payload)
    write(tmp_path / "records", *map(frame, payloads), good())
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 1}
    assert report.problem_count == len(payloads)
    assert Kind.SUMMARY.name.lower() in report.problems[0].text


def test_names_that_are_no_text_are_shown_or_reported(tmp_path: Path) -> None:
    bad = b"\xff\xfe\x80"
    value = field(5, field(1, field(1, bad) + struct.pack("<Bf", 0x1D, 1.0)))
    graph = field(4, field(1, b"".join(field(n, bad) for n in (1, 2, 3, 4, 8))) + field(2, bad))
    write(tmp_path / "records", frame(WALL_TIME + value), frame(WALL_TIME + graph), good())
    write_lineage(
        tmp_path / "records",
        WALL_TIME + field(6, field(1, field(1, bad)) + field(3, field(1, bad))),
        WALL_TIME + field(7, field(2, bad) + field(3, field(1, bad))),
        WALL_TIME + field(9, field(2, field(1, field(1, bad) + field(2, bad)))),
        WALL_TIME + field(10, field(4, field(1, bad) + field(2, bad))),
        WALL_TIME + field(6, field(1000, field(16, field(1, bad)) + field(2, bad))),
    )
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    texts = "".join(each.text for each in report.problems)
    if IN_PYTHON:  # protobuf itself refuses these records
        assert report.exported["scalar_value"] == 1
        assert "not a lineage record; skipped" in texts
    else:
        assert report.exported["scalar_value"] == 2
        assert "a name in it is not UTF-8" in texts
    for command in COMMANDS:
        done = run(command, tmp_path / "records")
        assert done.returncode == (command == "verify"), done.stdout
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [2, 3, 4, 5, 1000, 1001])
def test_names_of_custom_data_may_be_text_beside_none(tmp_path: Path, number: int) -> None:
    # Found by `tools/check fuzz export`: names that are bytes cannot be ordered with others.
    info = b"".join(field(number, field(1, name)) for name in (b"a", b"\xff", b"b", b"\xfe"))
    write(tmp_path / "records", good())
    write_lineage(tmp_path / "records", WALL_TIME + field(10, info))
    report = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert report.exported == {"scalar_value": 1}
    told = "not a lineage record; skipped" if IN_PYTHON else "a name in it is not UTF-8"
    assert told in report.problems[0].text


def test_a_reader_gives_up_at_a_length_beyond_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path, header(2**63))
    with RecordReader(path) as reader:
        for _ in range(2):  # again and again: nothing behind it can be found
            with pytest.raises(BadLength):
                reader.read()
