"""One TensorBoard run: tensors as files, and what it writes."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np
import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.errors import DestinationError
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.batch import SUMMARY
from rec_summary.series.event_reader import EventReader
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.event_file import FilePosition
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import Destination, TensorBoardRun, WriterState
from rec_summary.tensorboard.run_names import Names
from rec_summary.values.tensor import to_tensor
from tests.support import event_files
from tests.support.record_dirs import event, histo, scalar, tree, write_segment


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
def test_links_are_not_followed(tmp_path: Path, place: str) -> None:
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


def test_records_that_are_framed_and_converted_in_turn_give_the_same_bytes(tmp_path: Path) -> None:
    """`w` has a NaN at its second step: from there on, it is never framed; `loss` always is."""
    write_segment(
        tmp_path / "records" / "run",
        *(
            event(step, scalar("loss", step))
            if step % 3
            else event(step, histo("w", [1.0, 5.0, *[math.nan] * (step == 6)]), scalar("x", 1))
            for step in range(1, 400)
        ),
    )
    [run] = find_runs(str(tmp_path / "records"))
    [file] = run.files_of(Kind.SUMMARY, 0)
    with EventReader(file, Report(), frames=True) as reader:
        batches = list(reader)
    assert max(map(len, batches)) > 100
    found = []
    for name, parts in (
        ("together", batches),
        ("alone", [r for b in batches for r in b.records()]),
    ):
        report = Report()
        with LogDir(str(tmp_path / "logs")) as logdir:
            destination = Destination(Names(), logdir, report, ExportOptions())
            state = WriterState(file=FilePosition(1))
            output = TensorBoardRun(name, destination, state, is_evaluation=False, directions={})
            for batch in parts:
                if batch.kind == SUMMARY:
                    output.take(batch)
            output.settle()
            output.close()
        found.append(
            (event_files.event_file(tmp_path / "logs" / name).read_bytes(), report.exported)
        )
    assert found[0] == found[1]
    assert found[0][1] == {"scalar_value": 399, "histogram": 133}
