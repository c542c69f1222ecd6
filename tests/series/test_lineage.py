from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.lineage_pb2 import EvaluationLineage, LineageEvent, RunState, UserDefinedInfo
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.batch import Record
from rec_summary.series.lineage import (
    Lineage,
    evaluations,
    flattened,
    metrics_of,
    numeric,
    provenance,
    take,
)
from rec_summary.series.report import Report
from tests.support.corpus import evaluation, losses, put
from tests.support.record_dirs import START, custom, lineage, train
from tests.support.versions import needs_lenient_strings

DATA = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5)),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=8,
)


def flat(data: dict[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), DATA, max_size=4))
def test_custom_data_is_flattened(data: dict[str, object]) -> None:
    found, expected = dict(flattened(custom(data))), flat(data)
    assert repr(sorted(found.items())) == repr(sorted(expected.items()))


def test_an_entry_with_none_is_absent() -> None:
    gathered = Lineage()
    for entries in ({"a": 1, "b": {"c": None, "d": "None"}, "e": None}, {"a": None}):
        gathered.take_custom(lineage(user_defined_info=custom(entries)), START)
    assert gathered.custom == {"b.d": "None"}


def test_a_dotted_key_and_a_nested_one_are_two_entries() -> None:
    gathered = Lineage()
    entries = {"optimizer.lr": 1, "optimizer": {"lr": 2}}
    for _ in range(2):  # the second record has the new values
        gathered.take_custom(lineage(user_defined_info=custom(entries)), START)
    assert gathered.custom == {"optimizer.lr": 1, "custom.optimizer.lr": 2}


def test_very_many_entries_of_one_name_are_refused() -> None:
    part = custom({"a": 1}).user_info[0]
    many = UserDefinedInfo(user_info=[part] * 9_000)
    with pytest.raises(ValueError, match="length of a name"):
        Lineage().take_custom(lineage(user_defined_info=many), START)


def test_the_best_value_of_an_evaluation_has_the_direction_that_was_said() -> None:
    gathered = Lineage()
    said = {"theirs": "less", "auc": "less"}
    for step, value in enumerate((0.5, 0.25, 0.75), start=1):
        metric = json.dumps(dict.fromkeys(("ours", "theirs", "auc", "mae"), value))
        message = EvaluationLineage(metric=metric, directions=said)
        gathered.take_evaluation(message, step, START)
    best = {name: metric.best for name, metric in gathered.metrics.items()}
    assert best == {"ours": None, "theirs": 0.25, "auc": 0.25, "mae": 0.25}


def test_mindspores_32_bit_integers_are_read_too() -> None:
    info = UserDefinedInfo(user_info=[UserDefinedInfo(map_int32={"trial": 7})])
    assert list(flattened(info)) == [("trial", 7)]


@needs_lenient_strings
def test_text_that_is_not_utf8_is_replaced_and_names_are_refused() -> None:
    good = lineage(user_defined_info=UserDefinedInfo(map_str={"key": "text"})).SerializeToString()
    gathered = Lineage()
    gathered.take_custom(LineageEvent.FromString(good.replace(b"text", b"te\xfft")), START)
    assert gathered.custom == {"key": "te�t"}
    with pytest.raises(ValueError, match="utf-8"):
        gathered.take_custom(LineageEvent.FromString(good.replace(b"key", b"k\xffy")), START)


@needs_lenient_strings
@pytest.mark.parametrize("state", [{"troubles": {"write": 1}}, {"packages": {"write": "1"}}])
def test_names_of_troubles_and_packages_that_are_not_utf8_are_refused(
    state: dict[str, Any],
) -> None:
    good = lineage(train_lineage=train(**state)).SerializeToString()
    with pytest.raises(ValueError, match="utf-8"):
        Lineage().take_train(LineageEvent.FromString(good.replace(b"write", b"\xffrite")), START)


@needs_lenient_strings
def test_facts_of_the_program_are_shown_whatever_they_are() -> None:
    state = train(git_commit="commit", command=["word", "a b"], packages={"p": "1.0"})
    good = lineage(train_lineage=state).SerializeToString()
    assert provenance(LineageEvent.FromString(good).train_lineage.run_state) == {
        "commit": "commit",
        "command": "word 'a b'",
        "packages": "p 1.0",
    }
    for text in (b"commit", b"word", b"1.0"):
        good = good.replace(text, text[:1] + b"\xff" + text[2:])
    assert provenance(LineageEvent.FromString(good).train_lineage.run_state) == {
        "commit": "c\ufffdmmit",
        "command": "'w\ufffdrd' 'a b'",
        "packages": "p 1\ufffd0",
    }
    assert provenance(RunState()) == {}


def test_the_last_training_lineage_is_in_force() -> None:
    gathered = Lineage()
    gathered.take_train(lineage(train_lineage=train(status=RunState.RUNNING)), START)
    gathered.take_train(lineage(train_lineage=train(status=RunState.STOPPED)), START + 1)
    assert (gathered.status, gathered.train_time) == (RunState.STOPPED, START + 1)


def test_mindspores_own_lineage_means_that_training_has_ended() -> None:
    gathered = Lineage()
    assert gathered.status == RunState.UNKNOWN
    gathered.take_train(lineage(train_lineage=train()), START)
    assert gathered.status == RunState.FINISHED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("{}", {}),
        ('{"auc": 0.5, "n": 3}', {"auc": 0.5, "n": 3}),
        ("not JSON", {"metric": "not JSON"}),
        ("[1, 2]", {"metric": "[1, 2]"}),
        ("[" * 100_000, {"metric": "[" * 100_000}),
        ('{"\\ud800": 1}', {"�" * 3: 1}),
    ],
)
def test_metrics_are_read_whatever_they_are(text: str, expected: dict[str, object]) -> None:
    assert dict(metrics_of(EvaluationLineage(metric=text))) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (math.inf, math.inf),
        pytest.param(10**400, math.inf, id="huge"),
        pytest.param(-(10**400), -math.inf, id="-huge"),
        (True, None),
        ("1", None),
        (None, None),
        ([1], None),
    ],
)
def test_numbers_are_distinguished_from_other_metrics(
    value: object, expected: float | None
) -> None:
    assert numeric(value) == expected


@pytest.mark.parametrize("depth", range(50, 2000, 50))
def test_metrics_of_any_depth_are_taken(depth: int) -> None:
    gathered = Lineage()
    evaluation = EvaluationLineage(metric='{"deep": ' + "[" * depth + "]" * depth + "}")
    gathered.take_evaluation(evaluation, 1, START)
    assert gathered.evaluations == 1


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [
        pytest.param([(20, 0.9), (40, 0.95), (60, 0.93)], (60, "0.93", 0.95, 40), id="steps"),
        pytest.param([(20, 0.9), (40, 0.95), (30, 0.8)], (30, "0.8", 0.9, 20), id="restart"),
        pytest.param([(20, 0.9), (40, 0.95), (0, 0.1)], (40, "0.1", 0.95, 40), id="step 0"),
        pytest.param([(0, 0.5), (20, 0.4)], (20, "0.4", 0.4, 20), id="before the training"),
        pytest.param([(0, 0.5), (0, 0.4)], (0, "0.4", 0.5, None), id="twice before it"),
        pytest.param([(None, 0.9), (None, 0.8)], (0, "0.8", 0.9, None), id="of MindSpore"),
        pytest.param([(1000, 0.95), (None, 0.1)], (1000, "0.1", 0.95, 1000), id="mixed"),
        pytest.param([(None, 0.95), (1, 0.1)], (1, "0.1", 0.1, 1), id="steps behind none"),
        pytest.param(
            [(None, 0.5), (None, 0.95), (2, 0.1), (3, 0.2)], (3, "0.2", 0.2, 3), id="both"
        ),
    ],
)
def test_an_evaluation_supersedes_those_of_later_steps_only(
    evaluations: list[tuple[int | None, float]], expected: tuple[object, ...]
) -> None:
    gathered, report = Lineage(), Report()
    for number, (step, auc) in enumerate(evaluations):
        message = EvaluationLineage(metric=f'{{"auc": {auc}}}', train_step=step)
        event = lineage(START + number, evaluation_lineage=message)
        assert take(gathered, Record("file", number, 1, START + number, event), report)
    assert gathered.metrics == {"auc": expected}


def test_evaluations_leave_their_last_values() -> None:
    gathered = Lineage()
    first = EvaluationLineage(metric='{"auc": 0.5, "best": [1]}', valid_dataset_size64=1 << 40)
    first.valid_dataset.valid_dataset_path = "/data/v"
    gathered.take_evaluation(first, 1, START)
    gathered.take_evaluation(EvaluationLineage(metric='{"auc": NaN}'), 2, START + 1)
    assert gathered.metrics == {"auc": (2, "NaN", 0.5, 1), "best": (1, "[1]", None, None)}
    assert (gathered.evaluations, gathered.last_time) == (2, START + 1)
    assert gathered.valid_dataset == ("/data/v", 1 << 40)


def test_evaluations_have_their_rank_and_the_step_if_it_is_recorded(tmp_path: Path) -> None:
    put(tmp_path / "run", *losses(range(1, 3)))
    stated = [evaluation(6, '{"auc": 0.5}'), evaluation(7, '{"auc": 0.75}', 20)]
    put(tmp_path / "run", *losses(range(1, 3)), lineage(train_lineage=train()), *stated, rank=1)
    found = [
        (row["rank"], row["step"], row["value"])
        for row in evaluations(*find_runs(tmp_path), Report())
    ]
    assert found == [(1, None, 0.5), (1, 20, 0.75)]


def test_what_states_no_direction_does_not_count() -> None:
    gathered = Lineage()
    many = {f"m{n:03}": "less" for n in range(300)}
    for stated in ({"a": "less", "b": "sideways", "c" * 2000: "greater"}, {"a": "greater"}, many):
        event = lineage(train_lineage=train(directions=stated))
        gathered.take_train(event, START)
    assert (gathered.directions["a"], len(gathered.directions)) == ("greater", 200)
    assert "b" not in gathered.directions
    assert max(map(len, gathered.directions)) == 1000


@needs_lenient_strings
def test_a_direction_of_a_name_that_is_no_text_does_not_count() -> None:
    damaged = lineage(train_lineage=train(directions={"write": "less"})).SerializeToString()
    gathered = Lineage()
    event = LineageEvent.FromString(damaged.replace(b"write", b"\xffrite"))
    gathered.take_train(event, START)
    assert (gathered.directions, gathered.train) == ({}, event.train_lineage)
