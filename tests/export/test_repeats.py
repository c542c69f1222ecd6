from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rec_summary.export.repeats import Recorded, StepBuffer
from rec_summary.export.report import Tally

Emitted = list[tuple[int, float, list[tuple[str, Any]]]]


def passed_on(*records: tuple[int, float, list[tuple[str, Any]]]) -> tuple[Emitted, Tally]:
    """Sends records of step, wall time and values through a buffer."""
    emitted: Emitted = []
    tally = Tally()

    def emit(step: int, wall_time: float, values: list[Recorded]) -> None:
        emitted.append((step, wall_time, [(each.tag, each.value) for each in values]))

    buffer = StepBuffer("run", tally, emit)
    for step, wall_time, values in records:
        recorded = [Recorded("scalar_value", tag, wall_time, value) for tag, value in values]
        buffer.add(step, 10, recorded)
    buffer.close()
    return emitted, tally


def test_different_steps_pass_as_they_are() -> None:
    records = [(1, 0.5, [("a", 1), ("b", 2)]), (2, 0.75, [("a", 3)])]
    assert passed_on(*records) == (records, Tally())


def test_the_last_value_of_a_step_wins_with_its_time() -> None:
    emitted, tally = passed_on((1, 0.5, [("a", 1), ("b", 2)]), (1, 0.75, [("a", 3)]))
    assert emitted == [(1, 0.5, [("b", 2)]), (1, 0.75, [("a", 3)])]
    assert tally.repeated == 1


def test_values_of_one_step_and_several_records_are_all_kept() -> None:
    emitted, tally = passed_on((1, 0.5, [("a", 1)]), (1, 0.5, [("b", 2)]))
    assert emitted == [(1, 0.5, [("a", 1), ("b", 2)])]
    assert tally.repeated == 0


def test_steps_that_go_back_are_noted_once() -> None:
    _, tally = passed_on(*((step, 0.0, [("a", step)]) for step in (1, 5, 2, 3, 1)))
    [note] = tally.notes
    assert "(from 5 to 2; 2 times in all)" in note


def test_a_step_without_end_is_passed_on_in_parts() -> None:
    emitted, _ = passed_on(*((1, 0.0, [(f"tag{n}", n)]) for n in range(10_000)))
    assert max(len(values) for _, _, values in emitted) < 5000
    assert sum(len(values) for _, _, values in emitted) == 10_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.just(0.0),
            st.lists(st.tuples(st.sampled_from("abc"), st.uuids()), min_size=1),
        )
    )
)
def test_nothing_is_lost_but_what_is_replaced(
    records: list[tuple[int, float, list[tuple[str, Any]]]],
) -> None:
    emitted, tally = passed_on(*records)
    before = [value for _, _, values in records for _, value in values]
    after = [value for _, _, values in emitted for _, value in values]
    assert len(after) + tally.repeated == len(before)
    assert set(after) <= set(before)
    for (step, _, values), (next_step, _, _) in itertools.pairwise(emitted):
        assert step != next_step
        assert len({tag for tag, _ in values}) == len(values)
