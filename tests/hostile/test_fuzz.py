"""Any bytes, through everything that reads records: only documented errors, nothing elsewhere.

`tools/check fuzz` does the same for as long as one likes.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rec_summary
from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary._pb.summary_pb2 import Event
from rec_summary.errors import SourceError
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.repair import repair
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.overview.rows import rows
from rec_summary.series.overview.verify import verify_file
from rec_summary.series.report import Report
from rec_summary.tables.formats import export_tables
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support.crafted import good, header
from tests.support.messages import message
from tests.support.record_dirs import summary_name, tree

LINEAGE_NAME = summary_name().replace("_MS", "_lineage")


def seeds() -> list[bytes]:
    """Returns files of sound records of every kind."""
    source = random.Random(1)
    events = [message(Event, source).SerializePartialToString() for _ in range(12)]
    lineages = [message(LineageEvent, source).SerializePartialToString() for _ in range(12)]
    return [
        good() + b"".join(map(frame, events)),
        good() + b"".join(map(frame, lineages)),
        good() + good(2),
        b"",
    ]


SEEDS = seeds()


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Draws the content of a record file: sound, damaged, cut, framed junk, or plain junk."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        how = draw(st.integers(0, 3))
        if how == 0:
            data[place] ^= draw(st.integers(1, 255))
        elif how == 1:
            del data[place : place + draw(st.integers(1, 40))]
        elif how == 2:
            data[place:place] = frame(draw(st.binary(max_size=40)))
        else:
            data[place:place] = header(draw(st.integers(0, 2**64 - 1)))
    return bytes(data)


def everything(base: Path) -> None:
    """Reads a source with everything that reads records."""
    source = base / "records"
    documented = contextlib.suppress(SourceError)
    for path in sorted(source.rglob("*summary*")):
        report = verify_file(path)
        assert report.sound_bytes <= report.nbytes
    with documented:
        export_tensorboard(source, base / "logs", tensors="npy")
    with documented:
        export_tensorboard(source, base / "thin", max_points=10)
    with documented:
        export_tables(source, base / "tables", form="csv")
    with documented:
        export_tables(source, base / "tables", form="jsonl")
    with documented:
        repair(source, base / "repaired")
    with documented:
        runs = find_runs(source)
        rows(runs, Report())
        for run in runs:
            list(inspect_run(run))
    with documented, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = rec_summary.load(source)
        for table in (records.scalars, records.histograms, records.tensors, records.lineage):
            table()
        records.landscapes()
        records.evaluations()


def checked(base: Path, read: Callable[[Path], None]) -> None:
    """Reads a source, and makes sure that it stays as it was and nothing is written elsewhere."""
    before = tree(base / "records")
    read(base)
    assert tree(base / "records") == before
    places = {"records", "logs", "thin", "tables", "repaired"}
    assert {each.name for each in base.iterdir()} <= places
    shutil.rmtree(base)


def write(base: Path, summary: bytes, lineage: bytes) -> None:
    run = base / "records" / "run"
    run.mkdir(parents=True)
    (run / summary_name()).write_bytes(summary)
    (run / LINEAGE_NAME).write_bytes(lineage)


@settings(max_examples=60, deadline=None)
@given(files(), files())
def test_any_file_is_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, summary: bytes, lineage: bytes
) -> None:
    base = tmp_path_factory.mktemp("files")
    write(base, summary, lineage)
    checked(base, everything)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_any_message_is_shown_or_reported(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    base = tmp_path_factory.mktemp("messages")
    source = random.Random(seed)

    def some(kind: Any) -> bytes:
        found = (message(kind, source).SerializePartialToString() for _ in range(6))
        return b"".join(map(frame, found))

    write(base, good() + some(Event), good() + some(LineageEvent))
    checked(base, everything)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_payload_is_decoded_or_reported(
    tmp_path_factory: pytest.TempPathFactory, payload: bytes, lineage: bool
) -> None:
    base = tmp_path_factory.mktemp("payloads")
    data = frame(payload) + good()
    write(base, b"" if lineage else data, data if lineage else b"")

    def read(base: Path) -> None:
        with contextlib.suppress(SourceError):
            export_tensorboard(base / "records", base / "logs")

    checked(base, read)
