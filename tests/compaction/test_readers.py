"""Whoever reads a run goes on when files are compacted, and reads nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rec_summary
from rec_summary.compaction import commit
from rec_summary.compaction.directory import keep_within
from rec_summary.records.reading.reader import TruncatedRecord
from rec_summary.records.reading.runs import list_files
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.overview.tail import Tail
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support import corpus, event_files
from tests.support.event_files import shown
from tests.support.following import Follower, write
from tests.support.record_dirs import event, lineage, scalar, train, write_segment
from tests.support.record_dirs import losses as recorded
from tests.support.waiting import eventually

BUDGET = 60_000


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def segments(records: Path, first: int, last: int) -> None:
    """Records losses in files of up to 250 steps."""
    for begin in range(first, last + 1, 250):
        end = min(begin + 249, last)
        described = lineage(end, train_lineage=train(step=end))
        write_segment(records / "run", described, *_steps(begin, end))


def _steps(first: int, last: int) -> list[object]:
    return [event(step, scalar("loss", step % 7)) for step in range(first, last + 1)]


def compact(records: Path) -> None:
    assert keep_within(str(records / "run"), 0, BUDGET)


def losses(logdir: Path) -> list[int]:
    return [step for step, _ in event_files.scalars(logdir / "run", "loss")]


def test_an_export_adds_nothing_because_of_compaction(records: Path, logdir: Path) -> None:
    segments(records, 1, 2000)
    export_tensorboard(records, logdir)
    before = shown(logdir)
    compact(records)
    report = export_tensorboard(records, logdir)
    assert report.replaced == []
    assert report.exported.get("scalar_value", 0) == 0
    assert shown(logdir) == before
    segments(records, 2001, 2250)
    report = export_tensorboard(records, logdir)
    assert report.replaced == []
    assert losses(logdir) == list(range(1, 2251))
    compact(records)
    export_tensorboard(records, logdir)
    assert losses(logdir) == list(range(1, 2251))


def test_an_export_goes_on_inside_a_compacted_file(records: Path, logdir: Path) -> None:
    segments(records, 1, 1000)
    export_tensorboard(records, logdir)
    segments(records, 1001, 3000)
    shutil.copytree(records, records.parent / "copy")
    compact(records)
    assert any(file.name.last is not None for file in list_files(str(records / "run")))
    report = export_tensorboard(records, logdir)
    assert report.replaced == []
    found = losses(logdir)
    assert found[:1000] == list(range(1, 1001))
    assert found == sorted(set(found))
    assert found[-1] == 3000
    later = found[1000:]
    fresh = records.parent / "fresh"
    export_tensorboard(records, fresh)
    assert later == [step for step in losses(fresh) if step > 1000]


def test_a_restart_inside_a_compacted_file_is_a_restart_for_the_export(
    records: Path, logdir: Path
) -> None:
    segments(records, 1, 500)
    export_tensorboard(records, logdir)
    again = [event(step, scalar("loss", 100), at=2e9 + step) for step in range(301, 2301)]
    for first in range(0, len(again), 250):
        write_segment(records / "run", *again[first : first + 250])
    compact(records)
    export_tensorboard(records, logdir)
    fresh = records.parent / "fresh"
    export_tensorboard(records, fresh)
    assert _behind(logdir, 300) == _behind(fresh, 300)
    assert len(losses(logdir)) > len(losses(fresh))


def _behind(logdir: Path, step: int) -> dict[tuple[str, str, int], tuple[float, bytes]]:
    return {key: value for key, value in shown(logdir).items() if key[2] > step}


def test_a_follower_goes_on(records: Path, logdir: Path) -> None:
    writer = RunWriter(records / "run", 0, Rotation(max_file_size=4000))
    with Follower(records, logdir) as follower:
        for first in range(1, 3001, 500):
            write(writer, *_steps(first, first + 499))
            await_loss(logdir, first + 499)
            own = {file.name.stamp for file in list_files(writer.directory)}
            keep_within(str(records / "run"), 0, BUDGET, own=own)
        write(writer, *_steps(3001, 3010))
        await_loss(logdir, 3010)
    writer.close()
    assert losses(logdir) == list(range(1, 3011))
    assert follower.report is not None
    assert follower.report.problems == []
    assert any(file.name.last is not None for file in list_files(str(records / "run")))


def await_loss(logdir: Path, step: int) -> None:
    """Waits until a follower has written the loss of a step."""
    eventually(
        lambda: losses(logdir)[-1:],
        until=lambda found: found == [step],
        despite=(TruncatedRecord, FileNotFoundError, ValueError),
    )


def test_tail_shows_nothing_again(records: Path) -> None:
    segments(records, 1, 2000)
    tail = Tail(str(records))
    steps = [step for new in tail.poll() for step in new.columns.steps.tolist()]
    assert steps == list(range(1, 2001))
    compact(records)
    assert list(tail.poll()) == []
    segments(records, 2001, 2010)
    found = [(new.run, step) for new in tail.poll() for step in new.columns.steps.tolist()]
    assert found == [("run", step) for step in range(2001, 2011)]


def test_files_that_are_gone_since_they_were_listed_are_listed_again(records: Path) -> None:
    """As with a budget so tight that replaced files do not stay, or a table that is asked late."""
    segments(records, 1, 2000)
    before = rec_summary.load(records, ranks="0")
    compact(records)
    commit.sweep(str(records / "run"), 0)
    after = rec_summary.load(records)
    assert before.scalars().equals(after.scalars())
    assert before.lineage().equals(after.lineage())
    assert before.problems == ()


def test_a_landscape_of_a_compacted_run_is_the_same(records: Path, logdir: Path) -> None:
    steps = recorded(range(1, 2001))
    for first in range(0, 2000, 500):
        picture = [event(first + 1, corpus.landscape(f"landscape_{first}"))]
        write_segment(records / "run", *steps[first : first + 250], *picture)
        write_segment(records / "run", *steps[first + 250 : first + 500])

    def landscapes() -> list[str]:
        return [repr(each) for each in rec_summary.load(records).landscapes()]

    before = landscapes()
    assert len(before) == 4
    compact(records)
    assert landscapes() == before
    report = export_tensorboard(records, logdir)
    assert report.problems == []
    assert report.exported["loss_landscape"] == 4


def test_the_data_server_reads_a_compacted_run_again(records: Path) -> None:
    segments(records, 1, 2000)
    index = RunIndex(str(records))
    provider = RecordDataProvider(index)

    def served() -> list[int]:
        index.poll()
        found = provider.read_scalars(experiment_id="", plugin_name="scalars", downsample=9999)
        return [each.step for each in found["run"]["loss"]]

    assert served() == list(range(1, 2001))
    compact(records)
    steps = eventually(served, until=lambda found: len(found) < 2000)
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, 2000)
