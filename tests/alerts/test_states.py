"""When alerts begin and end."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts import rules
from rec_summary.alerts.rules import Pattern, Rule, float32, parse
from rec_summary.alerts.sliding_maximum import MOST, SlidingMaximum
from rec_summary.alerts.states import AlertStates, NewData, Transition
from rec_summary.series.batch import Columns
from tests.alerts import naive
from tests.alerts.naive import Point

START = 1000.0
NAN, INF = math.nan, math.inf


def point(step: int, value: float, *, tag: str = "loss", at: float | None = None) -> Point:
    """Returns a value; it is a second per step after `START`."""
    wall_time = START + step if at is None else at
    return Point(tag, step, wall_time, float32(value))


def news(points: Sequence[Point], rank: int = 0, over: bool | None = None) -> NewData:
    """Returns what records of one value each say."""
    steps = np.array([each.step for each in points], np.int64)
    wall_times = np.array([each.wall_time for each in points], np.float64)
    values = np.array([each.value for each in points], np.float64)
    codes = np.arange(len(points))
    scalars = Columns(tuple(each.tag for each in points), codes, steps, wall_times, values)
    return NewData(rank, wall_times, steps, scalars, over)


def take(
    alerts: AlertStates, *points: Point, now: float = START, run: str = "run", **options: Any
) -> list[Transition]:
    """Passes values to the alerts, all at once."""
    return alerts.take(run, news(points, **options), now)


def bare(*wall_times: float, over: bool | None = None, state: RunState | None = None) -> NewData:
    """Returns what records without values say."""
    return NewData(0, np.array(wall_times), None, news([]).scalars, over, state)


def edges(transitions: Iterable[Transition]) -> list[tuple[int | None, bool]]:
    """Returns the steps at which alerts begin and end."""
    return [(each.step, each.firing) for each in transitions]


def judged(text: str, *values: float) -> list[tuple[int | None, bool]]:
    """Returns what a rule says of values at steps 1, 2 and so on."""
    return edges(
        take(AlertStates([parse(text)]), *(point(at, value) for at, value in enumerate(values, 1)))
    )


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("loss > 1", [1, 2, 3, 1, 2], [(2, True), (4, False), (5, True)]),
        ("loss > 1", [2, NAN, NAN, 0], [(1, True), (4, False)]),
        ("loss > 1", [INF, -INF], [(1, True), (2, False)]),
        ("loss != 1", [NAN, 1, 2], [(3, True)]),
        ("loss == 0.1", [0.1], [(1, True)]),
        ("loss <= 0.1", [0.1], [(1, True)]),
        ("loss > 0.1", [0.1], []),
        ("loss is not finite", [1, NAN, INF, 1], [(2, True), (4, False)]),
        ("loss > 1 for 2s", [2, 2, 2, 2, 0, 2, 2], [(3, True), (5, False)]),
        ("loss > 1 for 2s", [2, 2, 0, 2, 2, 2], [(6, True)]),
        ("loss > 1 for 2s", [2, NAN, NAN, 2], [(4, True)]),
        ("loss > 1 for 2s", [2, 2, NAN], []),
        ("loss drops 50% within 2s", [8, 8, 4, 4, 4], [(3, True), (5, False)]),
        ("loss drops 50% within 10m", [8, NAN, 4], [(3, True)]),
        ("loss drops 50% within 10m", [-8, -11, -12], [(3, True)]),
        ("loss drops 50% within 10m", [0, 0, -1], [(3, True)]),
        ("loss drops 3 within 10m", [8, 6, 5], [(3, True)]),
        ("loss rises 3 within 10m", [8, 6, 9], [(3, True)]),
        ("loss rises 3 within 10m", [6, 8, 8.5], []),
        ("loss rises 3 within 10m", [8, INF, 8], [(2, True), (3, False)]),
        ("loss drops 3 within 10m", [INF, 8], []),
    ],
)
def test_values_one_after_another(
    text: str, values: list[float], expected: list[tuple[int, bool]]
) -> None:
    assert judged(text, *values) == expected


def test_the_reason_names_the_value_that_a_value_dropped_from() -> None:
    alerts = AlertStates([parse("loss drops 50% within 10m")])
    found = take(alerts, *(point(at, value) for at, value in enumerate([8, 3, 7])))
    assert [each.reason for each in found] == ["loss = 3 at step 1, from 8", "loss = 7 at step 2"]


def test_a_rule_has_an_alert_for_each_series() -> None:
    alerts = AlertStates([parse("loss > 1")])
    tags = ("loss/auto", "eval/loss", "other")
    found = take(alerts, *(point(1, 2, tag=tag) for tag in tags))
    found += take(alerts, point(1, 2), rank=1)
    found += take(alerts, point(1, 2), run="b")
    first = [("run", 0, "loss/auto"), ("run", 0, "eval/loss")]
    series = [*first, ("run", 1, "loss"), ("b", 0, "loss")]
    assert [(each.run, each.rank, each.tag) for each in found] == series
    assert alerts.firing() == found


def test_transitions_are_in_the_order_of_values_then_of_rules() -> None:
    alerts = AlertStates([parse("a: loss > 1"), parse("b: * > 0")])
    points = [point(1, 2, tag="x"), point(2, 2), point(3, 0, tag="x"), point(4, 2, tag="x")]
    found = take(alerts, *points)
    names = [(each.step, each.rule.name) for each in found]
    assert names == [(1, "b"), (2, "a"), (2, "b"), (3, "b"), (4, "b")]


BACK = 100, 101, 50, 54, 55
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
ENDS = [(LEAST, 2, 1), (GREATEST, 2, 2), (GREATEST, 1, 2)]
BEFORE = [(step, 8, START + step) for step in range(0, 1000, 10)]
AFTER = [(step, 4, START + step + 10) for step in (510, 520, 561)]


@pytest.mark.parametrize(
    ("text", "points", "expected"),
    [
        ("loss > 1 for 5s", [(n, 2, at) for n, at in enumerate(BACK)], [(4, True)]),
        ("loss drops 50% within 100s", [(1, 5, 1), (9, 20, 2), (2, 6, 3)], []),
        ("loss drops 50% within 100s", [(1, 5, 100), (2, 20, 200), (3, 6, 150)], []),
        ("loss drops 50% within 100s", [(1, 5, 100), (2, 20, 200), (3, 6, 200)], [(3, True)]),
        ("loss drops 10% within 50s", [(1, 8, 100), (2, INF, 200), (3, 4, 120)], [(3, True)]),
        ("loss drops 10% within 50s", [*BEFORE, *AFTER], [(510, True), (561, False)]),
        ("loss > 0 for 1s", ENDS, [(GREATEST, True)]),
        ("loss drops 50% within 1s", ENDS, [(GREATEST, True)]),
    ],
    ids=[
        "a clock that goes back counts from there",
        *("values of later steps are forgotten", "and of later times", "not of the same time"),
        "a clock that goes back finds what was before an infinite value",
        "a restart finds the values that were within the span before it",
        *("steps at the ends of int64 do not overflow", "and their changes neither"),
    ],
)
def test_values_at_their_times(
    text: str, points: list[tuple[int, float, float]], expected: list[tuple[int, bool]]
) -> None:
    recorded = (point(step, value, at=at) for step, value, at in points)
    assert edges(take(AlertStates([parse(text)]), *recorded)) == expected


def test_a_drop_after_a_restart_is_found_however_long_the_training_was_away() -> None:
    alerts = AlertStates([parse("loss drops 10% within 50s")])
    before = [point(1, 9, at=0), point(2, 8, at=100), point(3, 8, at=140), point(4, 8, at=150)]
    after = [point(3, 7.1, at=100_000), point(5, 7.1, at=100_020), point(6, 7.1, at=100_060)]
    found = take(alerts, *before, *after)
    assert edges(found) == [(3, True), (6, False)]
    assert "from 8" in found[0].reason


def column(steps: Iterable[int], values: Sequence[float]) -> Columns:
    """Returns values of one tag; each is recorded a second after the one before."""
    numbers, at = np.array(values, np.float64), np.arange(len(values))
    return Columns(("auc",), np.zeros_like(at), np.array([*steps]), START + at, numbers)


def test_a_wide_window_is_bounded_and_misses_little() -> None:
    count, width = 50_000, 20_000
    values = np.random.default_rng(1).random(count) - np.arange(count) / count
    window = SlidingMaximum(width)
    found = window.take(column(range(count), values.tolist()))
    assert len(window) <= MOST
    steps = range(width, count, 97)
    exact = np.array([values[step - width : step + 1].max() for step in steps])
    narrower = np.array([values[step - width + width // 256 : step + 1].max() for step in steps])
    assert (found[steps] <= exact).all()
    assert (found[steps] >= narrower).all()


def test_a_window_of_less_than_its_most_values_is_exact_after_many_more() -> None:
    values = np.random.default_rng(1).random(20_000)
    window = SlidingMaximum(1000)
    found = window.take(column(range(20_000), values.tolist()))
    assert len(window) <= MOST  # also where no values are close enough to be merged
    exact = [values[at - 1000 : at + 1].max() for at in range(1000, 20_000)]
    assert found[1000:].tolist() == exact


def test_a_window_that_rises_and_then_alternates_takes_linear_time() -> None:
    def seconds(count: int) -> float:
        steps = [*range(count), *(count - at % 2 for at in range(count))]
        values = column(steps, np.arange(2 * count).tolist())
        window = SlidingMaximum(10 * count)
        begun = time.process_time()
        window.take(values)
        return time.process_time() - begun

    assert seconds(16_000) < 9 * seconds(4000)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([2.0, 4.0]),
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 1, 1, -1, -3]),
            st.sampled_from([0.0, 1.0, 1.0, 3.0, 6.0, -1.0, -4.0]),
            st.sampled_from([1.0, 2.0, 3.0, 4.0, INF, -INF]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_a_window_agrees_with_a_look_at_all_its_values(
    span: float, moves: list[tuple[int, float, float]], cut: int
) -> None:
    steps = np.cumsum([step for step, _, _ in moves])
    times = np.cumsum([time for _, time, _ in moves])
    numbers = np.array([number for _, _, number in moves])
    columns = steps.tolist(), times.tolist(), numbers.tolist()
    points = [Point("auc", *each) for each in zip(*columns, strict=True)]
    pasts = (points[:count] for count in range(1, len(points) + 1))
    expected = [max(naive.within(span, past), default=-INF) for past in pasts]
    window, at = SlidingMaximum(span), np.zeros(len(moves), np.int64)
    found = [
        window.take(Columns(("auc",), at[part], steps[part], times[part], numbers[part])).tolist()
        for part in (slice(cut), slice(cut, None))
    ]
    assert found[0] + found[1] == expected


def test_a_rule_that_nothing_matches_is_known() -> None:
    every = [parse("loss > 1"), parse("calibraton > 1"), parse("auc no data for 1h")]
    alerts = AlertStates(every)
    take(alerts, point(1, 0))
    assert alerts.unmatched == every[1:]


def value(step: int = 1, at: float | None = None, rank: int = 0) -> NewData:
    """Returns that a value was recorded."""
    return news([point(step, 1, at=at)], rank)


RUN, LOSS = ["no data for 10s"], ["loss no data for 10s"]
TWO_RANKS, ONE_RANK = (bare(START, over=False, state=RunState(rank_size=n)) for n in (2, 1))
ENDED, LATE = bare(START + 8, over=True, state=RunState(step=7)), START + 300
# The rules; then what arrives when, and what that ends; or of which ranks something is missed.
STORIES: dict[str, tuple[list[str], list[Any]]] = {
    "new records arrive now, whatever their clock says": (
        [*RUN, *LOSS],
        [(2 * START, value(at=START)), (2 * START + 9, []), (2 * START + 10, [0, 0])],
    ),
    "that a run goes on is no value of a tag": (
        *(LOSS, [(100, value()), (105, bare(START, over=False)), (110, [0])]),
    ),
    "each rank has an alert": (RUN, [(100, value()), (105, value(rank=1)), (112, [0])]),
    "a run that has ended is not waited for": (
        RUN,
        [
            *((100, value()), (120, [0])),
            *((121, bare(START + 1, over=True), (0, "data again")), (1000, [])),
        ],
    ),
    "the end of a run ends the alerts of other ranks": (
        RUN,
        [
            *((100, value(rank=1)), (120, [1])),
            (121, bare(START + 1, over=True), (1, "the run has ended")),
        ],
    ),
    "a rank that has left the training is not waited for until it comes back": (
        RUN,
        [
            *((100, TWO_RANKS), (100, value(rank=1)), (110, [0, 1])),
            (120, ONE_RANK, (0, "data again"), (1, "the training goes on without this rank")),
            *((200, [0]), (300, TWO_RANKS, (0, "data again")), (305, []), (310, [0, 1])),
        ],
    ),
    "the last records of other ranks do not revive a run, but later ones do": (
        RUN,
        [
            *((100, bare(START, over=True)), (101, value(at=START + 5, rank=1)), (500, [])),
            *((600, value(at=LATE)), (605, []), (610, [0, 1])),
        ],
    ),
    "a rank that is late does not revive a run": (
        RUN,
        [
            (100, bare(START, over=True, state=RunState(step=9, rank_size=2))),
            *((400, value(8, LATE, rank=1)), (400, value(9, LATE, rank=1)), (900, [])),
            *((900, value(10, LATE, rank=1)), (910, [0, 1])),
        ],
    ),
    **{
        f"what is recorded after the end does not revive a run: {what}": (
            *(RUN, [(100, value(7)), (101, ENDED), (600, late), (700, [])]),
        )
        for what, late in (
            *(("a note", bare(LATE)), ("a landscape", value(0, LATE))),
            ("an evaluation", value(7, LATE)),
        )
    },
    "a run that goes on gets its time again": (
        LOSS,
        [
            *((100, value()), (101, bare(START, over=True))),
            *((500, bare(START + 1, over=False)), (505, []), (510, [0])),
        ],
    ),
}


class TestSilence:
    """`no data`."""

    def test_it_is_reported_once_and_ends_with_data(self) -> None:
        alerts = AlertStates([parse("no data for 10s")])
        take(alerts, point(1, 1), now=100.0)
        assert alerts.tick(109.9) == []
        [fired] = alerts.tick(110.0)
        assert (fired.firing, fired.step, fired.wall_time) == (True, 1, 110.0)
        assert alerts.tick(111.0) == []
        assert alerts.firing() == [fired]
        [resolved] = take(alerts, point(2, 1), point(3, 1), now=115.0)
        assert (resolved.firing, resolved.step) == (False, 2)
        assert alerts.tick(124.9) == []
        [fired] = alerts.tick(125.0)
        assert fired.step == 3

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            *((119.5, "120 seconds"), (120, "2 minutes"), (7199, "120 minutes"), (7200, "2 hours")),
            *((172_799, "48 hours"), (172_800, "2 days"), (2_592_000, "30 days")),
        ],
    )
    def test_the_reason_says_for_how_long_and_since_which_step(
        self, seconds: float, text: str
    ) -> None:
        alerts = AlertStates([parse("no data for 1m"), parse("loss no data for 1m")])
        alerts.take("bare", bare(START), 100.0)
        take(alerts, point(7, 1), now=100.0)
        assert [each.reason for each in alerts.tick(100.0 + seconds)] == [
            f"nothing recorded for {text}",
            f"nothing recorded for {text}, the last at step 7",
            f"nothing recorded as loss for {text}, the last at step 7",
        ]

    def test_the_end_of_a_silence_is_in_the_order_of_values(self) -> None:
        alerts = AlertStates([parse("loss no data for 10s"), parse("* > 1")])
        take(alerts, point(1, 1), now=100.0)
        assert edges(alerts.tick(110.0)) == [(1, True)]
        tags = [("x", 2), ("loss", 1), ("y", 2), ("loss", 1)]
        found = take(alerts, *(point(at, n, tag=tag) for at, (tag, n) in enumerate(tags, 2)))
        assert edges(found) == [(2, True), (3, False), (4, True)]
        assert found[1].reason == "data again"

    @pytest.mark.parametrize(("rules", "story"), STORIES.values(), ids=STORIES)
    def test_what_is_missed(self, rules: list[str], story: list[Any]) -> None:
        alerts = AlertStates([parse(rule) for rule in rules])
        for now, what, *expected in story:
            if isinstance(what, NewData):
                reasons = [(each.rank, each.reason) for each in alerts.take("run", what, now)]
                assert reasons == expected
            else:
                assert sorted(each.rank for each in alerts.tick(now)) == what

    def test_an_old_end_ends_the_alert_when_it_was_written(self) -> None:
        alerts = AlertStates([parse("loss no data for 10s")])
        take(alerts, point(1, 1), now=100.0)
        assert len(alerts.tick(120.0)) == 1
        over = bare(130.0, 140.0, 150.0, over=True)
        [resolved] = alerts.take("run", over, 1000.0, old=True)
        assert (resolved.wall_time, resolved.reason) == (150.0, "the run has ended")

    def test_old_records_arrived_when_they_were_written(self) -> None:
        alerts = AlertStates([parse("no data for 10s")])
        alerts.take("run", news([point(1, 1, at=80), point(2, 1, at=95)]), 100.0, old=True)
        assert alerts.tick(104.9) == []
        assert len(alerts.tick(105.0)) == 1

    def test_a_run_is_alive_with_any_record_and_a_tag_with_its_own_values(self) -> None:
        alerts = AlertStates([parse("all: no data for 10s"), parse("tag: loss no data for 10s")])
        take(alerts, point(1, 1), now=100.0)
        take(alerts, point(1, 1, tag="auc"), now=104.0)
        alerts.take("run", bare(START), 105.0)
        assert [each.rule.name for each in alerts.tick(114.0)] == ["tag"]
        assert [each.rule.name for each in alerts.tick(115.0)] == ["all"]


def test_a_run_whose_records_are_gone_is_forgotten() -> None:
    alerts = AlertStates([parse("loss > 1"), parse("no data for 10s")])
    take(alerts, point(1, 2))
    take(alerts, point(1, 2), run="other")
    alerts.tick(START + 100)
    found = alerts.forget("run", START + 200)
    assert [(each.run, each.firing) for each in found] == [("run", False)] * 2
    assert {each.run for each in alerts.firing()} == {"other"}
    assert alerts.tick(START + 300) == []
    assert edges(take(alerts, point(1, 2))) == [(1, True)]


def test_runs_are_forgotten_without_a_look_at_the_others() -> None:
    alerts = AlertStates([parse("loss > 1"), parse("no data for 10s")])
    names = [f"run {number}" for number in range(2000)]
    for name in names:
        take(alerts, point(1, 2), run=name)
    begun = time.process_time()
    found = [each.run for name in names for each in alerts.forget(name, START)]
    assert found == names
    assert time.process_time() - begun < 1


PATTERNS = st.builds(Pattern, st.sampled_from(["a", "x/a", "*"]))
SPANS = st.integers(1, 6).map(float) | st.sampled_from([0.1, 0.3, 0.7])
VALUES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0, -1.0, NAN, INF, -INF])
AMOUNTS = st.sampled_from([0.5, 1.0, 50.0])
CHANGES = st.builds(rules.Change, PATTERNS, st.booleans(), AMOUNTS, st.booleans(), SPANS)
OPERATORS = st.sampled_from(list(rules.COMPARISONS))
COMPARES = st.builds(rules.Compare, PATTERNS, OPERATORS, st.sampled_from([0.5, 1.0]))
CONDITIONS = COMPARES | st.builds(rules.NotFinite, PATTERNS) | CHANGES | CHANGES
# Mostly forwards, sometimes again, sometimes back: by step and by time.
STEPS = st.sampled_from([1, 1, 1, 1, 2, 0, -2, -5])
TIMES = STEPS | st.sampled_from([0.1, 0.1, 0.2, 0.0, -0.1])
SERIES = st.lists(
    st.tuples(st.sampled_from(["a", "a", "x/a", "b"]), STEPS, TIMES, VALUES), max_size=40
)


@settings(max_examples=600, deadline=None)
@given(st.builds(Rule, CONDITIONS, st.none() | SPANS), SERIES, st.data())
def test_columns_agree_with_values_one_after_another(
    rule: Rule, series: list[tuple[str, int, float, float]], data: st.DataObject
) -> None:
    points, step, wall_time = list[Point](), 20, START
    for tag, steps, seconds, value in series:
        step, wall_time = step + steps, wall_time + seconds
        points.append(Point(tag, step, wall_time, value))
    expected = [(firing, points[at]) for at, firing in naive.transitions(rule, points)]
    firing: dict[str, Point] = {}
    for begins, each in expected:
        if begins:
            firing[each.tag] = each
        else:
            del firing[each.tag]

    cuts = data.draw(st.lists(st.integers(0, len(points)), max_size=6).map(sorted))
    alerts, current = AlertStates([rule]), AlertStates([rule])
    found: list[Transition] = []
    for first, last in itertools.pairwise([0, *cuts, len(points)]):
        if first < last:
            fired = {alert.tag for alert in alerts.firing()}
            every = take(alerts, *points[first:last])
            found += every
            latest = {alert.tag: alert for alert in every}
            needed = [tag for tag, alert in latest.items() if alert.firing or tag in fired]
            kept = current.take("run", news(points[first:last]), START, past=False)
            assert {each.tag: repr(each) for each in kept} == {
                tag: repr(latest[tag]) for tag in needed
            }
            assert len(kept) == len(needed)
    assert [(each.firing, repr(of(each))) for each in found] == [
        (begins, repr(each)) for begins, each in expected
    ]
    for each in (alerts, current):
        assert {repr(of(alert)) for alert in each.firing()} == set(map(repr, firing.values()))


def of(transition: Transition) -> Point:
    """Returns the value at which an alert begins or ends."""
    tag, value = transition.tag, transition.value
    assert tag is not None
    assert value is not None
    assert transition.step is not None
    return Point(tag, transition.step, transition.wall_time, value)
