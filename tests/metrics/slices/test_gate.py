"""The gate: what it promises of chance, and how much it sees."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from rec_summary import Gate
from rec_summary.metrics.slices.gate import BETTER, NOT_WORSE, UNKNOWN, WORSE, Part, judge
from tests.support.laws import refused
from tests.support.served_scores import compared_sums, draw

ENOUGH = 200_000


def whole(*sums: np.ndarray, task: str = "") -> Part:
    total = sum(each.sum(axis=0) for each in sums)
    return Part(task, "", [""], np.reshape(total, (1, -1)))


def sliced(examples: np.ndarray, rows: np.ndarray, task: str = "") -> Part:
    """The sums of a column with the values 0, 1, 2, ..."""
    sums = np.zeros((rows.max() + 1, examples.shape[1]))
    np.add.at(sums, rows, examples)
    return Part(task, "country", list(map(str, range(len(sums)))), sums)


def drawn(seed: int, size: int, worse: float = 0.0) -> np.ndarray:
    return compared_sums(*draw(np.random.default_rng(seed), size, worse))


def test_the_change_is_that_of_the_normalised_entropy() -> None:
    random = np.random.default_rng(1)
    new, served, labels = draw(random, 5000, 0.3)
    weights = random.random(5000)
    rate = np.average(labels, weights=weights)
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    entropies = [
        np.average(-np.log(np.where(labels > 0, each, 1 - each)), weights=weights) / entropy
        for each in (new, served)
    ]
    [found] = judge(Gate(), [whole(compared_sums(new, served, labels, weights))]).tasks
    assert found.whole.ne_change == pytest.approx(entropies[0] / entropies[1] - 1)
    for mean, score in (
        (found.whole.compared_calibration, new),
        (found.whole.served_calibration, served),
    ):
        assert mean == pytest.approx((weights * score).sum() / (weights * labels).sum())


def test_equal_models_are_found_worse_as_often_as_promised() -> None:
    random = np.random.default_rng(2)
    outcomes, changes, errors = Counter[str](), [], []
    for _ in range(2000):
        found = judge(Gate(least_examples=1), [whole(compared_sums(*draw(random, 4000)))])
        outcomes[found.outcome] += 1
        changes.append(found.tasks[0].whole.ne_change)
        errors.append(found.tasks[0].whole.ne_change_error)
    assert 0.01 < outcomes[WORSE] / 2000 < 0.04  # 0.025
    assert 0.01 < outcomes[BETTER] / 2000 < 0.04
    assert np.std(changes) == pytest.approx(np.mean(errors), rel=0.1)


def test_slices_of_equal_models_are_found_worse_as_often_as_promised() -> None:
    random = np.random.default_rng(3)
    gate, found = Gate(no_slice_worse=True, least_examples=1, detectable=1), Counter[str]()
    for _ in range(200):
        examples, rows = compared_sums(*draw(random, 20_000)), random.integers(0, 10, 20_000)
        verdict = judge(gate, [whole(examples), sliced(examples, rows)])
        assert verdict.compared_slices == 10
        found["slice"] += verdict.outcome != WORSE and verdict.holds is False
    assert found["slice"] / 200 < 0.05  # 0.025 for all slices together


def test_outcomes() -> None:
    random = np.random.default_rng(4)
    new, served, labels = draw(random, ENOUGH, 0.2)
    worse, better = compared_sums(new, served, labels), compared_sums(served, new, labels)
    same = drawn(5, ENOUGH)
    for sums, outcome, holds in ((worse, WORSE, False), (better, BETTER, True)):
        found = judge(Gate(), [whole(sums)])
        assert (found.outcome, found.holds) == (outcome, holds)
    found = judge(Gate(detectable=0.01), [whole(same)])
    assert (found.outcome, found.holds) == (NOT_WORSE, True)
    assert found.tasks[0].more_examples is None
    gain = -judge(Gate(), [whole(better)]).tasks[0].whole.ne_change
    for share, holds in ((gain / 2, True), (gain, False)):
        found = judge(Gate(min_gain=share, detectable=0.01), [whole(better)])
        assert (found.outcome, found.holds) == (BETTER, holds)
    assert "no gain of" in found.tasks[0].reasons[0]


def test_it_says_how_many_more_examples_are_needed() -> None:
    few = drawn(6, 20_000)
    [found] = judge(Gate(), [whole(few)]).tasks
    assert (found.outcome, found.holds) == (UNKNOWN, None)
    assert found.more_examples is not None
    assert f"about {found.more_examples:,} more examples" in found.reasons[0]
    for share, outcome in ((0.5, UNKNOWN), (1.3, NOT_WORSE)):
        more = drawn(7, int(share * found.more_examples))
        assert judge(Gate(), [whole(few, more)]).outcome == outcome
    for size, more in ((9000, 1000), (1, 10_000)):
        [found] = judge(Gate(detectable=1), [whole(drawn(8, size))]).tasks
        assert (found.outcome, found.holds, found.more_examples) == (UNKNOWN, None, more)
        assert found.reasons == (f"too few examples: about {more:,} more examples are needed",)
    assert str(found.whole) == "unknown"


def test_a_slice_that_is_worse() -> None:
    random = np.random.default_rng(9)
    rows = random.integers(0, 30, ENOUGH)
    new, served, labels = draw(random, ENOUGH)
    hurt = draw(np.random.default_rng(10), ENOUGH, 0.8)
    # The same labels and served scores there, and worse new scores.
    new = np.where(rows == 7, np.random.default_rng(11).permutation(hurt[0]), new)
    examples = compared_sums(new, served, labels)
    parts = [whole(examples), sliced(examples, rows)]
    verdict = judge(Gate(no_slice_worse=True, detectable=0.02), parts)
    assert verdict.slices[0].name == "country=7"
    assert verdict.holds is False
    assert any(reason.startswith("country=7 is worse") for reason in verdict.tasks[0].reasons)
    others = [each for each in verdict.slices if each.name != "country=7"]
    assert len(others) == 9  # ten are listed
    assert not any(each.name in reason for each in others for reason in verdict.tasks[0].reasons)


def test_a_slice_that_is_worse_counts_only_if_it_is_asked_for() -> None:
    random = np.random.default_rng(12)
    gained, lost = draw(random, ENOUGH, 0.4), draw(random, ENOUGH // 10, 0.4)
    examples = np.concatenate(
        [compared_sums(gained[1], gained[0], gained[2]), compared_sums(*lost)]
    )
    rows = np.repeat([0, 1], [ENOUGH, ENOUGH // 10])
    parts = [whole(examples), sliced(examples, rows)]
    for is_asked, holds in ((False, True), (True, False)):
        verdict = judge(Gate(no_slice_worse=is_asked), parts)
        assert (verdict.outcome, verdict.holds) == (BETTER, holds)
        assert (verdict.compared_slices, verdict.worse_slices) == (2, 1)


def test_slices_need_clicks() -> None:
    examples = drawn(13, 20_000)
    clicks = np.flatnonzero(examples[:, 2])
    rows = np.zeros(20_000, np.int64)
    rows[clicks[:49]], rows[clicks[49:200]] = 1, 2  # neither has a non-click
    rows[np.setdiff1d(np.arange(1000), clicks)] = 1
    verdict = judge(Gate(), [whole(examples), sliced(examples, rows)])
    assert (verdict.compared_slices, verdict.slices[0].name) == (1, "country=0")


def test_the_worst_task_decides() -> None:
    new, served, labels = draw(np.random.default_rng(14), ENOUGH, 0.2)
    parts = [
        whole(compared_sums(served, new, labels), task="better"),
        whole(compared_sums(new, served, labels), task="worse"),
        whole(drawn(15, 500), task="unknown"),
        whole(np.zeros_like(drawn(15, 1)), task="not served"),
    ]
    verdict = judge(Gate(), parts)
    assert [each.whole.task for each in verdict.tasks] == ["worse", "unknown", "better"]
    assert (verdict.outcome, verdict.holds) == (WORSE, False)
    assert judge(Gate(task="better"), parts).outcome == BETTER
    nothing = judge(Gate(task="not served"), parts)
    assert (nothing.outcome, nothing.holds, nothing.tasks) == (UNKNOWN, None, ())


def test_the_same_model_is_not_worse() -> None:
    new, _, labels = draw(np.random.default_rng(16), ENOUGH)
    logged = np.round(new, 6)  # as logs have it
    for served in (new, np.clip(logged, 1e-6, 1 - 1e-6)):
        verdict = judge(Gate(), [whole(compared_sums(new, served, labels))])
        assert (verdict.outcome, verdict.holds) == (NOT_WORSE, True)


def test_a_gain_that_is_out_of_reach_needs_no_more_examples() -> None:
    parts = [whole(drawn(6, 20_000))]
    for gain, holds in ((0.001, None), (0.2, False)):
        [found] = judge(Gate(min_gain=gain), parts).tasks
        assert (found.outcome, found.holds) == (UNKNOWN, holds)
    assert found.reasons == ("no gain of 20 % beyond chance",)


def test_the_value_of_a_slice_cannot_imitate_the_answer() -> None:
    examples = drawn(6, ENOUGH)
    part = whole(examples)
    parts = [part, Part("", "c", ["x; better: a/b\n"], part.sums)]
    [found] = judge(Gate(), parts).slices
    assert found.title == "c=x%3B better: a%2Fb%0A"
    assert found.as_json()["name"] == "c=x; better: a/b\n"


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"min_gain": -0.1}, ValueError, "min_gain"),
        ({"min_gain": math.nan}, ValueError, "min_gain"),
        ({"min_gain": "0.1%"}, TypeError, "min_gain"),
        ({"detectable": 0}, ValueError, "above 0"),
        ({"no_slice_worse": 1}, TypeError, "a bool"),
        ({"task": 1}, TypeError, "task"),
        ({"least_examples": 0}, ValueError, "least_examples"),
        ({"window": 100}, ValueError, "at least least_examples, which is 10,000"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], expected: str) -> None:
    refused(error, expected, Gate, **options)
