from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.quality.log_loss import LogLoss
from rec_summary.metrics.quality.ratings import RatingErrors
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.metrics.windows import Decayed, LastExamples, Lifetime, count_together
from tests.support.click_streams import calibrated, exact_auc
from tests.support.laws import (
    assert_equal_states,
    merged,
    refused,
    restored,
    update_in_parts,
    updated,
)


@pytest.fixture(scope="module")
def stream():
    return calibrated(np.random.default_rng(0), 5000, -1)


def cut(stream, start, end):
    return [column[start:end] for column in stream]


def test_a_lifetime_is_everything(stream):
    window = updated(Lifetime(LogLoss()), *stream)
    state = updated(LogLoss(), *stream)
    assert_equal_states(window.total(), state)
    window.total().update(*stream)  # a copy
    assert_equal_states(window.total(), state)


@pytest.mark.parametrize("batch", [7, 100, 1300])
def test_at_the_border_of_a_bucket_it_is_exactly_the_last_examples(stream, batch):
    window = LastExamples(LogLoss(), 1200, buckets=4)
    fed = 0
    while fed < 3900:
        size = min(batch, 3900 - fed)
        window.update(*cut(stream, fed, fed + size))
        fed += size
        if fed % 300 == 0:
            last = updated(LogLoss(), *cut(stream, max(0, fed - 1200), fed))
            assert_equal_states(window.total(), last)
        assert min(fed, 901) <= window.total().weight <= 1200
    assert window.seen == 3900


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "window",
    [Lifetime, lambda e: LastExamples(e, 1200, buckets=4), lambda e: Decayed(e, 640)],
    ids=["lifetime", "last", "decayed"],
)
def test_prepared_batches_count_to_the_same_bit(stream, window, weighted):
    rng = np.random.default_rng(1)
    users = rng.integers(0, 50, 5000)
    heavy = rng.random(5000) + 0.25 if weighted else None
    quality, scores = ClickQuality(256), UserScores(2048, 64)
    counted = [window(quality)] + ([] if window(quality).__class__ is Decayed else [window(scores)])
    updated = [each.copy() for each in counted]
    for start, end in ((0, 1), (1, 900), (900, 4900), (4900, 5000)):
        columns = [each[start:end] for each in (users, *stream)]
        weights = None if heavy is None else heavy[start:end]
        batch = clean(*columns[1:], weights)
        prepared = (quality.prepare(batch), scores.prepare(columns[0], batch))
        for each, found in zip(counted, prepared, strict=False):
            count_together([each], found)
        for each, first in zip(updated, (1, 0), strict=False):
            each.update(*columns[first:], weights)
    for one, other in zip(counted, updated, strict=True):
        assert_equal_states(one, other)
        assert_equal_states(one.total(), other.total())


def test_windows_that_count_together_count_as_alone(stream):
    quality = ClickQuality(64)
    alone = [Lifetime(quality), LastExamples(quality, 1200, buckets=4), Decayed(quality, 640)]
    together = [each.copy() for each in alone]
    for start, end in ((0, 1), (1, 900), (900, 4900), (4900, 5000)):
        batch = quality.prepare(clean(*(each[start:end] for each in stream)))
        count_together(together, batch)
        for window in alone:
            count_together([window], batch)
    for one, other in zip(together, alone, strict=True):
        assert_equal_states(one, other)


@pytest.mark.parametrize("sizes", [(500, 500), (2100, 400), (400, 2100)])
def test_examples_that_wait_are_merged(stream, sizes):
    quality = ClickQuality(64)
    waiting, counted = ([LastExamples(quality, 1200, 4) for _ in sizes] for _ in range(2))
    for start, size, window, other in zip((0, 2500), sizes, waiting, counted, strict=True):
        columns = cut(stream, start, start + size)
        count_together([window], quality.prepare(clean(*columns)))
        other.update(*columns)
    for one, *others in (waiting, counted):
        one.merge(*others)
    assert_equal_states(waiting[0], counted[0])
    assert_equal_states(waiting[1], counted[1])


def test_batches_that_are_prepared_and_that_are_not_may_take_turns(stream):
    quality = ClickQuality(64)
    mixed, plain = (LastExamples(quality, 1200, 4) for _ in range(2))
    for number, start in enumerate(range(0, 5000, 250)):
        plain.update(*(column[start : start + 250] for column in stream))
        columns = [column[start : start + 250].copy() for column in stream]
        if number % 2:
            mixed.update(*columns)
            columns[0][:] = 0.5  # columns may change after they were counted
        else:
            count_together([mixed], quality.prepare(clean(*columns)))
    assert_equal_states(mixed, plain)


def test_an_empty_state_that_changes_later_changes_no_window(stream):
    empty = LogLoss()
    window = LastExamples(empty, 1200, 4)
    empty.update(*stream)
    window.update(*(column[:10] for column in stream))
    assert window.total().weight == 10


class _Observed(ClickQuality):
    """Tells of the parts that it counts, and may be short of memory for them."""

    parts: ClassVar[list[Any]] = []
    has_memory: ClassVar[bool] = True

    def count(self, part):
        if not self.has_memory:
            raise MemoryError("no memory for it")
        self.parts.append(part)
        super().count(part)


@pytest.fixture
def observed():
    """Returns an empty state; its class has counted nothing."""
    _Observed.parts.clear()
    _Observed.has_memory = True
    return _Observed(64)


def test_examples_that_leave_a_window_are_never_counted(stream, observed):
    """What is read between batches changes nothing."""
    window, read = (LastExamples(observed, 1200, buckets=4) for _ in range(2))
    starts = range(0, 5000, 500)
    batches = [observed.prepare(clean(*cut(stream, start, start + 500))) for start in starts]
    for batch in batches:
        count_together([window], batch)
    assert not observed.parts
    total = window.total()
    assert sum(len(part.order.marks) for part in observed.parts) == total.loss.weight == 1100
    for batch in batches:
        count_together([read], batch)
        read.total()
    assert_equal_states(read, window)


@pytest.mark.parametrize(("size", "batches"), [(1 << 16, 3), (1, 4096)], ids=["examples", "parts"])
def test_neither_many_examples_nor_many_parts_wait(stream, observed, size, batches):
    window = LastExamples(observed, 1 << 20, buckets=4)
    columns = [np.resize(column, size) for column in stream]
    batch = observed.prepare(clean(*columns))
    for _ in range(batches - 1):
        count_together([window], batch)
    assert not observed.parts
    count_together([window], batch)
    assert len(observed.parts) == batches
    tiled = [np.tile(column, batches) for column in columns]
    assert_equal_states(window, updated(LastExamples(observed, 1 << 20, buckets=4), *tiled))


def test_an_error_costs_one_of_the_parts_that_wait(stream, observed):
    window, rest = LastExamples(observed, 1200, buckets=4), LastExamples(observed, 1200, buckets=4)
    batch = observed.prepare(clean(*(column[:1000] for column in stream)))
    count_together([window], batch)
    _Observed.has_memory = False
    with pytest.raises(MemoryError):
        window.total()
    _Observed.has_memory = True
    assert window.seen == 1000
    assert window.total().loss.weight == 700
    rest.update(*(column[:1000] for column in stream))
    for each in (window, rest):
        each.update(*(column[1000:1500] for column in stream))
    assert_equal_states(window, rest)  # in which the lost part is no more


def test_ranks_add_the_last_examples_of_each(stream):
    empty = LastExamples(LogLoss(), 400, buckets=4)
    ranks = [updated(empty.copy(), *cut(stream, start, start + 1000)) for start in (0, 2000)]
    last = updated(updated(LogLoss(), *cut(stream, 600, 1000)), *cut(stream, 2600, 3000))
    assert_equal_states(merged(*ranks).total(), last)


@pytest.mark.parametrize("turned", [False, True])
def test_a_rank_that_counts_fewer_examples_adds_its_last_ones_too(stream, turned):
    """As where labels are missing more often: it would leave the window of all otherwise."""
    more, fewer = (LastExamples(LogLoss(), 400, buckets=4) for _ in range(2))
    more.update(*(column[:4950] for column in stream))
    fewer.update(*(column[:750] for column in stream))
    before = fewer.copy(), more.copy()
    whole = merged(fewer, more) if turned else merged(more, fewer)
    expected = updated(updated(LogLoss(), *cut(stream, 4600, 4950)), *cut(stream, 400, 750))
    assert_equal_states(whole.total(), expected)
    assert_equal_states(restored(whole), whole)
    for each, old in zip((fewer, more), before, strict=True):
        assert_equal_states(each, old)


@given(
    seen=st.lists(st.integers(0, 1500), min_size=3, max_size=3),
    window=st.sampled_from([lambda state: LastExamples(state, 400, 4), Lifetime]),
)
def test_windows_of_other_lengths_merge_in_any_order(seen, window):
    one, two, three = (updated(window(LogLoss()), *np.full((2, size), 0.25)) for size in seen)
    assert_equal_states(merged(one, two, three), merged(three, one, two))


def test_half_lives_are_those_of_each_rank():
    """The newest example of each weighs nearly 1, however many more the other has counted."""
    fewer = updated(Decayed(LogLoss(), 64), np.full(65, 0.5), np.ones(65))
    more = updated(Decayed(LogLoss(), 64), np.full(5000, 0.5), np.zeros(5000))
    alone = fewer.total().clicks
    for one, other in ((fewer, more), (more, fewer)):
        whole, weight = merged(one, other), fewer.total().weight + more.total().weight
        assert whole.total().clicks == pytest.approx(alone, rel=1e-12)
        assert whole.total().weight == pytest.approx(weight, rel=1e-12)
        assert_equal_states(restored(whole), whole)


def test_a_number_of_examples_that_cannot_rise_is_refused():
    arrays = Lifetime(LogLoss()).arrays()
    with pytest.raises(ValueError, match="'seen' of a state is invalid"):
        Lifetime.from_arrays({**arrays, "seen": np.array(2**63 - 1)})


def test_a_bucket_that_a_merge_makes_too_old_is_dropped():
    fewer = updated(Decayed(LogLoss(), 64), np.full(16 * 64, 0.5), np.ones(16 * 64))
    more = updated(Decayed(LogLoss(), 64), np.full(17 * 64 + 1, 0.5), np.zeros(17 * 64 + 1))
    more.merge(fewer)
    assert_equal_states(restored(more), more)


def test_windows_that_are_longer_one_after_the_other_merge_to_one_that_is_restored():
    whole = Decayed(LogLoss(), 64)
    for rank in range(18):
        longer = Decayed(LogLoss(), 64)
        longer.update(np.full(65 + 63 * rank, 0.5), np.ones(65 + 63 * rank))
        whole.merge(longer)
    assert_equal_states(restored(whole), whole)


@pytest.mark.parametrize("half_life", [64, 500, 10_000])
def test_examples_of_a_half_life_ago_weigh_half(stream, half_life):
    window = updated(Decayed(RatingErrors(), half_life), stream[0], stream[1])
    ages = np.arange(5000)[::-1] + 1
    weights = 2.0 ** (-ages / half_life)
    errors = stream[0].astype(np.float64) - stream[1]
    total = window.total()
    # A step of the weight is a 64th of a half-life, or one example where that is less.
    step = max(1 / 64, 1 / half_life) * 1.05
    assert total.weight == pytest.approx(weights.sum(), rel=step)
    assert total.bias() == pytest.approx((weights * errors).sum() / weights.sum(), abs=step * 0.5)
    kept = max(1, -(-5000 // half_life))
    assert len(window.arrays()["pane_numbers"]) == min(kept, Decayed.HALF_LIVES)


def test_decay_forgets_what_was_before():
    window = updated(Decayed(LogLoss(), 100), np.full(1000, 0.9), np.ones(1000))
    window.update(np.full(1000, 0.1), np.zeros(1000))
    total = window.total()
    assert total.clicks == pytest.approx(2.0**-10 * (total.weight - total.clicks), rel=0.02)
    window.update(np.full(1000, 0.1), np.zeros(1000))
    assert window.total().clicks == 0


def test_windows_over_users(stream):
    users = np.arange(5000) % 50
    window = updated(LastExamples(UserScores(), 1000, buckets=2), users, *stream, None)
    last = updated(UserScores(), users[-1000:], *(column[-1000:] for column in stream))
    assert_equal_states(window.total(), last)


def test_windows_of_windows():
    """A window is a state, so it can be stored as one."""
    inner = LastExamples(LogLoss(), 100, buckets=4)
    outer = updated(Lifetime(inner), [0.5, 0.25], [1, 0])
    restored = Lifetime.from_arrays(outer.arrays())
    assert_equal_states(restored, outer)
    assert restored.total().total().clicks == 1


def test_mistakes_are_reported():
    refused(TypeError, "can be scaled", Decayed, Lifetime(LogLoss()), 100)
    refused(ValueError, "half_life is invalid", Decayed, LogLoss(), 10)
    refused(ValueError, "examples is invalid", LastExamples, LogLoss(), 10, 16)
    refused(ValueError, "buckets is invalid", LastExamples, LogLoss(), 10, 0)
    window = LastExamples(LogLoss(), 100)
    refused(ValueError, "columns is invalid", window.update, [0.5], [1, 0])
    refused(ValueError, "columns is invalid", window.update, 0.5, 1)
    for other in (
        LastExamples(LogLoss(), 200),
        LastExamples(LogLoss(), 100, 8),
        LastExamples(RatingErrors(), 100),
    ):
        refused(ValueError, "of a state to merge", window.merge, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", np.array("Unknown")),
        ("kind", np.array("RatingErrors")),
        ("size", np.array(0)),
        ("panes", np.array(0)),
        ("seen", np.array(-1)),
        ("pane_numbers", np.array([5, 1])),
        ("pane_numbers", np.array([0, 2])),
        ("pane_numbers", np.array([5, 9])),
        ("pane5.refused", np.zeros(3)),
    ],
)
def test_nonsense_is_refused(name, value):
    window = updated(LastExamples(LogLoss(), 100, 4), np.full(130, 0.5), np.ones(130))
    assert name in window.arrays()
    with pytest.raises(ValueError, match=r"is invalid\. Received"):
        LastExamples.from_arrays({**window.arrays(), name: value})


@pytest.mark.parametrize("name", ["pane0.cells", "empty.cells"])
def test_a_bucket_with_other_settings_is_refused(name):
    window = updated(LastExamples(ScoreOrder(64), 100, 4), np.full(8, 0.5), np.ones(8))
    with pytest.raises(ValueError, match="setting cells of a state to merge"):
        LastExamples.from_arrays(window.arrays() | {name: np.array(128)})
    with pytest.raises(ValueError, match="setting cells of a state to merge"):
        window.merge(LastExamples(ScoreOrder(128), 100, 4))


@pytest.mark.parametrize("window", [LastExamples(LogLoss(), 100, 4), Lifetime(LogLoss())])
def test_no_bucket_is_before_the_stream(window):
    window.update([0.5], [1])
    arrays = window.arrays()
    renamed = {name.replace("pane0.", "pane-1."): array for name, array in arrays.items()}
    with pytest.raises(ValueError, match="the number of one in the window"):
        type(window).from_arrays({**renamed, "pane_numbers": np.array([-1])})


@pytest.mark.parametrize("number", [-1, 1, 6])
def test_buckets_outside_of_the_window_are_refused(number):
    window = updated(LastExamples(LogLoss(), 100, 4), np.full(130, 0.5), np.ones(130))
    arrays = window.arrays()
    assert arrays["pane_numbers"].tolist() == [2, 3, 4, 5]
    renamed = {name.replace("pane2.", f"pane{number}."): a for name, a in arrays.items()}
    with pytest.raises(ValueError, match="the number of one in the window"):
        LastExamples.from_arrays({**renamed, "pane_numbers": np.array([number, 3, 4, 5])})


@pytest.mark.parametrize("start", [129, 130, 160, -10, -2000])
def test_steps_where_none_can_be_are_refused(start):
    window = updated(Decayed(LogLoss(), 640), np.full(130, 0.5), np.ones(130))
    arrays = window.arrays()
    assert arrays["open_numbers"].tolist() == [120]
    assert_equal_states(Decayed.from_arrays(arrays), window)
    renamed = {name.replace("open120.", f"open{start}."): a for name, a in arrays.items()}
    with pytest.raises(ValueError, match="where a step of the window begins"):
        Decayed.from_arrays({**renamed, "open_numbers": np.array([start])})


def test_arrays_of_one_kind_of_window_are_not_another():
    arrays = LastExamples(LogLoss(), 100).arrays()
    refused(ValueError, "of a state to merge", Lifetime.from_arrays, arrays)
    refused(ValueError, "is invalid", Decayed.from_arrays, {**arrays, "panes": np.array(4)})


def test_buckets_that_are_full_are_small():
    rng = np.random.default_rng(0)
    window = LastExamples(ScoreOrder(64), 4000, 4)
    columns = rng.random(4000), rng.random(4000) < 0.3
    window.update(*columns)
    sizes = [len(window.arrays()[f"pane{number}.codes"]) for number in range(4)]
    assert max(sizes[:3]) <= 64 < sizes[3]
    area = window.total().auc()
    assert abs(area.value - exact_auc(*columns)) <= area.error_bound
    parts = LastExamples(ScoreOrder(64), 4000, 4)
    update_in_parts(parts, columns, range(123, 4000, 123))
    assert_equal_states(parts, window)


@pytest.mark.parametrize("seen", [0, 1, 3, 4, 5, 9])
def test_a_window_with_buckets_of_one_example_is_restored(stream, seen):
    window = updated(LastExamples(LogLoss(), 4, buckets=4), *(column[:seen] for column in stream))
    again = restored(window)
    assert_equal_states(again, window)
    for end in (seen, seen + 1, seen + 4):
        again.update(*(column[again.seen : end] for column in stream))
        last = updated(LogLoss(), *cut(stream, max(0, end - 4), end))
        assert_equal_states(again.total(), last)
        assert len(again.arrays()["pane_numbers"]) == min(end, 4)
