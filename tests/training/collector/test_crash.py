"""What a killed training leaves behind, and what a reader sees while it lives."""

import os
import subprocess
import sys
import time

import pytest

from tests.support.programs import PROGRAMS

pytest.importorskip("mindspore")

from rec_summary._pb import summary_pb2
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader, TruncatedRecord
from rec_summary.records.reading.runs import list_files

PROGRAM = PROGRAMS / "crash_training.py"
ROOT = PROGRAM.parents[3]
FLUSH_SECS = 0.5  # of the program


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
    process = subprocess.Popen(
        [sys.executable, PROGRAM, tmp_path / "records"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"},
        stdout=subprocess.PIPE,
        text=True,
    )
    told = {}
    try:
        for line in process.stdout:
            step, moment, children = line.split()
            told[int(step)] = float(moment)
            assert children == "0"  # nothing that could be killed beside the training
            if len(told) == 150:
                live, _ = steps_on_disk(tmp_path / "records")
            if len(told) == 300:
                break
    finally:
        process.kill()
        killed = time.time()
        process.communicate(timeout=60)
    # MindSpore's reader saw one event at step 50; its records after a kill are in PEER's table
    assert len(live) > 50
    found, _ = steps_on_disk(tmp_path / "records")
    assert found == list(range(1, len(found) + 1))
    due = [step for step, moment in told.items() if moment < killed - 2 * FLUSH_SECS]
    assert len(due) > 100
    assert found[-1] >= max(due)
