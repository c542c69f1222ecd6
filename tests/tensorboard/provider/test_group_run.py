"""Groups of runs in TensorBoard, and examples in the place of steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from tests.support.boards import Pages, record_pages
from tests.support.record_dirs import START, custom, event, histo, lineage, scalar, write_segment
from tests.support.record_dirs import train as described


def write(
    directory: Path, seed: int, steps: tuple[int, ...], group: str = "", batch: int = 64
) -> None:
    train = described(status=1, step=1, batch_size=batch)
    entries = {"seed": seed} | ({"group": group} if group else {})
    values = (event(step, scalar("loss", seed * step), histo("w", [1.0])) for step in steps)
    write_segment(
        directory,
        lineage(START, train_lineage=train),
        lineage(START, user_defined_info=custom(entries)),
        *values,
    )


def points(pages: Pages, run: str, tag: str = "loss") -> Any:
    answer = pages.get("plugin/scalars/scalars", run=run, tag=tag)
    return None if answer is None else {step: value for _, step, value in answer}


def test_the_mean_of_a_group_is_a_run_with_the_tags_of_its_members(tmp_path: Path) -> None:
    write(tmp_path / "one", 1, (1, 3, 5), "a")
    write(tmp_path / "two", 3, (2, 4), "a")
    write(tmp_path / "alone", 1, (1,), "b")
    _, pages = record_pages(tmp_path)
    names = [f"group/a/{each}" for each in ("max", "mean", "min")]
    assert sorted(pages.get("runs")) == ["alone", *names, "one", "two"]
    assert points(pages, "group/a/mean") == {1: 1, 2: 4, 3: 6, 4: 8, 5: 5}
    assert points(pages, "group/a/max") == {1: 1, 2: 6, 3: 9, 4: 12, 5: 5}
    assert points(pages, "group/a/min") == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    tags = pages.get("plugin/scalars/tags")
    assert set(tags["group/a/mean"]) == {"loss"}
    assert len(pages.sessions()) == 3  # a group is no session


def test_groups_by_a_hyper_parameter_follow_their_members(tmp_path: Path) -> None:
    write(tmp_path / "one", 1, (1, 2))
    index, pages = record_pages(tmp_path, group_by="seed")
    assert pages.get("runs") == ["one"]
    write(tmp_path / "two", 3, (1, 2))
    index.poll()
    assert points(pages, "group/all/mean") == {1: 2, 2: 4}
    write(tmp_path / "three", 5, (1,))
    index.poll()
    assert points(pages, "group/all/mean") == {1: 3, 2: 4}
    shutil.rmtree(tmp_path / "three")
    shutil.rmtree(tmp_path / "two")
    index.poll()
    assert pages.get("runs") == ["one"]


def test_groups_with_long_names_stay_apart(tmp_path: Path) -> None:
    for number, end in enumerate("aabb"):
        write(tmp_path / str(number), 1, (number,), "x" * 5000 + "/../\n" + end)
    _, pages = record_pages(tmp_path)
    means = sorted(name for name in pages.get("runs") if "/mean" in name)
    assert [len(name) for name in means] == [len("group//mean") + 200, len("group//mean_") + 200]
    assert [len(points(pages, name)) for name in means] == [2, 2]


def test_a_recorded_run_keeps_its_name(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 3), ("group/a/mean", 5)):
        write(tmp_path / name, seed, (1,), "a")
    _, pages = record_pages(tmp_path)
    assert points(pages, "group/a/mean") == {1: 5}
    assert points(pages, "group/a/mean_") == {1: 3}


def test_long_members_are_sampled_and_what_is_not_finite_is_left_out(tmp_path: Path) -> None:
    for name, last in (("one", np.nan), ("two", 1.0)):
        values = [event(step, scalar("loss", 1.0)) for step in range(1, 3000)]
        entries = lineage(user_defined_info=custom({"group": "a"}))
        write_segment(tmp_path / name, entries, *values, event(3000, scalar("loss", last)))
    _, pages = record_pages(tmp_path)
    found = points(pages, "group/a/mean")
    assert set(found.values()) == {1}
    assert max(found) == 3000


def test_a_group_without_a_finite_value_is_nan(tmp_path: Path) -> None:
    for name in ("one", "two"):
        entries = lineage(user_defined_info=custom({"group": "a"}))
        write_segment(tmp_path / name, entries, event(1, scalar("loss", np.nan)))
    index, pages = record_pages(tmp_path)
    assert points(pages, "group/a/mean") == {1: "NaN"}
    last = RecordDataProvider(index).read_last_scalars(experiment_id="", plugin_name="scalars")
    assert np.isnan(last["group/a/min"]["loss"].value)


def test_series_are_shown_over_examples(tmp_path: Path) -> None:
    write(tmp_path / "small", 1, (1, 4), batch=10)
    write(tmp_path / "large", 1, (1, 4), batch=20)
    _, pages = record_pages(tmp_path, x="samples")
    assert pages.steps("small", "loss") == [10, 40]
    assert pages.steps("large", "loss") == [20, 80]
    shown = pages.get("plugin/histograms/histograms", run="large", tag="w")
    assert [step for _, step, _ in shown] == [20, 80]


def test_groups_are_aligned_by_examples(tmp_path: Path) -> None:
    write(tmp_path / "small", 1, (2, 4), "a", batch=10)
    write(tmp_path / "large", 2, (1, 2), "a", batch=20)
    _, pages = record_pages(tmp_path, x="samples")
    assert points(pages, "group/a/mean") == {20: 2, 40: 4}


def test_another_rank_states_the_examples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = lineage(START, train_lineage=described(status=1, step=1, batch_size=10))
    write_segment(tmp_path / "run", event(4, scalar("loss", 1)), rank=0)
    write_segment(tmp_path / "run", train, event(4, scalar("loss", 1)), rank=1)
    index, _ = record_pages(tmp_path, x="samples")
    index.poll()
    assert {int(run.shown(4)) for run in index.served()} == {40}
    assert not caplog.records


def test_a_run_without_a_batch_size_is_not_shown_over_examples_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "known", 1, (1,), batch=10)
    write_segment(tmp_path / "unknown", event(1, scalar("loss", 1)))
    index, pages = record_pages(tmp_path, x="samples")
    index.poll()
    assert pages.get("runs") == ["known"]
    [message] = [each.getMessage() for each in caplog.records]
    assert "\n" not in message
    assert "unknown has none" in message
    assert "take steps" in message
