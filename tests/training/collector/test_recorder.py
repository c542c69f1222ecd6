"""The recorder tells the truth about what is with the operating system."""

import os

import pytest

from rec_summary._pb import summary_pb2
from rec_summary.records.failures import Troubles
from rec_summary.records.writing.run_writer import Durability, Retention
from rec_summary.training.collector.recorder import Recorder


@pytest.fixture
def recorder(tmp_path):
    return Recorder(str(tmp_path / "records"), Retention(), 3600, Durability(), Troubles())


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


def test_what_could_not_be_written_when_it_was_closed_is_not_flushed(recorder, monkeypatch):
    recorder.open(0)
    recorder.write_message(event(1))

    def write(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    recorder.close()
    monkeypatch.undo()
    assert recorder.flush() is False
