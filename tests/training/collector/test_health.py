"""The collector's own counters, as they are recorded and shown."""

import threading

import pytest

pytest.importorskip("mindspore")

from rec_summary import Durability, RecommenderMetrics, SummaryCollector
from rec_summary.alerts.rules import gather
from rec_summary.alerts.watching import watch
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.training.collector import health
from tests.support.nets import Journal, click_model, stream
from tests.support.training_records import scalars

TAGS = ["bytes", "dropped", "errors", "queue_length", "records", "snapshot_ms"]


def train(folder, steps=20, **options):
    collector = SummaryCollector(folder, collect_freq=2, **options)
    stop = Journal(stop_after=steps)
    click_model().online_train(stream(), callbacks=[collector, stop])
    return collector


def test_counters_are_recorded_at_the_end(tmp_path):
    train(tmp_path)
    found = {name: scalars(tmp_path, f"rec_summary/{name}") for name in TAGS}
    assert all(list(each) == [20] for each in found.values())
    size = sum(file.nbytes for run in find_runs(tmp_path) for file in run.files)
    assert found["records"][20] >= 10
    assert 0 < found["bytes"][20] <= size
    assert found["dropped"][20] == found["errors"][20] == 0
    assert 0 < found["snapshot_ms"][20] < 10_000


def test_they_are_recorded_at_a_low_rate_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(health, "EVERY_SECS", 1e-9)  # no user has a reason to choose it
    train(tmp_path, steps=6)
    records = scalars(tmp_path, "rec_summary/records")
    assert list(records) == [1, 2, 3, 4, 5, 6]
    assert sorted(records.values()) == list(records.values())


def test_failures_are_counted(tmp_path):
    specified = {"histogram_regular": "none of the parameters"}
    collector = SummaryCollector(tmp_path, collect_freq=1, collect_specified_data=specified)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=3)])
    assert scalars(tmp_path, "rec_summary/errors") == {3: 1}


def test_a_label_that_is_no_column_is_an_alert(tmp_path):
    recommender = RecommenderMetrics(labels="labell", predictions=0)
    collector = train(tmp_path, recommender=recommender)
    assert sum(collector.troubles.values()) >= 20
    rules = gather([], [])
    [*alerts, report] = watch(tmp_path, rules, stop=threading.Event(), once=True)
    assert [alert.rule.name for alert in report.firing] == ["troubles"]
    (alert,) = alerts  # the lineage has counted one at the first step, and knows the kind
    assert alert.reason.startswith("rec_summary/errors = 1 at step 1: ")
    assert "labell" in alert.reason


def test_they_can_be_turned_off(tmp_path):
    train(tmp_path, collect_specified_data={"collect_health": False})
    assert scalars(tmp_path, "rec_summary/records") == {}
    assert scalars(tmp_path, "loss/auto")


def test_inspect_shows_them(tmp_path):
    train(tmp_path)
    [run] = find_runs(tmp_path)
    summary = next(inspect_run(run))
    assert set(TAGS) == set(summary.health)
    assert summary.health["dropped"] == 0
    assert summary.health["records"] >= 10


@pytest.mark.parametrize("durability", ["flush", {"fsync": "flush"}, 1])
def test_a_wrong_choice_raises_at_once(tmp_path, durability):
    with pytest.raises(TypeError, match=r"durability.*rec_summary.Durability or None"):
        SummaryCollector(tmp_path, durability=durability)


@pytest.mark.parametrize("name", ["fsync", "back_pressure", "lock"])
def test_an_unknown_choice_raises_at_once(name):
    with pytest.raises(ValueError, match=rf"durability.{name}.*'sometimes'.*one of"):
        Durability(**{name: "sometimes"})
    with pytest.raises(TypeError, match=rf"durability.{name}.*one of"):
        Durability(**{name: 3})
