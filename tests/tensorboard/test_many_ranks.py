"""Runs of many ranks: what they have in common, in event files and without an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rec_summary import load
from rec_summary.cli import cli
from rec_summary.errors import ArgumentError
from rec_summary.series.options import ExportOptions
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support import event_files
from tests.support.boards import Pages, record_pages
from tests.support.corpus import put
from tests.support.many_ranks import SLOW, STALL, events, many_ranks, value

RANKS = (*range(10), SLOW)
STEPS = range(5, 105, 5)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for rank in RANKS:
        put(folder / "job", *events(rank, STEPS), rank=rank)
    return folder


def expected(statistic: Any) -> list[tuple[int, float]]:
    """Returns a statistic of the input stall of all ranks, for each step."""
    found = []
    for step in STEPS:
        column = np.array([value(rank, step, STALL) for rank in RANKS], np.float32)
        found.append((step, float(np.float32(statistic(column)))))
    return found


def test_the_run_has_what_its_ranks_have_in_common_and_one_rank_is_shown(
    records: Path, tmp_path: Path
) -> None:
    report = export_tensorboard(records, tmp_path)
    assert set(report.runs) == {"job", "job/rank_0"}
    assert report.left_out == len(STEPS) * 3 * (len(RANKS) - 1)
    assert report.notes == [
        "run job: only some of its 11 ranks are shown separately; --ranks chooses them"
    ]
    for name, statistic in (("min", np.min), ("median", np.median), ("max", np.max)):
        shown = event_files.scalars(tmp_path / "job", f"ranks/input_stall/{name}")
        assert shown == expected(statistic)
    slowest = event_files.scalars(tmp_path / "job", "ranks/input_stall/max_rank")
    assert slowest == [(step, SLOW) for step in STEPS]
    counts = event_files.scalars(tmp_path / "job", "ranks/loss/count")
    assert counts == [(step, len(RANKS)) for step in STEPS]
    again = export_tensorboard(records, tmp_path)
    assert (again.runs, again.bytes_written) == ([], 0)


def test_ranks_that_are_asked_for_are_shown_one_by_one(records: Path, tmp_path: Path) -> None:
    export_tensorboard(records, tmp_path)
    report = export_tensorboard(records, tmp_path, ranks=f"3, 8-{SLOW}")
    shown = {"job", "job/rank_3", "job/rank_8", "job/rank_9", f"job/rank_{SLOW}"}
    assert set(report.runs) == shown
    assert not (tmp_path / "job" / "rank_0").exists()
    every = export_tensorboard(records, tmp_path, ranks="all")
    assert len(every.runs) == 1 + len(RANKS)
    assert every.left_out == 0


def test_an_export_in_parts_has_the_same_points(tmp_path: Path) -> None:
    whole = {rank: events(rank, STEPS) for rank in RANKS}
    for rank in RANKS:
        put(tmp_path / "records" / "job", *whole[rank][: 3 + rank % 4], rank=rank)
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    many = event_files.scalars(tmp_path / "logs" / "job", "ranks/loss/max")
    assert [step for step, _ in many] == list(STEPS[:3])  # as far as all ranks are
    for rank in RANKS:
        put(tmp_path / "records" / "job", *whole[rank], rank=rank)
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    export_tensorboard(tmp_path / "records", tmp_path / "at_once")
    for measure in ("loss", "input_stall", "gradient_norm", "step_time"):
        for name in ("min", "median", "max", "max_rank", "count"):
            tag = f"ranks/{measure}/{name}"
            found = event_files.scalars(tmp_path / "logs" / "job", tag)
            assert found == event_files.scalars(tmp_path / "at_once" / "job", tag), tag
            assert found


def test_the_pages_without_an_export_show_the_same(records: Path) -> None:
    _, pages = record_pages(records)
    assert pages.get("runs") == ["job", "job/rank_0"]
    assert pages.steps("job", "ranks/input_stall/max_rank") == list(STEPS)
    layout = json.dumps(pages.get("plugin/custom_scalars/layout"))
    assert '"value": "ranks/input_stall/median"' in layout
    assert pages.get("plugin/images/tags") == pages.get("plugin/text/tags") == {}


def test_sub_runs_go_when_a_ninth_rank_comes(tmp_path: Path) -> None:
    many_ranks(tmp_path / "job", 8, STEPS)
    index, pages = record_pages(tmp_path)
    assert sorted(pages.get("runs")) == ["job", *(f"job/rank_{rank}" for rank in range(8))]
    put(tmp_path / "job", *events(8, STEPS), rank=8)
    index.poll()
    assert sorted(pages.get("runs")) == ["job", "job/rank_0"]
    assert pages.steps("job", "ranks/loss/count") == list(STEPS)


def test_the_pages_show_ranks_that_are_asked_for(records: Path) -> None:
    index = RunIndex(str(records), ranks="7")
    index.poll()
    pages = Pages(RecordDataProvider(index), records)
    assert sorted(pages.get("runs")) == ["job", "job/rank_7"]
    assert pages.steps("job/rank_7", "loss") == list(STEPS)


@pytest.mark.parametrize("ranks", ["", "a", "3-", "7-3", "-1", "1,,2", "9999999999"])
def test_ranks_that_are_none_are_refused(ranks: str) -> None:
    with pytest.raises(ArgumentError, match="ranks"):
        ExportOptions(ranks=ranks)


def output(*arguments: object) -> str:
    return CliRunner().invoke(cli, [str(each) for each in arguments]).stdout


def test_tables_and_the_terminal_have_the_ranks_that_are_asked_for(records: Path) -> None:
    table = load(records, ranks="3,7").scalars()
    assert sorted(table["rank"].unique()) == [3, 7]
    assert len(table) == 2 * 3 * len(STEPS)
    lines = output("tail", records, "--once", "--tags", ".").splitlines()
    assert lines
    assert all(line.startswith("job  ") for line in lines)  # of the first rank
    lines = output("tail", records, "--once", "--ranks", "3").splitlines()
    assert [line for line in lines if line.startswith("job rank 3  loss ")]
    inspected = output("inspect", records, "--json", "--ranks", "3")
    assert json.loads(inspected)["runs"][0]["tags"][0]["values"] == len(STEPS)
    assert "0–9, 137" in output("inspect", records)


def test_the_terminal_says_where_each_rank_is_and_how_long_it_waits_for_data(
    tmp_path: Path,
) -> None:
    for rank, steps in ((0, range(1, 400)), (1, range(1, 20)), (SLOW, range(1, 400))):
        put(tmp_path / "job", *events(rank, steps), rank=rank)
    asked = ("--once", "--ranks", "all", "--tags", "input_stall", "--json")
    last = [json.loads(line) for line in output("tail", tmp_path, *asked).splitlines()]
    found = {each["rank"]: (each["step"], each["value"]) for each in last}
    assert found == {
        rank: (step, value(rank, step, STALL)) for rank, step in ((0, 399), (1, 19), (SLOW, 399))
    }
