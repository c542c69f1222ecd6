from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.framing import frame
from rec_summary.series.batch import Batch, Record
from rec_summary.series.blocks.scan import scan
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import BufferState, Finished, Restart, StepBuffer
from tests.support.record_dirs import event, histo, picture, scalar

NUMBERS = st.integers(0, 1 << 20).map(float)

Emitted = list[tuple[int, float, list[tuple[str, Any]]]]


class Recorder:
    """A buffer and what it has passed on."""

    def __init__(self) -> None:
        self.report = Report()
        self.emitted: Emitted = []
        self.restarts: list[int] = []
        self.marks: list[int] = []  # how much had been passed on at each restart
        self.buffer = StepBuffer("run", self.report)
        self._offset = 0

    def add(self, *records: tuple[int, float, list[tuple[str, float]]]) -> Recorder:
        """Takes records of step, wall time and values."""
        for step, wall_time, values in records:
            self._offset += 1
            event = Event(wall_time=wall_time, step=step)
            event.summary.value.extend(scalar(tag, x) for tag, x in values)
            self._take(self.buffer.add(Record("file", self._offset, 10, wall_time, event)))
        return self

    def resume(self, state: BufferState) -> None:
        """Begins a buffer with the state of another one, which was stored as JSON."""
        stored = msgspec.json.decode(msgspec.json.encode(state), type=BufferState)
        self.buffer = StepBuffer("run", self.report, stored)

    def flush(self) -> None:
        """Takes what the buffer holds."""
        self._take(self.buffer.flush())

    def _take(self, finished: list[Finished]) -> None:
        for each in finished:
            if isinstance(each, Restart):
                self.restarts.append(each.step)
                self.marks.append(len(self.emitted))
                continue
            for record in each.records():
                values = [(value.tag, value.value.scalar_value) for value in record.values]
                self.emitted.append((record.step, record.wall_time, values))


def passed_on(*records: tuple[int, float, list[tuple[str, float]]]) -> tuple[Emitted, Report]:
    """Sends records through a buffer."""
    recorder = Recorder().add(*records)
    recorder.flush()
    return recorder.emitted, recorder.report


def test_different_steps_pass_as_they_are() -> None:
    records = [(1, 0.5, [("a", 1.0), ("b", 2.0)]), (2, 0.75, [("a", 3.0)])]
    assert passed_on(*records) == (records, Report())


def test_the_last_value_of_a_step_wins_with_its_time() -> None:
    emitted, report = passed_on((1, 0.5, [("a", 1), ("b", 2)]), (1, 0.75, [("a", 3)]))
    assert emitted == [(1, 0.5, [("b", 2)]), (1, 0.75, [("a", 3)])]
    assert report.repeated == 1


def test_values_of_one_step_and_several_records_are_all_kept() -> None:
    emitted, report = passed_on((1, 0.5, [("a", 1)]), (1, 0.5, [("b", 2)]))
    assert emitted == [(1, 0.5, [("a", 1)]), (1, 0.5, [("b", 2)])]
    assert report.repeated == 0


def test_steps_that_go_back_are_reported_each_time_and_noted_once() -> None:
    recorder = Recorder().add(*((step, 0.0, [("a", step)]) for step in (1, 5, 2, 3, 1)))
    assert recorder.restarts == [2, 1]
    [note] = recorder.report.notes
    assert "steps go back (first from 5 to 2)" in note


def test_an_evaluation_by_a_process_that_trained_nothing_is_no_restart() -> None:
    trained = [(20, 0.0, [("loss", 0.5), ("eval/auc", 0.75)]), (40, 0.0, [("eval/auc", 0.875)])]
    recorder = Recorder().add(*trained, (0, 1.0, [("eval/auc", 0.25), ("eval/mae", 0.5)]))
    recorder.flush()
    assert recorder.restarts == []
    assert recorder.emitted == [*trained, (0, 1.0, [("eval/mae", 0.5)])]
    [note] = recorder.report.notes
    assert note == (
        "run run: an evaluation is recorded at step 0, by a process that trained nothing; it is "
        "left out of the series (`rec-summary lineage` shows it)"
    )
    recorder.add((0, 2.0, [("eval/auc", 0.5)]), (41, 3.0, [("loss", 0.25)]))
    recorder.flush()
    assert recorder.restarts == []
    assert recorder.emitted[-1] == (41, 3.0, [("loss", 0.25)])


def test_a_training_that_begins_at_step_0_again_is_a_restart_with_its_evaluation() -> None:
    first = [(step, 0.0, [("eval/auc", step), ("loss", step)]) for step in (0, 1, 2)]
    recorder = Recorder().add(*first, *first[:1])
    assert recorder.restarts == [0]


@pytest.mark.parametrize(("count", "nbytes"), [(4096, 10), (16, 1 << 20)])
def test_a_step_without_end_is_passed_on_in_parts(count: int, nbytes: int) -> None:
    buffer, sizes = StepBuffer("run", Report()), []
    for offset in range(2 * count + 2):
        message = Event(step=1, summary=Summary(value=[scalar(f"tag{offset}", 1)]))
        finished = buffer.add(Record("file", offset, nbytes, 0.0, message))
        sizes.append(sum(batch.count for batch in finished if isinstance(batch, Batch)))
    assert sizes == 2 * [*[0] * count, count + 1]


def test_after_a_pause_the_same_value_is_dropped_and_another_passed_on() -> None:
    recorder = Recorder().add((1, 0.0, [("a", 1), ("b", 2)]))
    recorder.flush()
    recorder.add((1, 0.5, [("a", 1), ("b", 3), ("c", 4)]), (2, 0.75, [("a", 1)]))
    recorder.flush()
    assert recorder.emitted[1:] == [(1, 0.5, [("b", 3), ("c", 4)]), (2, 0.75, [("a", 1)])]
    assert recorder.report.repeated == 2


def test_a_buffer_goes_on_where_another_one_was() -> None:
    first, second = Recorder().add((7, 0.0, [("a", 1)])), Recorder()
    first.flush()
    second.resume(first.buffer.state())
    assert second.buffer.step == 7
    second.add((7, 0.5, [("a", 1)]), (3, 0.75, [("a", 5)]))
    second.flush()
    assert (second.emitted, second.restarts) == ([(3, 0.75, [("a", 5)])], [3])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.just(0.0),
            st.lists(st.tuples(st.sampled_from("abc"), NUMBERS), min_size=1),
        )
    )
)
def test_nothing_is_lost_but_what_is_replaced(
    records: list[tuple[int, float, list[tuple[str, float]]]],
) -> None:
    recorder = Recorder().add(*records)
    recorder.flush()
    emitted, report = recorder.emitted, recorder.report
    before = [value for _, _, values in records for _, value in values]
    after = [value for _, _, values in emitted for _, value in values]
    assert len(after) + report.repeated == len(before)
    assert set(after) <= set(before)
    # Between two restarts, which make both loaders forget, nothing comes twice in a step.
    bounds = [0, *recorder.marks, len(emitted)]
    for start, end in itertools.pairwise(bounds):
        for _, group in itertools.groupby(emitted[start:end], lambda each: each[0]):
            tags = [tag for _, _, values in group for tag, _ in values]
            assert len(set(tags)) == len(tags)


def test_a_restart_within_a_record_comes_before_all_of_it() -> None:
    recorder = Recorder().add(
        *((0, 0.0, [("a", 1)]), (1, 0.0, [("b", 2)]), (0, 0.5, [("a", 3), ("b", 4)]))
    )
    recorder.flush()
    assert recorder.marks == [2]
    assert recorder.emitted[2:] == [(0, 0.5, [("a", 3), ("b", 4)])]


def test_what_is_held_at_the_step_of_a_restart_belongs_to_the_new_start() -> None:
    recorder = Recorder().add((3, 0.0, [("b", 1)]), (9, 0.0, [("a", 2)]))
    recorder.add((5, 0.5, [("b", 3)]), (6, 0.5, [("b", 4)]), (6, 0.75, [("a", 5)]))
    recorder.flush()
    assert recorder.restarts == [6]
    assert [step for step, _, _ in recorder.emitted[: recorder.marks[0]]] == [3, 9, 5]
    assert recorder.emitted[recorder.marks[0] :] == [(6, 0.5, [("b", 4)]), (6, 0.75, [("a", 5)])]


def test_values_that_are_passed_on_before_a_restart_is_recognised_come_again() -> None:
    buffer = StepBuffer("run", Report())
    records = []
    for offset, (step, tag) in enumerate(
        [(9, "loss"), (4, "p"), (6, "q"), (5, "x"), (6, "q"), (5, "y"), (5, "z"), (5, "loss")]
    ):
        value = scalar(tag, offset) if tag == "loss" else picture(tag, offset)
        message = Event(wall_time=1.0, step=step, summary=Summary(value=[value]))
        records.append(Record("file", offset, 10, 1.0, message))
    for record in records[:6]:
        buffer.add(record)
    buffer.flush()
    assert buffer.add(records[6]) == []
    [restart] = buffer.add(records[7])
    assert isinstance(restart, Restart)
    assert (restart.step, restart.origin) == (5, records[3])
    again = [(record.offset, value.tag) for record in restart.again for value in record.values]
    assert again == [(3, "x"), (4, "q"), (5, "y")]
    held = [
        value.tag for batch in buffer.end() for record in batch.records() for value in record.values
    ]
    assert held == ["z", "loss"]


@pytest.mark.parametrize(
    ("path", "nbytes", "again"),
    [
        ("first", 10, []),
        ("second", 10, [12, 13, 14]),
        ("second", 8 << 20, []),  # more than is remembered
        ("second", (8 << 20) + 1, [14]),
    ],
)
def test_a_value_at_the_beginning_of_a_file_is_of_the_start_that_follows(
    path: str, nbytes: int, again: list[int]
) -> None:
    """Such a value may be of any step: steps go back behind it only."""
    buffer = StepBuffer("run", Report())
    rows = [
        ("first", 9, scalar("loss", 1)),
        *((path, step, picture("p", step)) for step in (12, 13, 14)),
        (path, 5, scalar("loss", 3)),
    ]
    for offset, (file, step, value) in enumerate(rows):
        message = Event(wall_time=1.0, step=step, summary=Summary(value=[value]))
        finished = buffer.add(Record(file, offset, nbytes, 1.0, message))
    [restart] = (each for each in finished if isinstance(each, Restart))
    assert [record.step for record in restart.again] == again


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6)), max_size=40)


@given(STEPS, st.integers(0, 40))
def test_restarts_are_those_that_a_look_at_all_series_finds(
    steps: list[tuple[str, int]], cut: int
) -> None:
    last: dict[str, int] = {}
    restarts = []
    for tag, step in steps:
        if last.get(tag, step) > step:
            restarts.append(step)
            last = {each: reached for each, reached in last.items() if reached <= step}
        last[tag] = step
    recorder, found = Recorder(), []
    for index, (tag, step) in enumerate(steps):
        if index == cut:  # a later export continues here
            recorder.flush()
            found, state = recorder.restarts, recorder.buffer.state()
            recorder = Recorder()
            recorder.resume(state)
        recorder.add((step, 1.0, [(tag, float(index))]))
    recorder.flush()
    assert [*found, *recorder.restarts] == restarts
    assert {tag: step for _, tag, step in recorder.buffer.state().last} == last


def batches(path: str, payloads: list[bytes], is_many: bool) -> Iterator[Batch]:
    """Yields the records of a file: as blocks where they can be held by blocks, or one by one."""
    content = b"".join(map(frame, payloads))
    offsets = [0, *itertools.accumulate(len(frame(payload)) for payload in payloads)]
    scanned, first = scan(content, 0, 0, frames=False) if is_many else None, 0
    while first < len(payloads):
        last = first if scanned is None else scanned.end(first)
        if scanned is not None and first < last:
            yield scanned.block(path, first, last)
            first = last
            continue
        message = Event.FromString(payloads[first])
        yield Record(path, offsets[first], len(payloads[first]), message.wall_time, message)
        first += 1


def places(finished: list[Finished]) -> list[Any]:
    """Returns restarts, and the place of each value."""
    found: list[Any] = []
    for each in finished:
        if isinstance(each, Restart):
            again = [(record.path, record.offset) for record in each.again]
            found.append((each.step, each.origin.path, each.origin.offset, again))
            continue
        for record in each.records():
            found += [(record.path, record.offset, value.tag) for value in record.values]
    return found


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), pauses=st.booleans(), most_series=st.sampled_from([2, 99]))
def test_many_records_at_a_time_give_what_they_give_one_by_one(
    seed: int, pauses: bool, most_series: int
) -> None:
    chance, made, step = random.Random(seed), [], 1
    for _ in range(3):
        payloads: list[bytes] = []
        for _ in range(chance.randrange(25)):
            step = max(step + chance.choice([1, 1, 1, 1, 1, 1, 1, 1, 2, 5, 0, -1, -8]), 1)
            others = {"h": histo("h", [1.0, step]), "p": picture("p", step)}
            tags = chance.sample("aaabhpp", chance.choice([1, 1, 1, 2]))
            values = [others.get(tag) or scalar(tag, step) for tag in sorted({*tags})]
            payloads.append(bytes(event(step, *values).SerializeToString()))
        made.append(payloads)
    results = []
    for is_many in (False, True):
        report, found = Report(), []
        buffer = StepBuffer("run", report, most_series=most_series)
        for number, payloads in enumerate(made):
            for batch in batches(f"file {number}", payloads, is_many):
                found += places(buffer.add(batch))
            if pauses:
                found += places(buffer.flush())
        found += places(buffer.flush())
        state = buffer.state()
        results.append((found, state.step, sorted(state.passed), sorted(state.last), report))
    assert results[0] == results[1]


def test_a_restart_looks_at_its_own_series_only() -> None:
    recorder = Recorder()
    recorder.add((0, 1.0, [(str(number), 1.0) for number in range(20_000)]))
    for _ in range(20_000):  # four hundred million looks otherwise
        recorder.add((5, 1.0, [("loss", 1.0)]), (3, 1.0, [("loss", 1.0)]))
    assert len(recorder.restarts) == 20_000
