"""Blocks of records at their edges: odd wire, what is held before them, restarts, kills, costs."""

from __future__ import annotations

import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.format.framing import OVERHEAD_BYTES, frame
from rec_summary.records.format.limits import LONGEST_TAG
from rec_summary.series.blocks.scan import _starts, scan, scan_files
from rec_summary.tensorboard.event_files import export as tensorboard
from rec_summary.tensorboard.event_files import run_exporter as module
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.values.summary import encode_event, encode_value
from tests.support.blocks import both
from tests.support.calls import calls_of
from tests.support.record_dirs import START, event, histo, scalar, summary_name, tree

ONE = struct.pack("<f", 1.0)


def recorded(step: int, *values: Any) -> bytes:
    return bytes(event(step, *values).SerializeToString())


def framed(payloads: list[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def test_steps_in_more_bytes_than_they_need() -> None:
    payloads = [recorded(1, scalar("a", 1))]
    for step in range(2, 90):
        payload = recorded(step, scalar("a", step))
        payloads.append(payload[:10] + bytes([payload[10] | 0x80, 0]) + payload[11:])
    both([framed(payloads)])
    shortest = [recorded(step, scalar("a", step)) for step in range(128, 160)]
    both([framed([*shortest, *payloads[1:]])])  # of the same layout


@pytest.mark.parametrize("at", [0.0, math.nan, math.inf])
def test_scalars_among_others_without_a_time_that_can_be_shown(at: float) -> None:
    payloads = [recorded(n, scalar("a", n)) for n in range(1, 60)]
    for place in range(20, 50, 7):
        payloads[place] = bytes(event(place + 1, scalar("a", 1.0), at=at).SerializeToString())
    both([framed(payloads)])


@pytest.mark.parametrize("more", [(), (histo("w", [1.0, 5.0]),)])
def test_steps_up_to_the_greatest_of_a_block_and_beyond(more: tuple[Any, ...]) -> None:
    steps = range((1 << 35) - 40, (1 << 35) + 40)
    content = framed([recorded(step, scalar("a", 1.0), *more) for step in steps])
    both([content])
    scanned = scan(content, 0, 0)
    assert scanned is not None
    assert scanned.steps[scanned.known].tolist() == list(steps[:40])


def test_summaries_without_values_and_without_a_time() -> None:
    values = scalar("a", 1.0), histo("w", [1.0, 5.0])
    payloads = [recorded(n, *values) for n in range(1, 99)]
    for place in range(9, 80, 7):
        payloads[place] = recorded(place + 1)
        payloads[place + 3] = bytes(event(place + 4, *values, at=0.0).SerializeToString())
    both([framed(payloads)])


@pytest.mark.parametrize("more", [(), (histo("w", [1.0, 5.0]),)])
def test_records_that_a_block_cannot_hold(more: tuple[Any, ...]) -> None:
    payloads = [recorded(n, scalar("a", n), *more) for n in range(1, 60)]
    payloads[9] = recorded(10, scalar("x" * LONGEST_TAG, 1.0), *more)
    odd = {
        20: recorded(21),
        23: recorded(24, scalar("a", 1.0), scalar("a", 2.0), *more),
        26: recorded(27, scalar("x" * (LONGEST_TAG + 1), 1.0), *more),
        29: recorded(30, scalar("a", 1.0), Summary.Value(tag="b"), *more),
        32: recorded(0, scalar("a", 1.0), *more),
        # Without a time:
        **{place: recorded(place + 1, scalar("a", 1.0), *more)[9:] for place in range(35, 59, 2)},
    }
    for place, payload in odd.items():
        payloads[place] = payload
    both([framed(payloads)])
    scanned = scan(framed(payloads), 0, 0, frames=False)
    assert scanned is not None
    assert np.flatnonzero(~scanned.known).tolist() == [*odd]
    assert scanned.end(0) == 20
    assert scanned.end(22) == 23


@pytest.mark.parametrize("numbers", [[-1.0, 1.0], [0.0, 5.0], [-5.0, 0.0]])
def test_histograms_whose_sum_or_end_is_zero(numbers: list[float]) -> None:
    both([framed([recorded(n, scalar("a", 1.0), histo("w", numbers)) for n in range(1, 60)])])


@pytest.mark.parametrize("more", [(), (histo("w", [1.0, 5.0]),)])
@pytest.mark.parametrize(
    "change",
    [
        lambda payload, _: payload.replace(b"odd", b"\xffdd"),
        lambda payload, place: payload.replace(ONE, struct.pack("<I", 0x7F800001 + place), 1),
    ],
    ids=["tags that are no text", "signalling NaN"],
)
def test_many_odd_records_among_others(more: tuple[Any, ...], change: Any) -> None:
    payloads = [recorded(n, scalar("odd", 1.0), *more) for n in range(1, 60)]
    payloads[10:50] = map(change, payloads[10:50], range(10, 50))
    both([framed(payloads)])


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_values_that_are_held_begin_series_of_counts(odd: float) -> None:
    """At step 10 a histogram has one that is not finite; from there on their number is shown."""
    numbers = [[1.0, 2.0, n] for n in range(1, 60)]
    numbers[9].append(odd)
    both([framed([recorded(n, histo("w", each)) for n, each in enumerate(numbers, start=1)])])


def test_a_series_that_goes_back_twice_and_is_not_in_the_last_step() -> None:
    payloads = []
    for step in range(1, 101):
        payloads.append(recorded(step, scalar("a", step)))
        if step % 30 == 0:
            payloads.append(recorded(step, scalar("b", step)))
    for step in range(95, 225):
        payloads.append(recorded(step, scalar("a", step)))
        if 110 <= step < 204 and step % 2 == 0:
            payloads.append(recorded(step, scalar("b", step)))
    payloads += [recorded(step, scalar("b", -step)) for step in range(151, 260, 2)]
    both([framed(payloads)])


class Killed(Exception):
    pass


def test_a_kill_behind_a_step_that_was_passed_on_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place that is noted down before a block is behind the record before it."""
    payloads = [recorded(n, scalar("a", n)) for n in range(1, 21)]
    until = len(framed(payloads))
    payloads.append(recorded(20, *(scalar(f"b{n}", n) for n in range(5000))))
    payloads += [recorded(n, scalar("a", n)) for n in range(21, 400)]
    # Else it takes 64 MiB of records.
    monkeypatch.setattr(module, "_COMMIT_BYTES", until + 1)
    monkeypatch.setattr(tensorboard, "_PROGRESS_BYTES", 0)
    records = tmp_path / "records"
    records.mkdir()
    (records / summary_name()).write_bytes(framed(payloads))
    export_tensorboard(records, tmp_path / "whole")

    def kill(run: str, done: int, total: int) -> None:
        if done > until + len(frame(payloads[20])):
            raise Killed

    with pytest.raises(Killed):
        export_tensorboard(records, tmp_path / "killed", progress=kill)
    report = export_tensorboard(records, tmp_path / "killed")
    assert report.repeated == 0
    whole, killed = tree(tmp_path / "whole"), tree(tmp_path / "killed")
    for path in whole:
        assert not path.endswith("rec_summary") or killed[path] == whole[path]


def empty_histograms(count: int) -> bytes:
    """A record of many histograms without a byte in them."""
    return encode_event(
        5, START, [encode_value(f"{n:06d}", "histogram", b"") for n in range(count)]
    )


def test_a_record_of_very_many_series_is_decoded_by_itself() -> None:
    assert scan(frame(empty_histograms(60_000)), 0, 0) is None


def declaring(width: int, height: int) -> bytes:
    """The beginning of a PNG, as far as its size."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)


@pytest.mark.parametrize(
    ("stated", "data", "is_plain"),
    [
        ((2, 5, 3), declaring(5, 2), True),
        ((1 << 14, 1 << 13, 3), declaring(5, 2), True),  # what is stated is only shown
        ((2, 5, 3), declaring(1 << 13, 1 << 13), True),
        ((2, 5, 3), declaring(1 << 14, 1 << 13), False),
        ((0, 5, 3), declaring(5, 2), False),
        ((2, 0, 3), declaring(5, 2), False),
        ((2, 5, 0), declaring(5, 2), False),
        ((2, 5, 3), declaring(5, 2)[:-1], False),
        ((2, 5, 3), declaring(5, 2).replace(b"IHDR", b"IDAT"), False),
        ((2, 5, 3), b"GIF89a" + bytes(30), False),
    ],
)
def test_images_that_pass_as_they_are(
    stated: tuple[int, int, int], data: bytes, is_plain: bool
) -> None:
    height, width, channels = stated
    image = Summary.Image(height=height, width=width, colorspace=channels, encoded_image=data)
    payload = recorded(1, Summary.Value(tag="t", image=image))
    scanned = scan(frame(payload), 0, 0)
    assert (scanned is not None) == is_plain


def kinds(steps: int, count: int) -> bytes:
    """Records of one scalar each, of many tags in turn."""
    return framed([recorded(n, scalar(f"tag{n % count:04d}", n)) for n in range(1, steps + 1)])


@pytest.mark.parametrize("count", [20, 5000])
def test_series_of_any_number_are_taken_in_blocks(count: int) -> None:
    block = scan(kinds(20_000, count), 0, 0)
    assert block is not None
    assert block.known.all()
    assert len(block.table.series) == count


def test_a_step_that_two_files_share_is_no_repeated_one() -> None:
    files = [
        framed([recorded(n, scalar("a", n)) for n in range(first, first + 40)])
        for first in (1, 40, 79)
    ]
    for file, block in zip(files, scan_files(files), strict=True):
        assert block is not None
        assert block.known.all()
        assert (block.bounds[0], block.bounds[-1]) == (0, len(file))


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_a_file_that_has_become_empty_is_left_to_be_read_by_itself(at: int, torn: bytes) -> None:
    file = kinds(40, 1)
    files = [file, file, torn]
    files.insert(at, b"")
    found = scan_files(files)
    assert [block is not None for block in found] == [each == file for each in files]
    assert all(len(block.steps) == 40 for block in found if block is not None)


def test_files_that_are_scanned_together_have_the_records_of_each() -> None:
    payloads = [recorded(n, scalar("a", n)) for n in range(1, 121)]
    payloads[70] = b"no event"
    files = [framed(payloads[first : first + 40]) for first in (0, 40, 80)]
    for file, together in zip(files, scan_files(files), strict=True):
        alone = scan(file, 0, 0, frames=False)
        assert alone is not None
        assert together is not None
        assert together.known.tolist() == alone.known.tolist()
        found, expected = (
            [(record.offset, record.end_offset, record.event) for record in block.records()]
            for block in (together.block("file", 0, 30), alone.block("file", 0, 30))
        )
        assert found == expected
        bounds = alone.bounds.tolist()
        assert [each[:2] for each in found] == list(itertools.pairwise(bounds[:31]))


def test_a_series_under_another_tag_is_not_looked_for_again_and_again(tmp_path: Path) -> None:
    """A tag that histograms have taken already is never passed on."""
    payloads = [recorded(1, histo("a", [1.0, 2.0])), recorded(2, scalar("a", 1))]
    payloads += [recorded(n, scalar("a", n)) for n in range(3, 5000)]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / summary_name()).write_bytes(framed(payloads))
    reports = []
    calls = calls_of(
        lambda: reports.append(export_tensorboard(tmp_path / "records", tmp_path / "logs"))
    )
    assert reports[0].exported == {"histogram": 1, "scalar_value": 4998}
    assert 0 < calls["part"] < 100


@pytest.mark.parametrize("period", [1, 2, 5, 31, 32, 40])
@pytest.mark.parametrize("odd", [None, 150, 64, 399])
def test_where_records_begin_when_their_sizes_repeat(period: int, odd: int | None) -> None:
    sizes = [3 + (7 * number % period) for number in range(period)] * (400 // period)
    if odd is not None:
        sizes.insert(min(odd, len(sizes)), 77)
    data = b"".join(frame(bytes(size)) for size in sizes)
    bounds = np.cumsum([0, *(size + OVERHEAD_BYTES for size in sizes)]).tolist()
    assert _starts(data, 0).tolist() == bounds
    assert _starts(data[:-1], 0).tolist() == bounds[:-1]  # a record that is not complete
    at = bounds[len(sizes) // 2]
    assert (_starts(data, at) + at).tolist() == bounds[len(sizes) // 2 :]
    damaged = bytearray(data)
    damaged[at + 9] ^= 1  # in the checksum of a length
    assert _starts(bytes(damaged), 0).tolist() == bounds[: len(sizes) // 2 + 1]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("place", range(12))
def test_a_damaged_header_ends_what_is_found(before: int, place: int) -> None:
    """Also where its checksum is that of the first bytes of the length."""
    data = bytearray(bytes(before) + 3 * frame(b"x" * 43))
    data[before + len(frame(b"x" * 43)) + place] ^= 4
    assert _starts(bytes(data), before).tolist() == [0, len(frame(b"x" * 43))]


@pytest.mark.parametrize("large", [65_535, 65_536, 1 << 17])
def test_what_looks_like_a_header_inside_a_record_is_none(large: int) -> None:
    inner = frame(b"x" * 70)
    payloads = [b"x" * 70, inner, bytes(9), inner * 3, inner[:-3], bytes(large), b"", inner, b"y"]
    data = b"".join(map(frame, payloads))
    bounds = np.cumsum([0, *(len(each) + OVERHEAD_BYTES for each in payloads)]).tolist()
    assert _starts(data, 0).tolist() == bounds
    assert _starts(inner + data, len(inner)).tolist() == bounds
    for cut in (1, 5, 30, 100):
        whole = [each for each in bounds if each <= len(data) - cut]
        assert _starts(data[:-cut], 0).tolist() == whole
