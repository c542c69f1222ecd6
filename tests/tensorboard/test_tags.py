"""The series of a TensorBoard run get tags of their own."""

from __future__ import annotations

from tensorboard.compat.proto import summary_pb2

from rec_summary.series.report import Report
from rec_summary.tensorboard.dashboards.points import HISTOGRAMS, SCALARS, Plugin, Point
from rec_summary.tensorboard.tags import Tags


def place(tags: Tags, tag: str, plugin: Plugin, kind: str = "kind") -> tuple[str, bool]:
    """Returns the tag that a value gets, and whether it carries metadata."""
    value = tags.place(Point(tag, plugin, summary_pb2.Summary.Value(simple_value=1)), kind)
    return value.tag, value.HasField("metadata")


def test_only_the_first_value_of_a_series_carries_metadata() -> None:
    tags = Tags("run", Report())
    assert [place(tags, "a", SCALARS) for _ in range(3)] == [
        ("a", True),
        ("a", False),
        ("a", False),
    ]


def test_metadata_states_plugin_and_data_class() -> None:
    point = Point("a", HISTOGRAMS, summary_pb2.Summary.Value())
    metadata = Tags("run", Report()).place(point, "histogram").metadata
    assert metadata.plugin_data.plugin_name == "histograms"
    assert metadata.data_class == summary_pb2.DATA_CLASS_TENSOR


def test_the_first_series_has_the_tag() -> None:
    report = Report()
    tags = Tags("run", report)
    assert place(tags, "a", SCALARS)[0] == "a"
    assert place(tags, "a", HISTOGRAMS) == ("a/histograms", True)
    assert place(tags, "a", SCALARS)[0] == "a"
    assert tags.shown("a", HISTOGRAMS.name, "kind") == "a/histograms"
    assert tags.shown("a", HISTOGRAMS.name, "another") is None
    assert len(report.notes) == 1


def test_a_changed_tag_is_never_a_recorded_one() -> None:
    tags = Tags("run", Report())
    place(tags, "a/histograms", HISTOGRAMS)
    place(tags, "a", SCALARS)
    assert place(tags, "a", HISTOGRAMS)[0] == "a/histograms_"
    assert place(tags, "a/histograms_", SCALARS)[0] == "a/histograms_/scalars"


def test_derived_series_are_not_mixed_with_recorded_ones() -> None:
    tags = Tags("run", Report())
    assert place(tags, "w/nan_count", SCALARS, "histogram")[0] == "w/nan_count"
    assert place(tags, "w/nan_count", SCALARS, "scalar_value")[0] == "w/nan_count/scalars"


def test_tags_that_tensorboard_reserves_are_not_used() -> None:
    tags = Tags("run", Report())
    assert place(tags, "_hparams_/experiment", SCALARS)[0] == "_hparams_/experiment/scalars"
