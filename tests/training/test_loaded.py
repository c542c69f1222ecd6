"""`SummaryRecord` without MindSpore: the same records, of numbers of any kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import rec_summary
from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.training import loaded
from tests.support.event_files import shown
from tests.support.programs import record_without_mindspore
from tests.support.training_records import messages
from tests.support.waiting import PATIENCE_SECS

ROOT = Path(__file__).parents[2]
OF_THE_PROCESS = ("start_time", "pid", "mindspore_version", "command", "packages")
PROVENANCE = ("git_commit", "git_dirty", "command", "packages")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a process that cannot import MindSpore."""
    root = tmp_path_factory.mktemp("written")
    command = [sys.executable, "-m", record_without_mindspore.__name__, str(root / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECS)
    assert done.returncode == 0, done.stderr
    return root / "run"


def without_times(directory: Path) -> list[bytes]:
    found, ends = [], ["RUNNING", "FINISHED"]
    for kind, message in (
        (Kind.SUMMARY, summary_pb2.Event),
        (Kind.LINEAGE, lineage_pb2.LineageEvent),
    ):
        for event in messages(directory, kind, message):
            event.wall_time = 0
            event.DiscardUnknownFields()  # the number of the process, in a lineage file
            if kind is Kind.SUMMARY:
                event.ClearField("writer")
            if kind is Kind.LINEAGE and event.train_lineage.HasField("run_state"):
                state = event.train_lineage.run_state
                assert state.status == lineage_pb2.RunState.Status.Value(ends.pop(0))
                for of_the_process in ("start_time", "pid", "mindspore_version", *PROVENANCE):
                    state.ClearField(of_the_process)
            found.append(event.SerializeToString(deterministic=True))
    return found


def test_the_records_have_all_kinds_of_values(written: Path) -> None:
    pytest.importorskip("pandas")
    records = rec_summary.load(written)
    scalars = records.scalars(wide=True)
    np.testing.assert_allclose(scalars["loss"], [1, 1 / 2, 1 / 3], rtol=1e-6)
    assert scalars["foreign"].tolist() == [1, 2, 3]
    assert records.histograms()["count"].tolist() == [200] * 3
    assert len(records.tensors()) == len(records.images()) == 3
    assert [each.tag for each in records.landscapes()] == ["surface"]
    assert records.lineage()["optimizer"].tolist() == ["Adam"]
    assert records.evaluations()["value"].tolist() == [0.7]
    assert len(list(written.glob("export_*/tensor/t_*.npy"))) == 3


def test_the_export_shows_them(written: Path, tmp_path: Path) -> None:
    rec_summary.export_tensorboard(written, tmp_path)
    tags = {tag for _, tag, _ in shown(tmp_path)}
    assert tags >= {"loss", "foreign", "h", "i", "t", "surface/surface_VERTEX"}, tags


def test_a_process_with_mindspore_writes_the_same(written: Path, tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    record_without_mindspore.drive(tmp_path)
    assert without_times(tmp_path) == without_times(written)


def test_a_network_is_a_cell(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="network is invalid"):
        rec_summary.SummaryRecord(tmp_path, network=object())  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [None, ModuleType("mindspore")])
def test_without_mindspore_or_while_it_loads_nothing_is_its_own(
    module: ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", module)  # type: ignore[arg-type]
    assert not loaded.is_cell(object())
    assert not loaded.is_parameter(np.zeros(1))


def test_a_process_without_mindspore_is_the_only_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", None)  # type: ignore[arg-type]
    assert loaded.rank_and_size() == (0, 1)
