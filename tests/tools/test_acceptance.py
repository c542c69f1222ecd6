"""The acceptance check: it passes on everything, and finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from rec_summary.export.tensorboard import export_tensorboard
from rec_summary.records.framing import frame
from tests.export import event_files
from tests.export.record_dirs import event, histo, scalar, write_segment
from tools.acceptance_check import __main__ as acceptance


@pytest.mark.mindspore
def test_everything_that_both_collectors_record_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("mindspore")
    code = acceptance.main([])
    out = capsys.readouterr().out
    assert code == 0, out
    assert "Everything that was recorded is shown." in out
    assert out.count("landscapes") == 4  # two trees, two loaders


@pytest.mark.parametrize("change", ["value", "missing", "added"])
def test_what_is_wrong_is_found(
    tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_segment(
        tmp_path / "records" / "run",
        *(event(step, scalar("loss", step), histo("w", [step])) for step in (1, 2, 3)),
    )
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    path = event_files.event_file(tmp_path / "logs" / "run")
    events = event_files.read_events(path)
    [second] = [each for each in events if each.step == 2 and each.HasField("summary")]
    if change == "value":
        second.summary.value[0].simple_value = 2.5
    elif change == "missing":
        events.remove(second)
    else:
        second.summary.value.add(tag="invented", simple_value=1.0)
    path.write_bytes(b"".join(frame(each.SerializeToString()) for each in events))
    assert acceptance.check(tmp_path / "records", tmp_path / "logs", tmp_path) > 0
    said = {"value": "2.5", "missing": "3 values were recorded, 2 are shown", "added": "invented"}
    assert said[change] in capsys.readouterr().out
