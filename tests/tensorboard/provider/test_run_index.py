"""Records are shown while they are written, changed and removed."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.records.format.framing import frame
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.records.writing.task import MessageRecord
from rec_summary.tensorboard.provider import run_index
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.boards import Pages, record_pages
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
    assert pages.get("runs") == ["run/rank_0", "run/rank_1"]


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
    assert sorted(pages.get("runs")) == ["run/rank_0", "run/rank_0_", "run/rank_1"]
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
    [problem] = index.report.result().problems
    assert (problem.path, problem.offset) == (str(path), len(good[0]))


def test_a_run_that_fails_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        write_segment(tmp_path / name, event(1, scalar("loss", 1)))
    update = run_index._Loader.update

    def failing(self: Any, run: Any, stop: threading.Event) -> None:
        if run.name == "bad":
            raise MemoryError
        update(self, run, stop)

    monkeypatch.setattr(run_index._Loader, "update", failing)
    index, pages = record_pages(tmp_path)
    assert pages.get("runs") == ["good"]
    index.poll()
    assert [record.message.split(":")[0] for record in caplog.records] == ["rec_summary"]


def test_nothing_is_written_and_nothing_is_drawn_before_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_kind(tmp_path / "run")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    monkeypatch.setattr("rec_summary.tensorboard.dashboards.landscape.mapper.contour_picture", None)
    _, pages = record_pages(tmp_path)
    assert "landscape/contour" in pages.get("plugin/images/tags")["run"]
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
