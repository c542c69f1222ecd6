"""Step records keep every valid value; a recorder reports which records are written."""

import threading

import numpy as np
import pytest

from rec_summary._pb import summary_pb2
from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.background import BLOCK_SECS
from rec_summary.records.writing.record import Record
from rec_summary.training.recorder import Recorder, RecorderOptions, step_record
from rec_summary.values.summary import HISTOGRAM, SCALAR, TENSOR, SummaryValue
from tests.support.disk import LittleSpace
from tests.support.waiting import PATIENCE_SECS


@pytest.fixture
def recorder(tmp_path):
    return Recorder(RecorderOptions(str(tmp_path / "records"), flush_secs=3600), Troubles())


def event(step):
    return summary_pb2.Event(wall_time=1.0, step=step, summary=summary_pb2.Summary())


def test_before_anything_was_recorded_nothing_is_missing(recorder):
    assert recorder.flush() is True


def test_where_no_file_could_be_created_nothing_is_flushed(recorder, tmp_path):
    (tmp_path / "records").write_bytes(b"in the way")
    recorder.open(0)
    recorder.write_message(event(1))
    assert recorder.flush() is False
    (tmp_path / "records").unlink()
    recorder.open(0)
    recorder.write_message(event(2))
    assert recorder.flush() is True
    recorder.close()
    assert recorder.flush() is True


def test_where_no_thread_can_be_started_no_file_is_left(recorder, tmp_path):
    before = threading.stack_size(1 << 50)  # more than there are addresses
    try:
        recorder.open(0)
    finally:
        threading.stack_size(before)
    assert not recorder.is_open
    assert not list((tmp_path / "records").glob("*events*"))
    recorder.write_message(event(1))
    assert recorder.flush() is False
    recorder.open(0)
    recorder.write_message(event(2))
    assert recorder.flush() is True
    recorder.close()


def test_a_writer_that_hangs_at_the_end_is_waited_for_once(recorder, caplog):
    moves = threading.Event()
    recorder.open(0)
    recorder.write(Record(lambda: moves.wait(PATIENCE_SECS) and b"", 1))
    recorder.drain(0.1)
    try:
        recorder.close()
    finally:
        moves.set()
    assert f"the writer is still busy after {BLOCK_SECS} s" in caplog.text


def test_what_could_not_be_written_when_it_was_closed_is_not_flushed(recorder):
    recorder.open(0)
    recorder.write_message(event(1))
    with LittleSpace(0):
        recorder.close()
    assert recorder.flush() is False


def test_a_bad_value_does_not_cost_the_others():
    troubles = Troubles()
    values = [
        SummaryValue(SCALAR, "loss", 0.5),
        SummaryValue(HISTOGRAM, "bad", np.array(["text"])),
        SummaryValue(HISTOGRAM, "good", np.zeros(3)),
    ]
    record = step_record(7, 12.5, values, troubles)
    event = Event.FromString(record.encode())
    assert (event.step, event.wall_time) == (7, 12.5)
    assert [value.tag for value in event.summary.value] == ["loss", "good"]
    assert troubles.counts == {"value bad": 1}


def test_its_size_is_that_of_its_snapshots():
    record = step_record(1, 0.0, [SummaryValue(HISTOGRAM, "w", np.zeros(1000))], Troubles())
    assert record.nbytes == 8000


class Exporter:
    """Notes what it is given, and fails for one tag."""

    def __init__(self):
        self.seen = []

    def export(self, tag, step, array):
        self.seen.append((tag, step, array.tolist()))
        if tag == "bad":
            raise OSError(28, "No space left on device")


def test_tensors_and_nothing_else_are_exported_when_the_record_is_encoded():
    exporter, troubles = Exporter(), Troubles()
    values = [SummaryValue(SCALAR, "loss", 0.5)]
    values += [SummaryValue(TENSOR, tag, np.arange(3)) for tag in ("bad", "good")]
    record = step_record(7, 12.5, values, troubles, exporter)
    assert exporter.seen == []
    event = Event.FromString(record.encode())
    assert [value.tag for value in event.summary.value] == ["loss", "bad", "good"]
    assert exporter.seen == [("bad", 7, [0, 1, 2]), ("good", 7, [0, 1, 2])]
    assert troubles.counts == {"npy export": 1}


def test_a_tensor_that_no_record_can_hold_may_still_be_a_file():
    exporter, troubles = Exporter(), Troubles()
    step_record(1, 0.0, [SummaryValue(TENSOR, "c", np.array([1j]))], troubles, exporter).encode()
    assert exporter.seen == [("c", 1, [1j])]
    assert troubles.counts == {"value c": 1}


def test_tensors_are_exported_beside_their_records(tmp_path):
    # The collector may choose another directory for each training.
    recorder = Recorder(RecorderOptions(str(tmp_path / "a"), export_npy=True), Troubles())
    for name in "ab":
        recorder.directory = str(tmp_path / name)
        recorder.open(0)
        recorder.write_step(1, [SummaryValue(TENSOR, "t", np.zeros(2))])
        recorder.close()
    exported = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("t_1.npy")}
    assert exported == {"a", "b"}
