"""Where training began again, beside a reference that looks at one record after another."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.tags import EVALUATION
from rec_summary.series.batch import HISTOGRAM, SCALAR, Series
from rec_summary.series.cuts import Cut, Cuts
from rec_summary.series.report import Report
from tests.support.blocks import batches
from tests.support.record_dirs import event, histo, picture, scalar

Value = tuple[Series, int, tuple[str, int]]
"""Its series, its step, and the file and offset of its record."""


class Found(NamedTuple):
    """What is found in records.

    Attributes:
        values: The values that are not left out.
        cuts: The place of the first record of each new start, and its step.
        report: What is reported.
    """

    values: list[Value]
    cuts: list[tuple[tuple[str, int], int]]
    report: Report

    def in_force(self) -> list[Value]:
        """Returns the values that no cut supersedes."""
        return [
            value
            for value in self.values
            if all(value[2] >= place or value[1] < step for place, step in self.cuts)
        ]


def found(files: list[list[Any]], is_many: bool, most_series: int = 99) -> Found:
    """Returns what `Cuts` finds; a file is a list of events."""
    result = Found([], [], Report())
    cuts = Cuts("run", result.report, most_series=most_series)
    parts: list[tuple[str, int, list[Value]]] = []
    paths = [f"file {number}" for number, events in enumerate(files) if events]
    for number, events in enumerate(files):
        for batch in batches(f"file {number}", events, is_many=is_many):
            for item in cuts.take(batch):
                if isinstance(item, Cut):
                    result.cuts.append(((paths[item.row.file - 1], item.row.offset), item.step))
                    continue
                values = [
                    (each[:2], record.step, (record.path, record.offset))
                    for record in item.records()
                    for each in record.values
                ]
                parts.append((item.path, item.end_offset, values))
                result.values.extend(values)
    # What is said of a whole part of a batch is right for each of its values.
    in_force = []
    for path, end, values in parts:
        step = cuts.below(path, end)
        in_force += [each for each in values if each[1] < step]
    assert in_force == result.in_force()
    return result


def reference(files: list[list[Any]], most_series: int = 99) -> Found:
    """Returns the same, by the rules and without any economy."""
    result = Found([], [], Report())
    last: dict[Series, tuple[int, tuple[str, int]]] = {}
    step, begin, new = None, ("", 0), None
    for number, events in enumerate(files):
        is_first = True
        for record in itertools.chain.from_iterable(
            batch.records() for batch in batches(f"file {number}", events, is_many=False)
        ):
            place = record.path, record.offset
            if is_first:
                is_first, new = False, place if last else None
            if record.step != step:
                if step is not None and record.step < step and new is None and last:
                    new = place
                step, begin = record.step, place
            trained = step != 0 or not all(
                each.tag.startswith(EVALUATION) for each in record.values
            )
            is_known = False
            for recorded in record.values:
                series = recorded[:2]
                if recorded.kind in (SCALAR, HISTOGRAM):
                    reached, at = last.get(series, (None, place))
                    if reached is None and len(last) == most_series:
                        result.report.problem(*place, series[1])
                        continue
                    if not trained and reached is not None and reached > 0:
                        continue
                    is_known |= reached is not None
                    superseded = any(at < row and reached > cut for row, cut in result.cuts)
                    if reached is not None and reached > step and not superseded:
                        result.cuts.append((min(new or place, begin), step))
                        new = None
                    last[series] = step, place
                result.values.append((series, step, place))
            if is_known:
                new = None
    return result


def history(chance: random.Random) -> list[list[Any]]:
    """Returns the events of a few files, with restarts, pictures and evaluations."""
    tags, often = ["x", "y", "z"][: chance.randint(1, 3)], chance.choice([0.3, 0.7, 1.0])
    back, files, step = chance.choice([0.02, 0.15]), [], 0
    for _ in range(chance.randint(1, 4)):
        events: list[Any] = []
        for _ in range(chance.randrange(30)):
            chosen = chance.random()
            step = (
                chance.randint(0, step) if chosen < back else step + chance.choice([0, 1, 1, 1, 2])
            )
            values = [scalar(tag, chosen) for tag in tags if chance.random() < often]
            values += [histo("h", [1.0, 2.0])] * (chance.random() < 0.2)
            if chance.random() < 0.2:
                values = [picture("p"), *values * (chance.random() < 0.5)]
            if chance.random() < 0.05:
                events.append(event(chance.choice([0, step]), scalar("eval/auc", chosen)))
            elif values:
                events.append(event(step, *values))
        files.append(events)
    return files


@given(st.integers(0, 1 << 32), st.sampled_from([2, 99]))
def test_what_counts_is_what_the_rules_say(seed: int, most_series: int) -> None:
    files = history(random.Random(seed))
    expected = reference(files, most_series)
    for is_many in (False, True):
        got = found(files, is_many, most_series)
        assert got[:2] == expected[:2]
        places = [(problem.path, problem.offset) for problem in got.report.problems]
        assert places == [(problem.path, problem.offset) for problem in expected.report.problems]


def test_a_last_step_that_is_that_of_a_cut_is_still_in_force() -> None:
    """Of two series, one goes back to the last step of the other, which then goes back too."""
    both = [event(step, scalar("x", 1.0), scalar("y", 1.0)) for step in (1, 2, 3)]
    events = [*both, event(4, scalar("x", 1.0)), event(3, scalar("x", 2.0))]
    events += [event(2, scalar("y", 2.0))]
    for is_many in (False, True):
        assert [step for _, step in found([events], is_many).cuts] == [3, 2]
