import decimal
import enum
import json
import math
import pathlib

import numpy as np
import pytest

pytest.importorskip("mindspore")

from rec_summary.training.lineage.custom import (
    check_custom_lineage,
    custom_lineage,
    with_environment,
)


class Stage(str, enum.Enum):
    TRAIN = "train"


class Level(enum.IntEnum):
    HIGH = 2
    HIGHEST = 2**40


class Unprintable:
    def __repr__(self):
        raise RuntimeError


def recorded(value):
    [info] = custom_lineage(check_custom_lineage({"key": value})).user_defined_info.user_info
    field, held = info.ListFields()[-1]  # fields come in the order of their numbers: ours last
    return field.name, held["key"]


@pytest.mark.parametrize(
    ("value", "field", "held"),
    [
        ("ads", "map_str", "ads"),
        ("", "map_str", ""),
        (7, "map_int32", 7),
        (-(2**31), "map_int32", -(2**31)),
        (2**31, "map_int64", 2**31),  # MindSpore: ValueError at step 1, in the middle of training
        (2**63 - 1, "map_int64", 2**63 - 1),
        (2**70, "map_str", str(2**70)),
        (True, "map_bool", True),  # MindSpore: TypeError at step 1
        (np.int64(5), "map_int32", 5),
        (np.float32(0.5), "map_double", 0.5),
        (np.bool_(False), "map_bool", False),
        (np.str_("ads"), "map_str", "ads"),
        (np.longdouble(0.5), "map_str", "0.5"),  # a double may lose digits
        (Stage.TRAIN, "map_str", "train"),
        (Level.HIGH, "map_int32", 2),
        (Level.HIGHEST, "map_int64", 2**40),
        (1e300, "map_double", 1e300),
        (math.inf, "map_double", math.inf),
        ([1, 2.5, "x"], "map_str", "[1, 2.5, x]"),
        ((np.float32(0.5), np.int64(3), Stage.TRAIN), "map_str", "[0.5, 3, train]"),
        ("bad \ud800", "map_str", "bad ?"),
    ],
)
def test_a_value_is_recorded_faithfully(value, field, held):
    assert recorded(value) == (field, held)


@pytest.mark.parametrize(
    ("value", "field", "held"), [(True, "map_int32", 1), (2**40, "map_str", str(2**40))]
)
def test_what_only_our_maps_hold_has_a_stand_in_for_mindinsight(value, field, held):
    [info] = custom_lineage({"key": value}).user_defined_info.user_info
    assert getattr(info, field)["key"] == held


def test_none_is_marked_beside_its_text_for_mindinsight():
    [info] = custom_lineage({"key": None}).user_defined_info.user_info
    assert (info.map_str["key"], list(info.none)) == ("None", ["key"])


def test_an_empty_dictionary_makes_no_empty_message():
    # one such message costs MindInsight the lineage of every run that it shows
    assert recorded({}) == ("map_str", "{}")
    field, held = recorded({"inner": {}})
    assert (field, held.user_info[0].map_str["inner"]) == ("map_dict", "{}")


def test_nan_is_recorded():
    field, held = recorded(math.nan)
    assert field == "map_double"
    assert math.isnan(held)


def test_nested_entries_stay_nested():
    field, held = recorded({"inner": {"deep": 1}, "flag": True})
    assert field == "map_dict"
    assert held.user_info[0].map_dict["inner"].user_info[0].map_int32["deep"] == 1
    assert held.user_info[1].map_bool["flag"] is True


def deep(levels):
    return {} if levels == 0 else {"a": deep(levels - 1)}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([("a", 1)], TypeError),
        ({1: "a"}, TypeError),
        ({"a": object()}, TypeError),
        ({"a": {"b": {1}}}, TypeError),
        ({"a": [[1]]}, TypeError),
        ({"a": 1j}, TypeError),
        ({"a": np.complex64(1)}, TypeError),
        ({"a": [np.complex64(1)]}, TypeError),
        ({"a": np.clongdouble(1)}, TypeError),
        ({"a": np.array([1, "x"], object)}, TypeError),
        ({"a": b"ads"}, TypeError),
        ({"a": np.datetime64("2020-01-01")}, TypeError),
        ({"a": np.timedelta64("NaT")}, TypeError),
        ({"a": decimal.Decimal(1)}, TypeError),
        ({"a": pathlib.Path("ads")}, TypeError),
        ({"a": Unprintable()}, TypeError),
        ({"a": 10**5000}, ValueError),
        ({"a": [10**5000]}, ValueError),
        ({"a\ud800": 1}, ValueError),
        (deep(40), ValueError),
    ],
)
def test_what_cannot_be_recorded_is_refused_at_once(data, error):
    with pytest.raises(error, match=r"is invalid\. Received: "):
        check_custom_lineage(data)


def test_a_tuners_environment_adds_entries_and_code_wins(monkeypatch):
    config = {"custom_lineage_data": {"trial": 3, "lr": 0.5}}
    monkeypatch.setenv("MINDINSIGHT_HYPER_CONFIG", json.dumps(config))
    assert with_environment({"lr": 0.1}) == {"trial": 3, "lr": 0.1}


@pytest.mark.parametrize(
    "text",
    ["{", "[1]", '{"custom_lineage_data": {"a": [[1]]}}', '{"x": "' + "y" * 100_000 + '"}'],
)
def test_an_unusable_environment_is_left_out_with_a_warning(monkeypatch, caplog, text):
    monkeypatch.setenv("MINDINSIGHT_HYPER_CONFIG", text)
    assert with_environment({"lr": 0.1}) == {"lr": 0.1}
    [record] = caplog.records
    assert "MINDINSIGHT_HYPER_CONFIG is ignored" in record.message


@pytest.mark.parametrize("text", ["{}", '{"custom_lineage_data": null}'])
def test_an_environment_without_entries_is_no_trouble(monkeypatch, caplog, text):
    monkeypatch.setenv("MINDINSIGHT_HYPER_CONFIG", text)
    assert with_environment({}) == {}
    assert not caplog.records
