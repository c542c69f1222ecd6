from __future__ import annotations

import itertools
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.batch import SCALAR, Record
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished
from rec_summary.series.sampling import RunSampler, ScalarSampler, m4
from tests.support.record_dirs import event, histo, scalar, write_segment

NUMBERS = st.lists(st.floats(width=32), max_size=400)


def record(step: int, *values: Summary.Value) -> Record:
    return Record("file", 0, 10, 1.0, event(step, *values))


def drained(sampler: RunSampler) -> list[tuple[int, Summary.Value]]:
    return [
        (record.step, recorded.value)
        for batch in sampler.drain()
        for record in batch.records()
        for recorded in record.values
    ]


def thinned(numbers: list[float], max_points: int = 10) -> list[tuple[int, float]]:
    sampler = RunSampler(max_points)
    for step, number in enumerate(numbers):
        sampler.add(record(step, scalar("loss", number)))
    return [(step, value.scalar_value) for step, value in drained(sampler)]


def sampled(folder: Path, *events: Any) -> RunSampler:
    """Returns a sampler that has taken the scalars and histograms of a run from its files."""
    write_segment(folder, *events)
    sampler = RunSampler(1000)
    for _, batch in finished(*find_runs(folder), (SCALAR, "histogram"), EVERYTHING, Report()):
        sampler.add(batch)
    return sampler


def test_a_short_series_is_kept_as_it_is() -> None:
    assert thinned([3.0, 1.0, 2.0]) == [(0, 3.0), (1, 1.0), (2, 2.0)]


def test_a_peak_in_a_million_points_is_kept() -> None:
    numbers = [math.sin(step / 1000) for step in range(100_000)]
    numbers[77_777], numbers[33_333] = 9.0, -9.0
    found = thinned(numbers, 100)
    assert {(77_777, 9.0), (33_333, -9.0)} <= set(found)
    assert 50 <= len(found) <= 100


def test_a_value_that_is_no_number_is_a_peak() -> None:
    numbers = [1.0] * 1000
    numbers[500] = math.nan
    assert [step for step, number in thinned(numbers) if math.isnan(number)] == [500]


@given(NUMBERS, st.integers(10, 40))
def test_extremes_and_ends_are_kept_within_the_limit(numbers: list[float], most: int) -> None:
    found = thinned(numbers, most)
    assert len(found) <= most
    steps = [step for step, _ in found]
    assert steps == sorted(set(steps))
    for step, number in found:
        assert number == numbers[step] or math.isnan(numbers[step])
    if numbers:
        assert {0, len(numbers) - 1} <= set(steps)
        finite = [number for number in numbers if not math.isnan(number)]
        kept = [number for _, number in found]
        if finite:
            assert min(finite) in kept
        if len(finite) == len(numbers):
            assert max(finite) in kept
        else:
            assert any(map(math.isnan, kept)) or math.inf in kept


def test_of_other_kinds_values_at_even_distances_are_kept() -> None:
    sampler = RunSampler(10)
    for step in range(1000):
        sampler.add(record(step, histo("w", [step])))
    steps = [step for step, _ in drained(sampler)]
    assert (steps[0], steps[-1]) == (0, 999)
    assert 5 <= len(steps) <= 10
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 300
    for count in range(1, 40):
        for step in range(count):
            sampler.add(record(step, histo("w", [step])))
        assert len(drained(sampler)) <= min(count, 10)


def test_series_are_thinned_on_their_own_and_come_back_in_order() -> None:
    sampler = RunSampler(10)
    for step in range(100):
        values = [scalar("dense", step)]
        if step % 50 == 0:
            values.append(scalar("rare", step))
        sampler.add(record(step, *values))
    found = [(step, value.tag) for step, value in drained(sampler)]
    assert found == sorted(found, key=lambda each: each[0])
    assert [step for step, tag in found if tag == "rare"] == [0, 50]


def test_what_a_restart_supersedes_is_forgotten() -> None:
    sampler = RunSampler(10)
    for step in [*range(100), *range(50, 60)]:
        if step == 50 and sampler:
            sampler.restart(50, [])
        sampler.add(record(step, scalar("loss", step), histo("w", [step])))
    found = drained(sampler)
    for tag in ("loss", "w"):
        steps = [step for step, value in found if value.tag == tag]
        assert steps == sorted(set(steps))
        assert (steps[0], steps[-1]) == (0, 59)


def test_a_restart_supersedes_all_kinds_but_not_what_came_before_it_was_recognised() -> None:
    sampler = RunSampler(10)
    for step in range(6):
        sampler.add(record(step, scalar("loss", step), histo("w", [step])))
    sampler.restart(3, [record(4, histo("late", [1]))])
    assert sorted((step, value.tag) for step, value in drained(sampler)) == [
        *((step, tag) for step in range(3) for tag in ("loss", "w")),
        (4, "late"),
    ]
    sampler.add(record(5, histo("w", [5])))
    for _ in range(2):
        sampler.restart(2, [])
    sampler.add(record(2, histo("w", [2])))
    assert [(step, value.tag) for step, value in drained(sampler)] == [(2, "w")]


def test_superseded_points_do_not_make_buckets_longer() -> None:
    sampler = ScalarSampler(100)
    steps = np.arange(1000)
    for _ in range(100):
        sampler.extend(steps, steps / 10, np.sin(steps))
        sampler.forget(0)
    sampler.extend(steps, steps / 10, np.sin(steps))
    assert 60 <= len(sampler.points()) <= 100


def test_as_many_points_as_are_kept_at_most_stay_as_they_are() -> None:
    sampler = ScalarSampler(100)
    sampler.extend(np.arange(100), np.arange(100.0), np.zeros(100))
    assert sampler.points()["step"].tolist() == list(range(100))


def test_values_of_all_kinds_come_back_in_the_order_of_their_records(tmp_path: Path) -> None:
    records = (
        event(step, *([histo("w", [step])] if step % 3 else []), scalar("loss", step))
        for step in range(1, 300)
    )
    steps = [step for step, _ in drained(sampled(tmp_path, *records))]
    assert steps == [step for step in range(1, 300) for _ in range(2 if step % 3 else 1)]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(width=32, allow_nan=False)), min_size=1),
)
def test_m4_keeps_the_ends_and_the_extremes_of_each_bucket(points: list[tuple[int, float]]) -> None:
    points.sort(key=lambda point: point[0])
    buckets = np.array([bucket for bucket, _ in points])
    values = np.array([value for _, value in points])
    kept = m4(buckets, values).tolist()
    assert kept == sorted(set(kept))
    for bucket in set(buckets.tolist()):
        here = np.flatnonzero(buckets == bucket).tolist()
        found = [each for each in kept if each in here]
        assert len(found) <= 4
        assert {here[0], here[-1]} <= set(found)
        assert min(values[found]) == min(values[here])
        assert max(values[found]) == max(values[here])


def test_each_bucket_keeps_the_first_least_and_the_last_greatest_value() -> None:
    nan, inf = math.nan, math.inf
    values = np.array([2.0, 9, 1, 1, 9, 3, 5, 5, 5, 5, nan, nan, 0, -inf, 7, inf, 6, nan])
    kept = m4(np.repeat([0, 3, 4, 9], [6, 4, 2, 6]), values)
    assert kept.tolist() == [0, 2, 4, 5, 6, 9, 10, 11, 12, 13, 17]


def test_a_tag_in_records_of_several_layouts_is_one_series_in_the_order_of_its_steps(
    tmp_path: Path,
) -> None:
    records = (
        event(step, scalar("loss", step), *([scalar("seldom", 1)] if step % 10 == 0 else []))
        for step in range(1, 400)
    )
    found: dict[str, list[int]] = {}
    for batch in sampled(tmp_path, *records).drain():
        found.setdefault(batch.scalars().tags[0], []).append(int(batch.steps[0]))
    assert found == {"loss": list(range(1, 400)), "seldom": list(range(10, 400, 10))}


@given(NUMBERS, st.integers(10, 40), st.integers(1, 50))
def test_points_that_come_in_columns_or_one_by_one_are_sampled_alike(
    numbers: list[float], most: int, size: int
) -> None:
    one, many = ScalarSampler(most), ScalarSampler(most)
    steps, values = np.arange(len(numbers)), np.array(numbers, np.float64)
    for start in range(len(numbers)):
        one.extend(steps[start : start + 1], values[start : start + 1], values[start : start + 1])
    for start in range(0, len(numbers), size):
        part = slice(start, start + size)
        many.extend(steps[part], values[part], values[part])
    sampled = [set(sampler.points()["step"].tolist()) for sampler in (one, many)]
    for found in sampled:
        assert len(found) <= most
        if numbers:
            assert {0, len(numbers) - 1} <= found
    if len(numbers) <= most:
        assert sampled[0] == sampled[1] == set(steps.tolist())


def test_points_that_come_one_by_one_take_no_more_memory_than_together() -> None:
    sampler = ScalarSampler(10_000)
    point = np.zeros(1, np.int64), np.zeros(1), np.zeros(1)
    tracemalloc.start()
    try:
        for _ in range(4000):
            sampler.extend(*point)
        assert tracemalloc.get_traced_memory()[0] < 3e5  # 40 bytes each
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_while_a_series_grows() -> None:
    sampler = ScalarSampler(100)
    tracemalloc.start()
    try:
        for start in range(0, 2_000_000, 10_000):
            steps = np.arange(start, start + 10_000)
            sampler.extend(steps, steps / 10, np.sin(steps / 1000))
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert 80 <= len(sampler.points()) <= 100
