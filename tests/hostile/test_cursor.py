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
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME
from rec_summary.tensorboard.event_files.cursor_check import is_sound
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
    state = cursor(tmp_path / "logs")
    assert is_sound(state, "run")
    assert not is_sound(state, "other")
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
        state["targets"]["evaluation"] = name
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
