"""States by slice: each is that of its own examples, and merging is exact."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.slices.report import auc_standard_error, quoted, values_of
from rec_summary.metrics.slices.states import SlicedBatch, Slices, SliceState, Slicing
from rec_summary.metrics.state import ColumnBatch
from rec_summary.metrics.windows import LastExamples, Lifetime, count_together
from tests.support.laws import (
    assert_equal_states,
    assert_laws,
    merged,
    refused,
    restored,
    update_in_parts,
    updated,
)


def stream(seed: int, size: int, values: int = 12) -> tuple[np.ndarray, ...]:
    """Names, of which few are frequent, scores and labels."""
    random = np.random.default_rng(seed)
    names = (random.zipf(1.4, size) % values).astype(np.str_)
    scores = random.random(size).astype(np.float32)
    return names, scores, random.random(size) < scores


def counted(columns: tuple[np.ndarray, ...], most: int = 4) -> Slices:
    return updated(Slices(LogLoss(), most), *columns)


def test_each_slice_is_the_state_of_its_own_examples() -> None:
    names, scores, labels = stream(1, 500)
    weights = np.random.default_rng(0).random(500)
    state = updated(Slices(ClickQuality(64), 16), names, scores, labels, weights)
    sizes = []
    for name, size, found in state.slices():
        alone = ClickQuality(64)
        alone.update(scores[names == name], labels[names == name], weights[names == name])
        assert_equal_states(found, alone)
        sizes.append(size)
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == 500
    assert state.other.loss.weight == 0


def test_several_slices_of_an_example_and_none() -> None:
    codes = np.array([[0, 1], [1, 1], [-1, -1], [0, -1]])
    scores, labels = np.full(4, 0.5), np.array([1, 0, 1, 1])
    state = Slices(ClickQuality(64))
    batch = state.other.prepare(clean(scores, labels))
    state.count(SlicedBatch(Slicing(codes, ["drama", "war"]), batch))
    found = {name: (size, each.loss.clicks) for name, size, each in state.slices()}
    assert found == {"drama": (2, 2), "war": (2, 1)}
    assert state.other.loss.weight == 0


def test_of_too_many_values_the_most_frequent_ones_stay_exact_and_the_rest_is_one() -> None:
    names, scores, labels = stream(2, 5000, values=1000)
    state = counted((names, scores, labels), most=8)
    assert state.closed
    kept = list(state.slices())
    first = np.unique(names[:1024], return_counts=True)
    assert {name for name, *_ in kept} == set(first[0][np.lexsort((first[0], -first[1]))][:8])
    total = 0
    for name, size, found in kept:
        assert size == found.weight == np.count_nonzero(names == name)
        total += size
    assert state.other.weight == 5000 - total


def test_as_many_values_as_may_have_a_state_close_nothing() -> None:
    state = Slices(LogLoss(), 2)
    state.update(np.resize(["a", "b"], 1024), np.full(1024, 0.5), np.ones(1024))
    assert not state.closed
    state.update(np.full(1024, "c"), np.full(1024, 0.5), np.ones(1024))
    assert state.closed
    assert [(name, size) for name, size, _ in state.slices()] == [("c", 1024), ("a", 512)]


def alike(**sizes: int) -> Slices:
    """Returns the state of so many examples of each value, one value after the other."""
    state = Slices(LogLoss(), 2)
    for name, size in sizes.items():
        state.update(np.full(size, name), np.full(size, 0.5), np.ones(size))
    return state


def test_a_closed_state_and_an_open_one_have_the_values_of_the_closed_one() -> None:
    closed, few = alike(c=124, b=450, a=450), alike(c=5, a=3)
    assert closed.closed
    assert not few.closed
    before = closed.copy()
    for whole in (merged(few, closed), merged(closed, few)):
        assert whole.closed
        assert [(name, size) for name, size, _ in whole.slices()] == [("a", 453), ("b", 450)]
        assert [state.weight for _, _, state in whole.slices()] == [453, 450]
        assert whole.other.weight == 129
        whole.update(["a", "b", "c"], np.full(3, 0.5), np.ones(3))
    assert_equal_states(closed, before)
    assert [name for name, *_ in closed.slices()] == ["a", "b"]  # as many examples of each


def test_states_that_are_merged_before_values_are_counted_are_restored() -> None:
    whole = merged(alike(a=600), alike(a=600))
    assert_equal_states(restored(whole), whole)
    assert next(whole.slices())[1] == 1200


CUTS = st.lists(st.integers(0, 3000), max_size=5).map(sorted)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), cuts=CUTS, values=st.sampled_from([3, 40]))
def test_the_state_of_a_stream_does_not_depend_on_batches_and_restarts(seed, cuts, values) -> None:
    columns = stream(seed, 3000, values)
    whole = counted(columns)
    parts = Slices(LogLoss(), 4)
    for start, end in zip([0, *cuts], [*cuts, 3000], strict=True):
        parts.update(*(column[start:end] for column in columns))
        parts = Slices.from_arrays(parts.arrays())
    assert_equal_states(parts, whole)


@settings(max_examples=15)
@given(
    seeds=st.lists(st.integers(0, 2**32), min_size=3, max_size=3),
    sizes=st.lists(st.integers(0, 3000), min_size=3, max_size=3),
    values=st.sampled_from([3, 12, 40]),
)
def test_merging_is_exact_in_any_order(seeds, sizes, values) -> None:
    parts = [counted(stream(s, n, values)) for s, n in zip(seeds, sizes, strict=True)]
    assert_laws(*parts)
    whole = merged(*parts)
    shares = [size for _, size, _ in whole.slices()]
    assert sum(shares) + whole.other.weight == sum(sizes)
    if not whole.closed:
        columns = [stream(s, n, values) for s, n in zip(seeds, sizes, strict=True)]
        joined = tuple(map(np.concatenate, zip(*columns, strict=True)))
        for name, _, state in whole.slices():
            assert state.weight == np.count_nonzero(joined[0] == name)


def test_the_states_of_a_slice_count_each_their_own_batch() -> None:
    names, scores, labels = stream(8, 3000, 40)
    users, values = np.arange(3000) % 70, {"quality": ClickQuality(64), "users": UserScores(4096)}
    found, codes = np.unique(names, return_inverse=True)
    state = Slices(SliceState(("gauc",), values), 4)
    clicks = clean(scores, labels)
    batch = {
        "users": values["users"].prepare(users, clicks),
        "quality": values["quality"].prepare(clicks),
        "lists": ColumnBatch((users, scores)),  # no state counts it
    }
    state.count(SlicedBatch(Slicing(codes, found.tolist()), batch))
    assert_equal_states(Slices.from_arrays(state.arrays()), state)
    kept = {name: part for name, _, part in state.slices()}
    assert len(kept) == 4
    for name, part in [*kept.items(), (None, state.other)]:
        own = ~np.isin(names, list(kept)) if name is None else names == name
        quality = updated(ClickQuality(64), scores[own], labels[own])
        of_users = updated(UserScores(4096), users[own], scores[own], labels[own])
        assert_equal_states(part, SliceState(("gauc",), {"quality": quality, "users": of_users}))
    whole = state.copy()
    whole.merge(state)
    assert whole.other.states["quality"].loss.weight == 2 * part.states["quality"].loss.weight


def test_slices_of_one_empty_state_are_independent() -> None:
    empty = LogLoss()
    state = Slices(empty)
    empty.update([0.5], [1])
    state.update(["a", "b"], [0.5, 0.5], [1, 1])
    assert [part.weight for _, _, part in state.slices()] == [1, 1]
    assert state.other.weight == 0


@pytest.mark.parametrize("first", [600, 1023])
def test_examples_of_several_slices_may_follow_those_of_one(first) -> None:
    state = alike(a=first)
    codes = np.arange(3000).reshape(1000, 3) % 3
    columns = ColumnBatch.of(np.full(1000, 0.5), np.ones(1000))
    state.count(SlicedBatch(Slicing(codes, ["b", "c", "d"]), columns))
    assert state.closed
    assert [(name, size) for name, size, _ in state.slices()] == [("b", 1000), ("a", first)][
        :: 1 if first < 1000 else -1
    ]


def test_windows_of_slices_forget_as_other_windows_do() -> None:
    names, scores, labels = stream(3, 2000, 3)
    window = LastExamples(Slices(LogLoss()), 800, 4)
    update_in_parts(window, (names, scores, labels), range(300, 2000, 300))
    found = {name: state.weight for name, _, state in window.total().slices()}
    last = dict(zip(*np.unique(names[-800:], return_counts=True), strict=True))
    assert found == last


def test_a_state_is_independent_and_needs_all_its_arrays() -> None:
    ratings = Slices(RatingErrors(), 2)
    ratings.update(np.array(["a", "b"]), np.array([1.0, 2.0]), np.array([1, 3]))
    refused(ValueError, "most", ratings.merge, Slices(RatingErrors(), 3))
    clicks = Slices(ClickQuality(64))
    clicks.update(np.array(["a", "b"]), np.array([0.5, 0.25]), np.array([1, 0]))
    for name in ("slice0.negative_rate", "other.negative_rate"):
        with pytest.raises(ValueError, match="setting negative_rate of a state to merge"):
            Slices.from_arrays({**clicks.arrays(), name: np.array(0.5)})
    for names in (["b", "a"], ["a", "a"]):
        with pytest.raises(ValueError, match="rising names"):
            Slices.from_arrays({**ratings.arrays(), "names": np.array(names)})


def counted_clicks(*columns: np.ndarray) -> ClickQuality:
    return updated(ClickQuality(256), *columns)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_standard_error_of_the_auc_is_that_of_many_samples(weighted: bool) -> None:
    random = np.random.default_rng(5)
    areas, errors = [], []
    for _ in range(200):
        labels = random.random(400) < 0.3
        scores = 1 / (1 + np.exp(-random.normal(size=400) - labels))
        weights = random.lognormal(sigma=1.2, size=400) if weighted else None
        state = counted_clicks(scores, labels, weights)
        areas.append(state.order.auc().value)
        errors.append(auc_standard_error(state))
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=0.15)


def test_one_weight_for_all_examples_does_not_change_the_standard_error() -> None:
    random = np.random.default_rng(7)
    scores, labels = random.random(500), random.random(500) < 0.3
    expected = counted_clicks(scores, labels)
    for weight in (0.25, 3.0):
        weighted = counted_clicks(scores, labels, np.full(500, weight))
        assert auc_standard_error(weighted) == pytest.approx(auc_standard_error(expected))
        weighted.scale(2.0**-3)
        assert auc_standard_error(weighted) == pytest.approx(auc_standard_error(expected))


def test_a_stored_state_without_squared_weights_has_weights_of_one() -> None:
    random = np.random.default_rng(8)
    scores, labels = random.random(300), random.random(300) < 0.3
    plain = counted_clicks(scores, labels)
    assert not any("squares" in name for name in plain.arrays())
    # BLAS rounds the last bit as the memory of the arrays is aligned.
    restored = ClickQuality.from_arrays(plain.arrays())
    assert auc_standard_error(restored) == pytest.approx(auc_standard_error(plain), rel=1e-12)
    weighted = counted_clicks(scores, labels, random.random(300) * 4)
    error = auc_standard_error(weighted)
    restored = ClickQuality.from_arrays(weighted.arrays())
    assert auc_standard_error(restored) == pytest.approx(error, rel=1e-12)
    old = {name: array for name, array in weighted.arrays().items() if "squares" not in name}
    assert len(old) == len(weighted.arrays()) - 2
    assert 0 < auc_standard_error(ClickQuality.from_arrays(old)) < error


def test_the_name_of_a_slice_is_one_part_of_a_tag() -> None:
    assert quoted("a/b 5%\n") == "a%2Fb 5%25%0A"
    names = ["a", "a\u200b", "a\u200c", "a%0A", "a\n", "a%E2%80%8B", "�", "日本"]
    assert len(set(map(quoted, names))) == len(names)
    assert quoted("日本 é\ud800") == "日本 é%3F"


def test_the_values_of_a_matrix_are_limited_as_those_of_a_column() -> None:
    random = np.random.default_rng(6)
    codes = np.arange(2000 * 20).reshape(2000, 20)
    codes[:, 0] = 0
    names = [str(code) for code in range(codes.size)]
    columns = random.random(2000), random.random(2000) < 0.3
    whole, parts = Slices(LogLoss(), 8), Slices(LogLoss(), 8)
    most = 0
    for start in range(0, 2000, 10):
        at = slice(start, start + 10)
        batch = ColumnBatch(tuple(column[at] for column in columns))
        parts.count(SlicedBatch(Slicing(codes[at], names), batch))
        most = max(most, len(list(parts.slices())))
    whole.count(SlicedBatch(Slicing(codes, names), ColumnBatch(columns)))
    assert most <= 1024
    assert_equal_states(parts, whole)
    first = next(whole.slices())
    assert first[:2] == ("0", 2000)
    assert len(list(whole.slices())) == 8


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("values", [3, 40])
def test_slices_counted_at_once_are_those_counted_one_by_one(weighted, values) -> None:
    names, scores, labels = stream(7, 3000, values)
    weights = np.random.default_rng(1).integers(0, 9, 3000) / 4 if weighted else None
    quality = ClickQuality(64)
    empty = Slices(quality, 4)
    windows = [Lifetime(empty), LastExamples(empty, 900, 3)]
    alone = [each.copy() for each in windows]
    found, codes = np.unique(names, return_inverse=True)
    for part in np.array_split(np.arange(3000), 4):
        heavy = None if weights is None else weights[part]
        batch = quality.prepare(clean(scores[part], labels[part], heavy))
        count_together(windows, SlicedBatch(Slicing(codes[part], found.tolist()), batch))
        for window in alone:
            window.update(names[part], scores[part], labels[part], heavy)
    for window, other in zip(windows, alone, strict=True):
        assert_equal_states(window, other)


def test_names_that_are_cut_to_the_same_one_are_one_slice() -> None:
    names = ["a" * 64, "a" * 65, "b"]
    codes = np.array([[0, 1], [1, 2], [0, -1], [2, 2]])
    state = Slices(ClickQuality(64))
    batch = state.other.prepare(clean(np.full(4, 0.5), np.array([1, 0, 1, 1])))
    state.count(SlicedBatch(Slicing(codes, names), batch))
    found = {name: (size, each.loss.clicks) for name, size, each in state.slices()}
    assert found == {"a" * 64: (3, 2), "b": (2, 1)}


def test_a_value_called_other_is_not_the_rest() -> None:
    names = np.repeat(["other", "'other'", "x", "y"], [40, 30, 20, 10])
    state = updated(Slices(RatingErrors(), 4), names, np.zeros(100), np.zeros(100))
    state.other.update(np.ones(3), np.zeros(3))

    def metrics_of(part: RatingErrors) -> dict[str, float]:
        return {"examples": part.weight, "rmse": part.rmse()}

    scalars, table = values_of("c", state, ("rmse",), ("rmse",), metrics_of)
    assert scalars["slice/c=other/rmse"] == 1
    assert scalars["slice/c='other'/rmse"] == 0
    sizes = {row[0]: row[1] for row in table[1:]}
    assert sizes == {"'other'": "40", "''other''": "30", "x": "20", "y": "10", "other": "3"}
    assert table[-1][0] == "other"


@pytest.mark.parametrize(
    ("examples", "shown"), [(1685.400255, "1,685.4"), (2, "2"), (1.2e10, "12,000,000,000")]
)
def test_the_table_has_sums_of_weights_without_their_rounding(examples, shown) -> None:
    state = updated(Slices(RatingErrors()), np.array(["x"]), np.zeros(1), np.zeros(1))
    _, table = values_of(
        "c", state, ("rmse",), ("rmse",), lambda _: {"examples": examples, "rmse": 0.0}
    )
    assert table[1] == ("x", shown, "0")


@pytest.mark.parametrize("first", ["A", "AB"])
def test_states_that_know_different_values_share_a_batch(first) -> None:
    names, scores = np.array(["A", "B", "A"]), np.full(3, 0.5)
    labels = np.array([True, False, True])
    states = {"A": Slices(LogLoss(), 1), "AB": Slices(LogLoss(), 2)}
    for known, state in states.items():
        values = np.array(list(f"{known}{known}C"))  # of which the last one is too many
        state.update(*(np.resize(each, 2040) for each in (values, scores, labels)))
        assert state.closed
        assert [name for name, _, _ in state.slices()] == list(known)
    alone = {known: state.copy() for known, state in states.items()}
    batch = SlicedBatch(Slicing(np.array([0, 1, 0]), ["A", "B"]), ColumnBatch((scores, labels)))
    for known in sorted(states, key=lambda each: each != first):
        states[known].count(batch)
        alone[known].update(names, scores, labels)
        assert_equal_states(states[known], alone[known])


@pytest.mark.parametrize(("batches", "size"), [(20, 1 << 15), (1500, 8)])
def test_a_rare_value_keeps_no_batch_in_memory(batches, size) -> None:
    random = np.random.default_rng(0)
    state = Slices(ClickQuality(128))
    codes = np.zeros(size, np.intp)
    codes[0] = 1
    tracemalloc.start()
    try:
        for _ in range(batches):
            clicks = clean(random.random(size), random.random(size) < 0.3)
            batch = ClickQuality(128).prepare(clicks)
            state.count(SlicedBatch(Slicing(codes, ["often", "rare"]), batch))
        del clicks, batch
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 19


def test_a_column_without_values_has_no_slices() -> None:
    state = Slices(LogLoss())
    columns = ColumnBatch.of(np.full(3, 0.5), np.array([1, 0, 1]))
    state.count(SlicedBatch(Slicing(np.zeros((3, 0), np.intp), ["missing"]), columns))
    assert list(state.slices()) == []
    assert state.other.weight == 0


def test_names_that_differ_in_zeros_at_the_end_are_restored_as_one() -> None:
    state = Slices(LogLoss())
    columns = ColumnBatch.of(np.full(3, 0.5), np.array([1, 0, 1]))
    names = ["a", "a\0", "a" * 63 + "\0b"]
    state.count(SlicedBatch(Slicing(np.arange(3), names), columns))
    assert [(name, size) for name, size, _ in state.slices()] == [("a", 2), ("a" * 63, 1)]
    assert_equal_states(Slices.from_arrays(state.arrays()), state)


def test_a_value_that_was_shown_stays_shown() -> None:
    state = updated(Slices(LogLoss(), 16, shown=1), ["a", "a", "b"], [0.5] * 3, [0, 1, 1])
    assert state.tag_shown(()) == ("a",)
    state.update(["b"] * 4, [0.5] * 4, [0] * 4)
    assert list(state.shown_names()) == ["b", "a"]
    assert state.tag_shown(state.tagged) == ("a", "b")
    merged = updated(Slices(LogLoss(), 16, shown=1), ["c", "a", "b"], [0.5] * 3, [0, 1, 1])
    merged.merge(Slices.from_arrays(state.arrays()))
    assert list(merged.shown_names()) == ["b", "a"]


def test_only_values_with_a_state_stay_shown_if_there_are_too_many() -> None:
    state = updated(Slices(LogLoss(), 2, shown=1), ["a", "b"], [0.5] * 2, [0, 1])
    assert state.tag_shown(("x", "y")) == ("a",)
    assert state.tag_shown(("b",)) == ("a", "b")
