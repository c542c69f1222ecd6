"""Writes records without MindSpore, through the same writer, at the speed of its arguments.

python -m tests.faults.write FOLDER RANK STEPS SECONDS_A_STEP [MAX_FILE_SIZE [BUDGET [AHEAD]]]

Prints `flushed <n>` whenever all steps up to n are with the operating system. Steps carry a
scalar, and each tenth a histogram. AHEAD is added to each step.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from rec_summary.records.failures import Troubles
from rec_summary.records.writing.background import BackgroundWriter
from rec_summary.records.writing.retention import Retention
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.training.recorder import step_record
from rec_summary.values.summary import HISTOGRAM, SCALAR, SummaryValue

FLUSH_SECS = 0.05


def main() -> None:
    folder, rank, steps, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    size = (int(sys.argv[5]) or None) if len(sys.argv) > 5 else None
    budget = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    ahead = int(sys.argv[7]) if len(sys.argv) > 7 else 0
    retention = Retention(budget) if budget else None
    troubles = Troubles()
    files = RunWriter(folder, rank, Rotation(size, retention=retention), troubles=troubles)
    writer = BackgroundWriter(files, troubles, flush_secs=FLUSH_SECS)
    random = np.random.default_rng(rank)
    for step in range(1, steps + 1):
        values: list[SummaryValue] = [SummaryValue(SCALAR, "loss", step + rank / 10)]
        if step % 10 == 0:
            values.append(SummaryValue(HISTOGRAM, "weight", random.normal(size=100)))
        writer.write(step_record(step + ahead, time.time(), values, troubles))
        if pause:
            time.sleep(pause)
        if step % 20 == 0 and writer.flush():
            print("flushed", step, flush=True)
    writer.close()
    # A compaction may hang, or be late on a machine with much to do.
    assert troubles.counts.keys() <= {"retention"}, troubles.counts
    print("flushed", steps, flush=True)


if __name__ == "__main__":
    main()
