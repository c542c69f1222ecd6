"""The alert for quality that moved beyond chance: it names the slice, without a threshold."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary import Importance, RecommenderMetrics, SummaryRecord
from rec_summary.alerts.quality import damage_of
from rec_summary.alerts.rules import BUILTIN, read_rule
from rec_summary.alerts.states import Transition
from rec_summary.alerts.watching import watch
from rec_summary.answers.reading import why_of
from rec_summary.answers.text import lines
from rec_summary.answers.why import Answer
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.report import Report
from tests.support.record_dirs import event, scalar, write_segment
from tests.support.waiting import PATIENCE_SECS

BREAK = 25
OPTIONS = RecommenderMetrics(
    predictions="p", labels="y", slices={"country": "country", "device": "device"}, report_steps=1
)


def recording(directory: Path, lost: float, reports: int = 40) -> Iterator[SummaryRecord]:
    """Records one report after another; from `BREAK` on, some clicks of ES are lost."""
    random = np.random.default_rng(7)
    with SummaryRecord(directory, recommender=OPTIONS) as record:
        for step in range(1, reports + 1):
            scores = random.beta(2, 8, 4000)
            labels = random.random(4000) < scores
            country = random.choice(["DE", "ES", "FR", "US"], 4000, p=[0.5, 0.1, 0.2, 0.2])
            if step >= BREAK:
                labels &= (country != "ES") | (random.random(4000) >= lost)
            record.observe(p=scores, y=labels, country=country, device=random.integers(0, 3, 4000))
            record.record(step)
            record.flush()
            yield record


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which most clicks of ES are lost."""
    return record_all(tmp_path_factory.mktemp("lost"), lost=0.7)


def record_all(directory: Path, **options: Any) -> Run:
    list(recording(directory, **options))
    (run,) = find_runs(str(directory))
    return run


def news_of(source: str | Path, **options: Any) -> Iterator[Any]:
    """Watches whether the quality changes."""
    stop = options.pop("stop", threading.Event())
    return watch(Path(source), [read_rule("quality-change")], stop=stop, **options)


def alerts(source: str | Path, **options: Any) -> list[Transition]:
    found = news_of(source, once=True, **options)
    return [each for each in found if isinstance(each, Transition)]


def test_an_alert_names_the_slice_that_lost_quality(lost: Run) -> None:
    (alert,) = alerts(lost.path)
    assert alert.firing
    assert alert.tag is not None
    assert alert.tag.startswith("recommender/slice/country=ES/")
    assert alert.reason == lines(why_of(lost, Report()))[0]
    assert "country=ES" in alert.reason
    assert alert.step is not None
    assert abs(alert.step - BREAK) <= 2


def test_nothing_is_reported_of_a_stream_without_a_fault(tmp_path: Path) -> None:
    record_all(tmp_path, lost=0.0)
    (report,) = news_of(tmp_path, once=True)
    assert report.unmatched == ()


def test_the_alert_is_raised_while_the_training_goes_on(tmp_path: Path) -> None:
    stop = threading.Event()
    records = recording(tmp_path, lost=0.7)
    next(records)
    step, end, raised = 1, math.inf, list[tuple[int, Transition]]()
    for news in news_of(tmp_path, stop=stop, interval=0.01):
        if isinstance(news, Transition):
            raised.append((step, news))
        elif next(records, None) is not None:
            step += 1
        else:  # a run is judged in a tenth of the time, so its turn may come later
            end = min(end, time.monotonic() + PATIENCE_SECS)
        if raised or time.monotonic() > end:
            stop.set()
    ((at, alert),) = raised
    assert alert.firing
    assert "country=ES" in alert.reason
    assert at >= BREAK


def test_a_change_of_long_ago_is_not_reported(lost: Run) -> None:
    last = max(file.changed for file in lost.files)
    assert damage_of(lost, last - 3600, Report()) is not None
    assert damage_of(lost, last + 3600, Report()) is None
    assert damage_of(lost, last - 3600, Report(), past=60) is not None
    assert damage_of(lost, last, Report(), past=0.0) is None  # nothing is read
    assert alerts(lost.path, since=None) == []


def test_a_run_without_slices_is_not_judged(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1.0)))
    (report,) = news_of(tmp_path, once=True)
    assert [rule.title for rule in report.unmatched] == ["quality-change"]


def test_the_rule_is_built_in_and_takes_a_time() -> None:
    assert "quality-change" in BUILTIN
    assert read_rule("mine: quality changes within 2h").condition.within == 7200  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="`within`"):
        read_rule("quality changes")
    assert read_rule("quality > 1").condition.tag.matches("quality")  # type: ignore[union-attr]


def test_a_run_that_cannot_be_judged_does_not_end_the_watch(lost: Run) -> None:
    def fail(*_: object, **__: object) -> Answer:
        raise IndexError("out of bounds")

    report = Report()
    assert damage_of(lost, 0.0, report, fail) is None
    [problem] = report.problems
    assert problem.text == "its quality is not judged: out of bounds"


def test_alerts_of_values_do_not_wait_until_all_runs_are_judged(tmp_path: Path) -> None:
    for number in range(3):
        record_all(tmp_path / str(number), lost=0.0, reports=1)
    judged = []

    def judge(run: Run, *_: object, **__: object) -> None:
        judged.append(run.name)

    next(news_of(tmp_path, judge=judge))
    assert len(judged) == 1
    list(news_of(tmp_path, once=True, judge=judge))
    assert len(judged) == 4


def test_a_feature_that_has_lost_its_importance_fires(tmp_path: Path) -> None:
    """The pipeline of a feature breaks; the model does without it, and no metric falls far."""
    random = np.random.default_rng(3)
    metrics = RecommenderMetrics(
        predictions="p",
        labels="y",
        report_steps=10,
        importance=Importance(every=1, budget=1.0, predict=lambda columns: columns["tags"]),
    )
    with SummaryRecord(tmp_path, recommender=metrics) as record:
        for step in range(1, 801):
            shown = random.beta(2, 8, 1000)
            labels = random.random(1000) < shown
            tags = shown if step < 500 else random.beta(2, 8, 1000)
            record.observe(p=shown, y=labels, tags=tags)
            record.record(step)
            record.flush()  # a busy machine would not count all examples
    (alert,) = alerts(tmp_path)
    assert alert.firing
    assert "eature tags lost importance from step" in alert.reason
    assert alert.tag == "recommender/importance/tags"
