"""The streams of `tools/check why`: that they break as they say, and how answers are judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rec_summary import load
from tools.checks.why import streams
from tools.checks.why.judging import BEGIN, END, Verdict, holds, judged, table, written
from tools.checks.why.model import TwoHeads
from tools.checks.why.streams import REPORT_STEPS, Break, Stream, drawn
from tools.checks.why.world import COUNTRIES, DEVICES, Batch

Array = npt.NDArray[Any]
SEED = 1


def batches(kind: str, seed: int = SEED) -> tuple[Break, Batch, Batch]:
    """Returns what breaks, and some examples as they would have been, and as they are."""
    broken = drawn(kind, seed)
    pair = Stream(Break(), seed), Stream(replace(broken, step=min(broken.step, 1)), seed)
    parts = [[stream.batch(step) for step in range(1, 65)] for stream in pair]
    before, after = (
        {name: np.concatenate([batch[name] for batch in part]) for name in part[0]}
        for part in parts
    )
    return broken, before, after


def of_slice(batch: Batch, name: str) -> Array:
    column, value = name.split("=")
    values = {"country": list(COUNTRIES), "device": list(DEVICES)}[column]
    return np.asarray(batch[column] == values.index(value))


def rate(batch: Batch, where: Array | None = None) -> float:
    """Returns the share of conversions among clicks."""
    where = batch["clicked"] if where is None else batch["clicked"] & where
    return float(batch["conversion"][where].mean())


def by_item(batch: Batch, where: Array, label: str = "click") -> float:
    """Returns how far the popularity of items tells a label apart."""
    shown = np.bincount(batch["item"], minlength=2000)
    score = (np.bincount(batch["item"], batch[label], 2000) / np.maximum(shown, 1))[batch["item"]]
    return float(np.corrcoef(score[where], batch[label][where])[0, 1])


@pytest.mark.parametrize("kind", ["permuted", "permuted_rare"])
def test_labels_of_a_country_are_permuted(kind: str) -> None:
    broken, before, after = batches(kind)
    where = of_slice(after, *broken.names)
    assert (after["click"] == before["click"])[~where].all()
    assert by_item(after, where) < 0.1 < by_item(before, where) / 2
    assert after["click"][where].sum() == before["click"][where].sum()
    assert ((after["click"] > 0) == after["clicked"]).all()


@pytest.mark.parametrize(
    ("kind", "share"), [("lost", 0.5), ("lost_rare", 0.5), ("learned", 0.3), ("delayed", 0.1)]
)
def test_conversions_of_a_country_are_lost(kind: str, share: float) -> None:
    broken, before, after = batches(kind)
    first = ~after["repeated"]
    after = {name: column[first] for name, column in after.items()}
    where = of_slice(after, *broken.names)
    assert rate(after, where) / rate(before, where) == pytest.approx(share, abs=0.1)
    assert (after["conversion"] == before["conversion"])[~where].all()
    assert (after["click"] == before["click"]).all()


def test_delayed_conversions_come_five_reports_later() -> None:
    broken, _, after = batches("delayed")
    late = {name: column[after["repeated"]] for name, column in after.items()}
    assert len(late["user"]) > 100
    assert of_slice(late, *broken.names).all()
    assert (late["conversion"] == 1).all()
    assert late["delay"].min() >= 3000
    stream = Stream(replace(broken, step=9), SEED)
    repeated = [stream.batch(step)["repeated"].any() for step in range(1, 60)]
    assert repeated.index(True) + 1 == 9 + 5 * REPORT_STEPS


@pytest.mark.parametrize("seed", range(4))
def test_all_labels_of_a_head_are_permuted(seed: int) -> None:
    broken, before, after = batches("all_permuted", seed)
    chosen, other = ("click", "conversion") if broken.task == "ctr" else ("conversion", "click")
    where = after["clicked"] | (chosen == "click")
    assert by_item(after, where, chosen) < by_item(before, where, chosen) / 2
    assert after[chosen].sum() == before[chosen].sum()
    assert (after[other] == before[other]).all()
    assert not after["conversion"][~after["clicked"]].any()


def test_both_heads_are_permuted_in_some_seed() -> None:
    assert {drawn("all_permuted", seed).task for seed in range(10)} == {"ctr", "cvr"}


@pytest.mark.parametrize(("kind", "column"), [("missing", "price"), ("defaulted", "category")])
def test_a_feature_is_gone(kind: str, column: str) -> None:
    _, before, after = batches(kind)
    shares = [
        float((np.isnan(batch[column]) if kind == "missing" else batch[column] == 0).mean())
        for batch in (before, after)
    ]
    assert shares[0] < 0.04
    assert shares[1] == pytest.approx(0.6, abs=0.03)
    assert (after["click"] == before["click"]).all()


@pytest.mark.parametrize(("kind", "share"), [("mix", 2.0), ("new", 0.056)])
def test_traffic_shifts_and_people_stay_as_they_are(kind: str, share: float) -> None:
    broken, before, after = batches(kind)
    shares = [float(of_slice(batch, *broken.names).mean()) for batch in (before, after)]
    assert shares[1] > share * shares[0]
    assert shares[1] == pytest.approx(0.056 if broken.is_new else 0.17, abs=0.06)
    assert rate(after) == pytest.approx(rate(before), abs=0.03)


def test_events_come_late() -> None:
    _, before, after = batches("late")
    assert before["wait"].mean() < 30
    assert after["wait"].min() > 900


def test_two_slices_break_at_once() -> None:
    broken, before, after = batches("two")
    country, device = broken.names
    assert by_item(after, of_slice(after, country)) < 0.1
    where = of_slice(after, device)
    assert rate(after, where) < 0.4 * rate(before, where)


@pytest.mark.parametrize("kind", ["quiet", "frozen", "slow_rank"])
def test_the_examples_stay_as_they_are(kind: str) -> None:
    _, before, after = batches(kind)
    for name, column in before.items():
        np.testing.assert_array_equal(after[name], column)


def test_a_table_is_frozen_and_the_others_learn() -> None:
    broken = drawn("frozen", SEED)
    model, batch = TwoHeads(), Stream(broken, SEED).batch(1)
    model.frozen = broken.frozen
    labels = np.stack([batch["click"], batch["conversion"]], 1)
    rows = {name: model.table(name, np.unique(batch[name])) for name in ("user", "item")}
    model.train(batch, labels, np.ones_like(labels))
    for name, before in rows.items():
        is_same = model.table(name, np.unique(batch[name])) == before
        assert is_same.all() == (name in broken.frozen)


def test_each_seed_breaks_something_else_at_another_step() -> None:
    assert streams.WORDS.keys() == streams.KINDS.keys()
    for kind in streams.KINDS:
        assert streams.ranks_of(kind) == 1 + (drawn(kind, 1).slow >= 0)
    assert len({drawn("lost", seed).step for seed in range(8)}) > 5
    assert len({drawn("lost_rare", seed).names for seed in range(8)}) > 3


@pytest.mark.parametrize("seed", [1, 2])
def test_a_training_is_recorded_through_the_public_interface(tmp_path: Path, seed: int) -> None:
    broken = replace(drawn("lost", seed), step=2 * REPORT_STEPS + 1)
    assert streams.train(broken, seed, str(tmp_path / "run"), reports=4) == {}
    recorded = load(tmp_path / "run")
    slices = recorded.slices()
    columns = ["", "age", "channel", "country", "device", "label_age", "language"]
    assert sorted(set(slices["column"])) == columns
    assert len(set(slices[slices["column"] == "country"]["value"])) > 15
    mine = slices[(slices["task"] == "cvr") & (slices["column"] == "country")]
    mine = mine[mine["value"] == broken.names[0].split("=")[1]].set_index("step")
    assert list(mine.index) == [8, 16, 24, 32]
    rates = mine["clicks"] / mine["examples"]
    assert rates[24] + rates[32] < 0.7 * (rates[8] + rates[16])
    metrics = ("table/item/dead_share", "feature/price/missing_share", "freshness/lag_seconds/p50")
    wanted = {"loss", "learning_rate", *(f"recommender/{metric}" for metric in metrics)}
    assert wanted <= set(recorded.scalars()["tag"])


def finding(name: str, kind: str = "slice", task: str = "cvr") -> dict[str, Any]:
    numbers = {"before": 1.0, "after": 2.0, "share": 0.8, "z": 21.0, "step": 24}
    return {"kind": kind, "name": name, "task": task, "metric": "calibration", **numbers}


def answer(*findings: dict[str, Any], step: int | None = 24) -> dict[str, Any]:
    begin = None if step is None else {"step": step, "low": step, "high": step}
    return {"findings": [*findings], "begin": begin}


LOST = Break(20, ("country=ES",), task="cvr")
TWO = Break(20, ("country=ES", "device=tv"), all_names=True)
MIX = Break(20, ("country=ES",), is_mix=True)
NEW = Break(20, ("country=KR",), is_new=True)
ES, TV = finding("country=ES"), finding("device=tv")


@pytest.mark.parametrize(
    ("broken", "findings", "is_right"),
    [
        (LOST, [ES, TV], True),
        (LOST, [TV, ES], False),
        (LOST, [], False),
        (LOST, [finding("country=ES", task="ctr")], False),
        (LOST, [finding("country=ES", "mix")], False),
        (TWO, [TV, ES], True),
        (TWO, [TV], False),
        (TWO, [finding("country=FR"), TV, ES], False),
        (MIX, [finding("country=ES", "mix"), finding("language=es", "mix")], True),
        (MIX, [finding("country=ES", "mix"), TV], False),
        (MIX, [ES], False),
        (NEW, [finding("country=KR", "mix")], True),
        (Break(), [], True),
        (Break(), [ES], False),
    ],
)
def test_the_first_finding_must_be_what_was_broken(
    broken: Break, findings: list[dict[str, Any]], is_right: bool
) -> None:
    assert judged("lost", 3, broken, answer(*findings)).is_first == is_right


@pytest.mark.parametrize(
    ("step", "is_in_time"), [(4, True), (36, True), (37, False), (None, False)]
)
def test_the_onset_is_within_two_reports(step: int | None, is_in_time: bool) -> None:
    assert judged("lost", 3, LOST, answer(ES, step=step)).is_in_time == is_in_time


def verdicts(kind: str, right: int, wrong: int) -> list[Verdict]:
    flags = [True] * right + [False] * wrong
    return [Verdict(kind, seed, flag, True, f"saw {seed}") for seed, flag in enumerate(flags)]


def test_the_table_counts_each_kind_and_lists_what_was_missed() -> None:
    text = table([*verdicts("quiet", 3, 1), *verdicts("lost", 2, 1)])
    assert "| nothing | 3 of 4 without a finding |  |\n| half of the conversions" in text
    assert " lost | 2 of 3 | 3 of 3 |\n" in text
    assert text.endswith("\n\n* `quiet`, seed 3: saw 3\n* `lost`, seed 2: saw 2\n")


def test_a_page_gets_the_table_between_its_comments() -> None:
    page = f"# Why\n\n{BEGIN}\nold\n{END}\nMore.\n"
    assert written(page, "new\n") == f"# Why\n\n{BEGIN}\nnew\n{END}\nMore.\n"
    with pytest.raises(ValueError, match="Expected: a page with <!-- written by"):
        written("# Why\n", "new\n")


@pytest.mark.parametrize(
    ("given", "is_held"),
    [
        ([*verdicts("quiet", 19, 1), *verdicts("lost", 9, 1)], True),
        (verdicts("quiet", 18, 2), False),
        (verdicts("lost", 8, 2), False),
        ([replace(each, is_in_time=False) for each in verdicts("lost", 10, 0)], False),
    ],
)
def test_the_promise_is_of_nine_in_ten(given: list[Verdict], is_held: bool) -> None:
    assert holds(given) == is_held
