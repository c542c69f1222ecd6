"""An answer in words."""

from __future__ import annotations

from typing import Any

from rec_summary.answers.text import lines
from rec_summary.answers.why import Answer, Begin, Event, Finding

SLICE = Finding(
    *("slice", "country=ES", "cvr", "calibration", 1.05, 3.0, 0.83, 21.2, 525, 500, 550)
)
FEATURE = Finding(*("feature", "age", None, "missing_share", 0.0, 0.41, None, 45.0, 525, 500, 550))
TASK = Finding(*("task", "", "ctr", "ne", 0.8, 0.95, None, 9.0, 525, 500, 600))


def words(*findings: Finding, tasks: tuple[str, ...] = ("ctr", "cvr"), **more: Any) -> list[str]:
    begin = Begin(525, 500, 550) if findings else None
    return lines(Answer(None, None, tasks, 50, 1000, begin, findings, **more))


def test_the_sentence_of_a_slice() -> None:
    assert words(SLICE) == [
        "ctr and cvr: cvr lost quality from step 525 (±25): country=ES explains 83 % "
        "(calibration 1.05 → 3, z 21). Nothing else moved beyond chance."
    ]


def test_a_feature_that_is_worth_less() -> None:
    lost = Finding(
        *("feature", "tags", None, "ctr/importance", 0.012, 0.0, None, 9.0, 525, 500, 550)
    )
    assert words(lost) == [
        "ctr and cvr: feature tags lost importance from step 525 (±25) "
        "(ctr/importance 0.012 → 0, z 9). Nothing else moved beyond chance."
    ]


def test_nothing() -> None:
    assert words() == ["ctr and cvr: nothing moved beyond chance."]
    assert words(tasks=("",)) == ["Nothing moved beyond chance."]


def test_a_run_whose_task_has_no_name() -> None:
    unnamed = TASK.__class__(**{**vars(TASK), "task": ""})
    assert words(unnamed, tasks=("",)) == [
        "The model lost quality from step 525 (±75): all slices alike (NE 0.8 → 0.95, z 9). "
        "Nothing else moved beyond chance."
    ]


def test_a_cause_and_what_it_did_are_one_sentence() -> None:
    assert words(FEATURE, TASK) == [
        "ctr and cvr: feature age changed from step 525 (±25) (missing 0 % → 41 %, z 45); "
        "ctr lost quality from step 525 (±75): all slices alike (NE 0.8 → 0.95, z 9). "
        "Nothing else moved beyond chance."
    ]


def test_further_findings_and_events_have_lines() -> None:
    other = SLICE.__class__(**{**vars(SLICE), "name": "language=es", "also": True})
    back = SLICE.__class__(**{**vars(SLICE), "name": "country=DE", "until": 900, "share": None})
    event = Event("note", 530, 0.0, "a new\nfile " + "x" * 200)
    assert words(SLICE, back, other, events=(event,))[1:] == [
        "  cvr lost quality from step 525 (±25): country=DE (calibration 1.05 → 3, z 21, "
        "back since step 900)",
        "  With it, and maybe because of it: cvr language=es",
        "  note at step 530: a new file " + "x" * 89 + "…",
    ]


def test_there_are_at_most_ten_lines() -> None:
    many = [SLICE.__class__(**{**vars(SLICE), "name": f"country={n}"}) for n in range(30)]
    also = [SLICE.__class__(**{**vars(SLICE), "name": f"c={n}", "also": True}) for n in range(9)]
    events = tuple(Event("note", step, 0.0, "a") for step in range(9))
    found = words(*many, *also, events=events)
    assert len(found) == 10
    assert found[-5] == "  and 25 more findings (--json has all)"
    assert found[-4].endswith("cvr c=4, and 4 more")


def test_traffic_and_rates_are_no_loss_of_quality() -> None:
    mix = SLICE.__class__(**{**vars(SLICE), "kind": "mix", "metric": "traffic", "before": 0.04})
    assert words(mix)[0].startswith(
        "ctr and cvr: traffic shifted from step 525 (±25): cvr traffic of country=ES (traffic 4 %"
    )
    rate = TASK.__class__(**{**vars(TASK), "kind": "rate", "metric": "click_rate", "after": None})
    assert words(rate)[0].startswith(
        "ctr and cvr: the click rate of ctr changed from step 525 (±75) (click rate 80 % → none"
    )
    for found in (mix, rate):
        assert "; no quality was lost beyond chance. Nothing else" in words(found)[0]


def test_what_has_no_name_of_its_own() -> None:
    late = FEATURE.__class__(
        **{**vars(FEATURE), "kind": "freshness", "name": "freshness", "metric": "lag_seconds/p99"}
    )
    assert words(late, tasks=())[0].startswith("Freshness changed from step 525 (±25) (lag_seconds")
    slow = FEATURE.__class__(**{**vars(FEATURE), "kind": "rank", "name": "3", "metric": "x"})
    assert words(slow, tasks=())[0].startswith("Rank 3 changed from step 525")
