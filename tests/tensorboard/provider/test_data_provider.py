"""What TensorBoard is answered: samples, keys of blobs, choices."""

from __future__ import annotations

import base64
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard import errors
from tensorboard.data import provider as interface

from rec_summary.tensorboard.provider.data_provider import KEY_PREFIX, RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from rec_summary.tensorboard.provider.served_run import KEPT_SCALARS, ScalarSeries
from tests.support.boards import blob_key
from tests.support.calls import calls_of
from tests.support.corpus import image
from tests.support.every_kind import every_kind
from tests.support.record_dirs import START, event, histo, scalar, write_segment


def _provider(source: Path) -> RecordDataProvider:
    index = RunIndex(str(source))
    index.poll()
    return RecordDataProvider(index)


def _scalars(provider: Any, most: int | None, **wanted: Any) -> Any:
    return provider.read_scalars(
        experiment_id="",
        plugin_name="scalars",
        downsample=most,
        run_tag_filter=interface.RunTagFilter(**wanted),
    )


@pytest.mark.parametrize("most", [1, 2, 4, 10, 1000, None])
def test_the_extremes_and_the_last_point_are_among_the_sample(
    tmp_path: Path, most: int | None
) -> None:
    values = np.zeros(5000)
    values[1234], values[4321] = -7, 9
    write_segment(
        tmp_path / "run", *(event(step, scalar("loss", v)) for step, v in enumerate(values))
    )
    provider = _provider(tmp_path)
    found = _scalars(provider, most)["run"]["loss"]
    assert len(found) <= (5000 if most is None else most)
    assert found[-1].step == 4999
    steps = [each.step for each in found]
    assert steps == sorted(set(steps))
    if most is None or most >= 4:
        assert {-7, 9} <= {each.value for each in found}
    assert found == _scalars(provider, most)["run"]["loss"]  # the same again


def test_a_smooth_series_has_as_many_points_as_one_that_is_not(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", *(event(step, scalar("loss", step)) for step in range(3000)))
    assert 900 <= len(_scalars(_provider(tmp_path), 1000)["run"]["loss"]) <= 1000


def test_histograms_are_sampled_evenly(tmp_path: Path) -> None:
    weights = histo("w", np.arange(5.0))
    write_segment(tmp_path / "run", *(event(step, weights) for step in range(1001)))
    found = _provider(tmp_path).read_tensors(
        experiment_id="", plugin_name="histograms", downsample=51
    )
    steps = [each.step for each in found["run"]["w"]]
    assert (len(steps), steps[0], steps[-1]) == (51, 0, 1000)
    assert set(np.diff(steps)) == {20}


def test_buckets_of_large_numbers_have_a_width(tmp_path: Path) -> None:
    times = 1.79e9 + np.arange(0, 60, 0.01)
    write_segment(tmp_path / "run", event(1, histo("event_time", times)))
    found = _provider(tmp_path).read_tensors(
        experiment_id="", plugin_name="histograms", downsample=10
    )
    [point] = found["run"]["event_time"]
    left, right, counts = point.numpy.T
    assert (right > left).all()
    assert (left[0], right[-1], counts.sum()) == (times[0], times[-1], times.size)


def test_memory_of_scalars_is_bounded_by_the_points_that_are_kept() -> None:
    tracemalloc.start()
    try:
        series = ScalarSeries()
        for start in range(0, 1_000_000, 50_000):
            steps = np.arange(start, start + 50_000)
            series.extend(steps, steps.astype(float), np.sin(steps))
        before, _ = tracemalloc.get_traced_memory()
        assert before <= 8 * KEPT_SCALARS * 60  # of all, it would be 24 MB
        for step in range(1_000_000, 1_000_600):  # one by one, as they are written
            series.extend(np.array([step]), np.array([0.0]), np.array([0.0]))
        after, _ = tracemalloc.get_traced_memory()
        assert after - before < 1 << 16
    finally:
        tracemalloc.stop()
    assert len(series.points(1000)) <= 1000


def test_scalars_that_begin_one_after_another_are_added_in_columns(tmp_path: Path) -> None:
    """Those whose tag an earlier histogram has get another one, in the order of the records."""
    values = [
        [scalar("loss", step), scalar(f"t{step // 40:02}", step), scalar(f"u{step // 40:02}", step)]
        for step in range(1, 1600)
    ]
    values[900].insert(0, histo("t35", [1.0, 2.0]))
    values[1300].append(histo("t20", [1.0, 2.0]))
    write_segment(tmp_path / "run", *(event(n, *each) for n, each in enumerate(values, start=1)))
    index = RunIndex(str(tmp_path))
    assert calls_of(index.poll).total() < 100 * len(values)  # each by itself takes 400
    found = _scalars(RecordDataProvider(index), None)["run"]
    expected: dict[str, list[float]] = {}
    for each in values:
        for value in each:
            if value.HasField("scalar_value"):
                tag = "t35/scalars" if value.tag == "t35" else value.tag
                expected.setdefault(tag, []).append(value.scalar_value)
    assert {tag: [point.value for point in points] for tag, points in found.items()} == expected


def test_only_the_runs_and_tags_that_are_asked_for(tmp_path: Path) -> None:
    for run in ("a", "b"):
        write_segment(tmp_path / run, event(1, scalar("x", 1), scalar("y", 2)))
    provider = _provider(tmp_path)
    assert set(_scalars(provider, 9, runs=["a"])) == {"a"}
    assert set(_scalars(provider, 9, runs=["a"], tags=["y"])["a"]) == {"y"}
    assert _scalars(provider, 9, runs=["../a"]) == {}
    last = provider.read_last_scalars(experiment_id="", plugin_name="scalars")
    assert last["b"]["y"].value == 2
    assert provider.list_tensors(experiment_id="", plugin_name="scalars") == {}
    assert provider.list_scalars(experiment_id="", plugin_name="audio") == {}


def test_keys_name_a_series_and_a_step_and_no_file(tmp_path: Path) -> None:
    every_kind(tmp_path / "run", landscapes=False)
    (tmp_path / "secret").write_text("secret")
    provider = _provider(tmp_path)
    found = provider.read_blob_sequences(experiment_id="", plugin_name="images", downsample=10)
    [datum] = found["run"]["picture"]
    width, height, image = (provider.read_blob(blob_key=each.blob_key) for each in datum.values)
    assert (width, height, image[:4]) == (b"4", b"4", b"\x89PNG")
    for each in datum.values:
        assert set(each.blob_key) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
        )
    missing = [
        blob_key("run", "images", "picture", 1, 3),
        blob_key("run", "images", "picture", 1, -1),
        blob_key("run", "images", "picture", 2, 2),
        blob_key("run", "images", "../secret", 1, 2),
        blob_key("../secret", "images", "picture", 1, 2),
        blob_key(str(tmp_path / "secret"), "images", "picture", 1, 2),
        blob_key("run", "scalars", "loss", 1, 0),
        blob_key("run", "text", "lineage", 0, 0),
    ]
    for key in missing:
        with pytest.raises(errors.NotFoundError):
            provider.read_blob(blob_key=key)
    invalid = [
        *("", KEY_PREFIX, "x", "é", "A" * 100_000, str(tmp_path / "secret")),
        blob_key("run", "images", "picture", 1),
        blob_key("run", "images", "picture", 1 << 64, 2),
        blob_key("run", "images", "picture", None, 2),
        blob_key(["run"], "images", "picture", 1, 2),
        KEY_PREFIX + base64.urlsafe_b64encode(b"[" * 50_000).decode(),
    ]
    for key in invalid:
        with pytest.raises(errors.InvalidArgumentError):
            provider.read_blob(blob_key=key)


@pytest.mark.parametrize("step", [-(1 << 63), (1 << 63) - 1])
def test_an_image_may_be_of_any_step(tmp_path: Path, step: int) -> None:
    write_segment(tmp_path / "run", event(step, image("picture"), at=START))
    provider = _provider(tmp_path)
    found = provider.read_blob_sequences(experiment_id="", plugin_name="images", downsample=10)
    [datum] = found["run"]["picture"]
    assert provider.read_blob(blob_key=datum.values[2].blob_key)[:4] == b"\x89PNG"


def test_records_that_change_behind_a_reference_are_left_out(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "run", event(1, histo("w", np.arange(5.0))))
    provider = _provider(tmp_path)
    data = path.read_bytes()
    for hostile in (b"", data[:-3], b"\xff" * len(data), data[:40] + b"\0" * (len(data) - 40)):
        path.write_bytes(hostile)
        found = provider.read_tensors(experiment_id="", plugin_name="histograms", downsample=9)
        assert found == {"run": {"w": []}}


def test_a_password_in_the_source_is_not_shown() -> None:
    index = RunIndex("s3://KEY:hunter2@bucket/x")
    provider = RecordDataProvider(index)
    shown = provider.experiment_metadata(experiment_id="").data_location + str(provider)
    assert "hunter2" not in shown
