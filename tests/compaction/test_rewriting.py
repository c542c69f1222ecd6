"""One coarser file of several."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary._pb.anf_ir_pb2 import GraphProto
from rec_summary._pb.lineage_pb2 import EvaluationLineage, LineageEvent, RunState
from rec_summary._pb.summary_pb2 import Compaction, Event
from rec_summary.compaction.rewriting import (
    Piece,
    UnfitFile,
    compacted_name,
    measure,
    reductions,
    rewrite,
    rewrite_lineage,
)
from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import parse_name
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import RecordFile, Run, list_files
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import recorded_values
from tests.support.record_dirs import (
    custom,
    event,
    histo,
    lineage,
    scalar,
    summary_name,
    train,
    write_payloads,
)

VERSION = Event(wall_time=1.0, version="MindSpore.Event:1").SerializeToString()
NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)
Values = dict[tuple[str, str], dict[int, bytes]]


def write_files(directory: Path, *files: Sequence[Any], suffix: str = "") -> Run:
    directory.mkdir(exist_ok=True)
    for number, messages in enumerate(files):
        name = summary_name(1_700_000_000 + number).replace("_MS", suffix or "_MS")
        payloads = [VERSION, *(each.SerializeToString() for each in messages)]
        (directory / name).write_bytes(b"".join(map(frame, payloads)))
    return Run("run", str(directory), list_files(str(directory)))


def rewritten(run: Run, target: int, name: str, newer: int = 0) -> tuple[Run, Compaction]:
    """Returns the run that one file makes; its directory has no other file."""
    out = io.BytesIO()
    compaction = rewrite(run, out, target, newer)
    directory = Path(run.path) / name
    directory.mkdir()
    (directory / compacted_name(run.files)).write_bytes(out.getvalue())
    return Run("run", str(directory), list_files(str(directory))), compaction


def values_of(run: Run) -> Values:
    report = Report()
    found: Values = {}
    for value in recorded_values(run, ("scalar_value", "histogram"), EVERYTHING, report):
        recorded = value.recorded
        series = found.setdefault((recorded.kind, recorded.tag), {})
        series[value.step] = recorded.value.SerializeToString()
    assert report.problems == []
    return found


def payloads_of(file: Path) -> list[bytes]:
    with RecordReader(file) as reader:
        return [record.payload for record in reader]


def number_of(value: bytes) -> float:
    summary = Event(wall_time=0.0).summary
    return float(summary.value.add().FromString(value).scalar_value)


def wanted(series: dict[int, bytes], width: int) -> set[int]:
    """Returns the steps of which one must stay: a set for each rule and bucket."""
    found = set()
    for bucket in {step // width for step in series}:
        inside = {step: number_of(series[step]) for step in series if step // width == bucket}
        found |= {min(inside), max(inside)}
    return found


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.lists(st.tuples(st.integers(-3, 40), st.booleans(), NUMBERS), max_size=60),
        min_size=1,
        max_size=3,
    ),
    st.integers(100, 6000),
)
def test_whatever_is_recorded_the_extremes_stay(
    tmp_path_factory: Any, rows: list[list[tuple[int, bool, float]]], target: int
) -> None:
    step, files, time = 0, [], 100.0
    for row in rows:
        messages: list[Any] = []
        for gap, both, number in row:
            step, time = max(step + gap, 0), time + 0.5  # training may go back
            values = [scalar("loss", number)]
            values += [scalar("auc", -number), histo("w", [1.0])] if both else []
            messages.append(event(step, *values, at=time))
        files.append(messages)
    run = write_files(tmp_path_factory.mktemp("records") / "run", *files)
    made, compaction = rewritten(run, target, "made")
    before, after = values_of(run), values_of(made)
    assert before.keys() == after.keys()
    width = compaction.bucket_steps
    for key, series in before.items():
        kept = after[key]
        assert kept.items() <= series.items()
        if key[0] != "scalar_value":
            assert min(series) == min(kept)
            continue
        assert wanted(series, width) <= kept.keys()
        for bucket in {each // width for each in series}:
            numbers = [number_of(v) for each, v in series.items() if each // width == bucket]
            chosen = [number_of(v) for each, v in kept.items() if each // width == bucket]
            finite = [each for each in numbers if math.isfinite(each)]
            if finite:
                assert {min(finite), max(finite)} <= set(chosen)
            assert any(map(math.isnan, numbers)) == any(map(math.isnan, chosen))
            assert {math.inf, -math.inf}.intersection(numbers) <= set(chosen)


LINEAGE = st.sampled_from(["running", "finished", "evaluation", "custom", "dataset"])


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(LINEAGE, max_size=8), min_size=1, max_size=4))
def test_no_lineage_is_lost(tmp_path_factory: Any, rows: list[list[str]]) -> None:
    files: list[list[LineageEvent]] = []
    for row in rows:
        messages = []
        for kind in row:
            at = 100.0 + len(files) * 100 + len(messages) * (-1) ** len(messages)
            if kind == "evaluation":
                metrics = EvaluationLineage(metric=f'{{"auc": {at}}}')
                messages.append(lineage(at, evaluation_lineage=metrics))
            elif kind == "custom":
                messages.append(lineage(at, user_defined_info=custom({"at": at})))
            elif kind == "dataset":
                message = lineage(at)
                message.dataset_graph.parameter.mapInt["batch"] = int(at)
                messages.append(message)
            else:
                state = RunState.RUNNING if kind == "running" else RunState.FINISHED
                messages.append(lineage(at, train_lineage=train(status=state, step=int(at))))
        files.append(messages)
    run = write_files(tmp_path_factory.mktemp("records") / "run", *files, suffix="_lineage")
    out = io.BytesIO()
    made = rewrite_lineage(run.files, out)
    assert made.last_time == max(
        (each.wall_time for messages in files for each in messages), default=-math.inf
    )
    path = Path(run.path, "made")
    path.write_bytes(out.getvalue())
    head, *kept = payloads_of(path)
    assert Event.FromString(head).wall_time == 1.0  # of the first record
    expected = []
    for row, messages in zip(rows, files, strict=True):
        for number, (kind, message) in enumerate(zip(row, messages, strict=True)):
            following = row[number + 1 : number + 2]
            if kind != "running" or following not in (["running"], ["finished"]):
                expected.append(message.SerializeToString())
    assert kept == expected


def test_a_budget_with_room_keeps_everything(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", step / 3), histo("w", [step])) for step in range(1, 99)]
    run = write_files(tmp_path / "run", messages[:50], messages[50:])
    made, compaction = rewritten(run, 10**6, "made")
    assert values_of(made) == values_of(run)
    kept = payloads_of(Path(made.files[0].path))[1:]
    assert [Event.FromString(each).step for each in kept] == list(range(1, 99))
    assert compaction.bucket_steps == 1
    assert list(compaction.superseded) == [Path(file.path).name for file in run.files]
    assert compaction.recorded_bytes == sum(file.nbytes for file in run.files)
    assert compaction.last_time == messages[-1].wall_time


def test_a_file_states_the_width_of_its_widest_bucket(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", math.sin(step))) for step in range(1, 9_001)]
    # A file of three records is a piece of its own, of which not even one bucket has room.
    run = write_files(tmp_path / "run", messages[:4_000], messages[4_000:4_003], messages[4_003:])
    made, compaction = rewritten(run, 100_000, "made")
    steps = sorted(values_of(made)["scalar_value", "loss"])
    gap = max(later - one for one, later in itertools.pairwise(steps))
    assert gap < compaction.bucket_steps < 4 * gap
    again, joined = rewritten(made, 10**6, "again")
    assert values_of(again) == values_of(made)
    assert joined.bucket_steps == compaction.bucket_steps
    assert joined.recorded_bytes == compaction.recorded_bytes == run.nbytes


@pytest.mark.parametrize(("stated", "expected"), [(0, 2), (1, 2), (16, 16), (1 << 62, 128)])
def test_no_bucket_is_stated_to_be_wider_than_all_steps(
    tmp_path: Path, stated: int, expected: int
) -> None:
    head = Event(wall_time=1.0, version="MindSpore.Event:1")
    head.compaction.bucket_steps = stated
    steps = [event(step, scalar("loss", step)) for step in range(70, 99)]
    steps += [event(step, scalar("auc", step), at=2e9) for step in range(1, 60)]  # a restart
    name = tmp_path / "run" / f"events.compacted-20-0001.out.{summary_name(10).split('.out.')[1]}"
    write_payloads(name, *(each.SerializeToString() for each in [head, *steps]))
    head.compaction.bucket_steps = 2
    write_payloads(Path(str(name).replace(".10.", ".9.")), head.SerializeToString())
    run = Run("run", str(name.parent), list_files(str(name.parent)))
    assert rewrite(run, io.BytesIO(), 10**6, 0).bucket_steps == expected


@pytest.mark.parametrize("target", [1, 10**6])
@pytest.mark.parametrize("stated", [-(1 << 63), (1 << 63) - 1])
def test_a_size_that_a_head_cannot_mean_is_bounded(
    tmp_path: Path, stated: int, target: int
) -> None:
    head = Event(wall_time=1.0, version="MindSpore.Event:1")
    head.compaction.recorded_bytes = stated
    for stamp in (10, 30):
        name = summary_name(stamp).replace("events.out", f"events.compacted-{stamp + 10}-0001.out")
        steps = [event(step, scalar("loss", step)) for step in range(stamp * 100, stamp * 100 + 99)]
        write_payloads(tmp_path / name, *(each.SerializeToString() for each in [head, *steps]))
    run = Run("run", str(tmp_path), list_files(str(tmp_path)))
    assert len(run.files) == 2
    out = io.BytesIO()
    assert 0 <= rewrite(run, out, target, 0).recorded_bytes <= 1 << 51
    assert (out.tell() < run.nbytes / 4) == (target == 1)


def test_the_newest_part_is_complete_and_the_oldest_the_coarsest(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", math.sin(step))) for step in range(1, 20_001)]
    run = write_files(tmp_path / "run", messages[:7_000], messages[7_000:])
    made, _ = rewritten(run, 200_000, "made")
    assert made.nbytes <= 220_000
    steps = sorted(values_of(made)["scalar_value", "loss"])
    parts = [
        sum(begin <= step < begin + 2000 for step in steps) for begin in range(1, 20_001, 2000)
    ]
    assert parts[-1] >= 1000
    assert parts[0] < parts[-1] / 4
    assert all(one <= other * 1.5 for one, other in itertools.pairwise(parts))
    assert steps[-500:] == list(range(19_501, 20_001))


class Tries(io.BytesIO):
    """A file that counts how often it is begun."""

    count = 0

    def truncate(self, size: int | None = None) -> int:
        self.count += 1
        return super().truncate(size)


def landscape(step: int) -> Any:
    message = event(step)
    message.summary.value.add(tag=f"landscape_{step}").loss_landscape.metadata.unit = "x" * 3000
    return message


STEPS = range(1, 3001)
GRAPHS = [Event(wall_time=5.0, graph_def=GraphProto(name=str(n) * 20_000)) for n in range(2)]


@pytest.mark.parametrize(
    ("messages", "part"),
    [
        ([event(s, scalar("loss", s), scalar("auc", -s)) for s in STEPS], 8),
        ([event(s, histo("w", [s])) for s in STEPS], 8),
        ([event(s * 100, histo("w", [s])) for s in STEPS], 8),
        ([event(s, *(histo(f"w{n}", [s, n]) for n in range(150))) for s in STEPS[:60]], 4),
        ([event(s, histo("w", [s]), scalar("loss", s)) for s in STEPS], 8),
        ([event(s, scalar("loss" if s % 3 else "eval/auc", s)) for s in STEPS], 2),
        ([event(s, scalar("eval/auc", s), *(scalar(t, s) for t in "abcdefgh")) for s in STEPS], 2),
        ([event(s * 1000, scalar("loss", s), scalar("auc", s)) for s in STEPS], 8),
        ([event(s, scalar(f"loss_{s % 7}", s)) for s in STEPS], 4),
        ([event(s, *(scalar(f"m{n}", s + n) for n in range(9))) for s in STEPS[:1000]], 4),
        ([event(s, scalar("loss", s)) if s % 150 else landscape(s) for s in STEPS], 2),
        ([*GRAPHS, *(event(s, scalar("loss", s)) for s in STEPS)], 3),
    ],
    ids=[
        *("scalars", "histograms", "rare histograms", "large records", "both", "evaluations"),
        *("evaluations beside others", "wide steps", "tags in turn", "many tags", "landscapes"),
        "graphs",
    ],
)
def test_a_file_has_the_size_that_is_asked_for(
    tmp_path: Path, messages: list[Any], part: int
) -> None:
    run = write_files(
        tmp_path / "run", messages[: len(messages) // 2], messages[len(messages) // 2 :]
    )
    target = run.nbytes // part
    out = Tries()
    rewrite(run, out, target, 0)
    assert 0.5 <= out.tell() / target <= 1.1
    assert len(out.getvalue()) == out.tell()  # of a larger first try, nothing stays
    assert out.count <= 2


def test_values_that_a_restart_supersedes_are_left_out(tmp_path: Path) -> None:
    first = [event(step, scalar("loss", 1.0)) for step in range(1, 101)]
    again = [event(step, scalar("loss", 2.0), at=2e9) for step in range(51, 81)]
    run = write_files(tmp_path / "run", first, again)
    made, _ = rewritten(run, 10**6, "made")
    found = values_of(made)["scalar_value", "loss"]
    assert sorted(found) == list(range(1, 81))
    assert {number_of(found[step]) for step in range(51, 81)} == {2.0}


def test_what_is_recorded_again_and_again_can_be_thinned(tmp_path: Path) -> None:
    again = [event(step, histo("w", [n]), at=1e9 + n) for n in range(20) for step in (1, 2)]
    run = write_files(tmp_path / "run", again)
    made, _ = rewritten(run, run.nbytes // 2, "made")
    [(series, kept)] = values_of(made).items()
    assert kept.items() <= values_of(run)[series].items()


def test_graphs_stay_once_and_landscapes_always(tmp_path: Path) -> None:
    graph = Event(wall_time=5.0, graph_def=GraphProto(name="net"))
    landscape = event(0)
    landscape.summary.value.add(tag="landscape").loss_landscape.metadata.unit = "step"
    later = Event.FromString(landscape.SerializeToString())
    later.summary.value[0].tag = "landscape_2"
    steps = [event(step, scalar("loss", step)) for step in range(1, 2000)]
    run = write_files(tmp_path / "run", [graph, *steps], [graph, landscape], [later])
    out = io.BytesIO()
    rewrite(run, out, 1, 0)
    path = tmp_path / "made"
    path.write_bytes(out.getvalue())
    kept = [Event.FromString(each) for each in payloads_of(path)]
    assert kept[0].version == "MindSpore.Event:1"
    assert [each.WhichOneof("what") for each in kept].count("graph_def") == 1
    tags = [value.tag for each in kept for value in each.summary.value]
    assert tags[-2:] == ["landscape", "landscape_2"]
    assert 4 <= tags.count("loss") < 60


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    run = write_files(tmp_path / "run", [event(step, scalar("loss", 1.0)) for step in range(9)])
    path = Path(run.files[0].path)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnfitFile, match=r"^offset \d+: ") as caught:
        rewrite(run, io.BytesIO(), 10**6, 0)
    assert caught.value.path == str(path)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    losses = [event(step, scalar("loss", 1.0)) for step in range(1, 1000)]
    run = write_files(tmp_path / "run", losses[:9])
    added = [frame(each.SerializeToString()) for each in losses[9:]]

    def grow() -> None:
        with open(run.files[0].path, "ab") as file:
            file.write(b"".join(added))
        added.clear()

    out = io.BytesIO()
    rewrite(run, out, 10**6, 0, grow)
    assert len(out.getvalue()) > run.nbytes - 10


def test_a_record_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    run = write_files(tmp_path / "run", [event(step, scalar("loss", 1.0)) for step in range(1, 9)])
    path = Path(run.files[0].path)
    path.write_bytes(path.read_bytes()[:-3])
    made, _ = rewritten(run, 10**6, "made")
    assert sorted(values_of(made)["scalar_value", "loss"]) == list(range(1, 8))


def test_what_was_measured_is_in_a_bounded_number_of_pieces(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", 1.0), histo("w", [step])) for step in range(1, 9_001)]
    run = write_files(tmp_path / "run", messages[:4_000], messages[4_000:])
    pieces = measure(run.files, lambda: None).pieces
    assert 32 < len(pieces) <= 65
    assert sum(piece.nbytes for piece in pieces) == run.nbytes
    assert sum(piece.weight for piece in pieces) == run.nbytes  # nothing was compacted


def test_only_scalars_that_can_be_thinned_decide_how_wide_buckets_are(tmp_path: Path) -> None:
    values = scalar("loss", 1.0), scalar("eval/auc", 1.0), histo("w", [1])
    run = write_files(tmp_path / "run", [event(step, *values) for step in range(1, 10)])
    [piece] = measure(run.files, lambda: None).pieces
    assert (piece.scalars, piece.tags, piece.steps) == (9, {"loss"}, (1, 9))


def test_intervals_are_those_of_all_files(tmp_path: Path) -> None:
    first = [event(10, histo("w", [1]), histo("once", [1])), event(30, histo("w", [1]))]
    run = write_files(tmp_path / "run", first, [event(70, histo("w", [1]))])
    intervals = measure(run.files, lambda: None).intervals
    assert intervals == {("histogram", "w"): 30.0, ("histogram", "once"): 1.0}


def test_the_process_can_rest_while_it_reads(tmp_path: Path) -> None:
    losses = [event(step, scalar("loss", 1.0)) for step in range(9)]
    run = write_files(tmp_path / "run", losses, losses)
    notes = write_files(tmp_path / "notes", [lineage()], [lineage()], suffix="_lineage")
    rests: list[str] = []
    rewrite_lineage(notes.files, io.BytesIO(), lambda: rests.append("lineage"))
    rewrite(run, io.BytesIO(), 10**6, 0, lambda: rests.append("summary"))
    assert rests.count("lineage") >= 2
    assert rests.count("summary") >= 4  # each file is measured before


def test_reductions_grow_with_age_and_meet_the_target() -> None:
    pieces = [Piece(nbytes=1000, weight=1000.0) for _ in range(64)]
    found = reductions(pieces, 16_000, 0)
    assert found == sorted(found, reverse=True)
    assert found[-1] == 1.0
    assert sum(1000 / each for each in found) <= 16_000 * 1.001
    assert reductions(pieces, 64_000, 0) == [1.0] * 64
    old = reductions(pieces, 16_000, 10**9)  # all of them are about equally old
    assert max(old) < 1.01 * min(old)


@pytest.mark.parametrize(
    ("scalars", "steps", "expected"),
    [
        (1280, (0, 999), 5),  # four scalars for each of 32 buckets
        (1279, (0, 999), 6),
        (0, (2**20 - 1, 2**20), 4),  # one bucket for both would be 2**21 steps wide
        (0, (0, 2**63 - 1), 62),  # no file states more
    ],
)
def test_a_bucket_is_as_wide_as_the_size_needs(
    scalars: int, steps: tuple[int, int], expected: int
) -> None:
    assert Piece(scalars=scalars, tags={"loss"}, steps=steps).widths(10.0) == (expected, 10.0)


def test_without_scalars_no_bucket_is_stated() -> None:
    assert Piece().widths(8.0) == (0, 8.0)


def test_files_of_writers_that_were_killed_at_their_beginning_become_one(tmp_path: Path) -> None:
    for stamp in (20, 10):
        (tmp_path / summary_name(stamp)).write_bytes(b"")
    run = Run("run", str(tmp_path), list_files(str(tmp_path)))
    for is_lineage in (False, True):
        out, path = io.BytesIO(), tmp_path / "made"
        made = rewrite_lineage(run.files, out) if is_lineage else rewrite(run, out, 1000, 0)
        assert len(made.superseded) == 2
        path.write_bytes(out.getvalue())
        [head] = payloads_of(path)
        assert Event.FromString(head).wall_time == 10.0


def test_names() -> None:
    names = [parse_name(summary_name(stamp)) for stamp in (10, 20, 30)]
    files = [RecordFile(str(name), name) for name in names if name is not None]
    made = compacted_name(files)
    assert made == "events.compacted-30-0001.out.events.summary.10.0.host_MS"
    parsed = parse_name(made)
    assert parsed is not None
    assert str(parsed) == made
    assert (parsed.prefix, parsed.host, parsed.stamp, parsed.last) == ("events", "host", 10, 30)
    assert compacted_name([RecordFile(made, parsed)]).startswith("events.compacted-30-0002.")
    later = RecordFile(made, parsed), files[2]
    assert compacted_name(later).startswith("events.compacted-30-0002.")
    assert all(parsed.covers(file.name) for file in files)
    other = parse_name(summary_name(31))
    assert other is not None
    assert not parsed.covers(other)
    assert not parsed.covers(parsed)


def test_the_time_at_which_a_file_was_begun_is_not_that_of_a_value(tmp_path: Path) -> None:
    late = Event(wall_time=9e9, version="MindSpore.Event:1").SerializeToString()
    for stamp in range(10, 14):
        steps = range(stamp * 100, stamp * 100 + 99)
        messages = [event(step, scalar("loss", 1.0)) for step in steps]
        if stamp == 12:
            messages[50].wall_time = latest = 2e9
        payloads = [late, *(each.SerializeToString() for each in messages)]
        write_payloads(tmp_path / summary_name(stamp), *payloads)
    run = Run("run", str(tmp_path), list_files(str(tmp_path)))
    made, compaction = rewritten(run, 10**6, "made")
    assert compaction.last_time == latest
    head = Event.FromString(payloads_of(Path(made.files[0].path))[0])
    assert head.wall_time == event(1000).wall_time  # the first value
