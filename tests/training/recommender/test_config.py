"""`RecommenderMetrics`: what it accepts, and what it says to mistakes."""

from __future__ import annotations

import pytest

pytest.importorskip("mindspore")

from rec_summary import Advanced, RecommenderMetrics, SummaryCollector


def test_predictions_and_labels_are_enough() -> None:
    assert RecommenderMetrics(predictions=1, labels=2).last == (100_000,)


def test_columns_may_be_chosen_by_position_name_and_function() -> None:
    metrics = RecommenderMetrics(
        predictions="score",
        labels=lambda inputs, outputs: inputs[1],
        ids={"table": (0, 3)},
        features={"hour": ("context", -1)},
    )
    assert metrics.labels(("ids", "clicks"), ()) == "clicks"
    assert (metrics.predictions, metrics.ids["table"]) == ("score", (0, 3))
    assert metrics.features["hour"].column == ("context", -1)


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"predictions": 1}, ValueError, "labels"),
        ({"labels": 1}, ValueError, "predictions"),
        ({"predictions": True, "labels": 2}, TypeError, "predictions"),
        ({"predictions": 1.5, "labels": 2}, TypeError, "predictions"),
        ({"predictions": "", "labels": 2}, ValueError, "predictions"),
        ({"predictions": (1, 2, 3), "labels": 2}, ValueError, "predictions"),
        ({"predictions": (1, "a"), "labels": 2}, TypeError, "column of predictions"),
        ({"users": 0}, ValueError, "users"),
        ({"weights": 0}, ValueError, "weights"),
        ({"predictions": 1, "labels": 2, "task": "ctr"}, ValueError, "task"),
        ({"predictions": 1, "labels": 2, "task": "ratings", "users": 0}, ValueError, "users"),
        ({"predictions": 1, "labels": 2, "task": "ratings", "logits": True}, ValueError, "logits"),
        ({"logits": 1}, TypeError, "logits"),
        ({"ids": ["table"]}, TypeError, "ids"),
        ({"ids": {1: 0}}, TypeError, "key of ids"),
        ({"ids": {"": 0}}, ValueError, "key of ids"),
        ({"ids": {"table": None}}, TypeError, "ids['table']"),
        ({"unknown_ids": {"table": 0}}, ValueError, "unknown_ids"),
        ({"ids": {"table": 0}, "unknown_ids": {"table": "0"}}, TypeError, "unknown_ids"),
        ({"features": {"label": 0}}, ValueError, "key of features"),
        ({"last": 1000}, TypeError, "last"),
        ({"last": (8,)}, ValueError, "last"),
        ({"half_lives": (100, 100)}, ValueError, "half_lives"),
        ({"report_steps": 0}, ValueError, "report_steps"),
        ({"last": ()}, ValueError, "last"),
        ({"detail": 1}, TypeError, "detail"),
        ({"advanced": {"bins": 64}}, TypeError, "advanced"),
        ({"reference": 3}, TypeError, "reference"),
        ({"negative_rate": 0}, ValueError, "negative_rate"),
        ({"negative_rate": "1"}, TypeError, "negative_rate"),
        ({"negative_rate": 0.5, "task": "ratings"}, ValueError, "negative_rate"),
    ],
)
def test_a_mistake_is_named_with_what_was_received(arguments, error, name) -> None:
    with pytest.raises(error, match=r"Received: .*Expected: ") as caught:
        RecommenderMetrics(**arguments)
    assert name in str(caught.value).partition("Received")[0]


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"bins": 1000}, ValueError, "bins"),
        ({"user_cells": 100}, ValueError, "user_cells"),
        ({"precisions": (0.5, 1.5)}, ValueError, "precisions"),
        ({"precisions": 0.5}, TypeError, "precisions"),
        ({"detail_every": True}, TypeError, "detail_every"),
        ({"reference_examples": 0}, ValueError, "reference_examples"),
        ({"state_secs": -1}, ValueError, "state_secs"),
    ],
)
def test_a_mistake_in_an_advanced_option_is_named(arguments, error, name) -> None:
    with pytest.raises(error, match=rf"{name} is invalid. Received: .*Expected: "):
        Advanced(**arguments)


def test_the_collector_takes_nothing_else(tmp_path) -> None:
    with pytest.raises(TypeError, match="recommender is invalid"):
        SummaryCollector(tmp_path, recommender={"predictions": 1})
