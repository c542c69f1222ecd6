"""Why a metric moved, asked of records."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from rec_summary._pb.lineage_pb2 import Note
from rec_summary.answers.reading import why_of
from rec_summary.answers.why import Answer
from rec_summary.errors import ArgumentError
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.report import Report
from tests.support.laws import refused
from tests.support.record_dirs import START, event, lineage, scalar, train, write_segment
from tests.support.recorded_streams import write_histories
from tests.support.slice_streams import Batch, Stream

BREAK = 260


def lost(step: int, batch: Batch, random: np.random.Generator) -> None:
    """Most clicks of DE are lost."""
    if step > BREAK:
        batch["ctr"][(batch["country"] == 1) & (random.random(len(batch["ctr"])) < 0.9)] = 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("why")
    histories = Stream(1, lost, reports=30, steps=20, size=512).histories()
    rates = np.where(histories[0].steps > BREAK, 0.5, 0.0)
    parts = [
        lineage(note=Note(text="a new pipeline", author="Ada", kind="note"), step=250),
        lineage(note=Note(text="record more", kind="control"), step=30),
        lineage(note=Note(text="the loss is nan", kind="incident"), step=251),
        lineage(note=Note(text="auc = 0.6", kind="alert"), step=252),
        lineage(train_lineage=train(step=1, start_time=1.0)),
        lineage(train_lineage=train(step=255, start_time=2.0)),
    ]
    parts[-1].train_lineage.train_dataset.train_dataset_path = "/data/new"
    write_histories(directory, histories, {"recommender/table/item/dead_share": rates}, *parts)
    return directory


def ask(directory: Path, **how: object) -> Answer:
    [found] = find_runs(str(directory))
    report = Report()
    answer = why_of(found, report, **how)  # type: ignore[arg-type]
    assert report.problem_count == 0
    return answer


def test_slices_and_scalars_of_a_run(run: Path) -> None:
    answer = ask(run)
    names = [(found.kind, found.name) for found in answer.findings if not found.also]
    assert names == [("table", "item"), ("slice", "country=DE")]
    assert answer.tasks == ("ctr", "cvr")
    assert (answer.first, answer.last) == (20, 600)


def test_events_around_the_onset(run: Path) -> None:
    assert [(each.kind, each.step, each.text) for each in ask(run).events] == [
        ("note", 250, "Ada: a new pipeline"),
        ("incident", 251, "the loss is nan"),
        ("alert", 252, "auc = 0.6"),
        ("restart", 255, "training started again"),
        ("data", 255, "training data /data/new"),
    ]


def test_since_a_time(run: Path) -> None:
    for step, is_found in ((200, True), (400, False)):
        moment = datetime.fromtimestamp(START + step / 4).isoformat()
        assert bool(ask(run, since=moment).findings) is is_found
        assert bool(ask(run, since=step).findings) is is_found
    assert ask(run, since="2100-01-01").findings == ()


def test_a_task_that_is_not_there(run: Path) -> None:
    refused(ArgumentError, "one of ctr, cvr", ask, run, task="sales")


def test_a_run_without_slices(tmp_path: Path) -> None:
    values = [scalar("gradients/norm", 9 if step > 20 else 1) for step in range(40)]
    write_segment(tmp_path, *(event(step, value) for step, value in enumerate(values, 1)))
    assert [found.kind for found in ask(tmp_path).findings] == ["gradient"]
    assert ask(tmp_path, since="2100-01-01").findings == ()
    refused(ArgumentError, "tasks have no names here", ask, tmp_path, task="ctr")


def test_a_value_that_was_recorded_again_counts_once(tmp_path: Path) -> None:
    events = [event(step, scalar("gradients/norm", 1)) for step in range(1, 41)]
    write_segment(tmp_path, *events, *events[20:])
    assert ask(tmp_path).last == 40
