"""`Task`: what it accepts, and what it says to mistakes."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("mindspore")

from rec_summary import RecommenderMetrics, Task
from tests.support.laws import assert_three_parts

CTR = Task(predictions=1, labels=2)


def test_a_task_has_all_examples_and_nan_is_a_missing_label() -> None:
    assert CTR.mask is None
    assert math.isnan(CTR.missing)
    assert RecommenderMetrics(tasks={"ctr": CTR, "v2.like-rate": CTR}).tasks["ctr"] is CTR


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"predictions": None}, TypeError, "predictions"),
        ({"labels": 1.5}, TypeError, "labels"),
        ({"mask": ""}, ValueError, "mask"),
        ({"weights": True}, TypeError, "weights"),
        ({"missing": "none"}, TypeError, "missing"),
        ({"kind": "stars"}, ValueError, "kind"),
        ({"kind": "ratings", "users": 0}, ValueError, "users"),
        ({"kind": "ratings", "logits": True}, ValueError, "logits"),
        ({"kind": "ratings", "negative_rate": 0.5}, ValueError, "negative_rate"),
        ({"kind": "classes", "users": "user"}, ValueError, "users"),
        ({"kind": "retrieval", "lists": 0}, ValueError, "lists"),
        ({"kind": "retrieval", "logits": True}, ValueError, "logits"),
        ({"kind": "classes", "labels": None}, ValueError, "labels"),
        ({"lists": ""}, ValueError, "lists"),
        ({"negative_rate": 0}, ValueError, "negative_rate"),
    ],
)
def test_a_mistake_is_named_with_what_was_received(options, error, name) -> None:
    with pytest.raises(error) as caught:
        Task(**{"predictions": 1, "labels": 2, **options})
    assert_three_parts(caught)
    assert name in str(caught.value).partition("Received")[0]


@pytest.mark.parametrize("name", ["a/b", "", " ctr", "-ctr", "auc", "table", "drift", "states"])
def test_names_of_tasks_are_parts_of_tags_and_no_groups_of_metrics(name) -> None:
    with pytest.raises(ValueError, match=" of tasks") as caught:
        RecommenderMetrics(tasks={name: CTR})
    assert_three_parts(caught)


@pytest.mark.parametrize(
    "options",
    [
        {"predictions": 1, "labels": 2},
        {"weights": 3},
        {"users": "user"},
        {"logits": True},
        {"task": "ratings"},
        {"negative_rate": 0.5},
    ],
)
def test_tasks_and_the_options_of_one_task_exclude_each_other(options) -> None:
    with pytest.raises(ValueError, match="set this option in each Task") as caught:
        RecommenderMetrics(tasks={"ctr": CTR}, **options)
    assert_three_parts(caught)


@pytest.mark.parametrize("tasks", [[CTR], {1: CTR}, {"ctr": (1, 2)}])
def test_tasks_are_by_name(tasks) -> None:
    with pytest.raises(TypeError) as caught:
        RecommenderMetrics(tasks=tasks)
    assert_three_parts(caught)


def test_a_feature_is_not_named_as_a_column_of_a_task() -> None:
    RecommenderMetrics(tasks={"ctr": CTR}, features={"ctr/genre": 0})
    with pytest.raises(ValueError, match="key of features"):
        RecommenderMetrics(tasks={"ctr": CTR}, features={"ctr/label": 0})
