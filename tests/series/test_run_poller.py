from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import DEEPEST, find_runs, list_files
from rec_summary.series.report import Report
from rec_summary.series.run_poller import NewRecords, RunPoller
from tests.support.record_dirs import event, scalar, summary_name, write_segment


class Clock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def names(watch: RunPoller) -> list[str]:
    return [run.name for run in watch.poll()]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "records"


def test_a_source_may_come_later(source: Path) -> None:
    watch = RunPoller(str(source))
    assert names(watch) == []
    write_segment(source / "a" / "run", event(1, scalar("loss", 1)))
    assert names(watch) == ["a/run"]
    assert names(watch) == []


def test_growth_is_seen_and_rest_is_not(source: Path) -> None:
    summary, _ = write_segment(source / "run", event(1, scalar("loss", 1)))
    other, _ = write_segment(source / "other", event(1, scalar("loss", 1)))
    watch = RunPoller(str(source))
    assert names(watch) == ["other", "run"]
    for path, name in ((summary, "run"), (other, "other")):
        path.chmod(0o600)
        with path.open("ab") as file:
            file.write(b"more")
        assert names(watch) == [name]
        assert names(watch) == []


def test_new_files_and_runs_are_seen(source: Path) -> None:
    write_segment(source / "run", event(1, scalar("loss", 1)))
    watch = RunPoller(str(source))
    names(watch)
    write_segment(source / "run", event(2, scalar("loss", 1)))
    write_segment(source / "run" / "below", event(2, scalar("loss", 1)))
    assert names(watch) == ["run", "run/below"]
    assert [len(run.files) for run in watch.runs()] == [4, 2]


def test_a_run_in_the_source_itself_bears_its_name(source: Path) -> None:
    write_segment(source, event(1, scalar("loss", 1)))
    write_segment(source / "below", event(1, scalar("loss", 1)))
    assert names(RunPoller(str(source))) == ["records", "records/below"]


def test_directories_that_vanish_are_forgotten(source: Path) -> None:
    write_segment(source / "a" / "run", event(1, scalar("loss", 1)))
    watch = RunPoller(str(source))
    names(watch)
    shutil.rmtree(source)
    assert names(watch) == []
    assert watch.runs() == []
    write_segment(source / "a" / "run", event(1, scalar("loss", 1)))
    assert names(watch) == ["a/run"]


def test_settled_directories_are_not_listed_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(source / "run", event(1, scalar("loss", 1)))
    for path in (source, source / "run"):
        os.utime(path, (100.0, 100.0))
    clock = Clock()
    clock.now = 200.0
    watch = RunPoller(str(source), clock)
    names(watch)
    listed: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    names(watch)
    assert listed == []
    clock.now += 31.0  # a file system may not tell
    names(watch)
    assert len(listed) == 4


def test_a_directory_that_has_just_changed_is_listed_again(source: Path) -> None:
    """Two changes within one tick of the clock leave the same time."""
    clock = Clock()
    write_segment(source / "run", event(1, scalar("loss", 1)))
    os.utime(source / "run", (100.0, 100.0))
    clock.now = 100.5
    watch = RunPoller(str(source), clock)
    names(watch)
    write_segment(source / "run", event(2, scalar("loss", 1)))
    os.utime(source / "run", (100.0, 100.0))
    assert names(watch) == ["run"]


def test_of_the_files_of_one_writer_only_the_newest_is_looked_at(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(5):
        write_segment(source / "run", event(step, scalar("loss", 1)))
    for path in (source, source / "run"):
        os.utime(path, (100.0, 100.0))
    watch = RunPoller(str(source))
    names(watch)
    sizes: list[str] = []
    look = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: sizes.append(path) or look(path))
    assert names(watch) == []
    assert len(sizes) == 2


def test_a_directory_that_is_gone_is_forgotten_with_all_below(source: Path) -> None:
    for name in ("a", "b/c", "d"):
        write_segment(source / name, event(1, scalar("loss", 1)))
    watch = RunPoller(str(source))
    names(watch)
    shutil.rmtree(source / "a")
    shutil.rmtree(source / "b")
    names(watch)
    assert [run.name for run in watch.runs()] == ["d"]
    write_segment(source / "a", event(1, scalar("loss", 1)))
    assert names(watch) == ["a"]


def test_directories_nested_too_deeply_are_left_out(source: Path) -> None:
    path = str(source)
    for depth in range(1200):
        os.mkdir(path)
        if depth in (DEEPEST, DEEPEST + 1, 1199):
            Path(path, summary_name()).write_bytes(b"x")
        path += "/d"
    try:
        poller = RunPoller(str(source))
        assert names(poller) == ["/".join("d" * DEEPEST)]
        assert [run.name for run in find_runs(source)] == ["/".join("d" * DEEPEST)]
        shutil.move(source / "d", source.parent / "moved")
        assert names(poller) == []
    finally:
        subprocess.run(["rm", "-rf", str(source.parent)], check=True)  # shutil would recurse


def steps(records: NewRecords, path: Path, **options: float) -> list[int]:
    files = [file for file in list_files(str(path)) if file.name.kind is Kind.SUMMARY]
    batches = records.batches(files, **options)
    return [step for batch in batches if batch.count for step in batch.steps.tolist()]


def test_new_records_are_read_once(source: Path) -> None:
    path, _ = write_segment(source, *(event(step, scalar("loss", 1)) for step in range(1, 40)))
    data, report = path.read_bytes(), Report()
    path.chmod(0o600)
    records = NewRecords(report)
    seen = []
    for end in (len(data) // 3, len(data) // 2, len(data) - 1, len(data)):
        path.write_bytes(data[:end])
        seen += steps(records, source)
        assert steps(records, source) == []
    assert seen == list(range(1, 40))
    assert steps(NewRecords(report), source, changed_after=time.time() + 60) == []
    assert report.problems == []


@pytest.mark.parametrize("cut", [0, 1, 14, 30])
def test_records_that_are_there_can_be_skipped_but_not_what_is_incomplete(
    source: Path, cut: int
) -> None:
    path, _ = write_segment(source, *(event(step, scalar("loss", 1)) for step in (1, 2, 3, 4)))
    data, report = path.read_bytes(), Report()
    first = data.index(b"loss")
    size = data.index(b"loss", first + 1) - first
    path.chmod(0o600)
    path.write_bytes(data[: len(data) - size - cut])
    records = NewRecords(report)
    for file in list_files(str(source)):
        records.skip(file)
    assert steps(records, source) == []
    path.write_bytes(data)
    assert steps(records, source) == ([4] if cut == 0 else [3, 4])
    assert report.problems == []
