from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb import summary_pb2
from rec_summary.records.format.framing import frame
from rec_summary.series.overview.verify import DAMAGE, WARNING, FileReport, verify_file
from rec_summary.series.report import Report
from rec_summary.values.summary import encode_event, encode_value
from tests.support.record_dirs import START, event, histo, lineage, scalar, summary_name, train

VERSION = summary_pb2.Event(wall_time=START, version="MindSpore.Event:1")
EVENTS = [VERSION, *(event(step, scalar("loss", step)) for step in range(3))]
FRAMES = [frame(each.SerializeToString()) for each in EVENTS]
DATA = b"".join(FRAMES)
LATE = event(1, scalar("loss", 0), at=START - 61).SerializeToString()


def verified(folder: Path, data: bytes, name: str | None = None) -> FileReport:
    path = folder / (name or summary_name())
    path.write_bytes(data)
    return verify_file(path)


def findings(report: FileReport) -> list[tuple[int, str]]:
    return [(finding.offset, finding.severity) for finding in report.findings]


def test_a_sound_file(tmp_path: Path) -> None:
    report = verified(tmp_path, DATA)
    assert (report.findings, report.damaged, report.torn) == ((), False, False)
    assert report.records == {"summary": 3, "version": 1}
    assert report.nbytes == report.sound_bytes == len(DATA)
    assert (report.first_step, report.last_step) == (0, 2)
    assert (report.first_time, report.last_time) == (START, START + 0.5)


def test_a_file_that_was_begun_after_its_first_values_is_sound(tmp_path: Path) -> None:
    assert verified(tmp_path, FRAMES[0] + frame(LATE) + FRAMES[3]).findings == ()
    [found] = verified(tmp_path, FRAMES[0] + FRAMES[1] + frame(LATE)).findings
    assert "the wall time goes back" in found.text


def test_wall_times_that_are_out_of_order_by_less_than_a_minute_are_sound(tmp_path: Path) -> None:
    # MindSpore's collector writes what it has made in several processes.
    late = frame(event(3, scalar("loss", 0), at=START - 59).SerializeToString())
    assert verified(tmp_path, DATA + late).findings == ()


def test_a_torn_end_is_a_warning(tmp_path: Path) -> None:
    report = verified(tmp_path, DATA[:-1])
    assert findings(report) == [(len(DATA) - len(FRAMES[3]), WARNING)]
    assert (report.torn, report.damaged, report.records["summary"]) == (True, False, 2)


@pytest.mark.parametrize(("place", "kept"), [(13, 3), (0, 1)], ids=["data", "length"])
def test_a_bad_checksum_is_damage_with_its_place(tmp_path: Path, place: int, kept: int) -> None:
    data = bytearray(DATA)
    data[len(FRAMES[0]) + place] ^= 1
    report = verified(tmp_path, bytes(data))
    assert findings(report) == [(len(FRAMES[0]), DAMAGE)]
    assert sum(report.records.values()) == kept


def test_a_record_of_something_else_is_damage(tmp_path: Path) -> None:
    report = verified(tmp_path, FRAMES[0] + frame(b"\xff\xff") + FRAMES[1])
    assert findings(report) == [(len(FRAMES[0]), DAMAGE)]


def test_a_malformed_histogram_among_many_records_is_damage(tmp_path: Path) -> None:
    frames = [frame(event(n, histo("w", [1.0])).SerializeToString()) for n in range(1, 300)]
    frames[99] = frame(encode_event(100, 1.7e9, [encode_value("w", "histogram", b"\x0a\x05")]))
    report = verified(tmp_path, b"".join([FRAMES[0], *frames]))
    assert findings(report) == [(sum(map(len, [FRAMES[0], *frames[:99]])), DAMAGE)]


def test_lineage_files_hold_lineage(tmp_path: Path) -> None:
    name = summary_name().replace("_MS", "_lineage")
    events = [lineage(version="MindSpore.Event:1"), lineage(START + 1, train_lineage=train())]
    data = b"".join(frame(each.SerializeToString()) for each in events)
    assert verified(tmp_path, data, name).records == {"train_lineage": 1, "version": 1}


def test_a_lineage_file_of_mindspore_has_no_version(tmp_path: Path) -> None:
    name = summary_name().replace("_MS", "_lineage")
    data = frame(lineage(START, train_lineage=train()).SerializeToString())
    assert verified(tmp_path, data, name).findings == ()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the file is empty"),
        (FRAMES[1], "does not state the version"),
        (FRAMES[0] + FRAMES[3] + FRAMES[1], "the step goes back from 2 to 0"),
        (FRAMES[0] + frame(event(1, at=float("nan")).SerializeToString()), "wall time is nan"),
        (FRAMES[0] + frame(summary_pb2.Event(wall_time=START).SerializeToString()), "not know"),
    ],
)
def test_what_is_unusual_is_a_warning(tmp_path: Path, data: bytes, text: str) -> None:
    report = verified(tmp_path, data)
    assert not report.damaged
    assert any(text in finding.text for finding in report.findings)


def test_progress_adds_up(tmp_path: Path) -> None:
    path = tmp_path / summary_name()
    path.write_bytes(DATA)
    report = Report()
    verify_file(path, report)
    assert report.bytes_read == len(DATA)


@given(st.integers(0, len(DATA) * 8 - 1))
def test_no_flipped_bit_goes_unnoticed(place: int) -> None:
    data = bytearray(DATA)
    data[place // 8] ^= 1 << place % 8
    with tempfile.TemporaryDirectory() as folder:
        report = verified(Path(folder), bytes(data))
    assert report.findings
    assert report.sound_bytes < len(DATA)
