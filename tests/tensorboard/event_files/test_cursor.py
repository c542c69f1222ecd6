from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rec_summary._pb.lineage_pb2 import TrainLineage
from rec_summary.errors import DestinationError
from rec_summary.records.files import temporary_name
from rec_summary.series.best_values import BestSeries
from rec_summary.series.lineage import Lineage, Metric
from rec_summary.series.new_records import ReadPosition
from rec_summary.series.ranks.merging import MergingState, RecordedStates
from rec_summary.series.runs.writers import Writer, Writers
from rec_summary.series.step_buffer import BufferState
from rec_summary.tensorboard.event_files.cursor import (
    CURSOR_NAME,
    Cursor,
    decode,
    encode,
    load_cursor,
    remove_cursor,
    save_cursor,
)
from rec_summary.tensorboard.event_files.description import Description
from rec_summary.tensorboard.event_files.event_file import FilePosition
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import WriterState
from rec_summary.tensorboard.run_names import TargetNames

RUN = "group/run-\udce9"  # a name that is not UTF-8


def cursor(run: str = RUN) -> Cursor:
    """Returns a cursor with something in each place."""
    train = TrainLineage()
    train.run_state.rank_size = 2
    train.hyper_parameters.optimizer = "Adam"
    lineage = Lineage(
        train=train,
        train_time=5,
        last_time=7.5,
        custom={"text": "ü", "truth": True, "number": 1 << 60, "half": 0.5},
        evaluations=2,
        valid_dataset=("path", 5),
        metrics={"auc": Metric(7, "0.5")},
    )
    output = WriterState(
        file=FilePosition(1_700_000_000, 100, 60),
        steps=BufferState(-(1 << 63), [("scalar_value", "a", 1)], [("histogram", "b", 1 << 62)]),
        tags=[("a", "scalars", "scalar_value", "a")],
        memories={"histogram": ["a/nan_count"]},
        graphs={"graph": [(1 << 32) - 1]},
        layout=5,
        restarts=1,
        best={"auc": BestSeries([(1, 2.0, 0.5)], 1)},
    )
    return Cursor(
        format=5,
        options="{}",
        targets=TargetNames(True, {"rank 0": f"{run}/rank_0"}),
        files={"x.events.\udce9": ReadPosition(17), "y": ReadPosition(5, True, [(1, 2, 3)])},
        outputs={run: output, f"{run}/rank_0": output},
        writers=Writers([Writer(0, 1, 5.0)], {"y": 0}),
        merging=MergingState(
            {1: [RecordedStates(9.0, -5, "y", 7, True, 2)]}, [(6.0, 8.0)], (0, -1)
        ),
        description=Description({0: lineage}, {0: (1, 0, 2)}, 0, 0, "{}", 2, True),
        began=0.1,
        reached=5,
        furthest=-7,
        evaluating_rank=None,
    )


@pytest.fixture
def logdir(tmp_path: Path) -> Iterator[LogDir]:
    with LogDir(str(tmp_path)) as entered:
        yield entered


def test_a_cursor_comes_back_as_it_was(logdir: LogDir) -> None:
    assert load_cursor(logdir, RUN) is None
    save_cursor(logdir, RUN, cursor())
    save_cursor(logdir, RUN, cursor())
    assert load_cursor(logdir, RUN) == cursor()


def test_the_same_cursor_is_the_same_bytes() -> None:
    assert encode(cursor()) == encode(cursor())


def test_a_cursor_is_of_one_run() -> None:
    assert decode(encode(cursor()), RUN) == cursor()
    assert decode(encode(cursor()), "group/run") is None


def test_a_removed_cursor_is_gone(
    logdir: LogDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other file, such as one in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / CURSOR_NAME).touch()
    remove_cursor(logdir, "run")
    assert (tmp_path / CURSOR_NAME).exists()
    save_cursor(logdir, "run", cursor("run"))
    remove_cursor(logdir, "run")
    assert load_cursor(logdir, "run") is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 999}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_cursor_of_ours_is_not_used(logdir: LogDir, tmp_path: Path, data: bytes) -> None:
    save_cursor(logdir, "run", cursor("run"))
    (tmp_path / "run" / CURSOR_NAME).write_bytes(data)
    assert load_cursor(logdir, "run") is None


@pytest.mark.parametrize("message", [b'"!"', b'"/w=="', b"5"])
def test_a_cursor_with_a_message_that_is_none_is_not_used(message: bytes) -> None:
    data, count = re.subn(rb'"train": "[^"]*"', b'"train": ' + message, encode(cursor()))
    assert count == 1
    assert decode(data, RUN) is None


@pytest.mark.parametrize(
    "name",
    [b"files", b"homes", b"recorded", b"merging", b"steps", b"passed", b"memories", b"outputs"],
)
def test_a_cursor_with_a_damaged_name_is_not_used(name: bytes) -> None:
    data, count = re.subn(b'"%b": ' % name, b'"%b": ' % name.swapcase(), encode(cursor()))
    assert count
    assert decode(data, RUN) is None


def test_links_are_neither_read_nor_written_through(logdir: LogDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(encode(cursor("run")))
    (tmp_path / "run").mkdir()
    for name in (CURSOR_NAME, temporary_name(CURSOR_NAME)):
        (tmp_path / "run" / name).symlink_to(victim)
    assert load_cursor(logdir, "run") is None
    changed = cursor("run")
    changed.reached = 6
    save_cursor(logdir, "run", changed)
    assert victim.read_bytes() == encode(cursor("run"))
    assert load_cursor(logdir, "run") == changed


def test_a_place_that_cannot_be_written_to(logdir: LogDir, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(DestinationError):
        save_cursor(logdir, "run", cursor("run"))


@pytest.mark.parametrize(("digits", "is_sound"), [(20, True), (21, False), (10_000, False)])
def test_an_integer_that_is_too_large_is_damage(digits: int, is_sound: bool) -> None:
    """Also where a float could hold it: such text makes some versions of msgspec fail."""
    state = decode(encode(cursor()).replace(b'"began": 0.1', b'"began": %s' % (b"9" * digits)), RUN)
    assert (state is not None) == is_sound
