"""Why a metric moved: the culprit of a broken stream first, and nothing where nothing broke."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from rec_summary.answers.scalars import Scalars
from rec_summary.answers.text import lines
from rec_summary.answers.why import Answer, Event, Finding, why
from rec_summary.metrics.slices.sums import CELLS
from rec_summary.series.runs.slices import SliceHistory
from tests.support.broken_streams import BREAK, REPORT, by_chance, stream
from tests.support.slice_streams import Batch


def lost(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Most conversions of DE are lost for a while."""
    if BREAK < step <= 750:
        batch["cvr"][(batch["country"] == 1) & (random.random(len(batch["cvr"])) < 0.9)] = 0


def late(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Most clicks come too late."""
    if step > BREAK:
        batch["ctr"][random.random(len(batch["ctr"])) < 0.6] = 0


def twice(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Labels of DE are drawn by chance, and some clicks on a device are lost."""
    by_chance(step, batch, random)
    if step > BREAK:
        batch["ctr"][(batch["device"] == 1) & (random.random(len(batch["ctr"])) < 0.4)] = 0


def first_of(answer: Answer) -> Finding:
    assert answer.begin is not None
    assert answer.begin.low <= BREAK <= answer.begin.high + 2 * REPORT
    return answer.findings[0]


def test_the_slice_that_was_broken_is_first() -> None:
    found = first_of(why(stream(by_chance)))
    assert (found.kind, found.task, found.name) == ("slice", "ctr", "country=DE")
    assert found.z > 6
    assert found.share is not None
    assert 0.6 < found.share <= 1
    assert found.before is not None
    assert found.after is not None
    assert found.before < found.after


def test_a_fault_that_the_model_learnt_or_that_ended_is_found() -> None:
    answer = why(stream(lost))
    found = first_of(answer)
    assert (found.kind, found.task, found.name) == ("slice", "cvr", "country=DE")
    assert found.until is not None
    assert BREAK < found.until <= 750 + 4 * REPORT
    assert "back since step" in lines(answer)[0]


def test_a_fault_of_all_slices_is_one_of_the_task() -> None:
    answer = why(stream(late))
    found = first_of(answer)
    assert (found.kind, found.task, found.name) == ("task", "ctr", "")
    assert all(other.also for other in answer.findings[1:] if other.kind == "slice")


def test_two_faults_of_two_columns_are_two_findings() -> None:
    answer = why(stream(twice))
    first_of(answer)
    names = {found.name for found in answer.findings if not found.also}
    assert names >= {"country=DE", "device=d1"}


def test_traffic_that_shifts_is_no_loss_of_quality() -> None:
    answer = why(stream(shifts=True))
    found = first_of(answer)
    assert (found.kind, found.name) == ("mix", "country=ES")
    assert {other.kind for other in answer.findings} == {"mix"}
    assert [other for other in answer.findings if not other.also] == [found]
    assert "no quality was lost beyond chance" in lines(answer)[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_quiet_stream_is_quiet(seed: int) -> None:
    answer = why(stream(seed=seed))
    assert (answer.begin, answer.findings) == (None, ())
    assert lines(answer) == ["ctr and cvr: nothing moved beyond chance."]


def test_a_metric_and_a_task_can_be_chosen() -> None:
    calibration = why(stream(lost), metric="calibration", task="cvr")
    assert first_of(calibration).metric == "calibration"
    assert calibration.tasks == ("cvr",)
    assert why(stream(lost), metric="calibration", task="ctr").findings == ()
    assert why(stream(lost), metric="auc").findings == ()  # there are no orders


def test_only_what_began_later_or_around_a_step() -> None:
    assert why(stream(by_chance), since=BREAK + 6 * REPORT).findings == ()
    assert why(stream(by_chance), at=300).findings == ()
    assert first_of(why(stream(by_chance), at=BREAK)).name == "country=DE"
    assert first_of(why(stream(by_chance), since=400)).name == "country=DE"


def moved(tag: str, to: float, at: int = BREAK, level: float = 1.0) -> Scalars:
    steps = np.arange(1, 41) * REPORT
    values = np.where(steps > at, to, level) * 1.0
    return Scalars(tag, 0, steps, steps * 1.0, values)


def test_a_feature_that_broke_at_the_same_time_is_the_culprit() -> None:
    series = moved("recommender/feature/age/missing_share", 0.4, level=0)
    answer = why(stream(late), [series, moved("recommender/throughput/samples_per_second", 0.3)])
    found = first_of(answer)
    assert (found.kind, found.name, found.task) == ("feature", "age", None)
    assert (found.before, found.share) == (0, None)
    assert found.after == pytest.approx(0.4)
    assert [other.kind for other in answer.findings if not other.also] == [
        "feature",
        "task",
        "throughput",
    ]


def test_a_feature_that_broke_at_another_time_is_not() -> None:
    series = moved("recommender/feature/age/missing_share", 0.4, at=800, level=0)
    answer = why(stream(by_chance), [series])
    assert first_of(answer).name == "country=DE"
    assert "age" in [other.name for other in answer.findings if not other.also]


def test_a_feature_alone_is_a_finding() -> None:
    answer = why(stream(), [moved("recommender/feature/age/missing_share", 0.4, level=0)])
    assert [found.name for found in answer.findings] == ["age"]
    assert first_of(answer).step == 512


def test_throughput_alone_says_nothing() -> None:
    series = moved("recommender/throughput/samples_per_second", 0.3)
    assert why(stream(), [series]).findings == ()
    assert why([], [series]).findings == ()


def test_a_table_that_stopped_had_stopped_in_the_report_before() -> None:
    steps = np.arange(1, 25) * 100
    values = np.where(steps > 1600, 0.0, 0.2)  # it changed for the last time after step 1500
    series = Scalars("recommender/table/item/relative_change", 0, steps, steps * 1.0, values)
    found = why([], [series]).findings[0]
    assert (found.name, found.low, found.step, found.high) == ("item", 1500, 1550, 1600)


def test_scalars_alone_have_an_answer() -> None:
    answer = why([], [moved("gradients/norm", 9.0)])
    assert [found.kind for found in answer.findings] == ["gradient"]
    assert why([]).findings == ()
    assert why([]).last == 0


def test_the_drift_of_a_feature_may_be_that_of_the_traffic() -> None:
    answer = why(stream(shifts=True), [moved("recommender/drift/psi/country", 0.9, level=0.01)])
    assert first_of(answer).kind == "mix"
    assert [found.also for found in answer.findings if found.kind == "feature"] == [True]


def test_events_around_the_onset() -> None:
    events = [Event("note", step, 1.0, str(step)) for step in (100, 490, 520, 900)]
    assert [event.step for event in why(stream(by_chance), [], events).events] == [490, 520]
    assert why(stream(), [], events).events == ()


def test_a_column_that_began_later_is_compared_with_its_own_reports() -> None:
    histories = [
        replace(each, steps=each.steps[10:], wall_times=each.wall_times[10:], sums=each.sums[10:])
        if each.column == "country"
        else each
        for each in stream(by_chance)
    ]
    assert first_of(why(histories)).name == "country=DE"


def test_values_of_which_an_example_has_several_have_no_share() -> None:
    histories = [replace(each, is_partition=False) for each in stream(by_chance)]
    assert first_of(why(histories)).share is None


def test_an_order_that_is_lost_is_found_by_the_auc() -> None:
    random = np.random.default_rng(1)
    steps = np.arange(1, 31) * 100
    orders = np.zeros((30, 3, 2, CELLS))
    for report in range(30):
        for value in range(3):
            scores = random.uniform(0, 1, 600)
            chances = np.full(600, 0.5) if value == 1 and report >= 20 else scores
            labels = (random.random(600) < chances) * 1
            np.add.at(orders[report, value], (labels, (scores * CELLS).astype(int)), 1)
    sums = np.zeros((30, 3, 11))
    sums[..., [0, 1, 5]] = 600
    sums[..., [2, 6]] = orders[:, :, 1].sum(-1)[..., None]
    sums[..., 10] = 100
    base = SliceHistory("", "c", True, steps, steps * 1.0, ["a", "b", "c"], sums, steps, orders)
    whole = replace(
        base,
        column="",
        values=[""],
        sums=sums.sum(1, keepdims=True),
        orders=orders.sum(1, keepdims=True),
    )
    answer = why([whole, base], metric="auc")
    found = answer.findings[0]
    assert (found.name, found.metric) == ("c=b", "auc")
    assert found.share == pytest.approx(1, abs=0.4)
    assert found.before == pytest.approx(2 / 3, abs=0.1) or found.before == pytest.approx(
        0.83, abs=0.1
    )
    assert found.after == pytest.approx(0.5, abs=0.06)
    assert answer.begin is not None
    assert abs(answer.begin.step - 2050) <= 200


def test_json_has_the_documented_keys() -> None:
    answer = why(stream(by_chance), [], [Event("note", 510, 1.0, "a")], metric="ne", task="ctr")
    found = json.loads(json.dumps(answer.as_json()))
    keys = ["metric", "task", "from", "to", "begin", "findings", "events"]
    assert list(found) == keys
    assert list(found["begin"]) == ["step", "low", "high"]
    names = ["kind", "name", "task", "metric", "before", "after", "share", "z", "step"]
    assert list(found["findings"][0]) == [*names, "low", "high", "until", "also"]
    assert list(found["events"][0]) == ["kind", "step", "wall_time", "text"]
    assert (found["metric"], found["task"], found["from"], found["to"]) == ("ne", "ctr", 25, 1000)
