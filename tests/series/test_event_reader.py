from __future__ import annotations

import math
import os
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.format.framing import frame
from rec_summary.records.format.names import parse_name
from rec_summary.records.reading.runs import RecordFile, find_runs
from rec_summary.series.batch import Record
from rec_summary.series.event_reader import (
    Damage,
    EventReader,
    Flaw,
    ScannedFile,
    read_batches,
    record_at,
    scan_together,
    scanned_ahead,
)
from rec_summary.series.report import Problem, Report
from rec_summary.values.summary import encode_event, encode_scalar, encode_value
from tests.support.calls import calls_of
from tests.support.record_dirs import (
    START,
    event,
    histo,
    lineage,
    scalar,
    summary_name,
    write_payloads,
    write_segment,
)

PAYLOADS = [event(step, scalar("loss", step)).SerializeToString() for step in range(3)]
SIZE = len(frame(PAYLOADS[0]))
WHOLE = b"".join(map(frame, PAYLOADS))
AT_WORK = "a writer may still be at work"


def record_file(path: Path) -> RecordFile:
    name = parse_name(path.name)
    assert name is not None
    return RecordFile(str(path), name)


def decode(path: Path) -> tuple[list[Record], Report]:
    report = Report()
    batches = read_batches(record_file(path), report)
    return [record for batch in batches for record in batch.records()], report


def write(folder: Path, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / summary_name()
    path.write_bytes(data)
    return path


def test_events_come_with_their_place_and_time(tmp_path: Path) -> None:
    path = write_payloads(tmp_path / summary_name(), *PAYLOADS)
    decoded, report = decode(path)
    assert [(each.offset, each.wall_time, each.event.step) for each in decoded] == [
        (index * SIZE, START + index / 4, index) for index in range(3)
    ]
    assert (report.files, report.records, report.problems) == (1, {"summary": 3}, [])


def test_the_bytes_read_add_up_to_the_file(tmp_path: Path) -> None:
    path = write_payloads(tmp_path / summary_name(), *PAYLOADS)
    report = Report()
    read = [report.bytes_read for _ in read_batches(record_file(path), report)]
    assert read == [SIZE, 2 * SIZE, 3 * SIZE]


def test_lineage_files_hold_lineage(tmp_path: Path) -> None:
    name = summary_name().replace("_MS", "_lineage")
    path = write_payloads(tmp_path / name, lineage(version="x").SerializeToString())
    decoded, report = decode(path)
    assert decoded[0].event.version == "x"
    assert report.records == {"lineage": 1}


@pytest.mark.parametrize(
    ("data", "text"),
    [(frame(PAYLOADS[0])[:-1], "incomplete record at the end"), (b"", "the file is empty")],
)
def test_of_a_file_of_days_ago_no_writer_is_supposed(
    tmp_path: Path, data: bytes, text: str
) -> None:
    path = write(tmp_path, data)
    os.utime(path, (time.time() - 2 * 86_400,) * 2)
    _, report = decode(path)
    assert [problem.text for problem in report.problems] == [text]


def with_byte_changed(place: int) -> bytes:
    data = bytearray(WHOLE)
    data[place] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "steps", "offset", "text"),
    [
        (WHOLE[:-1], [0, 1], 2 * SIZE, re.escape(f"incomplete record at the end ({AT_WORK})")),
        (with_byte_changed(SIZE + 14), [0, 2], SIZE, "the data's checksum is wrong; skipped"),
        (with_byte_changed(SIZE), [0], SIZE, ".*nothing can be read from here on.*"),
        (b"#!/bin/sh\necho this is no record file\n", [], 0, r".*is this a record file\?.*"),
        (b"", [], None, ".*the file is empty.*"),
    ],
    ids=["torn tail", "bad payload", "bad length", "something else", "empty"],
)
def test_what_cannot_be_read_is_reported_with_its_place(
    tmp_path: Path, data: bytes, steps: list[int], offset: int | None, text: str
) -> None:
    path = write(tmp_path, data)
    decoded, report = decode(path)
    assert [each.event.step for each in decoded] == steps
    [problem] = report.problems
    assert offset is None or problem.offset == offset
    assert re.fullmatch(text, problem.text)
    assert offset is None or str(problem) == f"{path}, offset {offset}: {problem.text}"


def test_a_file_that_is_gone_is_reported(tmp_path: Path) -> None:
    decoded, report = decode(tmp_path / summary_name())
    assert decoded == []
    assert "cannot be opened: No such file or directory" in report.problems[0].text


def test_a_single_record_is_a_batch_of_one(tmp_path: Path) -> None:
    (record, *_), _ = decode(write_payloads(tmp_path / summary_name(), *PAYLOADS))
    assert record.part(0, 1).count == record.part(0, 9).count == 1
    assert record.part(0, 0).count == record.part(1, 2).count == 0


def test_payloads_that_are_no_events_are_skipped(tmp_path: Path) -> None:
    no_wall_time = PAYLOADS[0][9:]
    path = write_payloads(tmp_path / summary_name(), b"\xff\xff", no_wall_time, PAYLOADS[1])
    decoded, report = decode(path)
    assert [each.event.step for each in decoded] == [1]
    assert [problem.text for problem in report.problems] == ["not a summary record; skipped"] * 2


def test_a_time_before_any_other_is_that_of_the_file(tmp_path: Path) -> None:
    payload = event(1, at=math.nan).SerializeToString()
    path = write_payloads(tmp_path / summary_name(stamp=123), payload)
    decoded, report = decode(path)
    assert decoded[0].wall_time == 123.0
    assert report.wall_times_replaced == 1


@given(payloads=st.lists(st.binary(max_size=60), max_size=5))
def test_payloads_of_any_bytes_are_decoded_or_reported(payloads: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_payloads(Path(folder, summary_name()), *payloads)
        decoded, report = decode(path)
    empty = not payloads
    assert len(decoded) + report.problem_count == len(payloads) + empty
    assert all(math.isfinite(each.wall_time) for each in decoded)


def _read(file: RecordFile, scanned: ScannedFile | None = None) -> list[Any]:
    """Returns all that is in a file: where each record is, its time, step and values."""
    report = Report()
    with EventReader(file, report, scanned=scanned) as reader:
        records = [each for batch in reader for each in batch.records()]
    return [
        *((each.offset, each.wall_time, each.step, each.values[0].tag) for each in records),
        *((each.event.SerializeToString()) for each in records),
        *map(str, report.problems),
        (report.bytes_read, dict(report.records)),
    ]


def _short_files(folder: Path) -> list[RecordFile]:
    """Writes files with other tags, repeated steps, damage, and steps that meet."""
    runs = [
        [event(step, scalar(tag, step)) for step in range(100) for tag in ("a", "b")],
        [event(step, scalar("a", step), scalar("c", -step)) for step in range(99, 200)],
        [event(step // 2, scalar("a", step)) for step in range(200)],
        [event(step % 70, scalar("d", step)) for step in range(200)],
        [
            event(step, *([histo("w", [1.0, step])] if step % 3 else [scalar("a", step)]))
            for step in range(100)
        ],
    ]
    for number, events in enumerate(runs):
        write(folder / str(number), b"".join(frame(each.SerializeToString()) for each in events))
    damaged = (folder / "0" / summary_name()).read_bytes()
    write(folder / "torn", damaged[:-3])
    write(folder / "bad", b"?" + damaged[1:])
    write(folder / "lost", damaged[:500] + b"?" + damaged[501:])
    write(folder / "tiny", damaged[:100])
    changed = bytearray(damaged)
    changed[damaged.index(frame(runs[0][20].SerializeToString())[12:]) + 9] ^= 1  # still an event
    write(folder / "changed", changed)
    return [record_file(path) for path in sorted(folder.glob("*/*"))]


def test_files_that_are_scanned_together_are_read_as_each_by_itself(tmp_path: Path) -> None:
    files = _short_files(tmp_path)
    scanned = scan_together(files)
    assert len(scanned) == len(files)
    names = sorted(Path(path).parent.name for path, each in scanned.items() if each.records)
    assert names == ["0", "1", "2", "3", "4", "changed", "lost"]
    for file in files:
        assert _read(file, scanned.get(file.path)) == _read(file)
        assert _read(replace(file, scanned=scanned.get(file.path))) == _read(file)


def test_a_file_that_changes_after_it_was_scanned_is_read_as_it_is(tmp_path: Path) -> None:
    files = _short_files(tmp_path)
    scanned = scan_together(files)
    grown, replaced, gone = (Path(file.path) for file in files[:3])
    grown.write_bytes(grown.read_bytes() + frame(event(300, scalar("a", 1)).SerializeToString()))
    other = replaced.with_name("other")
    other.write_bytes(replaced.read_bytes()[:-600])
    other.rename(replaced)
    gone.unlink()
    for file in files[:3]:
        assert _read(file, scanned.get(file.path)) == _read(file)
    assert scan_together(files[2:3]) == {}


def test_files_that_were_read_ahead_are_the_same_and_are_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        steps = (event(step, scalar("loss", step)) for step in range(1, 200))
        write_segment(tmp_path / name, *steps)
    write_segment(tmp_path / "short", event(1, scalar("loss", 1)))
    runs = find_runs(tmp_path)
    files = [file for run in runs for file in run.files]
    ahead = list(scanned_ahead(runs))
    assert ahead == runs
    scanned = [file for run in ahead for file in run.files]

    def read(file: RecordFile) -> list[tuple[int, int]]:
        found = []
        for batch in read_batches(file, Report()):
            found += [(each.offset, each.step) for each in batch.records()]
        return found

    before = [read(file) for file in files]
    assert [calls_of(lambda each=each: read(each))["open_binary"] for each in scanned] == [0] * 6
    assert [read(file) for file in scanned] == before
    # One that has grown meanwhile is read again.
    with open(scanned[0].path, "ab") as file:
        file.write(frame(event(999, scalar("loss", 1)).SerializeToString()))
    assert [step for _, step in read(scanned[0])] == [*range(200), 999]


MALFORMED = {
    "cut off": b"\x0a\x1b\x09",
    "no width": Summary.Histogram.bucket(left=1.0).SerializePartialToString(),
}
MALFORMED["no width"] = b"\x0a" + bytes([len(MALFORMED["no width"])]) + MALFORMED["no width"]


def with_malformed(content: bytes, where: list[int]) -> tuple[bytes, list[int]]:
    """Returns records of a scalar and a histogram, malformed in some, and where these begin."""
    value = encode_value("w", "histogram", content)
    framed = [
        frame(
            encode_event(n, START + n, [encode_scalar("loss", n), value])
            if n in where
            else event(n, scalar("loss", n), histo("w", [1.0, 2.0])).SerializeToString()
        )
        for n in range(1, 300)
    ]
    return b"".join(framed), [sum(map(len, framed[: n - 1])) for n in where]


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("where", [[1], [7, 8, 200], [299]])
def test_a_malformed_message_in_a_block_is_damage(
    tmp_path: Path, content: bytes, where: list[int]
) -> None:
    data, offsets = with_malformed(content, where)
    path = write(tmp_path, data)
    records, report = decode(path)
    assert [record.step for record in records] == [n for n in range(1, 300) if n not in where]
    text = "not a summary record; skipped"
    assert report.problems == [Problem(str(path), offset, text) for offset in offsets]
    assert report.records == {"summary": 299 - len(where)}
    for options in ({"messages": True}, {"frames": True}):
        with EventReader(record_file(path), Report(), **options) as reader:
            items = list(reader.items())
        found = [item for item in items if isinstance(item, Damage)]
        assert [(each.flaw, each.offset) for each in found] == [
            (Flaw.UNDECODABLE, offset) for offset in offsets
        ]
    assert [record_at(record_file(path), offset) for offset in offsets] == [None] * len(where)


def test_a_malformed_message_is_reported_once(tmp_path: Path) -> None:
    data, [offset] = with_malformed(MALFORMED["cut off"], [100])
    report = Report()
    with EventReader(record_file(write(tmp_path, data)), report) as reader:
        [block] = reader
        assert report.problem_count == 0
        for part in (block, block.only({("histogram", "w")}), block.part(90, 110)):
            assert sum(1 for _ in part.records()) == len(part) - 1
    assert [problem.offset for problem in report.problems] == [offset]
    assert block.scalars().steps.tolist() == [*range(1, 300)]
