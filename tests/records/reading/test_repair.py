from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary.errors import ArgumentError, SourceError
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.repair import (
    _SMALLEST_WINDOW,
    RepairReport,
    find_record,
    repair,
)
from rec_summary.series.overview.verify import verify_file
from tests.support.record_dirs import event, scalar, summary_name, tree, write_segment

FRAMES = [frame(event(step, scalar("loss", step)).SerializeToString()) for step in range(6)]
DATA = b"".join(FRAMES)
STARTS = [sum(map(len, FRAMES[:index])) for index in range(6)]


def repaired(folder: Path, data: bytes) -> tuple[bytes, RepairReport]:
    run = folder / "records" / "run"
    run.mkdir(parents=True)
    (run / summary_name()).write_bytes(data)
    report = repair(folder / "records", folder / "copy")
    return (folder / "copy" / "run" / summary_name()).read_bytes(), report


def test_sound_records_are_copied_byte_for_byte(tmp_path: Path) -> None:
    write_segment(tmp_path / "records" / "a" / "b", event(1, scalar("loss", 1)))
    before = tree(tmp_path / "records")
    report = repair(tmp_path / "records", tmp_path / "copy")
    records = {name: data for name, data in before.items() if ".lock" not in name}
    assert tree(tmp_path / "copy") == records
    assert tree(tmp_path / "records") == before
    assert [file.lost for file in report.files] == [(), ()]
    for source, copy in ((file.source, file.destination) for file in report.files):
        assert Path(source).stat().st_mtime_ns == Path(copy).stat().st_mtime_ns


@pytest.mark.parametrize("place", [0, 8, 13, -1], ids=["length", "its sum", "data", "their sum"])
def test_one_damaged_record_costs_only_itself(tmp_path: Path, place: int) -> None:
    data = bytearray(DATA)
    data[STARTS[2] + (place if place >= 0 else len(FRAMES[2]) - 1)] ^= 1
    copy, report = repaired(tmp_path, bytes(data))
    assert copy == b"".join([*FRAMES[:2], *FRAMES[3:]])
    [file] = report.files
    assert file.lost == ((STARTS[2], len(FRAMES[2])),)
    assert (file.records, file.nbytes) == (5, len(copy))


def test_a_hole_and_a_torn_end(tmp_path: Path) -> None:
    data = FRAMES[0] + bytes(100_000) + FRAMES[1] + FRAMES[2][:-5]
    copy, report = repaired(tmp_path, data)
    assert copy == FRAMES[0] + FRAMES[1]
    [file] = report.files
    assert file.lost == (
        (len(FRAMES[0]), 100_000),
        (len(data) - len(FRAMES[2]) + 5, len(FRAMES[2]) - 5),
    )


def test_records_behind_the_window_of_the_search_are_found(tmp_path: Path) -> None:
    noise = b"\x01" * (9 << 20)
    copy, _ = repaired(tmp_path, noise + DATA)
    assert copy == DATA


@pytest.mark.parametrize("size", [1, 2, 11, 12, 15, 16, 17])
def test_a_few_bytes_between_records_and_at_the_end_cost_only_themselves(
    tmp_path: Path, size: int
) -> None:
    noise = b"\x01" * size
    copy, report = repaired(tmp_path, FRAMES[0] + noise + FRAMES[1] + noise)
    assert copy == FRAMES[0] + FRAMES[1]
    behind = len(FRAMES[0])
    assert report.files[0].lost == ((behind, size), (behind + size + len(FRAMES[1]), size))


def test_a_record_that_begins_in_a_hole_of_the_file_is_found(tmp_path: Path) -> None:
    record = frame(b"x" * 256)  # the first byte of its length is zero
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.seek(1 << 20)
        file.write(record[1:])
    assert find_record(str(path), 0) == (1 << 20) - 1


def test_records_at_the_edge_of_a_window_of_the_search_are_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for before in range(_SMALLEST_WINDOW - 20, _SMALLEST_WINDOW + 20):
        path.write_bytes(b"\x01" * before + FRAMES[1])
        assert find_record(str(path), 0) == before


def test_nothing_readable_leaves_an_empty_file(tmp_path: Path) -> None:
    copy, report = repaired(tmp_path, b"no records at all")
    assert copy == b""
    assert report.files[0].records == 0


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path, _ = write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    link = path.with_name(summary_name(5))
    link.symlink_to(path)
    report = repair(tmp_path / "records", tmp_path / "copy")
    [(unreadable, why)] = report.unreadable
    assert unreadable == str(link)
    assert "a link, which is not followed" in why
    assert not (tmp_path / "copy" / link.name).exists()


@pytest.mark.parametrize("place", ["records/copy", ".", "full"])
def test_destinations_that_will_not_do(tmp_path: Path, place: str) -> None:
    write_segment(tmp_path / "records", event(1, scalar("loss", 1)))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").write_text("x")
    before = tree(tmp_path)
    with pytest.raises(ArgumentError, match="the destination of the repair is invalid"):
        repair(tmp_path / "records", tmp_path / place)
    assert tree(tmp_path) == before


def test_a_source_without_records(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError):
        repair(tmp_path / "empty", tmp_path / "copy")


DAMAGES = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert"]), st.integers(0, len(DATA) * 8 - 1)),
    min_size=1,
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(DAMAGES)
def test_whatever_is_damaged_the_copy_is_sound_and_nothing_new(
    damages: list[tuple[str, int]],
) -> None:
    data = bytearray(DATA)
    for kind, place in damages:
        at = place // 8 % max(len(data), 1)
        if kind == "flip" and data:
            data[at] ^= 1 << place % 8
        elif kind == "cut":
            del data[at : at + 7]
        else:
            data[at:at] = b"\x00\x05"
    with tempfile.TemporaryDirectory() as folder:
        _, report = repaired(Path(folder), bytes(data))
        [file] = report.files
        with RecordReader(file.destination) as reader:
            found = [record.payload for record in reader]
        if found:
            assert not verify_file(file.destination).damaged
    payloads = [framed[12:-4] for framed in FRAMES]
    assert [payload for payload in payloads if payload in found] == found
    # Every piece of the file between two damages that holds whole records is found.
    assert len(found) >= len(FRAMES) - 2 * len(damages)


def test_the_search_can_start_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    for start in range(len(DATA)):
        expected = next((each for each in STARTS if each >= start), None)
        assert find_record(str(path), start) == expected
