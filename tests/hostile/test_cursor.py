"""A cursor that somebody else has put into the log directory."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import MetricStates, Summary
from rec_summary.errors import DestinationError
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME, decode
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.logdir import LogDir
from tests.support.record_dirs import custom, event, lineage, scalar, train, tree, write_segment

STATES = Summary.Value(tag="states", metric_states=MetricStates(rank_size=2))  # of one of two ranks


def write_source(base: Path) -> None:
    write_segment(
        base / "records" / "run",
        lineage(train_lineage=train(rank_size=2)),
        lineage(user_defined_info=custom({"team": "ads", "share": 0.5})),
        *(event(step, scalar("loss", step)) for step in (1, 2, 3)),
        *(event(step, STATES) for step in (4, 5)),
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_source(tmp_path)
    return tmp_path / "records"


def cursor(logdir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((logdir / "run" / CURSOR_NAME).read_bytes())
    return found


def plant(logdir: Path, state: Any) -> None:
    (logdir / "run" / CURSOR_NAME).write_text(json.dumps(state))


def test_our_own_cursors_are_sound(source: Path, tmp_path: Path) -> None:
    export_tensorboard(source, tmp_path / "logs")
    data = (tmp_path / "logs" / "run" / CURSOR_NAME).read_bytes()
    assert decode(data, "run") is not None
    assert decode(data, "other") is None
    assert not export_tensorboard(source, tmp_path / "logs").records  # it is used


@pytest.mark.parametrize("name", ["..", "../victim", "run/../../victim", "/victim", "", "other"])
@pytest.mark.parametrize("part", ["outputs", "targets"])
def test_names_outside_of_the_run_are_not_used(
    source: Path, tmp_path: Path, name: str, part: str
) -> None:
    victim = tmp_path / "victim" / "events.out.tfevents.5.rec_summary"
    victim.parent.mkdir()
    victim.write_text("precious")
    other = tmp_path / "logs" / "other" / victim.name
    export_tensorboard(source, tmp_path / "logs")
    other.parent.mkdir()
    other.write_text("precious")
    name = name.replace("/victim", str(victim.parent)) if name.startswith("/") else name
    sound = tree(tmp_path / "logs")
    state = cursor(tmp_path / "logs")
    if part == "outputs":
        state["outputs"][name] = copy.deepcopy(state["outputs"]["run/rank_0"])
    else:
        state["targets"]["names"]["evaluation"] = name
    plant(tmp_path / "logs", state)
    report = export_tensorboard(source, tmp_path / "logs")
    assert report.exported["scalar_value"] == 3  # anew
    assert victim.read_text() == "precious"
    assert tree(tmp_path / "logs") == sound


@pytest.mark.parametrize("name", ["..", "a/..", "a/../../b", "/etc", "a//b", ".", "a/."])
def test_a_log_directory_cannot_be_left(tmp_path: Path, name: str) -> None:
    (tmp_path / "logs" / "a").mkdir(parents=True)
    with LogDir(str(tmp_path / "logs")) as logdir:
        for enter in (logdir.made, logdir.opened):
            with pytest.raises(DestinationError, match="not below"), enter(name):
                pass


def test_a_cursor_that_is_a_pipe_or_a_giant_is_not_read(source: Path, tmp_path: Path) -> None:
    export_tensorboard(source, tmp_path / "logs")
    place = tmp_path / "logs" / "run" / CURSOR_NAME
    place.unlink()
    os.mkfifo(place)
    assert export_tensorboard(source, tmp_path / "logs").exported["scalar_value"] == 3
    place.write_bytes(b"{")
    os.truncate(place, 1 << 40)
    assert export_tensorboard(source, tmp_path / "logs").exported["scalar_value"] == 3


RANK_0 = ("outputs", "run/rank_0")
DESCRIPTION = ("description", "lineages", "0")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("format",), 1),
        (("began",), float("nan")),
        (("began",), float("inf")),
        (("began",), 10**400),  # no float64 is as large
        (("reached",), 1 << 63),
        (("reached",), True),
        (("reached",), 1.5),
        (("evaluating_rank",), -1),
        ((*RANK_0, "file", "stamp"), 10**19),
        ((*RANK_0, "file", "last"), 1 << 40),  # behind the size
        ((*RANK_0, "file", "size"), -1),
        ((*RANK_0, "tags"), [["loss", "scalars", "scalar_value", "\ud800"]]),
        ((*RANK_0, "tags"), [["loss", "scalars", "scalar_value"]]),
        ((*RANK_0, "layout"), 1 << 32),
        (("writers", "homes"), {"a": 5}),
        (("merging", "recorded"), {"0": []}),
        (("merging", "restarts"), [[1]]),
        (("merging", "recorded"), {"x": [[0, 4, "a", 5, False, 1]]}),
        (("description", "session_rank"), 7),
        ((*DESCRIPTION, "custom"), {"team": "\ud800"}),
        ((*DESCRIPTION, "custom"), {"team": None}),
        ((*DESCRIPTION, "last_time"), float("nan")),
        ((*DESCRIPTION, "train"), "no base64"),
        ((*DESCRIPTION, "train"), "/w=="),  # no message
        ((*DESCRIPTION, "train"), 5),
    ],
)
def test_a_cursor_out_of_bounds_leads_to_a_new_export(
    source: Path, tmp_path: Path, place: tuple[str, ...], value: Any
) -> None:
    export_tensorboard(source, tmp_path / "logs")
    sound = tree(tmp_path / "logs")
    state = cursor(tmp_path / "logs")
    holder = state
    for name in place[:-1]:
        holder = holder[name]
    assert place[-1] in holder
    holder[place[-1]] = value
    plant(tmp_path / "logs", state)
    assert export_tensorboard(source, tmp_path / "logs").exported["scalar_value"] == 3
    assert tree(tmp_path / "logs") == sound


def test_a_cursor_of_an_earlier_version_leads_to_a_new_export(source: Path, tmp_path: Path) -> None:
    export_tensorboard(source, tmp_path / "logs")
    sound = tree(tmp_path / "logs")
    state = cursor(tmp_path / "logs")
    state["format"] = 1
    state["targets"] = {**state["targets"].pop("names"), "several": "yes"}
    for output in state["outputs"].values():
        output.update(output.pop("file"))
    plant(tmp_path / "logs", state)
    assert export_tensorboard(source, tmp_path / "logs").exported["scalar_value"] == 3
    assert tree(tmp_path / "logs") == sound


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields where anything is in a state."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*path, index))


ODD = st.one_of(
    *(st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=4)),
    *(st.just(2**63), st.just(-(2**63) - 1), st.just(10**30), st.just("../x"), st.just([])),
    *(st.just({}), st.just([[]]), st.just([["a", "b", "c"]]), st.just({"a": "b"})),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source and its log directory, to be copied."""
    base = tmp_path_factory.mktemp("exported")
    write_source(base)
    export_tensorboard(base / "records", base / "logs")
    return base


def test_a_cursor_without_its_beginning_begins_again(exported: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(exported, base)
    state = cursor(base / "logs")
    del state["began"]
    plant(base / "logs", state)
    export_tensorboard(base / "records", base / "logs")
    assert cursor(base / "logs")["began"] is not None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_changed_in_a_cursor_nothing_is_written_elsewhere(
    exported: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    base = tmp_path_factory.mktemp("changed") / "base"
    shutil.copytree(exported, base)
    logdir = base / "logs"
    state = cursor(logdir)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(list(places(state))))
        holder = state
        for step in path:
            holder = holder[step]
        if data.draw(st.booleans()):
            holder[last] = copy.deepcopy(data.draw(ODD))  # the lists drawn are shared
        else:
            del holder[last]
    plant(logdir, state)
    export_tensorboard(base / "records", logdir)
    assert tree(base / "records") == tree(exported / "records")
    assert sorted(each.name for each in base.iterdir()) == ["logs", "records"]
    assert {path.split("/")[0] for path in tree(logdir)} <= {"run", ".rec_summary-export.lock"}
    shutil.rmtree(base)
