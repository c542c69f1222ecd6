from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.plugins.hparams import metadata

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.series.lineage import Lineage, hyper_parameters, shortest
from rec_summary.tensorboard.dashboards.hparams import (
    RUNNING,
    end_point,
    ended_status,
    start_point,
)
from tests.support.record_dirs import START, custom, lineage, train


def taken(*, custom_data: dict[str, object] | None = None, **run_state: object) -> Lineage:
    result = Lineage()
    result.take_train(lineage(train_lineage=train(**run_state)), START + 9)
    if custom_data is not None:
        result.take_custom(lineage(user_defined_info=custom(custom_data)), START)
    return result


def content(point: object) -> bytes:
    return bytes(point.plugin.metadata.plugin_data.content)  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", [RunState.UNKNOWN, RunState.RUNNING])
def test_a_running_run_has_no_end(status: int) -> None:
    assert ended_status(taken(status=status)) is None


def test_a_session_may_be_running() -> None:
    info = metadata.parse_session_end_info_plugin_data(content(end_point(RUNNING)))
    assert (info.status, info.end_time_secs) == (3, 0)


def test_tensorboard_parses_start_and_end() -> None:
    lineage = taken(status=RunState.FAILED, start_time=START + 1)
    status = ended_status(lineage)
    assert status is not None
    start, end = start_point("run", lineage, START), end_point(status, START + 9)
    start_info = metadata.parse_session_start_info_plugin_data(content(start))
    end_info = metadata.parse_session_end_info_plugin_data(content(end))
    assert (start_info.group_name, start_info.start_time_secs) == ("run", START + 1)
    assert start_info.hparams["optimizer"].string_value == "Adam"
    assert (end_info.status, end_info.end_time_secs) == (2, START + 9)
    assert (start.tag, end.tag) == (metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG)


@pytest.mark.parametrize("start_time", [math.nan, math.inf])
def test_an_invalid_start_time_is_replaced(start_time: float) -> None:
    start = start_point("run", taken(start_time=start_time), START)
    parsed = metadata.parse_session_start_info_plugin_data(content(start))
    assert parsed.start_time_secs == START


def test_the_type_of_a_value_does_not_depend_on_it() -> None:
    data = {"inf": math.inf, "nan": math.nan, "big": 2**60 + 1, "small": 2**53, "on": True}
    start = start_point("run", taken(custom_data={**data, "none": None}), START)
    hparams = metadata.parse_session_start_info_plugin_data(content(start)).hparams
    found = {
        name: getattr(value, value.WhichOneof("kind"))
        for name, value in hparams.items()
        if name in data or name == "none"
    }
    # HParams has no numbers but float64, and no NaN.
    assert found == {"big": float(2**60), "small": 2**53, "on": True}


def test_custom_data_does_not_hide_what_mindspore_recorded() -> None:
    found = hyper_parameters(taken(custom_data={"optimizer": "mine", "depth": 3}))
    assert (found["optimizer"], found["custom.optimizer"], found["depth"]) == ("Adam", "mine", 3)


def test_no_entry_of_custom_data_hides_another_one() -> None:
    found = hyper_parameters(taken(custom_data={"custom.optimizer": 1, "optimizer": 2}))
    assert (found["custom.optimizer"], found["custom.custom.optimizer"]) == (1, 2)
    found = hyper_parameters(taken(custom_data={"optimizer": 2, "custom.optimizer": 1}))
    assert (found["custom.optimizer"], found["custom.custom.optimizer"]) == (1, 2)


def test_our_64_bit_numbers_replace_those_of_mindspore() -> None:
    found = hyper_parameters(taken(batch_size=1 << 40, dataset_size=1 << 50))
    assert (found["batch_size"], found["train_dataset_size"]) == (1 << 40, 1 << 50)


def test_a_learning_rate_reads_as_it_was_given() -> None:
    assert hyper_parameters(taken())["learning_rate"] == 0.001


@given(st.floats(width=32, allow_nan=False))
def test_the_shortest_form_is_the_same_float32(number: float) -> None:
    found = shortest(number)
    assert struct.pack("<f", found) == struct.pack("<f", number)
    digits, own = (repr(each).partition("e")[0].strip("-0.") for each in (found, number))
    assert len(digits) <= len(own)  # 1e11 is written with all its zeros


def test_a_run_of_custom_data_alone_has_a_session() -> None:
    only_custom = Lineage()
    only_custom.take_custom(lineage(user_defined_info=custom({"depth": 3})), START)
    start = start_point("run", only_custom, START)
    parsed = metadata.parse_session_start_info_plugin_data(content(start))
    assert dict(parsed.hparams)["depth"].number_value == 3
