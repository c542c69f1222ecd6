"""What is pinned, and which metrics HParams shows."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path

import pytest
from tensorboard.plugins.hparams import api_pb2

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.first_screen import RECOMMENDER, page, pinned_tags, recorded_tags
from rec_summary.tensorboard.hparams_metrics import chosen_metrics
from rec_summary.tensorboard.provider.board import scalar_samples
from rec_summary.tensorboard.tag_groups import grouped
from tests.support.event_files import scalars
from tests.support.record_dirs import event, histo, scalar, write_segment

EVERY = {
    "loss/auto",
    "loss/deep",
    "learning_rate/auto",
    "rec_summary/bytes",
    "recommender/auc/lifetime",
    "recommender/auc/last_10000",
    "recommender/calibration/lifetime",
    "recommender/calibration/last_10000",
    "recommender/calibration_error/last_10000",
    "eval/auc",
    "eval/mae",
}


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (
            EVERY,
            [
                "loss/auto",
                "recommender/auc/last_10000",
                "recommender/calibration/last_10000",
                "eval/auc",
            ],
        ),
        (
            {"recommender/auc/lifetime", "train_loss", "lr"},
            ["train_loss", "recommender/auc/lifetime"],
        ),
        (
            {
                *("recommender/ctr/auc/lifetime", "recommender/ctr/auc/last_100", "loss"),
                *("recommender/cvr/auc/lifetime", "recommender/cvr/calibration/lifetime"),
                *("recommender/stars/rmse/lifetime", "recommender/table/auc/ids"),
            },
            [
                *("loss", "recommender/ctr/auc/lifetime", "recommender/cvr/auc/lifetime"),
                *("recommender/stars/rmse/lifetime", "recommender/cvr/calibration/lifetime"),
            ],
        ),
        ({"eval/loss", "lr"}, ["eval/loss"]),
        ({"lr"}, []),
    ],
)
def test_the_best_tags_that_there_are_come_first(tags: set[str], expected: list[str]) -> None:
    assert pinned_tags(tags) == expected


def test_the_window_of_most_runs_is_pinned(tmp_path: Path) -> None:
    for run, window in (("a", "last_10000"), ("b", "last_20000"), ("c", "last_20000")):
        tag = f"recommender/auc/{window}"
        write_segment(tmp_path / run, *(event(step, scalar(tag, 1)) for step in (1, 2)))
    # A long run has a tag many times, and counts once.
    long = (event(step, scalar("recommender/auc/last_30000", 1)) for step in range(1, 9))
    write_segment(tmp_path / "d", *long)
    assert pinned_tags(recorded_tags(find_runs(tmp_path))) == ["recommender/auc/last_20000"]


def test_the_address_can_be_clicked(tmp_path: Path) -> None:
    write_segment(tmp_path / "run", event(1, scalar("loss/auto", 1), histo("w loss", [1])))
    tags = recorded_tags(find_runs(tmp_path))
    assert tags == ["loss/auto"]
    address = page("http://localhost:6006/", [*tags, 'a "b" ü'])
    assert address.isascii()
    assert not set(' "<>') & set(address)
    query = urllib.parse.urlsplit(address)
    [cards] = urllib.parse.parse_qs(query.query)["pinnedCards"]
    assert [each["tag"] for each in json.loads(cards)] == ["loss/auto", 'a "b" ü']
    assert query.fragment == "timeseries"
    assert page("http://localhost:6006/", []) == "http://localhost:6006/#timeseries"
    assert page("http://localhost:6006/", [], RECOMMENDER) == "http://localhost:6006/#rec_summary"


@pytest.mark.parametrize(
    ("tag", "shown"),
    [
        ("recommender/table/C1/row_norm/p50", "recommender_detail/table/C1/row_norm/p50"),
        ("recommender/drift/psi/C1", "recommender_detail/drift/psi/C1"),
        ("recommender/drift/psi/label", "recommender/drift/psi/label"),
        ("recommender/auc/lifetime", "recommender/auc/lifetime"),
        ("recommender/cvr/auc/lifetime", "recommender/cvr/auc/lifetime"),
        ("recommender/cvr/masked/lifetime", "recommender_detail/cvr/masked/lifetime"),
        ("recommender/cvr/drift/psi/label", "recommender/cvr/drift/psi/label"),
        ("recommender/cvr/drift/js/label", "recommender_detail/cvr/drift/js/label"),
        ("recommender/throughput/samples_per_second", "recommender/throughput/samples_per_second"),
        ("recommender/table/examples/ids", "recommender_detail/table/examples/ids"),
        ("rec_summary/bytes", "telemetry/bytes"),
        ("my/rec_summary/bytes", "my/rec_summary/bytes"),
        ("loss/auto", "loss/auto"),
    ],
)
def test_tags_that_few_look_at_have_groups_of_their_own(tag: str, shown: str) -> None:
    assert grouped(tag) == shown
    assert grouped(shown) == shown


def test_records_keep_the_tags_that_event_files_group(tmp_path: Path) -> None:
    values = [scalar(tag, 1) for tag in ("rec_summary/bytes", "recommender/table/C1/ids")]
    events = (event(step, scalar("loss", step), *values) for step in range(1, 40))
    # A recorded tag that is the same as a grouped one stays apart.
    write_segment(tmp_path / "records", *events, event(40, scalar("telemetry/bytes", 2)))
    chosen = export_tensorboard(tmp_path / "records", tmp_path / "logs", tags="^rec|loss|telem")
    assert chosen.exported == {"scalar_value": 118}
    run = tmp_path / "logs" / "records"
    groups = ("telemetry/bytes", "recommender_detail/table/C1/ids", "telemetry/bytes/scalars")
    assert [len(scalars(run, tag)) for tag in groups] == [39, 39, 1]
    [summary] = inspect_run(find_runs(tmp_path / "records")[0])
    recorded = {each.tag for each in summary.tags}
    assert {"rec_summary/bytes", "recommender/table/C1/ids"} <= recorded


def test_hparams_has_the_metrics_that_matter() -> None:
    def infos(*names: tuple[str, str]) -> list[api_pb2.MetricInfo]:
        return [
            api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag, group=group))
            for tag, group in names
        ]

    of_tasks = infos(("recommender/cvr/gauc/lifetime", ""), ("recommender/table/auc/ids", ""))
    assert chosen_metrics(of_tasks) == of_tasks[:1]
    every = infos(*((tag, "") for tag in sorted(EVERY)), ("auc", "/eval"), ("hits", "/eval"))
    chosen = [(each.name.group + "/" + each.name.tag).lstrip("/") for each in chosen_metrics(every)]
    # The page shows the first five.
    assert chosen == [
        "recommender/auc/lifetime",
        "loss/auto",
        "recommender/auc/last_10000",
        "eval/auc",
        "eval/auc",
        "eval/mae",
        "eval/hits",
    ]
    with_best = infos(
        *(("loss", ""), ("recommender/auc/lifetime", ""), ("auc", "eval")),
        *(("recommender_best/auc", "eval"), ("recommender_best/recommender/auc/lifetime", "")),
    )
    assert [each.display_name or each.name.tag for each in chosen_metrics(with_best, set())] == [
        *("recommender/auc/lifetime", "best/recommender/auc/lifetime", "loss"),
        *("auc", "best/eval/auc"),
    ]
    others = infos(("rec_summary/bytes", ""), ("x", ""))
    assert chosen_metrics(others) == others
    # What other programs have logged stays.
    foreign = infos(("accuracy", ""), ("auc", ""), ("rec_summary/bytes", ""))
    kept = chosen_metrics(foreign, {"auc", "rec_summary/bytes"})
    assert [each.name.tag for each in kept] == ["auc", "accuracy"]


@pytest.mark.parametrize(("runs", "samples"), [(0, 10_000), (1, 10_000), (300, 300), (9_999, 100)])
def test_many_runs_have_fewer_points_each(runs: int, samples: int) -> None:
    assert scalar_samples(runs) == samples
