from __future__ import annotations

import io
import math
import struct
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import event_pb2

from rec_summary.records.format import framing
from rec_summary.tensorboard.dashboards.points import SCALARS
from rec_summary.tensorboard.dashboards.scalars import scalar
from rec_summary.tensorboard.event_files.event_file import FILE_VERSION, EventFileWriter

STEPS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
TAGS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=10)
NUMBERS = st.floats(width=32)
EVENTS = st.lists(st.tuples(STEPS, TIMES, st.lists(st.tuples(TAGS, NUMBERS), max_size=3)))


def written(events: list[tuple[int, float, list[tuple[str, float]]]]) -> tuple[bytes, int]:
    file = io.BytesIO()
    writer = EventFileWriter(file)
    for step, wall_time, points in events:
        values = []
        for tag, number in points:
            value = scalar(tag, number).value
            value.tag = tag
            value.metadata.CopyFrom(SCALARS.metadata)
            values.append(value)
        writer.write(step, wall_time, values)
    return file.getvalue(), writer.bytes_written


def unframed(data: bytes) -> list[Any]:
    events = []
    while data:
        length = framing.unpack_header(data[: framing.HEADER_BYTES])
        assert length is not None
        payload, data = data[12 : 12 + length], data[12 + length :]
        assert framing.footer_matches(payload, data[:4])
        events.append(event_pb2.Event.FromString(payload))
        data = data[4:]
    return events


@given(EVENTS)
def test_what_is_written_is_read_back(
    events: list[tuple[int, float, list[tuple[str, float]]]],
) -> None:
    data, nbytes = written(events)
    assert len(data) == nbytes
    if not events:
        assert data == b""
        return
    version, start, *found = unframed(data)
    assert start.session_log.status == event_pb2.SessionLog.START
    assert (version.file_version, version.wall_time) == (FILE_VERSION, events[0][1])
    assert [(event.step, event.wall_time) for event in found] == [each[:2] for each in events]
    for event, (_, _, points) in zip(found, events, strict=True):
        for value, (tag, number) in zip(event.summary.value, points, strict=True):
            assert value.tag == tag
            assert value.metadata.plugin_data.plugin_name == "scalars"
            assert value.simple_value == number or math.isnan(number)


def test_tensorboards_own_loader_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(written([(1, 2.5, [("loss", 0.5)]), (2, 3.5, [("loss", math.nan)])])[0])
    version, _, first, second = EventFileLoader(str(path)).Load()
    assert version.file_version == "brain.Event:2"
    assert (first.step, first.wall_time, second.step) == (1, 2.5, 2)
    [number] = first.summary.value[0].tensor.float_val
    assert struct.pack("<f", number) == struct.pack("<f", 0.5)


def test_where_the_last_event_begins() -> None:
    file = io.BytesIO()
    writer = EventFileWriter(file)
    for step in range(3):
        writer.write(step, 1.0, [])
    [event] = unframed(file.getvalue()[writer.last :])
    assert event.step == 2


def test_a_file_that_has_begun_gets_no_second_beginning() -> None:
    file = io.BytesIO()
    writer = EventFileWriter(file, size=1000)
    writer.write(7, 1.0, [])
    [event] = unframed(file.getvalue())
    assert (event.step, writer.last) == (7, 1000)


def test_a_graph_and_a_restart() -> None:
    file = io.BytesIO()
    writer = EventFileWriter(file)
    writer.write_graph(2.5, b"graph")
    writer.write_restart(5, 3.5)
    _, _, graph, restart = unframed(file.getvalue())
    assert (graph.graph_def, graph.wall_time) == (b"graph", 2.5)
    assert (restart.step, restart.session_log.status) == (5, event_pb2.SessionLog.START)
