import numpy as np

from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.trouble import Troubles
from rec_summary.training.step_record import StepRecord
from rec_summary.values.summary import HistogramValue, ScalarValue


def test_a_bad_value_does_not_cost_the_others():
    troubles = Troubles()
    values = [
        ScalarValue("loss", 0.5),
        HistogramValue("bad", np.array(["text"])),
        HistogramValue("good", np.zeros(3)),
    ]
    record = StepRecord(7, 12.5, values, troubles)
    event = Event.FromString(record.encode())
    assert (event.step, event.wall_time) == (7, 12.5)
    assert [value.tag for value in event.summary.value] == ["loss", "good"]
    assert troubles.counts == {"value bad": 1}


def test_its_size_is_that_of_its_snapshots():
    record = StepRecord(1, 0.0, [HistogramValue("w", np.zeros(1000))], Troubles())
    assert record.nbytes == 8000
