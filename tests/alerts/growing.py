"""A training that writes records in a process of its own, as standard input says.

Each line is JSON: `{"step": 3, "loss/auto": 0.5}` writes and flushes a record, `{"status":
"FINISHED"}` a lineage, `{"rotate": true}` begins the next file, `{"restart": true}` the
files of another process. Every line is answered by one on standard output.
"""

from __future__ import annotations

import json
import sys
import time

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from tests.support.record_dirs import scalar


def main(directory: str) -> None:
    # Files of one record each, when it rotates.
    writer = RunWriter(directory)
    for line in sys.stdin:
        told = json.loads(line)
        if told.pop("rotate", False):
            writer.close()
            writer = RunWriter(directory, rotation=Rotation(max_file_size=1))
        elif told.pop("restart", False):
            writer.close()
            writer = RunWriter(directory)
        elif "status" in told:
            status = lineage_pb2.RunState.Status.Value(told["status"])
            state = lineage_pb2.TrainLineage(run_state=lineage_pb2.RunState(status=status))
            event = lineage_pb2.LineageEvent(wall_time=time.time(), train_lineage=state)
            writer.write(MessageRecord(event))
        else:
            step = told.pop("step")
            values = [scalar(tag, float(number)) for tag, number in told.items()]
            summary = summary_pb2.Summary(value=values)
            event = summary_pb2.Event(wall_time=time.time(), step=step, summary=summary)
            writer.write(MessageRecord(event))
        writer.flush()
        print("done", flush=True)
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
