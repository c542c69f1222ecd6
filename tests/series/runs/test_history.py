"""The writers of a run, with their files and their last steps; restarts are in `test_values`."""

from __future__ import annotations

from pathlib import Path

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.runs.history import History
from tests.support.calls import calls_of
from tests.support.corpus import STAMP, losses, put
from tests.support.record_dirs import START, event, lineage, picture, train


def test_each_writer_of_several_ranks_has_its_own_files_and_last_steps(tmp_path: Path) -> None:
    run, sizes = tmp_path / "run", {(0, 1): 40, (0, 2): 30, (1, 1): 20, (1, 2): 10}
    stamps = {(0, 1): (0, "host"), (0, 2): (0, "other"), (1, 1): (0, "other"), (1, 2): (2, "other")}
    for (rank, number), (stamp, host) in stamps.items():
        events = losses(range(1, sizes[rank, number] + 1))
        if number == 1:  # it goes back, and ends with a landscape
            events += [*losses([7, 8], after=20), event(0, picture("t"), at=START + 30)]
        put(run, *events, lineage(train_lineage=train()), stamp=stamp, host=host, rank=rank)
    put(run, lineage(train_lineage=train()), stamp=9).unlink()
    parts = History(*find_runs(run)).writers()
    assert [part.name for part, _ in parts] == ["run", "run/writer_2"]
    for number, (part, own) in enumerate(parts, start=1):
        expected = {(rank, *stamps[rank, number]) for rank in (0, 1)}
        files = {
            kind: {(each.name.rank, each.name.stamp - STAMP, each.name.host) for each in found}
            for kind in (Kind.SUMMARY, Kind.LINEAGE)
            if (found := [each for each in part.files if each.name.kind is kind])
        }
        alone = {(0, 9, "host")} if number == 1 else set()
        assert files == {Kind.SUMMARY: expected, Kind.LINEAGE: expected | alone}
        assert [(writer.rank, writer.number) for writer, _ in own.files] == [
            (rank, number) for rank in (0, 1)
        ]
        assert own.last_steps == {
            (rank, number): 8 if number == 1 else sizes[rank, number] for rank in (0, 1)
        }


def test_without_a_restart_files_are_decoded_once(tmp_path: Path) -> None:
    put(tmp_path / "run", *losses(range(1, 400)))
    assert calls_of(lambda: History(*find_runs(tmp_path)))["open_binary"] == 1
