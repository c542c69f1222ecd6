"""The values of a run that count: after restarts, and of two writers at the same time."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rec_summary
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series import event_reader
from rec_summary.series.options import EVERYTHING, ExportOptions, Selection, Since
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.overview.tail import Tail
from rec_summary.series.report import Report
from rec_summary.series.runs.values import (
    finished,
    finished_scalars,
    recorded_values,
    scalars_in_memory,
)
from tests.support.blocks import block_sizes
from tests.support.calls import calls_of
from tests.support.record_dirs import (
    START,
    event,
    histo,
    picture,
    scalar,
    summary_name,
    write_payloads,
    write_segment,
)

KINDS = ("scalar_value", "histogram")


def write(folder: Path, *steps: int, stamp: int = 0, began: float = START, tag: str = "a") -> None:
    """Writes a file with a scalar and a histogram for each step, a second apart."""
    folder.mkdir(exist_ok=True)
    payloads = [
        event(step, scalar(tag, number), histo("w", [1.0, 2.0]), at=began + number)
        for number, step in enumerate(steps)
    ]
    name = summary_name(1_700_000_000 + stamp)
    write_payloads(folder / name, *(each.SerializeToString() for each in payloads))


def only(folder: Path) -> Run:
    [run] = find_runs(folder)
    return run


def read(run: Run, selection: Selection = EVERYTHING) -> dict[tuple[str, str], list[int]]:
    """Returns the steps of each run's kind of value; reading once must find the same scalars."""
    assert rows(run, finished_scalars, selection) == rows(run, scalars_in_memory, selection)
    found: dict[tuple[str, str], list[int]] = {}
    for value in recorded_values(run, KINDS, selection, Report()):
        found.setdefault((value.run, value.recorded.kind), []).append(value.step)
    return found


def rows(run: Run, reading: Any, selection: Selection) -> list[Any]:
    """Returns the scalars that are read: writer, tag, step, wall time, value."""
    return [
        (writer.name(run.name), writer.rank, columns.tags[code], *value)
        for writer, columns in reading(run, selection, Report())
        for code, *value in zip(*(each.tolist() for each in columns[1:]), strict=True)
    ]


def test_what_a_restart_supersedes_does_not_count_in_any_kind(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 2, 3, 4, 5, 6)
    write(tmp_path / "run", 4, 8, stamp=9, began=START + 60)
    run = only(tmp_path / "run")
    expected = [1, 2, 3, 4, 8]
    assert read(run) == {("run", kind): expected for kind in KINDS}
    assert {each.tag: each.values for each in next(inspect_run(run)).tags} == {"a": 5, "w": 5}
    late = Selection(ExportOptions(since=4, tags="^w"))
    assert read(run, late) == {("run", "histogram"): [4, 8]}


def test_up_to_a_time_a_run_is_as_it_was_before_a_later_process(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 2, 3, 4, 5, 6)
    write(tmp_path / "run", 4, 8, stamp=90, began=START + 90)
    run = only(tmp_path / "run")
    for until, expected in (
        (29.0, [1, 2, 3, 4, 5, 6]),
        (90.5, [1, 2, 3, 4]),
        (95, [1, 2, 3, 4, 8]),
    ):
        selection = Selection(ExportOptions(until=Since(wall_time=START + until)))
        assert read(run, selection) == {("run", kind): expected for kind in KINDS}


def test_a_restart_that_goes_back_behind_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path / "run", *range(1, 101), *range(50, 81), *range(20, 31), 200)
    expected = [*range(1, 31), 200]
    assert read(only(tmp_path / "run")) == {("run", kind): expected for kind in KINDS}


@pytest.mark.parametrize("seed", range(8))
def test_restarts_at_any_step(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for stamp in range(chance.randint(1, 4)):
        parts = [sorted(chance.sample(range(1, 90), chance.randint(1, 60))) for _ in range(3)]
        tag = chance.choice("aab")
        began = START + 100 * stamp * chance.choice((1, 1, 0))
        write(tmp_path / "run", *parts[0], *parts[1], stamp=stamp, began=began, tag=tag)
    assert read(only(tmp_path / "run"))
    assert read(only(tmp_path / "run"), Selection(ExportOptions(tags="b", until=40))) is not None


@pytest.mark.parametrize("steps", [range(200, 0, -1), [a + b for a in range(40) for b in range(5)]])
def test_of_many_restarts_each_drops_what_it_supersedes_once(
    tmp_path: Path, steps: Iterable[int]
) -> None:
    write(tmp_path / "run", *steps)
    run = only(tmp_path / "run")
    expected = rows(run, finished_scalars, EVERYTHING)
    found = []
    calls = calls_of(lambda: found.append(rows(run, scalars_in_memory, EVERYTHING)))
    assert found == [expected]
    assert calls["rows_of"] <= len(list(steps))


def test_values_before_the_first_scalar_of_a_new_start_count(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 2, 3)
    pictures = event(2, histo("new", [1]), at=START + 60)
    write_segment(tmp_path / "run", pictures, event(2, scalar("a", 1), at=START + 61))
    assert read(only(tmp_path / "run"))["run", "histogram"] == [1, 2]


PARTS = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.lists(st.tuples(st.sampled_from([0, 1, 1, 2]), st.sampled_from(["a", "b", "ab", "t"]))),
    ),
    max_size=4,
)


# Which way a file is read changes nothing, so nobody can choose it but tests.
@given(PARTS)
@example([(1, [(1, "ab")] * 20 + [(1, "a")] * 9), (25, [(0, "b"), (0, "a")] + [(1, "a")] * 20)])
@example([(1, [(1, "ab")] * 9 + [(1, "a")] * 9), (12, [(1, "b")] * 3 + [(0, "a")] * 20)])
def test_a_restart_supersedes_the_same_in_blocks_and_in_single_records(
    parts: list[tuple[int, list[tuple[int, str]]]],
) -> None:
    """Also where several records have the step to which training went back."""
    events = []
    for step, records in parts:
        for further, tags in records:
            step += further
            values = [scalar(tag, len(events)) for tag in tags if tag != "t"]
            events.append(event(step, *(values or [picture("t")]), at=START + len(events)))
    counted = []
    with tempfile.TemporaryDirectory() as folder:
        payloads = (each.SerializeToString() for each in events)
        write_payloads(Path(folder, "run", summary_name()), *payloads)
        run = only(Path(folder, "run"))
        for fewest_bytes in (1, 1 << 60):
            with block_sizes(fewest_bytes):
                found = recorded_values(run, (*KINDS, "image"), EVERYTHING, Report())
                counted.append([(value.step, *value.recorded[:3]) for value in found])
                read(run)
    assert counted[0] == counted[1]


def test_a_step_that_is_recorded_again_after_a_picture_of_the_next_one_counts_once(
    tmp_path: Path,
) -> None:
    values = [(1, scalar("a", 0.0)), (2, picture("t")), (1, scalar("a", 2.0))]
    events = [event(step, value, at=START + at) for at, (step, value) in enumerate(values)]
    payloads = (each.SerializeToString() for each in events)
    write_payloads(tmp_path / "run" / summary_name(), *payloads)
    assert read(only(tmp_path / "run")) == {("run", "scalar_value"): [1]}


@pytest.mark.parametrize("number", [0, 60, 119, 120, 239])
@pytest.mark.parametrize("byte", [8, 10])
@pytest.mark.parametrize("bit", [1, 2])
def test_a_damaged_step_or_time_makes_no_other_run(
    tmp_path: Path, number: int, byte: int, bit: int
) -> None:
    """One bit in the exponent of the time, or in the step."""
    run, steps = tmp_path / "run", range(1, 241)
    write(run, *steps[:120])
    write(run, *steps[120:], stamp=200, began=START + 200)
    path, begin = sorted(run.iterdir())[number // 120], 0
    data = bytearray(path.read_bytes())
    for _ in range(number % 120):
        begin += 16 + int.from_bytes(data[begin : begin + 8], "little")
    data[begin + 12 + byte] ^= bit
    path.write_bytes(data)
    expected = [step for step in steps if step != steps[number]]
    assert read(only(run)) == {("run", kind): expected for kind in KINDS}


def test_two_writers_at_the_same_time_are_two_runs(tmp_path: Path) -> None:
    write(tmp_path / "run", *range(1, 40))
    write(tmp_path / "run", *range(1, 40), stamp=1, began=START + 0.5)
    write(tmp_path / "run", *range(30, 50), stamp=90, began=START + 90)
    found = read(only(tmp_path / "run"))
    assert found["run", "histogram"] == list(range(1, 40))
    assert found["run/writer_2", "histogram"] == list(range(1, 50))  # it wrote last
    assert len(found) == 4
    tail = Tail(str(tmp_path))
    assert sum(len(new.columns.codes) for new in tail.poll()) == 98
    assert [each.run for each in tail.series.values()] == ["run", "run/writer_2"]
    assert set(tail.status) == {"run", "run/writer_2"}


@pytest.mark.parametrize(
    ("overlap", "host", "runs"),
    [
        (2.0, "host", {"run", "run/writer_2"}),
        (0.5, "host", {"run"}),
        (2.0, "elsewhere", {"run"}),
        (6.0, "elsewhere", {"run", "run/writer_2"}),
    ],
)
def test_clocks_of_two_hosts_may_differ_by_seconds(
    tmp_path: Path, overlap: float, host: str, runs: set[str]
) -> None:
    write(tmp_path / "run", *range(1, 11))
    write(tmp_path / "run", *range(1, 11), stamp=8, began=START + 9 - overlap)
    if host != "host":
        name = tmp_path / "run" / summary_name(1_700_000_008)
        name.rename(str(name).replace(".host_MS", f".{host}_MS"))
    assert {run for run, _ in read(only(tmp_path / "run"))} == runs


def test_a_file_without_values_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "run", 1, 2)
    (tmp_path / "run" / summary_name(1_700_000_009)).write_bytes(frame(b"no event"))
    report = Report()
    batches = list(finished(only(tmp_path / "run"), KINDS, EVERYTHING, report))
    assert sum(batch.count for _, batch in batches) == 4
    assert report.problem_count == 1
    assert report.files == 2


@given(st.lists(st.integers(0, 1 << 36), min_size=1, max_size=60), st.integers(0, 200))
def test_steps_are_read_alone_as_with_the_values(steps: list[int], cut: int) -> None:
    payloads = [event(step, scalar("a", 1.0)).SerializeToString() for step in steps]
    first = event(300, scalar("a", 1.0)).SerializeToString()
    assert first[12] == 0x2A  # the key of the summary, behind the step
    odd = [
        b"\x09" * 20,
        b"\x11" + first[1:],
        first[:12] + b"\x32" + first[13:],
        event(7, scalar("a", 1.0), at=math.inf).SerializeToString(),
    ]
    framed = [*map(frame, [*payloads, *odd, *payloads, b""])]
    ends = np.cumsum([len(each) for each in framed])
    count = int(np.searchsorted(ends, ends[-1] - cut, "right"))
    expected = [step if step < 1 << 35 else 0 for step in [*steps, *(0 for _ in odd), *steps, 0]]
    alone = event_reader.scan(b"".join(framed)[: ends[-1] - cut], 0, 0, steps_only=True)
    if alone is None:
        assert 2 * np.count_nonzero(expected[:count]) < count or count == 0
        return
    assert alone.steps.tolist() == expected[:count]
    assert alone.bounds.tolist() == [0, *ends[:count]]
    for row, (step, wall_time) in enumerate(zip(alone.steps, alone.wall_times, strict=True)):
        assert not step or wall_time == START + step / 4
        if 0 < row < len(alone.steps) - 1:
            last, following = alone.steps[row - 1], alone.steps[row + 1]
            assert alone.known[row] or not 0 < last <= step <= following
            assert last <= step <= following or not alone.known[row]
    for row in np.flatnonzero(alone.known):
        assert alone.known[row : alone.end(row)].all()


def test_reports_that_come_late_supersede_nothing_and_make_no_second_writer(tmp_path: Path) -> None:
    """Metrics that are slower than the training are written behind records of later steps."""
    late, count = 40, 400  # steps; ten seconds
    writer = RunWriter(tmp_path, 0, Rotation(max_file_size=2000))
    for step in range(1, count + 1):
        writer.write(MessageRecord(event(step, scalar("loss", step))))
        if step > late:
            report = step - late
            writer.write(MessageRecord(event(report, scalar("recommender/auc", report))))
    writer.close()
    assert len(list(tmp_path.iterdir())) > 10
    found = rec_summary.load(tmp_path).scalars()
    assert set(found["run"]) == {tmp_path.name}
    steps = {tag: list(part["step"]) for tag, part in found.groupby("tag")}
    assert steps == {
        "loss": list(range(1, count + 1)),
        "recommender/auc": list(range(1, count - late + 1)),
    }
