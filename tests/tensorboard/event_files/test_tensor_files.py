from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import DestinationError
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.values.tensor import to_tensor
from tests.support.record_dirs import event, tree, write_segment


def tensor(tag: str, array: object) -> Summary.Value:
    return Summary.Value(tag=tag, tensor=to_tensor(np.asarray(array)))


def test_tensors_are_files_on_request(tmp_path: Path) -> None:
    exact = np.array([[1, 2], [3, (1 << 53) + 1]], dtype=np.int64)
    write_segment(
        tmp_path / "records" / "run",
        event(1, tensor("a/b", exact), tensor("../../escape", [1.0])),
        event(2, tensor("a/b", exact + 1)),
    )
    export_tensorboard(tmp_path / "records", tmp_path / "logs", tensors="npy")
    folder = tmp_path / "logs" / "run" / "tensors"
    assert set(tree(folder)) == {"a%2Fb_1.npy", "a%2Fb_2.npy", "..%2F..%2Fescape_1.npy"}
    np.testing.assert_array_equal(np.load(folder / "a%2Fb_1.npy"), exact)
    np.testing.assert_array_equal(np.load(folder / "a%2Fb_2.npy"), exact + 1)


def test_without_a_request_there_are_none(tmp_path: Path) -> None:
    write_segment(tmp_path / "records" / "run", event(1, tensor("t", [1.0, 2.0])))
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert not list((tmp_path / "logs").rglob("*.npy"))


@pytest.mark.parametrize("place", ["tensors", "tensors/t_1.npy"])
def test_links_lead_nowhere(tmp_path: Path, place: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    write_segment(tmp_path / "records" / "run", event(1, tensor("t", [1.0, 2.0])))
    target = tmp_path / "logs" / "run" / place
    target.parent.mkdir(parents=True)
    target.symlink_to(victim if place == "tensors" else victim / "file")
    refused = pytest.raises(DestinationError, match="run/tensors")
    with refused if place == "tensors" else contextlib.nullcontext():
        export_tensorboard(tmp_path / "records", tmp_path / "logs", tensors="npy")
    assert list(victim.iterdir()) == []
