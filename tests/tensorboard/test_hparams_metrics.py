"""Hyper-parameters on the page HParams, asked for as the page does, without a server."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler

from rec_summary._pb.lineage_pb2 import EvaluationLineage
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.boards import event_file_pages, record_pages
from tests.support.event_files import event_file, scalars
from tests.support.record_dirs import START, custom, event, lineage, scalar, train, write_segment

ColParam = api_pb2.ColParams


def served(root: Path) -> RecordDataProvider:
    """Returns what TensorBoard asks about records."""
    index = RunIndex(str(root))
    index.poll()
    return RecordDataProvider(index)


def exported(root: Path) -> Any:
    """Returns what TensorBoard asks about an export to event files."""
    logs = root.with_name(f"{root.name}_logs")
    export_tensorboard(root, logs)
    return event_file_pages(logs).provider


def groups(
    root: Path,
    runs: Mapping[str, Mapping[str, Any]],
    column: ColParam,
    way: Callable[[Path], Any] = served,
) -> list[str]:
    """Returns the names of the runs on the page, with entries of their lineage."""
    for name, entries in runs.items():
        described = lineage(START, user_defined_info=custom(entries))
        write_segment(root / name, event(1, scalar("loss", 1)), described)
    context = Context(base_plugin.TBContext(data_provider=way(root)))
    request = api_pb2.ListSessionGroupsRequest(
        col_params=[column], allowed_statuses=[api_pb2.STATUS_UNKNOWN], slice_size=10
    )
    answer = Handler(RequestContext(), context, "", request).run()
    return [group.name for group in answer.session_groups]


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ({"a": 0.3, "b": None, "c": 0.1}, "cab"),
        ({"a": 0.3, "b": math.nan, "c": 0.1}, "cab"),
        ({"a": 0.3, "b": math.inf, "c": 0.1}, "cab"),
        ({"a": 2**53 + 1, "b": 2, "c": 10}, "bca"),
    ],
)
@pytest.mark.parametrize("way", [served, exported])
def test_numbers_can_be_sorted_whatever_they_are(
    tmp_path: Path, way: Callable[[Path], Any], values: Mapping[str, Any], order: str
) -> None:
    assert order_of(tmp_path, values, way) == list(order)


_EXPORTED = pytest.param(
    exported,
    marks=pytest.mark.xfail(
        strict=True,
        raises=TypeError,
        reason="the read side is rebuilt: an export writes a session without knowing the others",
    ),
)


@pytest.mark.parametrize("way", [served, _EXPORTED])
@pytest.mark.parametrize(
    ("values", "order"),
    [
        ({"a": "auto", "b": 0.5, "c": 1}, "bca"),
        ({"a": "None", "b": True, "c": 1}, "cab"),
    ],
)
def test_text_beside_numbers_can_be_sorted(
    tmp_path: Path, way: Callable[[Path], Any], values: Mapping[str, Any], order: str
) -> None:
    assert order_of(tmp_path, values, way) == list(order)


def order_of(root: Path, values: Mapping[str, Any], way: Callable[[Path], Any]) -> list[str]:
    """Returns the names of runs in the order of an entry."""
    runs = {name: {"entry": value, "other": 1} for name, value in values.items()}
    column = ColParam(hparam="entry", order=api_pb2.ORDER_ASC)
    return groups(root, runs, column, way)


def test_runs_are_chosen_by_an_interval_beside_a_run_without_the_number(tmp_path: Path) -> None:
    column = ColParam(hparam="dropout", exclude_missing_values=True)
    column.filter_interval.min_value = column.filter_interval.max_value = 0.1
    runs = {"a": {"dropout": 0.1}, "b": {"dropout": None}, "c": {"dropout": 0.3}}
    assert groups(tmp_path, runs, column) == ["a"]


def test_runs_are_chosen_by_text_where_text_is_beside_numbers(tmp_path: Path) -> None:
    column = ColParam(hparam="dropout")
    column.filter_discrete.extend(["0.1"])
    runs = {"a": {"dropout": 0.1}, "b": {"dropout": "auto"}, "c": {"dropout": 1}}
    assert groups(tmp_path, runs, column) == ["a"]


def test_a_direction_that_was_said_counts_for_the_series_of_best_values(tmp_path: Path) -> None:
    said = {"my_score": "less"}
    for step, value in ((1, 0.5), (2, 0.25), (3, 0.75)):
        message = EvaluationLineage(
            metric=json.dumps({"my_score": value}), train_step=step, directions=said
        )
        evaluation = lineage(START + step, evaluation_lineage=message)
        write_segment(tmp_path / "run", event(step, scalar("eval/my_score", value)), evaluation)
    provider = served(tmp_path)
    asked = {"experiment_id": "", "plugin_name": "scalars"}
    last = provider.read_last_scalars(**asked)["run"]["recommender_best/eval/my_score"]
    assert (last.step, last.value) == (2, 0.25)


def put_scores(run: Path, steps: range, **stated: str) -> None:
    """Records three scalars, and after them which values are better, if that is stated."""
    values = [event(n, *(scalar(tag, n) for tag in ("auc", "my_score", "lr"))) for n in steps]
    described = [lineage(START, train_lineage=train(directions=stated))] if stated else []
    write_segment(run, *values, *described)


def best_steps(provider: RecordDataProvider) -> dict[str, int]:
    """Returns the steps of the best values that a run shows, by the names of metrics."""
    last = provider.read_last_scalars(experiment_id="", plugin_name="scalars")["run"]
    group = "recommender_best/"
    return {t.removeprefix(group): value.step for t, value in last.items() if t.startswith(group)}


def test_what_a_run_states_while_it_is_served_counts_for_all_of_its_values(tmp_path: Path) -> None:
    put_scores(tmp_path / "run", range(1, 4))
    index = RunIndex(str(tmp_path))
    index.poll()
    provider = RecordDataProvider(index)
    assert best_steps(provider) == {"auc": 3}
    put_scores(tmp_path / "run", range(4, 6), my_score="less")
    index.poll()
    assert best_steps(provider) == {"auc": 5, "my_score": 1}
    put_scores(tmp_path / "run", range(6, 8), my_score="greater", auc="less")
    index.poll()
    assert best_steps(provider) == {"auc": 1, "my_score": 7}


def test_a_large_run_is_read_once_where_it_states_which_values_are_better(tmp_path: Path) -> None:
    put_scores(tmp_path / "run", range(1, 20_000), my_score="less")
    index = RunIndex(str(tmp_path))
    index.poll()
    assert best_steps(RecordDataProvider(index)) == {"auc": 19_999, "my_score": 1}
    assert index.report.records["summary"] == 20_000  # with the version


def test_an_export_is_made_again_if_a_run_states_something_else(tmp_path: Path) -> None:
    records, logs = tmp_path / "records", tmp_path / "logs"

    def best(tag: str) -> list[int]:
        export_tensorboard(records, logs)
        return [step for step, _ in scalars(logs / "run", f"recommender_best/{tag}")]

    put_scores(records / "run", range(1, 4))
    assert (best("auc"), best("my_score")) == ([1, 2, 3], [])
    put_scores(records / "run", range(4, 6), my_score="less", auc="less")
    assert (best("auc"), best("my_score")) == ([1], [1])
    before = event_file(logs / "run").read_bytes()
    put_scores(records / "run", range(6, 8))
    assert best("auc") == [1]
    assert event_file(logs / "run").read_bytes().startswith(before[:-1000])


def test_metrics_of_ones_own_are_shown_with_their_best_value(tmp_path: Path) -> None:
    put_scores(tmp_path / "run", range(1, 4), my_score="less")
    _, pages = record_pages(tmp_path)
    [session] = pages.sessions()
    names = [each["name"]["tag"] for each in session["metricValues"]]
    assert {*names} == {"auc", "recommender_best/auc", "my_score", "recommender_best/my_score"}
