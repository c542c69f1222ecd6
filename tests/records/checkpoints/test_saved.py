"""Checkpoints in a record directory: which of them was judged, and the link to a good one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rec_summary.records.checkpoints.saved import (
    GOOD,
    SAVED,
    link_good,
    list_checkpoints,
    name_of,
    newest_between,
)


def folder(directory: Path, *files: tuple[str, int]) -> Path:
    """Makes files with these times of writing."""
    made = directory / SAVED
    made.mkdir()
    for name, written in files:
        (made / name).write_bytes(b"")
        os.utime(made / name, (written, written))
    return made


def newest(directory: Path, steps: tuple[int, int], times: tuple[float, float]) -> str | None:
    path = newest_between(list_checkpoints(str(directory), SAVED), steps, times, [])
    return None if path is None else os.path.basename(path)


def test_the_newest_one_of_an_interval(tmp_path: Path) -> None:
    names = [(name_of(0, step), 100 - step) for step in (10, 20, 30)]
    folder(tmp_path, *names, (name_of(1, 20), 500), ("CKP-1_5.ckpt", 50), ("x.json", 51))
    steps = (10, 25)
    assert newest(tmp_path, steps, (0, 40)) == name_of(0, 20)  # copies have any time
    assert newest(tmp_path, steps, (0, 50)) == name_of(0, 20)  # which was written at 80
    os.utime(tmp_path / SAVED / "CKP-1_5.ckpt", (90, 90))
    assert newest(tmp_path, steps, (0, 90)) == "CKP-1_5.ckpt"
    assert newest(tmp_path, (31, 40), (0, 1)) is None
    assert newest(tmp_path / "no directory", steps, (0, 100)) is None


@pytest.mark.parametrize(("written", "found"), [(100.0, True), (99.0, False)])
def test_a_time_in_whole_seconds_is_not_before_the_start(written: float, found: bool) -> None:
    """As of the store of a URL: the training begins, saves and reports within a second."""
    path = f"s3://bucket/{name_of(0, 20)}"
    newest = newest_between([(written, path)], (10, 30), (100.8, 100.9), [100.7])
    assert newest == (path if found else None)


def test_what_is_no_complete_checkpoint(tmp_path: Path) -> None:
    saved = folder(tmp_path, (".rank_0.tmp.ckpt", 1), ("a.ckpt.tmp", 1))
    (saved / "folder.ckpt").mkdir()
    (saved / "link.ckpt").symlink_to(tmp_path / "elsewhere.ckpt")
    assert list_checkpoints(str(tmp_path), SAVED) == []
    elsewhere = tmp_path / "linked"
    elsewhere.mkdir()
    (elsewhere / SAVED).symlink_to(saved)
    (saved / "b.ckpt").write_bytes(b"")
    assert list_checkpoints(str(elsewhere), SAVED) == []
    assert len(list_checkpoints(str(tmp_path), SAVED)) == 1


def test_the_link_moves(tmp_path: Path) -> None:
    saved = folder(tmp_path, ("a.ckpt", 1), ("b.ckpt", 2))
    for name in ("a.ckpt", "b.ckpt", "b.ckpt", "a.ckpt"):
        link_good(str(saved / name))
        assert os.readlink(saved / GOOD) == name
    (saved / f".{GOOD}.tmp").symlink_to("left by a killed process")
    link_good(str(saved / "b.ckpt"))
    assert os.readlink(saved / GOOD) == "b.ckpt"
    assert sorted(os.listdir(saved)) == ["a.ckpt", "b.ckpt", GOOD]
    (saved / "b.ckpt").unlink()  # it points to nothing, until the next one
    link_good(str(saved / "a.ckpt"))
    assert (saved / GOOD).exists()


def test_something_else_of_this_name_stays(tmp_path: Path) -> None:
    saved = folder(tmp_path, ("a.ckpt", 1))
    (saved / GOOD).mkdir()
    with pytest.raises(OSError, match="directory"):
        link_good(str(saved / "a.ckpt"))
    assert (saved / GOOD).is_dir()
