from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rec_summary.errors import DestinationError
from rec_summary.records.files import temporary_name
from rec_summary.tensorboard.event_files.cursor import (
    CURSOR_NAME,
    load_cursor,
    remove_cursor,
    save_cursor,
)
from rec_summary.tensorboard.event_files.logdir import LogDir

STATE = {"step": 1 << 60, "names": ["a", "\udce9", "ü"], "nan": 0.5, "nothing": None}


@pytest.fixture
def logdir(tmp_path: Path) -> Iterator[LogDir]:
    with LogDir(str(tmp_path)) as entered:
        yield entered


def test_a_cursor_comes_back_as_it_was(logdir: LogDir) -> None:
    assert load_cursor(logdir, "group/run") is None
    save_cursor(logdir, "group/run", STATE)
    save_cursor(logdir, "group/run", STATE)
    assert load_cursor(logdir, "group/run") == STATE


def test_a_removed_cursor_is_gone(logdir: LogDir) -> None:
    remove_cursor(logdir, "run")
    save_cursor(logdir, "run", STATE)
    remove_cursor(logdir, "run")
    assert load_cursor(logdir, "run") is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 999}', b"\xff", b"[" * 100_000])
def test_what_is_no_cursor_of_ours_is_not_used(logdir: LogDir, tmp_path: Path, data: bytes) -> None:
    save_cursor(logdir, "run", STATE)
    (tmp_path / "run" / CURSOR_NAME).write_bytes(data)
    assert load_cursor(logdir, "run") is None


def test_links_are_neither_read_nor_written_through(logdir: LogDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b'{"format": 1}')
    (tmp_path / "run").mkdir()
    for name in (CURSOR_NAME, temporary_name(CURSOR_NAME)):
        (tmp_path / "run" / name).symlink_to(victim)
    assert load_cursor(logdir, "run") is None
    save_cursor(logdir, "run", STATE)
    assert victim.read_bytes() == b'{"format": 1}'
    assert load_cursor(logdir, "run") == STATE


def test_a_place_that_cannot_be_written_to(logdir: LogDir, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(DestinationError):
        save_cursor(logdir, "run", STATE)
