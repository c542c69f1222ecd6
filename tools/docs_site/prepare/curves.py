"""Two runs of two days, with the curves of a training that goes well; written without MindSpore."""

from pathlib import Path

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter

START = 1_795_262_400.0  # 2026-11-21 12:00 UTC
STEPS = 2_000

for run, rate in (("run-1", 0.1), ("run-2", 0.3)):
    writer = RunWriter(Path("records", run), 0)
    lineage = lineage_pb2.TrainLineage()
    lineage.hyper_parameters.learning_rate = rate
    lineage.run_state.status = lineage_pb2.RunState.FINISHED
    writer.write(MessageRecord(lineage_pb2.LineageEvent(wall_time=START, train_lineage=lineage)))
    for step in range(1, STEPS + 1):
        values = {"loss/auto": 0.3 + step**-rate, "recommender/auc/lifetime": 1 - 0.5 * step**-rate}
        event = summary_pb2.Event(step=step, wall_time=START + 60 * step)
        for tag, value in values.items():
            event.summary.value.add(tag=tag, scalar_value=value)
        writer.write(MessageRecord(event))
    writer.close()
