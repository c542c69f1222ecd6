"""Tables of checkpoints as the Projector shows them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from rec_summary.errors import SourceError
from rec_summary.records.reading.runs import find_runs
from rec_summary.tensorboard.embedding_tables import (
    matrices,
    newest_checkpoint,
    opened,
    table_of,
    table_of_array,
)
from tests.support.checkpoint_bytes import TABLE, value
from tests.support.quadratic import write_run
from tests.support.record_dirs import event, scalar, write_segment


def test_a_sparse_checkpoint_has_whole_tables(tmp_path: Path) -> None:
    write_run(tmp_path, steps=6)
    folder = tmp_path / "ckpt_dir"
    (folder / "Net_1_step.ckpt").write_bytes(value("t", (4, 3), "Float32", TABLE.tobytes()))
    path = folder / "Net_6_step.ckpt"
    path.write_bytes(
        value("@base", (), "Int64", (1).to_bytes(8, "little"))
        + value("t@rows", (1,), "Int64", (2).to_bytes(8, "little"))
        + value("t@values", (1, 3), "Float32", np.full(3, 99, "<f4").tobytes())
    )
    with opened(str(path)) as checkpoint:
        assert matrices(checkpoint) == {"t": (4, 3)}
        table = table_of(checkpoint, "t")
    expected = np.array(TABLE)
    expected[2] = 99
    np.testing.assert_array_equal(table.values, expected)
    (folder / "train_metadata.json").unlink()
    with pytest.raises(SourceError, match="metadata"), opened(str(path)):
        pass


def test_a_table_is_the_same_whether_it_is_read_in_blocks_or_whole(tmp_path: Path) -> None:
    array = np.arange(40, dtype=np.float32).reshape(10, 4)
    array[3, 1], array[9, 3] = np.nan, np.inf
    path = tmp_path / "one.ckpt"
    path.write_bytes(value("t", array.shape, "Float32", array.tobytes()))
    for most in (100, 5):
        with opened(str(path)) as checkpoint:
            table = table_of(checkpoint, "t", most, at_once=12)
        whole = table_of_array(array, most)
        assert table.rows.tolist() == whole.rows.tolist()
        np.testing.assert_array_equal(table.values, whole.values)
    assert table.rows.tolist() == [0, 1, 4, 6, 8]


def test_the_newest_checkpoint_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1)))
    [run] = find_runs(str(tmp_path))
    assert newest_checkpoint(run) is None
    (tmp_path / "ckpt_dir").mkdir()
    for name, written in (("b.ckpt", 1), ("a.ckpt", 3), ("c.ckpt", 2), ("d.json", 4)):
        path = tmp_path / "ckpt_dir" / name
        path.write_bytes(b"")
        os.utime(path, (written, written))
    assert newest_checkpoint(run) == str(tmp_path / "ckpt_dir" / "a.ckpt")


def test_checkpoints_that_training_removes_meanwhile_hide_no_other(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1)))
    [run] = find_runs(str(tmp_path))
    newest, *others = (tmp_path / "ckpt_dir" / f"{number}.ckpt" for number in range(30))
    newest.parent.mkdir()
    newest.write_bytes(b"")
    os.utime(newest, (1 << 33, 1 << 33))
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            for path in others:
                path.write_bytes(b"")
            for path in others:
                path.unlink()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        assert {newest_checkpoint(run) for _ in range(1000)} == {str(newest)}
    finally:
        stop.set()
        thread.join()
