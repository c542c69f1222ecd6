from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.series.batch import Batch, Record
from rec_summary.series.cuts import Cuts
from rec_summary.series.report import Report
from rec_summary.series.step_buffer import BufferState, StepBuffer
from tests.support.blocks import batches
from tests.support.record_dirs import event, histo, picture, scalar

NUMBERS = st.integers(0, 1 << 20).map(float)

Emitted = list[tuple[int, float, list[tuple[str, Any]]]]


class Recorder:
    """A buffer and what it has passed on."""

    def __init__(self) -> None:
        self.report = Report()
        self.emitted: Emitted = []
        self.buffer = StepBuffer(self.report)
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
        self.buffer = StepBuffer(self.report, stored)

    def flush(self) -> None:
        """Takes what the buffer holds."""
        self._take(self.buffer.flush())

    def _take(self, finished: list[Batch]) -> None:
        for each in finished:
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


@pytest.mark.parametrize(("count", "nbytes"), [(4096, 10), (16, 1 << 20)])
def test_a_step_without_end_is_passed_on_in_parts(count: int, nbytes: int) -> None:
    buffer, sizes = StepBuffer(Report()), []
    for offset in range(2 * count + 2):
        message = Event(step=1, summary=Summary(value=[scalar(f"tag{offset}", 1)]))
        finished = buffer.add(Record("file", offset, nbytes, 0.0, message))
        sizes.append(sum(batch.count for batch in finished))
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
    second.resume(first.buffer.state([]))
    assert second.buffer.step == 7
    second.add((7, 0.5, [("a", 1)]), (3, 0.75, [("a", 5)]))
    second.flush()
    assert second.emitted == [(3, 0.75, [("a", 5)])]


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
    for _, group in itertools.groupby(emitted, lambda each: each[0]):
        tags = [tag for _, _, values in group for tag, _ in values]
        assert len(set(tags)) == len(tags)


class Follower:
    """Takes batches as an output does that cannot wait; has what it was given, and cuts."""

    def __init__(self) -> None:
        self.report = Report()
        self.cuts = Cuts("run", self.report)
        self.buffer = StepBuffer(self.report)
        self.found: list[Any] = []
        self.again: list[Record] = []  # of the last cut

    def add(self, batch: Batch) -> None:
        for item in self.cuts.take(batch):
            if isinstance(item, Batch):
                self.pass_on(self.buffer.add(item, self.cuts.new))
                continue
            if self.buffer.step != item.step:
                self.pass_on(self.buffer.end())
            self.again = self.buffer.again(item)
            self.found.append(item)
            self.pass_on(self.again)
        if self.cuts.new is None:
            self.buffer.forget()

    def pass_on(self, finished: Sequence[Batch]) -> None:
        for batch in finished:
            for record in batch.records():
                values = ((record.path, record.offset, value.tag) for value in record.values)
                self.found.extend(values)


def test_values_that_are_passed_on_before_a_restart_is_recognised_come_again() -> None:
    follower = Follower()
    steps = (9, "loss"), (4, "p"), (6, "q"), (5, "x"), (5, "y"), (5, "z"), (5, "loss")
    for offset, (step, tag) in enumerate(steps):
        value = scalar(tag, offset) if tag == "loss" else picture(tag, offset)
        message = Event(wall_time=1.0, step=step, summary=Summary(value=[value]))
        follower.add(Record("file", offset, 10, 1.0, message))
        if tag == "y":
            follower.pass_on(follower.buffer.flush())
    follower.pass_on(follower.buffer.end())
    before, again = follower.found[:5], follower.found[6:9]
    assert [tag for *_, tag in before] == ["loss", "p", "q", "x", "y"]
    assert follower.found[5].step == 5
    assert [tag for *_, tag in again] == ["q", "x", "y"]
    assert [tag for *_, tag in follower.found[9:]] == ["z", "loss"]


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
    follower = Follower()
    rows = [
        ("first", 9, scalar("loss", 1)),
        *((path, step, picture("p", step)) for step in (12, 13, 14)),
        (path, 5, scalar("loss", 3)),
    ]
    for offset, (file, step, value) in enumerate(rows):
        message = Event(wall_time=1.0, step=step, summary=Summary(value=[value]))
        follower.add(Record(file, offset, nbytes, 1.0, message))
    assert len(follower.cuts.cuts) == 1
    assert [record.step for record in follower.again] == again


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), pauses=st.booleans())
@example(seed=70, pauses=True)  # a batch that ends at the step that it began behind
@example(seed=3883619579, pauses=False)  # a picture that another file replaces before a new start
def test_many_records_at_a_time_give_what_they_give_one_by_one(seed: int, pauses: bool) -> None:
    chance, made, step = random.Random(seed), [], 1
    for _ in range(3):
        events: list[Any] = []
        for _ in range(chance.randrange(25)):
            step = max(step + chance.choice([1, 1, 1, 1, 1, 1, 1, 1, 2, 5, 0, -1, -8]), 1)
            others = {"h": histo("h", [1.0, step]), "p": picture("p", step)}
            tags = chance.sample("aaabhpp", chance.choice([1, 1, 1, 2]))
            values = [others.get(tag) or scalar(tag, step) for tag in sorted({*tags})]
            events.append(event(step, *values))
        made.append(events)
    results = []
    for is_many in (False, True):
        follower = Follower()
        for number, events in enumerate(made):
            for batch in batches(f"file {number}", events, is_many=is_many):
                follower.add(batch)
            if pauses:
                follower.pass_on(follower.buffer.flush())
        follower.pass_on(follower.buffer.flush())
        state = follower.buffer.state(follower.cuts.last())
        passed, last = sorted(state.passed), sorted(state.last)
        results.append((follower.found, state.step, passed, last, follower.report))
    assert results[0] == results[1]
