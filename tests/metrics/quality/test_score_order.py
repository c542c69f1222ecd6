"""The order of scores: AUC on streams of all kinds, against scikit-learn."""

import bisect
import collections
import itertools
import math
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from rec_summary.metrics.quality.score_cells import ONE, around, keys_of, widths_of
from rec_summary.metrics.quality.score_order import ScoreOrder, _cuts, _gathered, _joined
from tests.support.click_streams import STREAMS, calibrated, exact_auc
from tests.support.laws import assert_equal_states, refused, updated


def counted(scores, labels, weights=None, cells=4096):
    return updated(ScoreOrder(cells), scores, labels, weights)


@pytest.mark.parametrize("stream", STREAMS)
def test_auc_is_that_of_scikit_learn_within_its_bound(stream):
    scores, labels = STREAMS[stream](np.random.default_rng(1))
    order = counted(scores, labels)
    error = abs(order.auc().value - roc_auc_score(labels, scores))
    assert error <= 2e-4
    assert error <= order.auc().error_bound + 1e-12
    assert order.auc().error_bound <= 0.002


EXAMPLES = st.lists(
    st.tuples(st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), max_size=40
)


@given(EXAMPLES, st.sampled_from([64, 1024]))
def test_the_bound_holds_for_any_scores(examples, cells):
    scores, labels = np.array([e[0] for e in examples]), np.array([e[1] for e in examples], bool)
    order = counted(scores, labels, cells=cells)
    if labels.all() or not labels.any():
        assert math.isnan(order.auc().value)
        assert math.isnan(order.auc().error_bound)
    else:
        error = abs(order.auc().value - exact_auc(scores, labels))
        assert error <= order.auc().error_bound + 1e-12


def test_each_score_has_its_own_cell_as_long_as_there_is_room():
    order = counted([0.3, np.nextafter(0.3, 1)], [0, 1])
    assert (order.auc().value, order.auc().error_bound) == (1.0, 0.0)
    assert counted([0.3, 0.3], [0, 1]).auc().value == 0.5


def test_the_bound_holds_where_each_click_is_just_above_a_non_click():
    low = np.linspace(0.3, 0.6, 256)
    scores, labels = np.concatenate([low, np.nextafter(low, 1)]), np.repeat([0, 1], 256)
    order = counted(scores, labels, cells=128)
    order.seal()
    area = order.auc()
    error = exact_auc(scores, labels) - area.value
    assert 0.001 < error <= area.error_bound


def test_auc_with_weights():
    rng = np.random.default_rng(3)
    scores, labels = calibrated(rng, 20_000, -2)
    weights = rng.integers(1, 9, 20_000) / 4
    order = counted(scores, labels, weights)
    assert order.auc().value == pytest.approx(exact_auc(scores, labels, weights), abs=1e-3)


def test_cells_become_one_when_there_are_too_many():
    rng = np.random.default_rng(0)
    order = ScoreOrder(64)
    for _ in range(20):
        order.update(*calibrated(rng, 2048, -2, 3))
        assert len(order.positives) <= 64
    assert order.positives.sum() + order.negatives.sum() == 40_960


@pytest.mark.parametrize(("scores", "most"), [(256, 256), (257, 64)])
def test_four_times_as_many_cells_stay_when_examples_become_due(scores, most):
    order = counted(0.25 + np.arange(2048) % scores * 1e-6, np.arange(2048) % 3 == 0, cells=64)
    assert order.arrays()["seen"] == 0
    assert (order.auc().error_bound == 0) == (scores == most)
    assert len(order.positives) <= most


@pytest.mark.parametrize(("cells", "most"), [(64, 2048), (2048, 32_768), (16_384, 65_536)])
def test_examples_become_due_after_32_for_each_cell_at_most_32768_or_4_for_each(cells, most):
    order = ScoreOrder.from_arrays({**ScoreOrder(cells).arrays(), "seen": np.array(most - 1)})
    order.update([0.5], [1])
    assert order.arrays()["seen"] == 0
    refused(ValueError, "seen", ScoreOrder.from_arrays, {**order.arrays(), "seen": np.array(most)})


def one_by_one(marks, codes, weights, cells):
    """Returns what `_gathered` returns, as dictionaries of weights by code, in plain Python."""
    level = 53 - (cells // 2).bit_length()
    low, high = (int(key) >> level for key in keys_of(np.array([2.0**-25, 1 - 2.0**-25])))
    each = [(int(mark) | 1, 1 - int(mark) % 2, int(mark) % 2) for mark in marks]
    each += zip(codes.tolist(), *weights.tolist(), strict=True)
    totals = [max(sum(column), 1e-9) for column in list(zip(*each, strict=True))[1:]]
    inside, shares = {}, collections.Counter()
    for index, (code, *pair) in enumerate(each):
        if code & -code <= 1 << level:
            inside[index] = min(max(code >> level + 1, low), high)
            shares[inside[index]] += sum(w / total for w, total in zip(pair, totals, strict=True))
    small = {at for at, share in shares.items() if 0 < share <= 3 / cells and low < at < high}
    few = sum(share > 0 for share in shares.values()) <= cells
    parts = [collections.defaultdict(lambda: [0, 0]) for _ in range(1 if few else 2)]
    for index, (code, *pair) in enumerate(each):
        is_counted = not few and inside.get(index) in small
        key = (2 * inside[index] + 1) << level if is_counted else code
        for row in range(2):
            parts[is_counted][key][row] += pair[row]
    return [dict(part) for part in parts]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    examples=st.sampled_from([0, 20, 900]),
    others=st.sampled_from([0, 5, 900]),
    spread=st.sampled_from([0.01, 1.0, 3.0, 8.0]),
    middle=st.sampled_from([0, -2, -30]),
    is_high=st.booleans(),
    clicks=st.booleans(),
    weight=st.sampled_from([1.0, 2.0**-12]),
)
@example(
    seed=1,
    examples=0,
    others=900,
    spread=0.5,
    middle=0,
    is_high=False,
    clicks=True,
    weight=2.0**-12,
)
def test_examples_and_cells_in_small_cells_are_counted_there(
    seed, examples, others, spread, middle, is_high, clicks, weight
):
    """Not those in cells with many or in wider ones, nor at the ends, where others count too."""
    random = np.random.default_rng(seed)
    scores, labels = calibrated(random, examples + others + 1, middle, spread)
    scores = 1.0 - scores.astype(float) if is_high else scores.astype(float)
    marks = keys_of(scores) << ONE | (labels * clicks).astype(np.uint64)
    levels = random.choice([0, 40, 46, 47, 48, 60], others + 1)
    codes = around(marks[examples:] | ONE, levels)
    weights = random.integers(0, 3, (2, others + 1)) * weight
    weights[1] *= clicks
    expected = one_by_one(marks[:examples], codes, weights, 64)
    found = _gathered(marks[:examples], codes, weights, 64)
    assert all((codes[1:] > codes[:-1]).all() for codes, _ in found)
    assert [dict(zip(c.tolist(), w.T.tolist(), strict=True)) for c, w in found] == expected


@pytest.mark.parametrize(("used", "parts"), [(64, 1), (65, 2)])
def test_scores_in_as_many_cells_as_may_be_have_cells_of_their_own(used, parts):
    keys = keys_of(np.array([0.25])) + (np.arange(used, dtype=np.uint64) << np.uint64(47))
    marks = np.concatenate([2 * keys, 2 * keys + 3])
    assert len(_gathered(marks, np.zeros(0, np.uint64), np.zeros((2, 0)), 64)) == parts


def drawn_codes(random, size, bits):
    """Returns the codes of cells of several widths."""
    singles = random.integers(1 << bits, size=size, dtype=np.uint64) | ONE
    levels = random.integers(bits // random.integers(1, bits), size=size)
    return np.unique(around(singles, levels))


def cut_one_by_one(codes, shares, most):
    """Returns what `_cuts` returns, in plain Python."""
    numbers, found = [int(share * (2.0 / most)) for share in shares], []

    def end(number, side):
        """Returns the lowest or the highest point of a segment; None if it is not a whole one."""
        joints = [joint for joint, each in enumerate(numbers[:-1]) if each == number]
        if joints:
            code = codes[joints[0] if side < 0 else joints[-1] + 1]
        elif 0 <= number < numbers[-1]:
            code = codes[bisect.bisect_right(numbers, number)]  # it is within a single cell
        else:
            return None
        return code + side * (code & -code) - (side > 0)

    for joint, (code, above) in enumerate(itertools.pairwise(codes)):
        level, number = ((code ^ above) | (code & -code)).bit_length(), numbers[joint]
        ends = (end(number + at, side) for at, side in ((-1, -1), (0, -1), (0, 1), (1, 1)))
        before, first, last, after = (
            point is not None and point >> level == code >> level for point in ends
        )
        found.append(before or after or (first and last))
    return found


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(2, 40),
    bits=st.sampled_from([6, 20, 63]),
    most=st.floats(0.02, 2),
)
def test_cells_end_where_a_cell_covers_a_whole_segment(seed, size, bits, most):
    random = np.random.default_rng(seed)
    codes = drawn_codes(random, size, bits)
    assume(len(codes) > 1)
    shares = np.cumsum(random.random(len(codes)) ** 8)
    shares *= 2 / shares[-1]
    widths = widths_of(codes)
    joints = codes[1:] ^ codes[:-1] | widths[:-1]
    found = _cuts(codes, widths, joints, shares, most)
    assert found.tolist() == cut_one_by_one(codes.tolist(), shares.tolist(), most)


def pairs_one_by_one(codes, negatives, positives):
    """Returns the share of pairs in the right order and half that of unknown ones, in Python."""
    ends = [(code - (code & -code), code + (code & -code) - 1) for code in codes]
    right = unknown = 0.0
    for click, (first, last) in enumerate(ends):
        for other, (lowest, highest) in enumerate(ends):
            pairs = positives[click] * negatives[other]
            right += pairs * (1.0 if highest < first else 0.0 if last < lowest else 0.5)
            is_known = highest < first or last < lowest or (click == other and last == first + 1)
            unknown += 0.0 if is_known else pairs
    total = sum(negatives) * sum(positives)
    return right / total, 0.5 * unknown / total


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 20), bits=st.sampled_from([4, 7, 62]))
def test_pairs_of_cells_that_overlap_are_unknown(seed, size, bits):
    random = np.random.default_rng(seed)
    codes = drawn_codes(random, size, bits)
    weights = random.integers(0, 4, (2, len(codes))).astype(float)
    assume(weights.any(axis=1).all())
    arrays = {"cells": np.array(64), "seen": np.array(0), "codes": codes}
    order = ScoreOrder.from_arrays(
        arrays | dict(zip(("negatives", "positives"), weights, strict=True))
    )
    assert order.auc() == pytest.approx(pairs_one_by_one(codes.tolist(), *weights.tolist()))


def joined_one_by_one(codes, weights, cells):
    """Returns what `_joined` returns, as a list of code and weights, in plain Python."""
    factors = [1.0 / (sum(row) or 1.0) for row in weights]
    sums = list(zip(*map(itertools.accumulate, weights), strict=True))
    shares = [negatives * factors[0] + positives * factors[1] for negatives, positives in sums]
    most = 12 / cells
    while sum(cut_one_by_one(codes, shares, most)) >= 0.75 * cells:
        most *= 2
    cut = [*cut_one_by_one(codes, shares, most), True]
    ends = [place for place, is_end in enumerate(cut) if is_end]
    found = []
    for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False):
        members = codes[start : end + 1]
        lowest = min(code - (code & -code) for code in members)
        highest = max(code + (code & -code) - 1 for code in members)
        bits = (lowest ^ highest).bit_length()
        code = (lowest >> bits << bits) + (1 << bits >> 1)
        found.append([code, *(sum(row[start : end + 1]) for row in weights)])
    return found


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(2, 90),
    bits=st.sampled_from([8, 20, 63]),
    cells=st.sampled_from([4, 8, 64]),
    clicks=st.integers(0, 1),
)
def test_joined_cells_are_the_smallest_around_their_members(seed, size, bits, cells, clicks):
    random = np.random.default_rng(seed)
    codes = drawn_codes(random, size, bits)
    assume(len(codes) > 1)
    weights = (random.integers(0, 9, (2, len(codes))) * [[1], [clicks]]).astype(float)
    found, sums = _joined(codes, weights, cells)
    joined = [[code, *pair] for code, pair in zip(found.tolist(), sums.T.tolist(), strict=True)]
    assert joined == joined_one_by_one(codes.tolist(), weights.tolist(), cells)
    assert len(joined) <= cells


@pytest.mark.parametrize("weight", [1.0, 2.0**-10])
def test_few_clicks_in_a_narrow_range_have_as_many_cells_as_many_non_clicks(weight):
    random = np.random.default_rng(1)
    scores = np.append(random.random(800), random.uniform(0.5, 0.51, 100))
    order = counted(scores, np.repeat([0, 1], [800, 100]), np.full(900, weight), cells=64)
    order.seal()
    shares = sum(weights / weights.sum() for weights in (order.negatives, order.positives))
    assert len(shares) <= 64
    assert shares.max() <= 12 / 64


def test_a_copy_to_be_read_has_few_cells_and_leaves_the_state_as_it_was():
    scores, labels = calibrated(np.random.default_rng(1), 1500, -1, 3)
    order = counted(scores, labels, cells=64)
    few, exact = order.copy(), counted(scores[:200], labels[:200], cells=64)
    few.shorten()
    exact.shorten()
    assert len(few.positives) <= 64
    assert abs(few.auc().value - exact_auc(scores, labels)) <= few.auc().error_bound
    assert_equal_states(order, counted(scores, labels, cells=64))
    assert exact.auc().value == pytest.approx(exact_auc(scores[:200], labels[:200]))
    assert exact.auc().error_bound == 0


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 5))
def test_merged_states_are_within_their_bound(seed, parts):
    scores, labels = calibrated(np.random.default_rng(seed), 3000, -1, 3)
    merged = ScoreOrder(64)
    for part in range(parts):
        merged.merge(counted(scores[part::parts], labels[part::parts], cells=64))
    area = merged.auc()
    assert abs(area.value - exact_auc(scores, labels)) <= area.error_bound + 1e-12
    assert area.error_bound <= 0.2
    assert merged.positives.sum() == labels.sum()


def test_states_that_are_merged_become_due_together_and_take_bounded_memory():
    scores, labels = calibrated(np.random.default_rng(1), 16_000, -1, 3)
    merged, parts = ScoreOrder(64), np.split(np.arange(16_000), 80)
    for number, part in enumerate(parts, start=1):
        merged.merge(counted(scores[part], labels[part], cells=64))
        if number == 2:
            assert merged.arrays()["seen"] == 400
    assert len(merged.positives) <= 8 * 64
    assert merged.positives.sum() == labels.sum()


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), borders=st.lists(st.integers(0, 2000), max_size=5).map(sorted))
def test_batches_reading_and_storing_change_nothing(seed, borders):
    columns = calibrated(np.random.default_rng(seed), 2000, -1, 3)
    whole = counted(*columns, cells=64)
    state = ScoreOrder(64)
    for start, end in zip([0, *borders], [*borders, 2000], strict=True):
        state.update(*(column[start:end] for column in columns))
        state.auc()
        state = ScoreOrder.from_arrays(state.arrays())
    assert_equal_states(state, whole)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cells", np.array(63, np.int64)),
        ("seen", np.array(-1, np.int64)),
        ("seen", np.array(1 << 20, np.int64)),
        ("codes", np.array([9, 8], np.uint64)),
        ("codes", np.array([8, 8], np.uint64)),
        ("codes", np.array([0, 8], np.uint64)),
        ("codes", np.array([8, 2**64 - 1], np.uint64)),
        ("codes", np.array([8, 9], np.int64)),
        ("positives", np.array([-1.0, 0])),
        ("negatives", np.array([np.nan, 0])),
        ("negatives", np.zeros(3)),
    ],
)
def test_invalid_arrays_are_refused(name, value):
    order = updated(ScoreOrder(), [0.25, 0.5], [0, 1])
    refused(ValueError, "is invalid", ScoreOrder.from_arrays, {**order.arrays(), name: value})


def test_a_sealed_state_goes_on_as_one_that_was_read():
    scores, labels = calibrated(np.random.default_rng(1), 3000, -1, 3)
    sealed = counted(scores[:1500], labels[:1500], cells=64)
    sealed.seal()
    read = sealed.copy()
    assert len(read.positives) <= 64
    merged = [state.copy() for state in (sealed, read)]
    for state in (sealed, read):
        state.update(scores[1500:], labels[1500:])
    for state in merged:
        state.merge(counted(scores[1500:], labels[1500:], cells=64))
    assert_equal_states(sealed, read)
    assert_equal_states(*merged)
    for state in (sealed, *merged):
        area = state.auc()
        assert abs(area.value - exact_auc(scores, labels)) <= area.error_bound


@pytest.mark.parametrize("heavy", [slice(6), slice(-6, None)], ids=["lowest", "highest"])
@pytest.mark.parametrize("parts", [1, 16])
def test_heavy_examples_at_an_end_keep_cells_of_their_own(heavy, parts):
    """Joined with their neighbours, and merged, they would be in cells that contain each other."""
    random = np.random.default_rng(4)
    scores, labels = np.sort(calibrated(random, 5000, -2)[0]), random.random(5000) < 0.5
    weights = np.ones(5000)
    weights[heavy] = 2.0**20
    mixed = random.permutation(5000)
    whole = ScoreOrder(128)
    for part in np.array_split(mixed, parts):
        state = counted(scores[part], labels[part], weights[part], cells=128)
        state.seal()
        whole.merge(state)
    area = whole.auc()
    assert abs(area.value - exact_auc(scores, labels, weights)) <= area.error_bound < 1e-4


@pytest.mark.parametrize("examples", [256, 257])
def test_four_examples_for_each_cell_stay_in_a_copy_to_be_read(examples):
    order = counted(np.arange(examples) / 512, np.arange(examples) % 3 == 0, cells=64)
    order.shorten()
    assert (len(order.positives) <= 64) == (examples > 256)


@pytest.mark.parametrize("size", [200, 300])
@pytest.mark.parametrize("of_examples", [True, False])
def test_few_examples_and_many_cells_become_few_to_be_read(of_examples, size):
    scores, labels = calibrated(np.random.default_rng(1), size, -1, 3)
    order = counted(scores, labels, cells=64)
    if of_examples:
        order.seal()
    else:
        order = ScoreOrder.from_arrays({**order.arrays(), "seen": np.array(0)})
    order.shorten()
    assert len(order.positives) <= 64


def test_small_batches_wait_in_few_parts_to_be_sorted():
    order = ScoreOrder()
    sizes = []
    for _ in range(299):
        order.update([0.5], [1])
        sizes.append(len(pickle.dumps(order)))
    assert sizes.index(max(sizes)) == 254
    assert sizes[255] < sizes[1]
    assert order.positives.tolist() == [299]


def test_scaled_weights_still_add_without_rounding():
    order = counted([0.25, 0.5, 0.5], [0, 1, 0], [1.0, 2.0, 3.0])
    order.scale(0.3)
    assert ((order.negatives * 2**20) % 1 == 0).all()
    assert order.negatives.tolist() == pytest.approx([0.3, 0.9], abs=2.0**-21)


def test_a_merged_state_that_is_due_to_have_fewer_cells_is_restored():
    scores, labels = calibrated(np.random.default_rng(1), 3000, -1, 3)
    scores = np.round(scores, 2)
    merged = counted(scores[:1500], labels[:1500], cells=64)
    merged.merge(counted(scores[1500:], labels[1500:], cells=64))
    assert merged.arrays()["seen"] == 2047
    restored = ScoreOrder.from_arrays(merged.arrays())
    for state in (restored, merged):
        state.update(scores, labels)
    assert_equal_states(restored, merged)
