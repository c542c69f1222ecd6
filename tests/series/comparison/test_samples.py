"""What says how many examples the runs have seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from rec_summary.errors import ArgumentError
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.comparison.samples import totals_of
from rec_summary.series.report import Report
from tests.support.record_dirs import event, lineage, scalar, train, write_segment


def test_the_first_rank_that_states_it_counts(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1)))
    write_segment(tmp_path, lineage(train_lineage=train(step=2, samples=6)), rank=1)
    assert totals_of(*find_runs(tmp_path), Report()).at([1, 2]).tolist() == [3, 6]


def test_a_run_without_a_batch_size_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)))
    [run] = find_runs(tmp_path)
    with pytest.raises(ArgumentError, match=r"x is invalid.*run has none.*--runs.*take steps"):
        totals_of(run, Report())
