"""Messages are counted before they are decoded, in bounded time."""

from __future__ import annotations

import time

from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.format import wire
from rec_summary.records.format.bounds import count_parts
from tests.support.record_dirs import event, scalar


def test_zeros_are_not_walked_through() -> None:
    begun = time.process_time()
    summary = bytes([Event.DESCRIPTOR.fields_by_name["summary"].number << 3 | 2])
    for zeros in (bytes(1 << 27), summary + b"\xf0\xff\xff\x3f" + bytes(1 << 27)):
        assert count_parts(Event, zeros, 10) <= 1
    assert time.process_time() - begun < 5


def test_messages_in_front_of_zeros_are_counted() -> None:
    payload = event(1, scalar("a", 1), scalar("b", 2)).SerializeToString()
    assert count_parts(Event, payload, 10) == 3
    assert count_parts(Event, payload + bytes(100), 10) == 3
    assert count_parts(Event, payload * 5, 10) == 11
    assert count_parts(Event, payload * 5, 3) == 4  # it stops there


def test_messages_behind_a_number_are_counted() -> None:
    """Also where the bytes of the number look like messages."""
    image = wire.bytes_field(4, b"")
    for number in (wire.key(3, wire.FIXED32) + image * 2, wire.key(3, wire.FIXED64) + image * 4):
        values = wire.bytes_field(1, number + image) + wire.bytes_field(1, image)
        assert count_parts(Event, wire.bytes_field(5, values), 10) == 5


def test_a_length_that_is_cut_off_ends_the_count() -> None:
    payload = event(1, scalar("a", 1)).SerializeToString()
    for end in (b"\x2a", b"\x2a\x80"):
        assert count_parts(Event, payload + end, 10) == 2
