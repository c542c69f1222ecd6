"""Records that are no message, under each of protobuf's implementations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.format import wire
from tests.support.record_dirs import START, event, lineage, scalar, summary_name, write_payloads
from tests.support.waiting import PATIENCE_SECS

GOOD = event(1, scalar("loss", 1)).SerializeToString()
NOT_UNICODE = event(2, scalar("ABCD", 2)).SerializeToString().replace(b"ABCD", b"\xff\xfe\xff\xfe")

# Prints what exporting and verifying make of a file: records read, problems' texts, findings.
PROGRAM = """
import sys
from rec_summary.series.event_reader import read_batches
from rec_summary.series.report import Report
from rec_summary.records.reading.runs import RecordFile
from rec_summary.records.format.names import parse_name
from rec_summary.series.overview.verify import verify_file
path, report = sys.argv[1], Report()
file = RecordFile(path, parse_name(path.rpartition("/")[2]))
print(len(list(read_batches(file, report))), len(report.problems))
print(len(verify_file(path).findings))
"""


def counts(path: Path, implementation: str) -> list[int]:
    variables = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        capture_output=True, text=True, timeout=PATIENCE_SECS, env=variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def test_a_string_that_is_not_unicode_costs_its_record_at_most(tmp_path: Path) -> None:
    version = summary_pb2.Event(wall_time=START, version="MindSpore.Event:1").SerializeToString()
    path = write_payloads(tmp_path / summary_name(), version, GOOD, NOT_UNICODE)
    # the one implementation refuses the record, which is reported; the other reads it
    assert counts(path, "python") == [2, 1, 1]
    assert counts(path, "upb") == [3, 0, 0]


@pytest.mark.parametrize("implementation", ["python", "upb"])
def test_nesting_without_end_costs_its_record_alone(tmp_path: Path, implementation: str) -> None:
    nested = b""
    children = lineage_pb2.DatasetGraph.DESCRIPTOR.fields_by_name["children"].number
    for _ in range(2000):
        nested = wire.bytes_field(children, nested)
    empty = lineage(START, dataset_graph=lineage_pb2.DatasetGraph()).SerializeToString()
    assert empty.endswith(b"\0"), "the length of the data set's graph"
    good = lineage(START, version="MindSpore.Event:1").SerializeToString()
    path = tmp_path / summary_name().replace("_MS", "_lineage")
    write_payloads(path, good, empty[:-1] + wire.varint(len(nested)) + nested, good)
    assert counts(path, implementation)[:2] == [2, 1]
