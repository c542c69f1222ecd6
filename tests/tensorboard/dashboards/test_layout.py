from __future__ import annotations

import re

from tensorboard.plugins.custom_scalar import layout_pb2

from rec_summary.tensorboard.dashboards.layout import layout_point


def charts(*tags: str, evaluation: bool = False) -> dict[str, str]:
    """Returns the patterns of the charts by their titles."""
    point = layout_point(tags, evaluation=evaluation)
    if point is None:
        return {}
    layout = layout_pb2.Layout.FromString(point.value.tensor.string_val[0])
    found = {}
    for category in layout.category:
        [chart] = category.chart  # TensorBoard merges categories badly that have several
        [pattern] = chart.multiline.tag
        assert chart.title == category.title
        found[chart.title] = pattern
    return found


def test_charts_are_there_for_what_was_recorded() -> None:
    tags = ("loss/auto", "learning_rate/group_0/auto", "w/nan_count", "eval/auc", "mean")
    assert list(charts(*tags)) == [
        *("Loss", "Evaluation: auc", "Learning rate", "Values that are not finite"),
    ]
    assert charts("mean", "outputs") == {}


def test_every_chart_finds_its_tags_and_no_others() -> None:
    found = charts("loss/auto", "train/bce_loss", "eval/loss", "rec_summary/queue", "a/lr")
    for title, tags in {
        "Loss": {"loss/auto", "train/bce_loss"},
        "Evaluation: loss": {"eval/loss"},
        "Telemetry": {"rec_summary/queue"},
        "Learning rate": {"a/lr"},
    }.items():
        all_tags = {"loss/auto", "train/bce_loss", "eval/loss", "rec_summary/queue", "a/lr", "x"}
        assert {tag for tag in all_tags if re.match(found[title], tag)} == tags


def test_what_only_grows_does_not_hide_the_other_counters() -> None:
    [pattern] = charts("telemetry/bytes", "telemetry/records", "telemetry/dropped").values()
    assert re.match(pattern, "telemetry/dropped")
    assert not re.match(pattern, "telemetry/bytes")
    assert not re.match(pattern, "telemetry/records")


def test_metrics_have_the_same_chart_in_a_run_and_in_its_evaluations() -> None:
    assert charts("auc", evaluation=True) == charts("eval/auc")


def test_names_of_metrics_are_not_read_as_patterns() -> None:
    [pattern] = charts("recall@10 (all)", evaluation=True).values()
    assert re.match(pattern, "recall@10 (all)")
    assert not re.match(pattern, "recall@10 ")


def test_each_task_of_a_recommender_has_charts_of_its_own() -> None:
    tags = {
        *("recommender/ctr/auc/lifetime", "recommender/ctr/gauc/lifetime"),
        *("recommender/v1.2/calibration/lifetime", "recommender/stars/rmse/lifetime"),
        "recommender/table/auc/ids",
    }
    found = charts(*tags)
    assert list(found) == ["AUC: ctr", "Error of ratings: stars", "Calibration: v1.2"]
    assert {tag for tag in tags if re.match(found["AUC: ctr"], tag)} == {
        *("recommender/ctr/auc/lifetime", "recommender/ctr/gauc/lifetime")
    }
    assert not re.match(found["Calibration: v1.2"], "recommender/v1x2/calibration/lifetime")
    unnamed = ("recommender/auc/last_5", "recommender/rmse/last_5")
    assert list(charts(*unnamed)) == ["AUC", "Error of ratings"]
