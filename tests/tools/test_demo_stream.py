"""The demo's stream: encoded columns, endless full batches, and the synthetic clicks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.click_demo import features, synthetic
from tools.click_demo.features import GENRE_SLOTS, Batch, Impressions, encode
from tools.click_demo.serving import TaskEncoder
from tools.click_demo.stream import ClickStream, plain

VOCABULARY = synthetic.VOCABULARY
MONDAY = 4 * 86_400  # 1970-01-05
NAMES = [field.name for field in dataclasses.fields(Impressions)]


def take(chunks: int, seed: int = 1) -> Impressions:
    """Returns the beginning of the synthetic stream as one piece."""
    return window(range(chunks), seed)


def window(chunks: range, seed: int = 1) -> Impressions:
    """Returns some successive chunks of the synthetic stream as one piece."""
    parts = list(itertools.islice(synthetic.impressions(seed), chunks.start, chunks.stop))
    return Impressions(**{n: np.concatenate([getattr(part, n) for part in parts]) for n in NAMES})


def rows_of(impressions: Impressions, rows: slice) -> Impressions:
    return Impressions(**{name: getattr(impressions, name)[rows] for name in NAMES})


def assert_same(left: Batch, right: Batch, but: Collection[str] = ()) -> None:
    for name, mine, yours in zip(get_type_hints(type(left)), left, right, strict=True):
        if name not in but:
            np.testing.assert_array_equal(mine, yours)


def auc(score: npt.NDArray[np.float64], label: npt.NDArray[np.bool_]) -> float:
    """Mann and Whitney's: how often a clicked row scores above one that is not; ties at random."""
    order = np.random.default_rng(0).permutation(len(score))
    score, label = score[order], label[order]
    rank = score.argsort(kind="stable").argsort() + 1
    clicks = label.sum()
    return float((rank[label].sum() - clicks * (clicks + 1) / 2) / (clicks * (~label).sum()))


SAMPLE = take(1)


def test_columns_have_their_shapes_types_and_ranges() -> None:
    batch = encode(take(1), VOCABULARY)
    rows, contexts = len(batch.click), sum(VOCABULARY.context_sizes)
    types = [column.dtype.name for column in batch]
    assert types == ["int32", "int32", "int32", "float32", "int32", "float32"]
    assert batch.context.shape == (rows, 5)
    assert batch.genres.shape == (rows, VOCABULARY.genres)
    assert batch.crosses.shape == (rows, GENRE_SLOTS + 2)
    assert 0 <= batch.context.min() <= batch.context.max() < contexts
    assert 0 <= batch.crosses.min() <= batch.crosses.max() < features.CROSS_BUCKETS
    assert set(batch.click.tolist()) == {0.0, 1.0}


def test_context_fields_never_share_a_row_of_the_table() -> None:
    fields = encode(take(20), VOCABULARY).context.T
    seen = [set(field.tolist()) for field in fields]
    assert sum(map(len, seen)) == len(set().union(*seen))


@pytest.mark.parametrize(
    ("seconds", "hour", "weekday"),
    [(0, 0, 3), (MONDAY, 0, 0), (MONDAY - 1, 23, 6), (881250949, 15, 3)],
)
def test_hour_and_weekday_are_those_of_utc(seconds: int, hour: int, weekday: int) -> None:
    one = dataclasses.replace(rows_of(take(1), slice(1)), seconds=np.array([seconds]))
    *_, hours_at, weekdays_at = np.cumsum((0, *VOCABULARY.context_sizes[:-1]))
    times = encode(one, VOCABULARY).context[0, 3:].tolist()
    assert times == [hours_at + hour, weekdays_at + weekday]


def test_crosses_of_missing_genres_are_bucket_zero_and_others_are_not() -> None:
    impressions = take(1)
    crosses = encode(impressions, VOCABULARY).crosses
    genres = impressions.genres.sum(axis=1)
    np.testing.assert_array_equal((crosses[:, :GENRE_SLOTS] > 0).sum(axis=1), genres)
    assert (crosses[:, GENRE_SLOTS:] > 0).all()


def test_crosses_spread_over_the_buckets() -> None:
    user, genre = map(np.ravel, np.meshgrid(np.arange(1000), np.arange(18), indexing="ij"))
    one = rows_of(take(1), slice(1))
    many = {name: np.repeat(getattr(one, name), len(user), axis=0) for name in NAMES}
    many |= {"user": user, "genres": np.eye(18, dtype=bool)[genre]}
    buckets = encode(Impressions(**many), VOCABULARY).crosses[:, 0]
    # 18,000 pairs thrown at random into 65,535 buckets would fill 15,739 of them.
    assert len(np.unique(buckets)) == pytest.approx(15_739, rel=0.02)


def test_the_stream_has_no_length() -> None:
    stream = ClickStream(lambda: synthetic.impressions(1), VOCABULARY, 16)
    assert not hasattr(stream, "__len__")
    assert not hasattr(stream, "__getitem__")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 64))
def test_batches_are_full_and_lose_no_row(sizes: list[int], batch_size: int) -> None:
    whole = rows_of(SAMPLE, slice(sum(sizes)))
    ends = list(itertools.accumulate(sizes))
    pieces = [rows_of(whole, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    batches = list(ClickStream(lambda: iter(pieces), VOCABULARY, batch_size))
    assert [len(batch.click) for batch in batches] == [batch_size] * (sum(sizes) // batch_size)
    expected = encode(whole, VOCABULARY)
    for number, batch in enumerate(batches):
        start = number * batch_size
        assert_same(batch, expected.rows(start, start + batch_size))


def test_a_repeated_table_streams_on_in_order_over_its_end() -> None:
    table = rows_of(SAMPLE, slice(10))
    batches = iter(ClickStream(lambda: itertools.repeat(table), VOCABULARY, 4))
    users = np.concatenate([batch.user for batch in itertools.islice(batches, 25)])
    np.testing.assert_array_equal(users, np.tile(table.user, 10))


def test_each_iteration_starts_the_stream_again() -> None:
    stream = ClickStream(lambda: synthetic.impressions(5), VOCABULARY, 16)
    first, second = (list(itertools.islice(stream, 200)) for _ in range(2))
    for left, right in zip(first, second, strict=True):
        assert_same(left, right)


def test_synthetic_clicks_follow_the_seed() -> None:
    one, same, other = take(2, seed=1), take(2, seed=1), take(2, seed=2)
    np.testing.assert_array_equal(one.clicked, same.clicked)
    assert (one.user != other.user).any()


def test_synthetic_time_never_goes_back() -> None:
    assert (np.diff(take(5).seconds) >= 0).all()


@pytest.mark.parametrize("column", ["user", "item"])
def test_synthetic_traffic_is_zipfs(column: str) -> None:
    counts = np.sort(np.bincount(getattr(take(50), column)))[::-1]
    ranks = np.arange(1, 101)
    slope = np.polyfit(np.log(ranks), np.log(counts[:100]), 1)[0]
    assert slope == pytest.approx(-0.9, abs=0.1)


def test_synthetic_clicks_can_be_learned() -> None:
    """Click rates of films and of people's genres, counted early, rank what comes next."""
    impressions = take(40)
    half = len(impressions.clicked) // 2
    early, late = rows_of(impressions, slice(half)), rows_of(impressions, slice(half, None))
    item = _rates(early.item[:, None] == np.arange(VOCABULARY.items), early.clicked)
    score = item[late.item] + (_genre_rates(early)[late.user] * late.genres).sum(axis=1)
    assert auc(score, late.clicked) > 0.65


def test_synthetic_tastes_drift() -> None:
    """What was counted long ago tells less than what was counted just now."""
    windows = [window(chunks) for chunks in (range(60), range(60, 120), range(240, 300))]
    busiest = np.bincount(windows[0].user).argsort()[-60:]
    old, recent, late = (_genre_rates(window)[busiest].ravel() for window in windows)
    near, far = np.corrcoef(old, recent)[0, 1], np.corrcoef(old, late)[0, 1]
    assert near > 0.3
    assert far < near - 0.2


def _rates(
    member: npt.NDArray[np.bool_], clicked: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    shown, clicks = member.sum(axis=0), (member & clicked[:, None]).sum(axis=0)
    return (clicks + 1) / (shown + 2)


def _genre_rates(impressions: Impressions) -> npt.NDArray[np.float64]:
    """Returns each person's click rate by genre, less the mean; [users, genres]."""
    clicks, shown = np.zeros((2, VOCABULARY.users, VOCABULARY.genres))
    np.add.at(shown, impressions.user, impressions.genres)
    np.add.at(clicks, impressions.user, impressions.genres & impressions.clicked[:, None])
    return (clicks + 2) / (shown + 4) - 0.5


@pytest.mark.parametrize(
    ("encoder", "labels"), [(plain, ["click"]), (TaskEncoder, ["click", "loved"])]
)
def test_labels_are_broken_from_a_step_on(encoder: Any, labels: list[str]) -> None:
    made = (lambda: synthetic.impressions(1), VOCABULARY, 500, encoder)
    sound, broken = ClickStream(*made), ClickStream(*made, broken_from=4)
    pairs = [*itertools.islice(zip(sound, broken, strict=True), 6)]
    for label in labels:
        both = [(getattr(mine, label), getattr(yours, label)) for mine, yours in pairs]
        flipped = [float((mine != yours).mean()) for mine, yours in both]
        assert flipped[:3] == [0, 0, 0]
        assert all(0.4 < share < 0.6 for share in flipped[3:])
        assert all(yours.dtype == mine.dtype for mine, yours in both)
    for mine, yours in pairs:
        assert_same(mine, yours, labels)


@pytest.mark.parametrize("broken", ["slice", "lost", "feature"])
def test_a_part_of_the_examples_is_broken(broken: str) -> None:
    made = (lambda: synthetic.impressions(1), VOCABULARY, 500, TaskEncoder)
    streams = ClickStream(*made), ClickStream(*made, broken_from=4, broken=broken)
    pairs = [*itertools.islice(zip(*streams, strict=True), 20)]
    for mine, yours in pairs[:3]:
        assert_same(mine, yours, [])
    mine, yours = (
        {name: np.concatenate([getattr(pair[side], name) for pair in pairs[3:]])
         for name in features.TaskBatch._fields}
        for side in (0, 1)
    )  # fmt: skip
    ages, changed = mine["context"][:, 0], yours["context"][:, 0]
    is_young = ages == features.YOUNG
    assert (yours["loved"] <= yours["click"]).all()
    if broken == "feature":
        assert (changed[ages > 0] == 0).mean() == pytest.approx(0.6, abs=0.05)
        assert (changed == ages)[changed > 0].all()
        return
    assert (changed == ages).all()
    for label in ("click", "loved"):
        assert (yours[label] == mine[label])[~is_young].all()
    clicks = yours["click"][is_young].sum(), mine["click"][is_young].sum()
    assert clicks[0] == pytest.approx(clicks[1] * (0.3 if broken == "lost" else 1), abs=30)
    assert (yours["click"] == mine["click"])[is_young].mean() < 0.8


@given(st.lists(st.integers(1, 4000), max_size=6))
def test_the_served_score_is_of_the_days_before(cuts: list[int]) -> None:
    impressions = take(3)
    starts = np.flatnonzero(np.diff(impressions.seconds // 86_400)) + 1
    ends = sorted({0, len(impressions), *(cut % len(impressions) for cut in cuts)})
    encoder = TaskEncoder(VOCABULARY)
    pieces = [encoder(rows_of(impressions, slice(*pair))) for pair in itertools.pairwise(ends)]
    served = np.concatenate([piece.served for piece in pieces])
    age = np.concatenate([piece.served_age for piece in pieces])
    assert np.isnan(served[: starts[0]]).all()
    assert np.isfinite(served[starts[0] :]).all()
    assert ((age >= 0) & (age < 86_400)).all()
    day = slice(starts[0], starts[1] if len(starts) > 1 else None)
    fresh = TaskEncoder(VOCABULARY)
    fresh(rows_of(impressions, slice(starts[0])))
    np.testing.assert_array_equal(fresh(rows_of(impressions, day)).served, served[day])


def test_the_served_score_predicts_clicks() -> None:
    impressions = take(20)
    served = TaskEncoder(VOCABULARY)(impressions).served
    known = np.isfinite(served)
    assert auc(served[known].astype(np.float64), impressions.clicked[known]) > 0.6
    assert served[known].mean() == pytest.approx(impressions.clicked[known].mean(), rel=0.1)
