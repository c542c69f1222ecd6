"""Every argument is checked once, at construction, with MindSpore's types and bounds."""

import math
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from rec_summary import SummaryCollector, SummaryRecord
from rec_summary.training.collector.options import check_specified


def make(path, **arguments):
    return SummaryCollector(path / "records", **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"collect_freq": 0}, ValueError, "collect_freq"),
        ({"collect_freq": -3}, ValueError, "collect_freq"),
        ({"collect_freq": True}, TypeError, "collect_freq"),
        ({"collect_freq": 1.0}, TypeError, "collect_freq"),
        ({"collect_freq": None}, TypeError, "collect_freq"),
        ({"metrics": ["auc"]}, TypeError, "metrics"),
        ({"metrics": {1: "less"}}, TypeError, "a name of metrics"),
        ({"metrics": {"auc": "max"}}, ValueError, "metrics['auc']"),
        ({"num_process": 0}, ValueError, "num_process"),
        ({"num_process": "2"}, TypeError, "num_process"),
        ({"collect_specified_data": []}, TypeError, "collect_specified_data"),
        ({"collect_specified_data": {1: True}}, TypeError, "a key of collect_specified_data"),
        ({"collect_specified_data": {"collect_los": True}}, ValueError, "collect_los"),
        ({"collect_specified_data": {"collect_metric": 1}}, TypeError, "collect_metric"),
        ({"collect_specified_data": {"collect_graph": None}}, TypeError, "collect_graph"),
        ({"collect_specified_data": {"histogram_regular": 5}}, TypeError, "histogram_regular"),
        ({"collect_specified_data": {"histogram_regular": "(a"}}, ValueError, "histogram_regular"),
        ({"collect_specified_data": {"collect_landscape": 1}}, TypeError, "collect_landscape"),
        ({"keep_default_action": 1}, TypeError, "keep_default_action"),
        ({"custom_lineage_data": [1]}, TypeError, "custom_lineage_data"),
        ({"custom_lineage_data": {1: "a"}}, TypeError, "a key of custom_lineage_data"),
        ({"custom_lineage_data": {"a": object()}}, TypeError, "custom_lineage_data['a']"),
        ({"collect_tensor_freq": 0}, ValueError, "collect_tensor_freq"),
        ({"max_file_size": 0}, ValueError, "max_file_size"),
        ({"max_file_size": 1.5}, TypeError, "max_file_size"),
        ({"lineage_on_all_ranks": 1}, TypeError, "lineage_on_all_ranks"),
        ({"export_options": "npy"}, TypeError, "export_options"),
        ({"export_options": {"tensor": "npy"}}, ValueError, "a key of export_options"),
        ({"export_options": {"tensor_format": "npz"}}, ValueError, "tensor_format"),
        ({"flush_secs": 0}, ValueError, "flush_secs"),
        ({"flush_secs": math.inf}, ValueError, "flush_secs"),
        ({"lineage_secs": "1"}, TypeError, "lineage_secs"),
    ],
)
def test_a_wrong_argument_raises_at_once_in_three_parts(tmp_path, arguments, error, names):
    with pytest.raises(error) as caught:
        make(tmp_path, **arguments)
    text = str(caught.value)
    assert names in text
    assert "is invalid. Received: " in text
    assert " Expected: " in text
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("directory", "error"),
    [
        *(("", ValueError), ("a\0b", ValueError), (None, TypeError)),
        *(("s3://bucket/run", ValueError), (Path("s3://bucket/run"), ValueError)),
    ],
)
def test_a_directory_must_be_a_path(tmp_path, monkeypatch, directory, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match="summary_dir"):
        SummaryCollector(directory)
    assert not [*tmp_path.iterdir()]


def test_a_tilde_is_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SummaryCollector("~/records").summary_dir == str(tmp_path / "records")


def test_a_file_in_the_place_of_the_directory_raises_at_once(tmp_path):
    (tmp_path / "records").write_text("mine")
    with pytest.raises(OSError, match="records"):
        make(tmp_path)
    assert (tmp_path / "records").read_text() == "mine"


@pytest.mark.parametrize(
    ("specified", "keep", "metric", "histogram", "lineage"),
    [
        (None, True, True, True, True),
        (None, False, False, False, False),
        ({}, True, True, True, True),
        ({}, False, False, False, False),
        ({"collect_metric": False}, True, False, True, True),
        ({"collect_metric": True}, False, True, False, False),
        ({"histogram_regular": None}, False, False, True, False),
        ({"collect_train_lineage": True}, False, False, False, True),
    ],
)
def test_what_is_not_named_follows_keep_default_action(specified, keep, metric, histogram, lineage):
    options = check_specified(specified, keep)
    assert options["collect"].metric is metric
    assert (options["histograms"] is not None) is histogram
    assert options["collect"].train_lineage is lineage


def test_landscape_is_off_unless_asked_for():
    # MindSpore documents it so, and turns it on
    assert check_specified(None, True)["landscape"] is None
    asked = check_specified({"collect_landscape": {"landscape_size": 5}}, True)
    assert asked["landscape"].landscape_size == 5


def test_the_directory_is_made_and_private(tmp_path):
    collector = make(tmp_path)
    assert collector.summary_dir == str(tmp_path / "records")
    assert (tmp_path / "records").stat().st_mode & 0o777 == 0o700


# num_process is not here, because MindSpore does not look at it; custom_lineage_data neither,
# because ours takes more.
TABLE = (
    [("collect_freq", value) for value in (1, 10, 0, -1, True, 1.0, "1", None)]
    + [("collect_tensor_freq", value) for value in (None, 1, 0, -1, False, 2.5, "x")]
    + [("max_file_size", value) for value in (None, 1, 10**12, 0, -5, True, 1.5)]
    + [("keep_default_action", value) for value in (True, False, 0, None, "yes")]
    + [
        ("export_options", value)
        for value in (
            None,
            {},
            {"tensor_format": "npy"},
            {"tensor_format": None},
            {"tensor_format": "npz"},
            {"tensor_format": 1},
            {"image": "npy"},
            {1: "npy"},
            "npy",
        )
    ]
    + [
        ("collect_specified_data", value)
        for value in (
            None,
            {},
            [],
            "x",
            {"nonsense": True},
            {1: True},
            {"collect_metric": True},
            {"collect_metric": 1},
            {"collect_graph": None},
            {"histogram_regular": None},
            {"histogram_regular": "^conv.*"},
            {"histogram_regular": "("},
            {"histogram_regular": 3},
            {"collect_input_data": False},
            {"collect_dataset_graph": "no"},
            {"collect_eval_lineage": False},
            {"collect_train_lineage": 0},
        )
    ]
)


@pytest.mark.parametrize(("name", "value"), TABLE)
def test_same_types_and_bounds_as_mindspores(tmp_path, name, value):
    from mindspore.train import SummaryCollector as Theirs

    outcomes = []
    for kind in (Theirs, SummaryCollector):
        try:
            kind(str(tmp_path / kind.__module__), **{name: value})
        except (TypeError, ValueError) as error:
            outcomes.append(type(error))
        else:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", ["taken", "taken/below"])
def test_a_file_in_the_place_of_the_directory_is_reported(tmp_path, name):
    (tmp_path / "taken").write_text("mine")
    for made, argument in ((SummaryCollector, "summary_dir"), (SummaryRecord, "log_dir")):
        with pytest.raises(OSError, match=f"{argument} is invalid. Received: .*taken.*Expected"):
            made(tmp_path / name)
    assert (tmp_path / "taken").read_text() == "mine"
