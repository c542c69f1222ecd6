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
from rec_summary._pb.lineage_pb2 import LineageEvent, RunState
from rec_summary._pb.summary_pb2 import Compaction, Event
from rec_summary.compaction.plan import tiers_within
from rec_summary.compaction.rewriting import (
    UnfitFile,
    compacted_name,
    rewrite,
    rewrite_lineage,
    sizes,
)
from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import parse_name
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import RecordFile, Run, list_files
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import recorded_values
from rec_summary.values.summary import encode_event, encode_value
from tests.support.damage import cut_off, flip
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    losses,
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
        write_payloads(directory / name, *payloads)
    return listed(directory)


def listed(directory: Path) -> Run:
    """Returns what is in a directory as a run."""
    return Run("run", str(directory), list_files(str(directory)))


def rewritten(run: Run, tiers: Sequence[int], name: str) -> tuple[Run, Compaction]:
    """Returns the run that one file makes; its directory has no other file."""
    out = io.BytesIO()
    compaction = rewrite(run, out, tiers)
    assert len(out.getvalue()) == out.tell()
    directory = Path(run.path) / name
    directory.mkdir()
    (directory / compacted_name(run.files)).write_bytes(out.getvalue())
    return listed(directory), compaction


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


def keeps_extremes(before: dict[int, bytes], after: dict[int, bytes], width: int) -> None:
    """Checks that of each bucket the first, the last and the extreme values stay, and no others."""
    assert after.items() <= before.items()  # exact
    for bucket in {step // width for step in before}:
        steps = [step for step in before if step // width == bucket]
        kept = [step for step in after if step // width == bucket]
        assert {min(steps), max(steps)} <= set(kept)
        numbers, chosen = ([number_of(before[step]) for step in each] for each in (steps, kept))
        finite = [each for each in numbers if math.isfinite(each)]
        if finite:
            assert {min(finite), max(finite)} <= set(chosen)
        assert any(map(math.isnan, numbers)) == any(map(math.isnan, chosen))
        assert {math.inf, -math.inf}.intersection(numbers) <= set(chosen)


RECORDED = st.lists(
    st.lists(st.tuples(st.integers(-3, 40), st.booleans(), NUMBERS), max_size=60),
    min_size=1,
    max_size=3,
)


def recorded(rows: list[list[tuple[int, bool, float]]]) -> list[list[Any]]:
    """Returns the records of each file; training may go back."""
    step, files, time = 0, [], 100.0
    for row in rows:
        messages: list[Any] = []
        for gap, both, number in row:
            step, time = max(step + gap, 0), time + 0.5
            values = [scalar("loss", number)]
            values += [scalar("auc", -number), histo("w", [1.0])] if both else []
            messages.append(event(step, *values, at=time))
        files.append(messages)
    return files


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(RECORDED, st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 4))
def test_whatever_is_recorded_the_extremes_stay_also_the_second_time(
    tmp_path_factory: Any, rows: list[list[tuple[int, bool, float]]], tiers: list[int], later: int
) -> None:
    folder = tmp_path_factory.mktemp("records")
    run = write_files(folder / "run", *recorded(rows))
    tiers.sort(reverse=True)
    made, compaction = rewritten(run, tiers, "made")
    again, joined = rewritten(made, [later], "again")
    before, after, last = values_of(run), values_of(made), values_of(again)
    assert before.keys() == after.keys() == last.keys()
    assert compaction.bucket_steps == 10 ** max(tiers)
    assert compaction.least_bucket_steps == 10 ** min(tiers)
    assert joined.bucket_steps == 10 ** max(*tiers, later)
    assert joined.least_bucket_steps == 10 ** max(min(tiers), later)
    for (kind, tag), series in before.items():
        kept, left = after[kind, tag], last[kind, tag]
        if kind == "scalar_value":
            keeps_extremes(series, kept, compaction.bucket_steps)
            keeps_extremes(series, left, joined.bucket_steps)
        else:
            assert min(series) == min(kept) == min(left)
            assert left.items() <= kept.items() <= series.items()


LINEAGE = st.sampled_from(["running", "finished", "evaluation", "custom", "dataset"])


def of_lineage(kind: str, at: float) -> LineageEvent:
    """Returns a record of the lineage."""
    message: LineageEvent = lineage(at)
    if kind == "evaluation":
        message.evaluation_lineage.metric = f'{{"auc": {at}}}'
    elif kind == "custom":
        message.user_defined_info.CopyFrom(custom({"at": at}))
    elif kind == "dataset":
        message.dataset_graph.parameter.mapInt["batch"] = int(at)
    else:
        state = RunState.RUNNING if kind == "running" else RunState.FINISHED
        message.train_lineage.CopyFrom(train(status=state, step=int(at)))
    return message


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(LINEAGE, max_size=8), min_size=1, max_size=4))
def test_no_lineage_is_lost(tmp_path_factory: Any, rows: list[list[str]]) -> None:
    files: list[list[LineageEvent]] = []
    for row in rows:
        messages: list[LineageEvent] = []
        for kind in row:
            at = 100.0 + len(files) * 100 + len(messages) * (-1) ** len(messages)
            messages.append(of_lineage(kind, at))
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


def test_tier_0_keeps_everything(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", step / 3), histo("w", [step])) for step in range(1, 99)]
    run = write_files(tmp_path / "run", messages[:50], messages[50:])
    made, compaction = rewritten(run, [0], "made")
    assert values_of(made) == values_of(run)
    kept = payloads_of(Path(made.files[0].path))[1:]
    assert [Event.FromString(each).step for each in kept] == list(range(1, 99))
    assert compaction.bucket_steps == compaction.least_bucket_steps == 1
    assert list(compaction.superseded) == [Path(file.path).name for file in run.files]
    assert compaction.last_time == messages[-1].wall_time


def test_a_file_states_the_widths_of_its_buckets(tmp_path: Path) -> None:
    messages = [event(step, scalar("loss", math.sin(step))) for step in range(9_000)]
    run = write_files(tmp_path / "run", messages[:4_000], messages[4_000:])
    made, compaction = rewritten(run, [3, 2, 0], "made")
    assert (compaction.bucket_steps, compaction.least_bucket_steps) == (1000, 1)
    steps = sorted(values_of(made)["scalar_value", "loss"])
    assert 10 <= sum(step < 3000 for step in steps) <= 20
    assert 80 <= sum(3000 <= step < 6000 for step in steps) <= 124
    assert steps[-2400:] == list(range(6600, 9000))
    again, joined = rewritten(made, [0], "again")
    assert values_of(again) == values_of(made)
    assert (joined.bucket_steps, joined.least_bucket_steps) == (1000, 1)
    once, raised = rewritten(made, [1], "once")
    assert (raised.bucket_steps, raised.least_bucket_steps) == (1000, 10)
    assert rewritten(once, [0], "joined")[1].least_bucket_steps == 10


@pytest.mark.parametrize("nth", [1, 10])
def test_records_that_an_earlier_version_has_compacted_are_read_and_become_coarser(
    tmp_path: Path, nth: int
) -> None:
    """Its buckets were a power of two of steps wide, and its files did not state the least."""
    head = Event(wall_time=1.0, version="MindSpore.Event:1")
    head.compaction.bucket_steps = 4096
    head.compaction.superseded.append(summary_name(10))
    steps = [event(step * nth, scalar("loss", step % 97)) for step in range(1000)]
    name = summary_name(10).replace("events.out", "events.compacted-20-0001.out")
    write_payloads(tmp_path / "run" / name, *(each.SerializeToString() for each in [head, *steps]))
    run = listed(tmp_path / "run")
    made, compaction = rewritten(run, [2], "made")
    assert (compaction.bucket_steps, compaction.least_bucket_steps) == (4096, 100)
    loss = "scalar_value", "loss"
    keeps_extremes(values_of(run)[loss], values_of(made)[loss], 100)
    assert Path(made.files[0].path).name.startswith("events.compacted-20-0002.")


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
        ([*GRAPHS, *losses(STEPS)], 3),
    ],
    ids=[
        *("scalars", "histograms", "rare histograms", "large records", "both", "evaluations"),
        *("evaluations beside others", "wide steps", "tags in turn", "many tags", "landscapes"),
        "graphs",
    ],
)
def test_a_file_is_within_the_size_that_is_asked_for(
    tmp_path: Path, messages: list[Any], part: int
) -> None:
    half = len(messages) // 2
    run = write_files(tmp_path / "run", messages[:half], messages[half:])
    target = run.nbytes // part
    out = io.BytesIO()
    table = sizes(run, lambda: None)
    assert all(one >= other for row in table for one, other in itertools.pairwise(row[1:]))
    compaction = rewrite(run, out, tiers_within(table, target))
    assert 0.4 * target <= out.tell() <= 1.01 * target
    assert compaction.least_bucket_steps == 1  # the newest part is complete


def test_values_that_a_restart_supersedes_are_left_out(tmp_path: Path) -> None:
    again = [event(step, scalar("loss", 2.0), at=2e9) for step in range(51, 81)]
    run = write_files(tmp_path / "run", losses(range(1, 101), 1.0), again)
    made, _ = rewritten(run, [0], "made")
    found = values_of(made)["scalar_value", "loss"]
    assert sorted(found) == list(range(1, 81))
    assert {number_of(found[step]) for step in range(51, 81)} == {2.0}


def test_what_is_recorded_again_and_again_can_be_thinned(tmp_path: Path) -> None:
    again = [event(step, histo("w", [n]), at=1e9 + n) for n in range(20) for step in (1, 2)]
    run = write_files(tmp_path / "run", again)
    made, _ = rewritten(run, [1], "made")
    [(series, kept)] = values_of(made).items()
    assert kept.items() <= values_of(run)[series].items()


def test_graphs_stay_once_and_landscapes_always(tmp_path: Path) -> None:
    graph = Event(wall_time=5.0, graph_def=GraphProto(name="net"))
    run = write_files(
        tmp_path / "run", [graph, *losses(range(1, 2000))], [graph, landscape(1)], [landscape(2)]
    )
    made, _ = rewritten(run, [9], "made")
    kept = [Event.FromString(each) for each in payloads_of(Path(made.files[0].path))]
    assert kept[0].version == "MindSpore.Event:1"
    assert [each.WhichOneof("what") for each in kept].count("graph_def") == 1
    tags = [value.tag for each in kept for value in each.summary.value]
    assert tags[-2:] == ["landscape_1", "landscape_2"]
    assert tags.count("loss") == 2


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    run = write_files(tmp_path / "run", losses(range(9), 1.0))
    flip(Path(run.files[0].path), 60)
    with pytest.raises(UnfitFile, match=r"^offset \d+: ") as caught:
        rewrite(run, io.BytesIO(), [0])
    assert caught.value.path == run.files[0].path


def test_a_file_with_a_malformed_histogram_is_refused(tmp_path: Path) -> None:
    payloads = [event(n, histo("w", [1.0])).SerializeToString() for n in range(1, 300)]
    payloads[99] = encode_event(100, START, [encode_value("w", "histogram", b"\x0a\x05")])
    write_payloads(tmp_path / summary_name(), VERSION, *payloads)
    with pytest.raises(UnfitFile, match=r"not a summary record"):
        rewrite(listed(tmp_path), io.BytesIO(), [0])


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    messages = losses(range(1, 1000), 1.0)
    run = write_files(tmp_path / "run", messages[:9])
    added = [frame(each.SerializeToString()) for each in messages[9:]]

    def grow() -> None:
        with open(run.files[0].path, "ab") as file:
            file.write(b"".join(added))
        added.clear()

    out = io.BytesIO()
    rewrite(run, out, [0], grow)
    assert len(out.getvalue()) > run.nbytes - 10


def test_a_record_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    run = write_files(tmp_path / "run", losses(range(1, 9), 1.0))
    cut_off(Path(run.files[0].path), 3)
    made, _ = rewritten(run, [0], "made")
    assert sorted(values_of(made)["scalar_value", "loss"]) == list(range(1, 8))


def test_the_process_can_rest_while_it_reads(tmp_path: Path) -> None:
    run = write_files(tmp_path / "run", *[losses(range(9), 1.0)] * 2)
    notes = write_files(tmp_path / "notes", [lineage()], [lineage()], suffix="_lineage")
    rests: list[str] = []
    rewrite_lineage(notes.files, io.BytesIO(), lambda: rests.append("lineage"))
    rewrite(run, io.BytesIO(), [0], lambda: rests.append("summary"))
    assert rests.count("lineage") >= 2
    assert rests.count("summary") >= 2


def test_files_of_writers_that_were_killed_at_their_beginning_become_one(tmp_path: Path) -> None:
    for stamp in (20, 10):
        (tmp_path / summary_name(stamp)).write_bytes(b"")
    run = listed(tmp_path)
    for is_lineage in (False, True):
        out, path = io.BytesIO(), tmp_path / "made"
        made = rewrite_lineage(run.files, out) if is_lineage else rewrite(run, out, [1])
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
    late = Event(wall_time=9e9, version="MindSpore.Event:1")
    for stamp in range(10, 14):
        messages = losses(range(stamp * 100, stamp * 100 + 99), 1.0)
        if stamp == 12:
            messages[50].wall_time = latest = 2e9
        payloads = (each.SerializeToString() for each in [late, *messages])
        write_payloads(tmp_path / summary_name(stamp), *payloads)
    made, compaction = rewritten(listed(tmp_path), [0], "made")
    assert compaction.last_time == latest
    head = Event.FromString(payloads_of(Path(made.files[0].path))[0])
    assert head.wall_time == event(1000).wall_time  # the first value
