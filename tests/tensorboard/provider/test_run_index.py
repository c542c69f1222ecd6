"""Records are shown while they are written, changed and removed."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.runs import Run
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import Pace, RunIndex
from tests.support.boards import Pages, record_pages
from tests.support.calls import calls_of
from tests.support.corpus import states
from tests.support.every_kind import every_kind
from tests.support.record_dirs import (
    START,
    event,
    histo,
    lineage,
    scalar,
    summary_name,
    train,
    write_payloads,
    write_segment,
)
from tests.support.waiting import eventually

RunState = lineage_pb2.RunState


def _write(writer: RunWriter, *events: Any) -> None:
    for each in events:
        writer.write(MessageRecord(each))
    writer.flush()


def test_records_show_as_they_are_written(tmp_path: Path) -> None:
    index, pages = record_pages(tmp_path)
    assert pages.get("runs") == []
    writer = RunWriter(tmp_path / "run", 0)
    _write(writer, event(1, scalar("loss", 1)))
    index.poll()
    assert pages.steps("run", "loss") == [1]
    _write(writer, event(2, scalar("loss", 2), scalar("auc", 0.5), histo("w", np.arange(5.0))))
    _write(RunWriter(tmp_path / "other", 0), event(7, scalar("loss", 1)))
    index.poll()
    assert pages.steps("run", "loss") == [1, 2]
    assert pages.steps("run", "auc") == [2]
    assert pages.steps("other", "loss") == [7]
    assert len(pages.get("plugin/histograms/histograms", run="run", tag="w")) == 1


def test_a_thread_keeps_up(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", 0)
    _write(writer, event(1, scalar("loss", 1)))
    index, pages = record_pages(tmp_path)
    index.start()
    try:
        _write(writer, event(2, scalar("loss", 2)))
        eventually(lambda: pages.steps("run", "loss"), [1, 2].__eq__)
    finally:
        index.close()


def test_half_a_record_is_not_shown(tmp_path: Path) -> None:
    first, second = (
        frame(event(step, scalar("loss", step), scalar("auc", step)).SerializeToString())
        for step in (1, 2)
    )
    path = tmp_path / "run" / summary_name()
    path.parent.mkdir()
    path.write_bytes(first)
    index, pages = record_pages(tmp_path)
    for cut in range(1, len(second), 7):
        path.write_bytes(first + second[:cut])
        index.poll()
        assert pages.steps("run", "loss") == pages.steps("run", "auc") == [1]
    path.write_bytes(first + second)
    index.poll()
    assert pages.steps("run", "loss") == pages.steps("run", "auc") == [1, 2]


def test_a_second_rank_gets_both_their_sub_runs(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)))
    index, pages = record_pages(tmp_path)
    assert pages.get("runs") == ["run"]
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)), rank=1)
    index.poll()
    assert pages.get("runs") == ["run", "run/rank_0", "run/rank_1"]


def test_ranks_that_lineage_announces_late_get_sub_runs(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", 0)
    _write(writer, event(1, scalar("loss", 1)))
    index, pages = record_pages(tmp_path)
    _write(writer, *(lineage(train_lineage=train(step=each)) for each in range(150)))
    _write(writer, lineage(train_lineage=train(rank=0, rank_size=2)))
    index.poll()
    assert pages.steps("run/rank_0", "loss") == [1]


def test_a_status_changes(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", 0)
    running = train(status=RunState.RUNNING, step=1, start_time=START)
    _write(writer, event(1, scalar("loss", 1)), lineage(train_lineage=running))
    index, pages = record_pages(tmp_path)

    def statuses() -> list[str]:
        return [each["status"] for group in pages.sessions() for each in group["sessions"]]

    assert statuses() == ["STATUS_RUNNING"]
    ended = train(status=RunState.FINISHED, step=9, start_time=START)
    _write(writer, lineage(START + 9, train_lineage=ended))
    index.poll()
    assert statuses() == ["STATUS_SUCCESS"]
    [text] = pages.get("plugin/text/text", run="run", tag="lineage")
    assert "FINISHED" in text["text"]


def test_a_restart_supersedes_what_was_shown(tmp_path: Path) -> None:
    weights = histo("w", np.arange(5.0))
    writer = RunWriter(tmp_path / "run", 0)
    _write(writer, *(event(step, scalar("loss", step), weights) for step in range(1, 50)))
    index, pages = record_pages(tmp_path)
    again = (event(step, scalar("loss", -step), weights, at=START + 99) for step in (20, 21))
    _write(writer, *again)
    index.poll()
    answer = pages.get("plugin/scalars/scalars", run="run", tag="loss")
    assert [point[1:] for point in answer][-3:] == [[19, 19], [20, -20], [21, -21]]
    histograms = pages.get("plugin/histograms/histograms", run="run", tag="w")
    assert [step for _, step, _ in histograms] == list(range(1, 22))


def test_removed_files_stay_as_far_as_they_are_known_and_removed_runs_go(tmp_path: Path) -> None:
    first, _ = write_segment(
        tmp_path / "run", event(1, scalar("loss", 1), histo("w", np.arange(5.0)))
    )
    write_segment(tmp_path / "other", event(1, scalar("loss", 1)))
    index, pages = record_pages(tmp_path)
    write_segment(tmp_path / "run", event(2, scalar("loss", 2), at=START + 60))
    index.poll()
    first.unlink()  # as rotation does
    index.poll()
    assert pages.steps("run", "loss") == [1, 2]
    assert pages.get("plugin/histograms/histograms", run="run", tag="w") == []
    shutil.rmtree(tmp_path / "other")
    index.poll()
    assert pages.get("runs") == ["run"]


def test_another_training_in_the_same_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "run" / summary_name()
    write_payloads(path, *(event(s, scalar("old", s)).SerializeToString() for s in range(9)))
    index, pages = record_pages(tmp_path)
    write_payloads(path, event(1, scalar("new", 1)).SerializeToString())
    index.poll()
    assert list(pages.get("plugin/scalars/tags")["run"]) == ["new"]


def test_a_sub_run_does_not_take_the_name_of_a_run(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_segment(tmp_path / "run", event(1, scalar("loss", 1)), rank=rank)
    write_segment(tmp_path / "run" / "rank_0", event(5, scalar("loss", 1)))
    _, pages = record_pages(tmp_path)
    assert sorted(pages.get("runs")) == ["run", "run/rank_0", "run/rank_0_", "run/rank_1"]
    assert pages.steps("run/rank_0", "loss") == [5]


def test_only_the_runs_that_are_chosen(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_segment(tmp_path / name, event(1, scalar("loss", 1)))
    index = RunIndex(str(tmp_path), "b*")
    index.poll()
    assert [run.name for run in index.served()] == ["b"]


def test_damage_is_passed_over_and_reported(tmp_path: Path) -> None:
    good = [frame(event(step, scalar("loss", step)).SerializeToString()) for step in (1, 2, 3)]
    damaged = bytearray(good[1])
    damaged[20] ^= 1
    path = tmp_path / "run" / summary_name()
    path.parent.mkdir()
    path.write_bytes(good[0] + bytes(damaged) + good[2])
    os.utime(path, (START, START))  # damage in a file that has rested will stay
    (tmp_path / "link").symlink_to(tmp_path / "run")
    index, pages = record_pages(tmp_path)
    assert pages.get("runs") == ["run"]
    assert pages.steps("run", "loss") == [1, 3]
    [problem] = index.report.problems
    assert (problem.path, problem.offset) == (str(path), len(good[0]))


def test_a_run_that_fails_does_not_hide_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = lineage(train_lineage=train(batch_size=32))
    for name, others in (("bad", ()), ("good", (seen,))):
        write_segment(tmp_path / name, event(1, scalar("loss", 1)), *others)
    index, pages = record_pages(tmp_path, x="samples")
    assert pages.get("runs") == ["good"]
    index.poll()
    assert [record.message.split(":")[0] for record in caplog.records] == ["rec_summary"]
    assert len(index.failures) == 1
    write_segment(tmp_path / "bad", event(2, scalar("loss", 1)), seen)
    index.poll()
    assert pages.get("runs") == ["bad", "good"]
    assert not index.failures


def test_nothing_is_written_and_nothing_is_drawn_before_it_is_asked_for(tmp_path: Path) -> None:
    every_kind(tmp_path / "run")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    tags: list[Any] = []

    def look() -> None:
        _, pages = record_pages(tmp_path)
        tags.extend(pages.get("plugin/images/tags")["run"])

    assert calls_of(look)["contour_picture"] == 0
    assert "landscape/contour" in tags
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_records_at_a_url_are_read_in_place(tmp_path: Path, bucket: str) -> None:
    import fsspec

    every_kind(tmp_path / "run", landscapes=False)
    fsspec.filesystem("s3").put(str(tmp_path / "run"), f"{bucket}/records/run", recursive=True)
    index = RunIndex(f"s3://{bucket}/records")
    index.poll()
    assert not index.failures
    pages = Pages(RecordDataProvider(index), tmp_path)
    assert pages.steps("run", "loss") == [1, 2, 3]
    assert len(pages.get("plugin/histograms/histograms", run="run", tag="weight")) == 1
    [image] = pages.get("plugin/images/images", run="run", tag="picture")
    assert pages.fetch(f"plugin/images/individualImage?{image['query']}")[:4] == b"\x89PNG"


def test_what_is_written_now_is_read_before_a_large_tree(tmp_path: Path) -> None:
    for number in range(20):
        path, _ = write_segment(tmp_path / f"old_{number:02}", event(1, scalar("loss", 1)))
        os.utime(path, (START + number, START + number))
    index = RunIndex(str(tmp_path))
    assert next(index.portions()).name == "old_19"
    write_segment(tmp_path / "zzz_live", event(1, scalar("loss", 1)))
    names = [run.name for run in index.portions()]
    assert names[:2] == ["zzz_live", "old_18"]
    assert {*names, "old_19"} == {run.name for run in index.served()}


SMALLEST = Pace(portion_secs=-math.inf)


def _portions(index: RunIndex) -> Iterator[Run]:
    """Reads portion after portion, and finds what is new before each; yields after each."""
    while (run := next(index.portions(), None)) is not None:
        yield run


def test_a_portion_never_ends_within_a_step(tmp_path: Path) -> None:
    tags = ("loss", "auc")
    long = {tag: [scalar(f"{tag}{number * 900}", 1.0) for number in "ab"] for tag in tags}
    write_segment(  # more than is read at a time
        tmp_path / "run",
        *(event(s, scalar(tag, s), *long[tag]) for s in range(1, 3001) for tag in tags),
    )
    index = RunIndex(str(tmp_path), pace=SMALLEST)
    pages = Pages(RecordDataProvider(index), tmp_path)
    seen = []
    for _ in _portions(index):
        loss, auc = (pages.get("plugin/scalars/scalars", run="run", tag=tag) for tag in tags)
        last = [points[-1][1] if points else 0 for points in (loss, auc)]
        assert last[0] == last[1]
        seen.append(last[0])
    assert len(set(seen)) > 4
    assert seen == sorted(seen)
    assert seen[-1] == 3000


def test_metrics_of_ranks_are_merged_at_each_step_of_many_records(tmp_path: Path) -> None:
    """States come in batches of many records, as other values do."""
    steps = range(1, 41)
    for rank in (0, 1):
        events = [event(step, scalar("loss", step), states(step, rank)) for step in steps]
        write_segment(tmp_path / "run", *events, rank=rank)
    index, pages = record_pages(tmp_path)
    assert pages.steps("run", "recommender/rmse/1h") == [*steps]
    assert index.report.unknown == {}


def test_a_restart_between_two_states_does_not_hide_merged_metrics(tmp_path: Path) -> None:
    """The last rank does not come back, so that the losses of all ranks go back by a step."""
    trainings = [(range(1, 19), 3), (range(16, 41), 2)]
    for number, (steps, size) in enumerate(trainings):
        for rank in range(size):
            events = []
            for step in steps:
                values = [scalar("loss", step)]
                if step % 10 == 0:
                    values.append(states(step, rank))
                    values[-1].metric_states.rank_size = size
                at = START + 1000 * number + 10 * step
                events.append(event(step, *values, at=at))
            write_segment(tmp_path / "run", *events, rank=rank)
    _, pages = record_pages(tmp_path)
    assert pages.steps("run", "recommender/rmse/1h") == [10, 20, 30, 40]
    assert pages.steps("run", "ranks/loss/count") == [*range(1, 41)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_a_large_run_the_newest_files_are_shown_first(tmp_path: Path, ranks: int) -> None:
    for first in (1, 11, 21):
        for rank in range(ranks):
            steps = [event(step, scalar("loss", step)) for step in range(first, first + 10)]
            path, _ = write_segment(tmp_path / "run", *steps, rank=rank)
    names = ["run"] if ranks == 1 else ["run/rank_0", "run/rank_1"]
    pace = replace(SMALLEST, large=1000, newest=ranks * path.stat().st_size)
    index = RunIndex(str(tmp_path), pace=pace)
    pages = Pages(RecordDataProvider(index), tmp_path)
    seen = []
    for _ in _portions(index):
        seen.append([pages.steps(name, "loss") for name in names])
    assert seen[0] == [list(range(21, 31))] * ranks
    assert seen[-1] == [list(range(1, 31))] * ranks
    assert sorted(pages.get("runs")) == sorted({"run", *names})
    assert index.report.records["summary"] == 33 * ranks  # each once; three are heads of files


def test_of_a_large_file_its_end_is_shown_first(tmp_path: Path) -> None:
    steps = range(1, 201)
    path, _ = write_segment(tmp_path / "run", *(event(step, scalar("loss", 1)) for step in steps))
    assert path.stat().st_size > 5000
    index = RunIndex(str(tmp_path), pace=replace(SMALLEST, large=1000, newest=1000))
    pages = Pages(RecordDataProvider(index), tmp_path)
    seen = []
    for _ in _portions(index):
        seen.append(pages.steps("run", "loss"))
    assert seen[0] == list(range(seen[0][0], 201))
    assert 5 < len(seen[0]) < 50
    assert seen[-1] == list(steps)
    assert sorted(pages.get("runs")) == ["run"]


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_file_that_is_replaced_while_it_is_read_counts_once(tmp_path: Path, at: int) -> None:
    def events(value: float) -> list[Any]:
        return [event(step, scalar("loss", value)) for step in range(1, 61)]

    path, _ = write_segment(tmp_path / "run", *events(1))
    other, _ = write_segment(tmp_path / "beside" / "run", *events(2))
    index = RunIndex(str(tmp_path), "run", pace=SMALLEST)
    provider = RecordDataProvider(index)
    for number, _ in enumerate(_portions(index)):
        if number == at:
            assert index.served() == []  # there is more of it
            os.replace(other, path)
    found = provider.read_scalars(experiment_id="", plugin_name="scalars", downsample=9999)
    points = found["run"]["loss"]
    assert [each.step for each in points] == list(range(1, 61))
    assert {each.value for each in points} == {2}


def test_files_that_were_joined_into_one_count_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    parts = [
        write_segment(run, *(event(s, scalar("loss", s), at=START + steps[0]) for s in steps))[0]
        for steps in (range(1, 10), range(10, 20), range(20, 30))
    ]
    index, pages = record_pages(tmp_path)
    assert pages.steps("run", "loss") == list(range(1, 30))
    joined = parts[1].with_name(parts[1].name.replace("events.out", "joined.out", 1))
    data = [frame(event(s, scalar("loss", s)).SerializeToString()) for s in range(1, 20, 2)]
    parts[0].unlink()
    parts[1].unlink()
    joined.write_bytes(b"".join(data))
    index.poll()
    assert pages.steps("run", "loss") == [*range(1, 20, 2), *range(20, 30)]


def test_what_is_read_again_is_shown_as_it_was_until_then(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", *(event(s, scalar("x", 1)) for s in range(1, 40)))
    index, pages = record_pages(tmp_path, pace=SMALLEST)
    path.unlink()
    write_segment(tmp_path / "run", *(event(s, scalar("x", 2)) for s in range(1, 60)), rank=1)
    seen = []
    for _ in _portions(index):
        [(name, _)] = pages.get("plugin/scalars/tags").items()
        seen.append(len(pages.steps(name, "x")))
    assert len(seen) > 2
    assert set(seen[:-1]) == {39}
    assert seen[-1] == 59


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_rested_is_read_again_when_it_goes_on(tmp_path: Path, ranks: int) -> None:
    weights = histo("w", np.arange(5.0))
    paths = [
        write_segment(tmp_path / "run", event(1, scalar("loss", 1), weights), rank=rank)[0]
        for rank in range(ranks)
    ]
    for path in (tmp_path / "run").iterdir():
        os.utime(path, (START, START))
    index, pages = record_pages(tmp_path)
    names = [f"run/rank_{rank}" for rank in range(ranks)] if ranks > 1 else ["run"]
    begun = index.report.records["summary"]
    # How far it was read is forgotten; then it is live.
    for step, read in ((2, begun + 1), (3, 1)):
        assert sorted(pages.get("runs")) == sorted({"run", *names})
        with paths[-1].open("ab") as file:
            file.write(frame(event(step, scalar("loss", step), weights).SerializeToString()))
        before = index.report.records["summary"]
        index.poll()
        assert index.report.records["summary"] - before == read
        assert pages.steps(names[-1], "loss") == list(range(1, step + 1))
        histograms = pages.get("plugin/histograms/histograms", run=names[-1], tag="w")
        assert [each[1] for each in histograms] == list(range(1, step + 1))
    shutil.rmtree(tmp_path / "run")
    index.poll()
    assert pages.get("runs") == []


def test_event_files_are_noticed(tmp_path: Path) -> None:
    for number, name in enumerate(("events.out.tfevents.1.host", "link")):
        source = tmp_path / str(number)
        write_segment(source / "run", event(1, scalar("loss", 1)))
        index, _ = record_pages(source)
        assert not index.event_files.is_set()
        other = source / "logs" / name
        other.parent.mkdir()
        if number:
            other.symlink_to(tmp_path)
        else:
            other.touch()
        index.poll()
        assert index.event_files.is_set()
    assert RunIndex("s3://bucket/records").event_files.is_set()


def test_series_that_are_shown_otherwise_do_not_make_the_others_slow(tmp_path: Path) -> None:
    """Counters have another tag in TensorBoard, so their records are taken one by one."""
    records = []
    for step in range(1, 3001):
        values = [scalar("loss/auto", 1 / step), scalar("learning_rate/auto", 0.1)]
        if step % 50 == 0:
            values += [scalar("rec_summary/records", step), histo("w/auto", [1.0, step])]
        if step > 2000:
            values += [scalar("late", step)]
        records.append(frame(event(step, *values).SerializeToString()))
    records += [
        frame(event(step, scalar("loss/auto", 2.0)).SerializeToString())
        for step in range(2900, 3100)
    ]
    path = tmp_path / "run" / summary_name()
    path.parent.mkdir()

    def served(at_once: int) -> tuple[Any, int]:
        """Returns what is shown if so many records are read at a time, and the calls it takes."""
        path.write_bytes(b"")
        index, calls = RunIndex(str(tmp_path)), 0
        for first in range(0, len(records), at_once):
            with path.open("ab") as file:
                file.writelines(records[first : first + at_once])
            calls += calls_of(index.poll).total()
        provider = RecordDataProvider(index)
        chosen = {"experiment_id": "", "plugin_name": "scalars"}
        found = provider.read_scalars(**chosen, downsample=9999)["run"]
        points = {tag: [(each.step, each.value) for each in every] for tag, every in found.items()}
        chosen["plugin_name"] = "histograms"
        tensors = provider.read_tensors(**chosen, downsample=1000)["run"]
        steps = {tag: [each.step for each in every] for tag, every in tensors.items()}
        tags = provider.list_scalars(experiment_id="", plugin_name="scalars")
        return (points, steps, tags), calls

    in_columns, few = served(len(records))
    one_by_one, many = served(20)  # so few bytes are not read as columns
    assert in_columns == one_by_one
    assert few < many / 10
