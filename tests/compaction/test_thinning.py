"""Which values stay."""

from __future__ import annotations

import collections
import itertools
import math
import struct
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event
from rec_summary.compaction.thinning import Limits, Thinner, extremes
from rec_summary.metrics.slices.sums import FIELDS
from rec_summary.series.batch import Record
from rec_summary.values.slice_sums import SlicedSums, decode_sums, encode_interval
from tests.support.record_dirs import event, histo, scalar

NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)


def record(message: Any) -> Record:
    return Record("", 0, message.ByteSize(), message.wall_time, message)


def thinned(messages: list[Any], width: int) -> list[Event]:
    thinner = Thinner()
    found = [each for message in messages for each in thinner.add(record(message), width)]
    return [Event.FromString(each) for each in (*found, *thinner.flush())]


def scalars(messages: list[Any]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for message in messages:
        for value in message.summary.value:
            if value.WhichOneof("value") == "scalar_value":
                found.setdefault(value.tag, {})[message.step] = value.scalar_value
    return found


@given(st.lists(st.tuples(st.integers(0, 5), NUMBERS), min_size=1, max_size=60))
@example([(0, 1.0), (0, math.inf), (0, 3.0), (0, -math.inf), (0, 0.0), (0, math.nan), (0, 2.0)])
def test_the_extremes_of_each_bucket_stay(points: list[tuple[int, float]]) -> None:
    points.sort(key=lambda point: point[0])
    buckets = np.array([bucket for bucket, _ in points])
    values = np.array([value for _, value in points], np.float64)
    kept = extremes(buckets, values).tolist()
    assert kept == sorted(set(kept))
    for _, group in itertools.groupby(range(len(points)), key=lambda i: points[i][0]):
        numbers = list(group)
        chosen = [values[number] for number in numbers if number in kept]
        assert numbers[0] in kept
        assert numbers[-1] in kept
        finite = [values[number] for number in numbers if math.isfinite(values[number])]
        if finite:
            assert min(finite) in chosen
            assert max(finite) in chosen
        for special in (math.inf, -math.inf):
            assert (special in chosen) == (special in [values[number] for number in numbers])
        assert any(map(math.isnan, chosen)) == any(math.isnan(values[n]) for n in numbers)
        assert len(chosen) <= 7


@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from("ab"), NUMBERS), max_size=80),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_thinning_twice_is_thinning_once(
    points: list[tuple[int, str, float]], tier: int, more: int
) -> None:
    step, messages = 0, []
    for gap, tag, value in points:
        step += gap
        messages.append(event(step, scalar(tag, value), histo(tag, [value])))
    twice = thinned(thinned(messages, 10**tier), 10 ** (tier + more))
    once = thinned(messages, 10 ** (tier + more))
    first, second = ([each.SerializeToString() for each in kept] for kept in (once, twice))
    assert first == second


def test_nothing_is_lost_in_buckets_of_one_step() -> None:
    messages = [event(step, scalar("loss", step / 3), scalar("auc", 1)) for step in range(1, 50)]
    assert scalars(thinned(messages, 1)) == scalars(messages)


def tags_of(kept: list[Event]) -> list[tuple[int, list[str]]]:
    """Returns the steps of records, and the tags in each."""
    return [(each.step, [value.tag for value in each.summary.value]) for each in kept]


def test_values_of_one_record_share_a_record() -> None:
    messages = [event(step, scalar("a", 1.0), scalar("b", 2.0)) for step in range(64)]
    assert tags_of(thinned(messages, 100)) == [(0, ["a", "b"]), (63, ["a", "b"])]
    messages = [event(step, histo("w", [step]), scalar("loss", 1.0)) for step in (1, 2)]
    assert tags_of(thinned(messages, 1)) == [(1, ["loss", "w"]), (2, ["loss", "w"])]


def test_what_waits_is_bounded() -> None:
    scalars_, histograms = Limits(points=1), Limits(nbytes=1)
    for limits, value in ((scalars_, scalar("loss", 1.0)), (histograms, histo("w", [1]))):
        thinner = Thinner(limits)
        messages = (record(event(step, value)) for step in range(1, 4))
        assert [len(list(thinner.add(message, 1))) for message in messages] == [0, 1, 1]


def test_numbers_keep_their_bits_and_times() -> None:
    number = struct.unpack("<f", b"\x01\x00\x00\x00")[0]  # the least above zero
    [kept] = thinned([event(-7, scalar("é", number), at=1.25)], 10)
    assert (kept.step, kept.wall_time) == (-7, 1.25)
    assert kept.summary.value[0].tag == "é"
    assert kept.summary.value[0].scalar_value == number


def test_of_histograms_the_first_one_of_each_wider_bucket_stays() -> None:
    messages = [event(step, histo("w", [1.0, step])) for step in range(50, 6400, 100)]
    assert [each.step for each in thinned(messages, 10)] == [50, *range(1050, 6400, 1000)]
    assert len(thinned(messages, 1)) == len(messages)


def test_evaluations_and_landscapes_stay() -> None:
    landscape = Event.FromString(event(0).SerializeToString())
    landscape.summary.value.add(tag="landscape").loss_landscape.metadata.unit = "step"
    messages: list[Any] = [event(step, scalar("eval/auc", 0.5)) for step in range(1, 40)]
    kept = thinned([*messages, landscape, landscape], 10**6)
    assert len(kept) == 41


def part(column: str, value: str, cells: Any = None, weights: Any = None) -> SlicedSums:
    """Returns sums of a single slice, all of them 1."""
    return SlicedSums("", column, False, [value], np.ones((1, len(FIELDS))), cells, weights)


def add_sums(message: Event, tag: str, sums: SlicedSums, before: int = 0) -> None:
    """Adds sums to a record."""
    message.summary.value.add().ParseFromString(encode_interval(tag, before, [sums]))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40, unique=True).map(sorted))
def test_sums_by_slice_are_added_up(steps: list[int]) -> None:
    messages = []
    for before, step in itertools.pairwise([0, *steps]):
        message = event(step, scalar("loss", 1.0))
        add_sums(message, "sums", part("country", f"v{step % 3}"), before)
        messages.append(message)
    kept = [
        (message.step, value.slice_sums)
        for message in thinned(messages, 10)
        for value in message.summary.value
        if value.WhichOneof("value") == "slice_sums"
    ]
    # Of each hundred steps, one record stays, with those of all.
    assert [step for step, _ in kept] == [
        max(each) for _, each in itertools.groupby(steps, lambda step: step // 100)
    ]
    assert [sums.after for _, sums in kept] == [0, *(step for step, _ in kept[:-1])]
    examples: collections.Counter[str] = collections.Counter()
    for _, sums in kept:
        (column,) = decode_sums(sums)
        examples.update(dict(zip(column.values, column.sums[:, 0].tolist(), strict=True)))
    assert examples == collections.Counter(f"v{step % 3}" for step in steps)


def test_sums_and_orders_of_a_bucket_share_a_record() -> None:
    messages = [event(step) for step in (10, 20, 30, 110)]
    for message in messages:
        add_sums(message, "sums", part("", ""))
    for detailed in (messages[0], messages[-1]):
        add_sums(detailed, "sums/orders", part("", "", np.array([3]), np.ones(1)))
    kept = thinned(messages, 10)
    assert tags_of(kept) == [(step, ["sums", "sums/orders"]) for step in (30, 110)]


def test_damaged_sums_stay() -> None:
    messages = [event(step) for step in (1, 2)]
    for message in messages:
        value = message.summary.value.add(tag="sums")
        value.slice_sums.columns.add(values=["a", "a"])
    assert len(thinned(messages, 10)) == 2
