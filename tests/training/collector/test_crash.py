"""What a killed training leaves behind, and what a reader sees while it lives."""

import os
import subprocess
import sys

import pytest

from tests.support import forkserver
from tests.support.programs import PROGRAMS

pytest.importorskip("mindspore")

from rec_summary._pb import summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader, TruncatedRecord
from rec_summary.records.reading.runs import list_files
from tests.support.waiting import PATIENCE_SECS, eventually

PROGRAM = PROGRAMS / "crash_training.py"
ROOT = PROGRAM.parents[3]


def steps_on_disk(folder):
    """The steps in the summary file, and whether it ends in a torn record."""
    [file] = [f for f in list_files(str(folder)) if f.name.kind is Kind.SUMMARY]
    found, torn = [], False
    with RecordReader(file.path) as reader:
        try:
            for record in reader:
                event = summary_pb2.Event.FromString(record.payload)
                if event.WhichOneof("what") == "summary":
                    found.append(event.step)
        except TruncatedRecord:
            torn = True
    return found, torn


def test_a_kill_costs_no_more_than_what_was_not_yet_flushed(tmp_path):
    process = forkserver.Popen(
        [sys.executable, PROGRAM, tmp_path / "records"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        stdout=subprocess.PIPE,
        text=True,
    )

    def on_disk():
        return steps_on_disk(tmp_path / "records")[0]

    try:
        for line in process.stdout:
            step, children = map(int, line.split())
            assert children == 0  # nothing that could be killed beside the training
            if step in (150, 300):  # nobody asks for a flush
                live = eventually(on_disk, lambda found, step=step: found[-1:] >= [step])
            if step == 300:
                break
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_SECS)
    found = on_disk()
    assert found[: len(live)] == live
    # A training of more than a minute has its counters as well, in a record of their own.
    assert list(dict.fromkeys(found)) == list(range(1, found[-1] + 1))
