"""The reader's promise: every whole record once, and a name for everything else."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.errors import RecordError
from rec_summary.records.format.framing import frame, masked_crc32c
from rec_summary.records.reading.reader import (
    BadDataChecksum,
    BadLength,
    BadLengthChecksum,
    LostRecord,
    RecordReader,
    TruncatedRecord,
)
from tests.support.growing_file import GrowingFile

payload_lists = st.lists(st.binary(max_size=400), max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reader")


def write(folder, content):
    path = folder / "records"
    path.write_bytes(content)
    return path


@given(payload_lists)
def test_reads_what_was_framed(folder, payloads):
    path = write(folder, b"".join(map(frame, payloads)))
    with RecordReader(path) as reader:
        assert [record.payload for record in reader] == payloads
        assert reader.read() is None
        assert reader.offset == path.stat().st_size


@given(payload_lists, st.lists(st.integers(1, 200), min_size=1))
def test_a_growing_file_gives_every_record_once(folder, payloads, pieces):
    file = GrowingFile(folder / "growing", b"".join(map(frame, payloads)))
    seen = []
    with RecordReader(file.path) as reader:
        more, turn = True, 0
        while more:
            more = file.grow(pieces[turn % len(pieces)])
            turn += 1
            before = reader.offset
            with contextlib.suppress(TruncatedRecord):
                seen.extend(record.payload for record in reader)
            assert reader.offset >= before  # the place is kept
    assert seen == payloads


@given(payload_lists, st.data())
def test_a_later_reader_goes_on_at_a_stored_offset(folder, payloads, data):
    path = write(folder, b"".join(map(frame, payloads)))
    stop = data.draw(st.integers(0, len(payloads)))
    with RecordReader(path) as reader:
        first = [reader.read().payload for _ in range(stop)]
        offset = reader.offset
    with RecordReader(path, offset) as reader:
        assert first + [record.payload for record in reader] == payloads


def test_truncation_names_file_offset_and_what_is_missing(tmp_path):
    path = write(tmp_path, frame(b"whole") + frame(b"cut short")[:-3])
    with RecordReader(path) as reader:
        assert reader.read().payload == b"whole"
        with pytest.raises(TruncatedRecord) as caught:
            reader.read()
    assert caught.value.path == str(path)
    assert caught.value.offset == len(frame(b"whole"))
    assert "22 of its 25 bytes" in str(caught.value)
    assert f"{path}, offset {len(frame(b'whole'))}" in str(caught.value)


@pytest.mark.parametrize("size", range(1, 12))
def test_a_file_may_end_inside_a_header(tmp_path, size):
    path = write(tmp_path, frame(b"whole") + frame(b"cut short")[:size])
    with RecordReader(path) as reader:
        assert reader.read().payload == b"whole"
        with pytest.raises(TruncatedRecord, match=f"{size} of its 12 bytes"):
            reader.read()


def test_a_record_above_the_limit_is_stepped_over_also_at_the_end(tmp_path):
    path = write(tmp_path, frame(b"x" * 100) + frame(b"x" * 101))
    with RecordReader(path, most_bytes=100) as reader:
        assert reader.read().payload == b"x" * 100
        with pytest.raises(LostRecord, match="101 bytes"):
            reader.read()
        assert reader.read() is None


@pytest.mark.parametrize("payload", [b"", b"damaged"])
def test_a_wrong_checksum_of_data_is_damage(tmp_path, payload):
    path = write(tmp_path, frame(payload)[:-1] + b"?")
    with RecordReader(path) as reader, pytest.raises(BadDataChecksum):
        reader.read()


def test_damaged_data_is_stepped_over(tmp_path):
    damaged = bytearray(frame(b"damaged"))
    damaged[14] ^= 1
    path = write(tmp_path, frame(b"before") + bytes(damaged) + frame(b"after"))
    with RecordReader(path) as reader:
        assert reader.read().payload == b"before"
        with pytest.raises(BadDataChecksum) as caught:
            reader.read()
        assert caught.value.offset == len(frame(b"before"))
        assert reader.read().payload == b"after"
        assert reader.read() is None


def test_damaged_length_stops_reading_for_good(tmp_path):
    damaged = bytearray(frame(b"damaged"))
    damaged[2] ^= 1
    path = write(tmp_path, frame(b"before") + bytes(damaged) + frame(b"after"))
    with RecordReader(path) as reader:
        reader.read()
        for _ in range(2):
            with pytest.raises(BadLengthChecksum):
                reader.read()


def test_something_else_than_records_is_reported_at_its_first_byte(tmp_path):
    path = write(tmp_path, b"step,loss\n1,0.693\n2,0.692\n")
    with RecordReader(path) as reader, pytest.raises(BadLengthChecksum) as caught:
        reader.read()
    assert caught.value.offset == 0
    assert "is this a record file" in str(caught.value)


def test_a_huge_length_with_a_valid_checksum_allocates_nothing(tmp_path):
    length = struct.pack("<Q", 2**63)
    path = write(tmp_path, length + struct.pack("<I", masked_crc32c(length)) + b"x" * 100)
    with RecordReader(path) as reader, pytest.raises(BadLength, match="at most 268,435,456"):
        reader.read()


@settings(max_examples=300)
@given(payload_lists.filter(bool), st.data())
def test_damage_anywhere_gives_only_documented_errors_and_no_invented_record(
    folder, payloads, data
):
    content = bytearray(b"".join(map(frame, payloads)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = write(folder, bytes(content[: data.draw(st.integers(0, len(content)))]))
    seen = []
    with RecordReader(path) as reader:
        while True:
            try:
                record = reader.read()
            except BadDataChecksum:
                continue
            except RecordError:
                break
            if record is None:
                break
            seen.append(record.payload)
    remaining = iter(payloads)
    assert all(payload in remaining for payload in seen)  # a subsequence of what was written
