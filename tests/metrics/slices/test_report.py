"""Standard errors of slices are those of all pairs, and a table has the worst slices first."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from rec_summary.metrics.lists.ranked_lists import RankedLists
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.quality.clicks import clean
from rec_summary.metrics.quality.grouped_auc import UserScores
from rec_summary.metrics.report import Detail, read
from rec_summary.metrics.slices.report import auc_standard_error
from rec_summary.metrics.slices.states import SlicedBatch, Slices, SliceState, Slicing

SCORES = st.integers(0, 8).map(lambda eighths: eighths / 8)  # many are equal
WEIGHTS = st.integers(0, 12).map(lambda quarters: quarters / 4)


def standard_error(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the standard error of an AUC from all pairs, as DeLong et al. 1988 define it."""
    clicks, others = scores[labels], scores[~labels]
    wins = (clicks[:, None] > others) + 0.5 * (clicks[:, None] == others)
    of_clicks, of_others = wins.mean(1).var(ddof=1), wins.mean(0).var(ddof=1)
    return math.sqrt(of_clicks / len(clicks) + of_others / len(others))


@given(
    st.lists(SCORES, min_size=2, max_size=25),
    st.lists(SCORES, min_size=2, max_size=25),
    st.sampled_from([None, 0.25, 8.0]),
)
def test_the_standard_error_of_an_auc_is_that_of_delong(clicks, others, weight) -> None:
    scores, labels = np.array(clicks + others), np.arange(len(clicks) + len(others)) < len(clicks)
    state = ClickQuality(64)
    state.update(scores, labels, None if weight is None else np.full(len(scores), weight))
    expected = standard_error(scores, labels)
    assert auc_standard_error(state) ** 2 == pytest.approx(expected**2, rel=1e-9, abs=1e-15)


@given(st.lists(WEIGHTS, max_size=9), st.lists(WEIGHTS, max_size=9))
def test_effective_numbers_are_those_of_kish(clicks, others) -> None:
    state = ClickQuality(64)
    labels = np.arange(len(clicks) + len(others)) < len(clicks)
    state.update(np.full(len(labels), 0.5), labels, np.array(clicks + others))
    exact = [list(map(Fraction, weights)) for weights in (others, clicks)]
    expected = [
        float(sum(weights) ** 2 / sum(each**2 for each in weights)) if any(weights) else 0
        for weights in exact
    ]
    assert state.effective_numbers() == pytest.approx(expected)
    assert math.isnan(auc_standard_error(state)) == (min(expected) < 2)


def sliced(metrics: tuple[str, ...], **examples: tuple[np.ndarray, np.ndarray]) -> Slices:
    """Returns the state of the scores and labels of each slice."""
    quality = ClickQuality(4096)
    state = Slices(SliceState(metrics, {"quality": quality}))
    names = list(examples)
    for code, columns in enumerate(examples.values()):
        codes = np.full(len(columns[0]), code)
        batch = {"quality": quality.prepare(clean(*columns))}
        state.count(SlicedBatch(Slicing(codes, names), batch))
    return state


def test_a_table_has_the_worst_slices_first_and_those_with_few_examples_last() -> None:
    random = np.random.default_rng(1)

    def clicks(number: int, others: int, signal: float) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(number + others) < number
        return random.random(len(labels)) * 0.5 + signal * labels, labels

    examples = {
        "none": clicks(0, 50, 0),
        "one": clicks(1, 30, 0.0),
        "few": clicks(20, 99, 0.4),
        "good": clicks(900, 900, 0.4),
        "middle": clicks(100, 300, 0.2),
        "bad": clicks(150, 200, 0.0),
    }
    aucs = {
        name: roc_auc_score(labels, scores)
        for name, (scores, labels) in examples.items()
        if name != "none"
    }
    errors = {name: standard_error(*examples[name]) for name in aucs if name != "one"}
    found = read({"slice/c/x": sliced(("auc", "examples", "log_loss"), **examples)}, Detail())
    (rows,) = found.tables.values()
    table = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    uncertain = sorted(("one", "few"), key=lambda name: aucs[name])
    assert list(table) == ["bad", "middle", "good", *uncertain, "none"]
    assert {name: row["auc"] for name, row in table.items()} == {
        **{name: f"{aucs[name]:.4f} ± {error:.4f}" for name, error in errors.items()},
        "one": f"{aucs['one']:.4f}",
        "none": "",
    }
    of_column = {
        "auc_worst": aucs["bad"],
        "auc_gap": aucs["good"] - aucs["bad"],
        "auc_gap_error": math.hypot(errors["good"], errors["bad"]),
        "auc_error_bound": 0,
        "examples_worst": 350,
        "examples_gap": 1800 - 350,
    }
    expected = {f"recommender/slice/c/{name}/x": number for name, number in of_column.items()}
    for name, (scores, _) in examples.items():
        expected[f"recommender/slice/c={name}/examples/x"] = len(scores)
        if name in aucs:
            expected[f"recommender/slice/c={name}/auc/x"] = aucs[name]
    scalars = {tag: each for tag, each in found.scalars.items() if "/log_loss" not in tag}
    assert scalars == pytest.approx(expected, rel=1e-9)  # no slice of other values


def test_clicks_have_no_table_of_what_the_sums_by_slice_have() -> None:
    random = np.random.default_rng(2)
    columns = random.random(500), random.random(500) < 0.5
    for metrics, is_made in (
        (("auc",), False),
        (("calibration", "normalised_entropy", "click_rate"), False),
        (("auc", "average_precision"), True),
    ):
        found = read({"slice/c/x": sliced(metrics, a=columns)}, Detail())
        assert [*found.tables] == ["recommender/slice/c/table/x"] * is_made
        assert f"recommender/slice/c=a/{metrics[0]}/x" in found.scalars


def of_users(metrics: tuple[str, ...], skills: list[float], sizes: list[int]) -> dict[str, float]:
    """Returns the numbers of slices with so many users, each with a list of 20 examples."""
    random = np.random.default_rng(3)
    groups = {
        "quality": ClickQuality(128),
        "users": UserScores(2048),
        "lists": RankedLists(2048, at=(3,)),
    }
    state = Slices(SliceState(metrics, groups), shown=len(sizes))
    codes = np.repeat(np.arange(len(sizes)), 20 * np.array(sizes))
    users = np.arange(len(codes)) // 20
    labels = random.random(len(codes)) < 0.3
    scores = 1 / (1 + np.exp(-random.normal(np.array(skills)[codes] * labels)))
    clicks = clean(scores, labels)
    batch = {
        "quality": groups["quality"].prepare(clicks),
        "users": groups["users"].prepare(users, clicks),
        "lists": groups["lists"].prepare(users, scores, labels),
    }
    names = [f"s{number}" for number in range(len(sizes))]
    state.count(SlicedBatch(Slicing(codes, names), batch))
    found = read({"slice/c/x": state}, Detail())
    (rows,) = found.tables.values()
    assert all("±" in cell for row in rows[1:] for cell in row[-len(metrics) :])
    assert not [tag for tag in found.scalars if "chance" in tag]
    start, end = "recommender/slice/c", "/x"
    return {tag[len(start) : -len(end)]: value for tag, value in found.scalars.items()}


SAMPLED = ("gauc", "gauc_by_user", "ndcg_at_3", "pair_accuracy")


def test_a_gap_of_a_metric_from_a_sample_has_its_error() -> None:
    found = of_users(SAMPLED, [1.0] * 12, [500] * 12)
    for metric in SAMPLED:
        # By chance, the range of 12 is 3.3 standard errors of one of them.
        assert 0 < found[f"/{metric}_gap"] < 4 * found[f"/{metric}_gap_error"]
        assert found[f"/{metric}_gap_error"] < 0.1
    found = of_users(SAMPLED, [1.0, 1.0, 3.0], [500] * 3)
    assert all(found[f"/{metric}_gap"] > 4 * found[f"/{metric}_gap_error"] for metric in SAMPLED)


def test_a_slice_that_is_worst_by_chance_is_not_the_worst() -> None:
    # Ten slices with a few users each, far apart by chance, beside two with many.
    found = of_users(SAMPLED, [1.0, 1.8] + [1.2] * 10, [500, 500] + [18] * 10)
    for metric in SAMPLED:
        many = found[f"=s0/{metric}"]
        few = [found[f"=s{place}/{metric}"] for place in range(2, 12)]
        assert min(few) < many
        assert found[f"/{metric}_worst"] == many
        assert found[f"/{metric}_gap"] == found[f"=s1/{metric}"] - many


def test_there_is_no_table_without_examples_or_without_a_metric() -> None:
    random = np.random.default_rng(2)
    columns = random.random(50), random.random(50) < 0.5
    for state in (sliced(("auc",)), sliced(("gauc",), a=columns)):
        found = read({"slice/c/x": state}, Detail())
        assert (found.scalars, found.tables) == ({}, {})
