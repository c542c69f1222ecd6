"""Messages are counted before they are decoded, in bounded time."""

from __future__ import annotations

import time

from rec_summary._pb.summary_pb2 import Event
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
