"""Who wrote a summary file is known by its first record, its rank, host, times and steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import convert, to_builtins

from rec_summary._pb.summary_pb2 import Event
from rec_summary.compaction.directory import compact
from rec_summary.records.format.names import Kind, RecordName
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import RecordFile, find_runs, list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars, scalars_in_memory
from rec_summary.series.runs.writers import Span, Writers
from tests.support.record_dirs import START, event, scalar, write_payloads


def test_the_host_of_the_latest_file_of_a_writer_counts() -> None:
    def file(stamp: int, host: str, **compacted: int) -> RecordFile:
        name = RecordName(stamp, 0, host, Kind.SUMMARY, **compacted)
        return RecordFile(f"run/{name}", name)

    def span(first: float, last: float) -> Span:
        return Span(first, last, first_step=0, last_step=0, spacing=0)

    writers = Writers([], {})
    writers.at(file(1, "a"), span(0, 10))
    assert writers.at(file(2, "b"), span(6, 20)).number == 1
    stored = convert(to_builtins(writers), Writers)
    for each in (writers, stored):
        assert each.at(file(3, "b"), span(17, 100)).number == 2  # on one host, clocks do not differ
        assert each.at(file(3, "b"), span(18, 99)).last == 100
        assert each.at(file(4, "b"), span(30, 40)).number == 1
        assert each.continued(file(5, "b", last=6, generation=1)) is None
        compacted = file(3, "b", last=4, generation=1)
        assert each.continued(compacted) is each.known(compacted) is each.writers[1]
    with pytest.raises(ValueError, match="no such writer"):
        Writers([], {"file": 0})


def test_the_process_that_a_file_states_decides() -> None:
    def name(stamp: int, rank: int = 0) -> RecordFile:
        each = RecordName(stamp, rank, "host", Kind.SUMMARY)
        return RecordFile(f"run/{each}", each)

    writers = Writers()
    writers.at(name(1), Span(0, 10, 1, 5, 1, process=7))
    writers.at(name(2), Span(5, 11, 1, 5, 1, process=8))
    writers.at(name(2, rank=1), Span(5, 11, 1, 5, 1, process=9))
    for each in (writers, convert(to_builtins(writers), Writers)):
        assert each.at(name(3), Span(4, 5, 6, 6, 0, process=8)).number == 2
        assert each.at(name(4), Span(4, 5, 6, 6, 0, process=7)).number == 1
        assert each.at(name(5, rank=1), Span(4, 5, 60, 60, 0, process=7)).number == 2


def write_both(
    directory: Path, times: Sequence[float], later: float, ahead: int, process: bool
) -> None:
    """Writes a loss of 1 of each step of a process, and one of -1 of another one, in turn.

    Args:
        directory: The record directory.
        times: When the first process records.
        later: By how much the other one records later.
        ahead: By how many steps it is ahead.
        process: Whether files say which process wrote them; those of earlier versions do not.
    """
    both = [RunWriter(directory, 0, Rotation(max_file_size=1000)) for _ in range(2)]
    for step, at in enumerate(times, 1):
        for number, writer in enumerate(both):
            value = scalar("loss", (1, -1)[number])
            wall_time = START + at + number * later
            writer.write(MessageRecord(event(step + number * ahead, value, at=wall_time)))
    for writer in both:
        writer.close()
    if not process:
        for file in list_files(str(directory)):
            stripped(Path(file.path))


def stripped(path: Path) -> None:
    """Takes away what the first record of a file says about its writer."""
    with RecordReader(path) as reader:
        payloads = [record.payload for record in reader]
    head = Event.FromString(payloads[0])
    assert head.writer
    head.ClearField("writer")
    write_payloads(path, head.SerializeToString(), *payloads[1:])


def steps_of(directory: Path) -> dict[tuple[int, float], list[int]]:
    """Returns the steps of each writer, by its number and the loss."""
    [run] = find_runs(directory)
    found: dict[tuple[int, float], list[int]] = {}
    for writer, columns in finished_scalars(run, EVERYTHING, Report()):
        for step, value in zip(columns.steps, columns.values, strict=True):
            found.setdefault((writer.number, float(value)), []).append(int(step))
    in_memory = scalars_in_memory(run, EVERYTHING, Report())
    assert sum(len(columns.steps) for _, columns in in_memory) == sum(map(len, found.values()))
    return found


@pytest.mark.parametrize(
    ("ahead", "process"), [(0, True), (0, False), (7, True), (100, True), (100, False)]
)
def test_two_writers_that_rotate_within_a_second_keep_their_files(
    tmp_path: Path, ahead: int, process: bool
) -> None:
    times = [step / 5 for step in range(200)]
    write_both(tmp_path, times, later=0.5, ahead=ahead, process=process)
    assert len(list_files(str(tmp_path))) > 8
    expected = {(1, 1.0): [*range(1, 201)], (2, -1.0): [*range(1 + ahead, 201 + ahead)]}
    assert steps_of(tmp_path) == expected
    compact(tmp_path, 8000)
    assert any(file.name.last is not None for file in list_files(str(tmp_path)))
    found = {place: (steps[0], steps[-1]) for place, steps in steps_of(tmp_path).items()}
    assert found == {place: (steps[0], steps[-1]) for place, steps in expected.items()}


@pytest.mark.parametrize("process", [True, False])
def test_a_process_whose_clock_steps_back_is_one_writer(tmp_path: Path, process: bool) -> None:
    times = [step / 5 - 3600 * (step >= 70) - 3600 * (step >= 140) for step in range(200)]
    write_both(tmp_path, times, later=0.5, ahead=300, process=process)
    assert steps_of(tmp_path) == {(1, 1.0): [*range(1, 201)], (2, -1.0): [*range(301, 501)]}
