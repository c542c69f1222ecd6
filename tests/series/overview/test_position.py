"""Where a rank is, read from the end of its newest file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rec_summary.records.reading.runs import find_runs
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.overview.position import Position, positions
from tests.support.record_dirs import START, event, scalar, summary_name, write_payloads


def write(directory: Path, steps: list[tuple[int, float]], rank: int = 0) -> None:
    writer = RunWriter(directory, rank)
    for step, at in steps:
        writer.write(MessageRecord(event(step, scalar("loss", 1.0), at=START + at)))
    writer.close()


def test_each_rank_is_where_its_last_record_is(tmp_path: Path) -> None:
    write(tmp_path, [(10, 0.0), (20, 5.0), (30, 10.0)])
    write(tmp_path, [(40, 1.0)], rank=1)
    write(tmp_path, [], rank=2)
    found = positions(*find_runs(tmp_path))
    assert found == {0: Position(30, START + 10, 2.0), 1: Position(40, START + 1, 0.0)}
    assert found[0].step_at(START + 14.9) == 39
    assert found[0].step_at(START) == 30


def test_of_a_restart_only_what_follows_counts(tmp_path: Path) -> None:
    write(tmp_path, [(900, 0.0), (1000, 1.0), (10, 50.0), (20, 60.0)])
    assert positions(*find_runs(tmp_path))[0] == Position(20, START + 60, 1.0)


def test_of_a_large_file_only_the_end_is_read(tmp_path: Path) -> None:
    # The first half of the steps took four times as long.
    times = [max(step, 4 * step - 30_000) / 4 for step in range(-20_000, 20_000)]
    write(tmp_path, [(20_000 + step, at) for step, at in enumerate(times)])
    assert positions(*find_runs(tmp_path))[0].rate == pytest.approx(1.0)


@pytest.mark.parametrize("times", [(0.0, 5e-324), (-1e308, 1e308), (-1e300, -1e300 + 1e285)])
def test_times_that_cannot_be_true_give_no_estimate(
    tmp_path: Path, times: tuple[float, float]
) -> None:
    steps = (event(step, scalar("a", 1), at=at) for step, at in zip((1, 50), times, strict=True))
    write_payloads(tmp_path / summary_name(), *(each.SerializeToString() for each in steps))
    position = positions(*find_runs(tmp_path))[0]
    assert math.isfinite(position.rate)
    assert position.step_at(START) >= 50


def test_a_rate_that_leads_beyond_all_numbers_gives_no_estimate() -> None:
    assert Position(50, 0.0, 1e305).step_at(START) == 50
