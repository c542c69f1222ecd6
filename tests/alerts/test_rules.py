"""When alerts begin and end."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.alerts.conditions import (
    COMPARISONS,
    AllOf,
    AnyOf,
    Change,
    Compare,
    IsNan,
    NotFinite,
    Pattern,
    Rule,
    Span,
    float32,
)
from rec_summary.alerts.grammar import parse
from rec_summary.alerts.rules import Engine
from rec_summary.alerts.states import Point, Transition
from tests.alerts import naive

START = 1000.0
NAN, INF = math.nan, math.inf


def point(
    step: int, value: float, *, tag: str = "loss", at: float | None = None, run: str = "run"
) -> Point:
    """Returns a value; it is a second per step after `START`."""
    wall_time = START + step if at is None else at
    return Point(run, 0, tag, step, wall_time, float32(value))


def fed(engine: Engine, *points: Point) -> list[tuple[int | None, bool]]:
    """Returns the steps at which alerts begin and end."""
    found = [each for p in points for each in engine.feed(p, p.wall_time)]
    return [(each.step, each.firing) for each in found]


def judged(text: str, *values: float) -> list[tuple[int | None, bool]]:
    """Returns what a rule says of values at steps 1, 2 and so on."""
    return fed(Engine([parse(text)]), *(point(at, value) for at, value in enumerate(values, 1)))


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
        ("loss is nan", [1, NAN, INF], [(2, True), (3, False)]),
        ("loss is not finite", [1, NAN, INF, 1], [(2, True), (4, False)]),
        ("loss > 1 for 2 steps", [2, 2, 2, 2, 0, 2, 2], [(3, True), (5, False)]),
        ("loss > 1 for 2s", [2, 2, 0, 2, 2, 2], [(6, True)]),
        ("loss > 1 for 2 steps", [2, NAN, NAN, 2], [(4, True)]),
        ("loss > 1 for 2 steps", [2, 2, NAN], []),
        ("loss drops 50% within 2 steps", [8, 8, 4, 4, 4], [(3, True), (5, False)]),
        ("loss drops 50% within 10m", [8, NAN, 4], [(3, True)]),
        ("loss drops 50% within 10m", [-8, -11, -12], [(3, True)]),
        ("loss drops 50% within 10m", [0, 0, -1], [(3, True)]),
        ("loss drops 3 within 10m", [8, 6, 5], [(3, True)]),
        ("loss rises 3 within 10m", [8, 6, 9], [(3, True)]),
        ("loss rises 3 within 10m", [8, INF, 8], [(2, True), (3, False)]),
        ("loss drops 3 within 10m", [INF, 8], []),
        ("loss > 1 and loss < 3", [2, 4, 2], [(1, True), (2, False), (3, True)]),
        ("loss > 1 or loss is nan", [0, NAN, 0], [(2, True), (3, False)]),
    ],
)
def test_values_one_after_another(
    text: str, values: list[float], expected: list[tuple[int, bool]]
) -> None:
    assert judged(text, *values) == expected


def test_what_a_value_has_dropped_from_is_told() -> None:
    engine = Engine([parse("loss drops 50% within 10m and loss > 0")])
    told = [each for at, v in enumerate([8, 3, 7]) for each in engine.feed(point(at, v), START)]
    assert [each.reason for each in told] == ["loss = 3 at step 1, from 8", "loss = 7 at step 2"]


def test_a_rule_about_one_tag_has_an_alert_for_each_series() -> None:
    engine = Engine([parse("loss > 1")])
    points = [
        point(1, 2, tag="loss/auto"),
        point(1, 2, tag="eval/loss"),
        point(1, 2, tag="other"),
        point(1, 2, run="b"),
        point(1, 2)._replace(rank=1),
    ]
    told = [each for p in points for each in engine.feed(p, p.wall_time)]
    assert [(each.run, each.rank, each.tag) for each in told] == [
        ("run", 0, "loss/auto"),
        ("run", 0, "eval/loss"),
        ("b", 0, "loss"),
        ("run", 1, "loss"),
    ]
    assert engine.firing() == told


def test_a_rule_about_several_tags_has_one_alert_for_a_run() -> None:
    engine = Engine([parse("loss > 1 and auc < 0.6")])
    assert fed(
        engine,
        point(1, 2),
        point(2, 0.7, tag="a/auc"),
        point(3, 0.5, tag="b/auc"),
        point(4, 0.5, tag="a/auc"),
        point(5, 0.7, tag="b/auc"),
        point(6, 0.7, tag="a/auc"),
        point(7, 0.5, tag="a/auc"),
        point(8, 0),
    ) == [(3, True), (6, False), (7, True), (8, False)]


def test_only_runs_that_are_meant() -> None:
    engine = Engine([parse("run:prod/* loss > 1")])
    assert fed(engine, point(1, 2, run="test/a")) == []
    assert fed(engine, point(1, 2, run="prod/a")) == [(1, True)]


def test_going_back_behind_the_step_where_it_began_counts_from_there() -> None:
    rules = [parse("steps: loss > 1 for 5 steps"), parse("time: loss > 1 for 5s")]
    engine = Engine(rules)
    steps = [10, 11, 12, 2, 3, 6, 7]
    told = [
        (each.step, each.rule.name)
        for at, step in enumerate(steps)
        for each in engine.feed(point(step, 2, at=START + at), START)
    ]
    assert told == [(6, "time"), (7, "steps")]


def test_a_clock_that_goes_back_counts_from_there() -> None:
    engine = Engine([parse("loss > 1 for 5s")])
    times = [100, 101, 50, 54, 55]
    assert fed(engine, *(point(at, 2, at=time) for at, time in enumerate(times))) == [(4, True)]


def test_what_lies_behind_an_earlier_step_or_time_is_no_measure() -> None:
    rule = parse("loss drops 50% within 100s")
    back_in_steps = point(1, 5, at=1), point(9, 20, at=2), point(2, 6, at=3)
    assert fed(Engine([rule]), *back_in_steps) == []
    back_in_time = point(1, 5, at=100), point(2, 20, at=200), point(3, 6, at=150)
    assert fed(Engine([rule]), *back_in_time) == []
    assert fed(Engine([rule]), *back_in_time[:2], point(3, 6, at=200)) == [(3, True)]


def test_a_rule_that_nothing_matches_is_known() -> None:
    rules = [parse("loss > 1"), parse("calibraton > 1"), parse("auc no data for 1h")]
    engine = Engine(rules)
    engine.feed(point(1, 0), START)
    assert engine.unmatched == rules[1:]


class TestSilence:
    """`no data`."""

    def test_it_is_told_once_and_ends_with_data(self) -> None:
        engine = Engine([parse("no data for 10s")])
        engine.feed(point(1, 1), 100.0)
        assert engine.tick(109.9) == []
        [fired] = engine.tick(110.0)
        assert (fired.firing, fired.step, fired.wall_time) == (True, 1, 110.0)
        assert engine.tick(111.0) == []
        assert engine.firing() == [fired]
        [resolved] = engine.feed(point(2, 1), 115.0)
        assert not resolved.firing
        assert engine.tick(124.9) == []
        assert len(engine.tick(125.0)) == 1

    def test_a_run_is_alive_with_any_record_and_a_tag_with_its_own_values(self) -> None:
        engine = Engine([parse("all: no data for 10s"), parse("tag: loss no data for 10s")])
        engine.feed(point(1, 1), 100.0)
        engine.feed(point(1, 1, tag="auc"), 104.0)
        engine.alive("run", 0, START, 105.0)
        assert [each.rule.name for each in engine.tick(114.0)] == ["tag"]
        assert [each.rule.name for each in engine.tick(115.0)] == ["all"]

    def test_each_rank_is_listened_to(self) -> None:
        engine = Engine([parse("no data for 10s")])
        engine.feed(point(1, 1), 100.0)
        engine.feed(point(1, 1)._replace(rank=1), 105.0)
        assert [each.rank for each in engine.tick(112.0)] == [0]

    def test_a_run_that_has_ended_owes_nothing(self) -> None:
        engine = Engine([parse("no data for 10s")])
        engine.feed(point(1, 1), 100.0)
        assert len(engine.tick(120.0)) == 1
        [resolved] = engine.ended("run", START + 1, 121.0)
        assert resolved.reason == "the run has ended"
        assert engine.tick(1000.0) == []

    def test_the_last_records_of_other_ranks_do_not_revive_a_run_but_later_ones_do(self) -> None:
        engine = Engine([parse("no data for 10s")])
        engine.ended("run", START, 100.0)
        engine.feed(point(1, 1, at=START + 5)._replace(rank=1), 101.0)
        assert engine.tick(500.0) == []
        engine.feed(point(1, 1, at=START + 300), 600.0)
        assert engine.tick(605.0) == []
        assert {each.rank for each in engine.tick(610.0)} == {0, 1}

    def test_a_run_that_goes_on_gets_its_time_again(self) -> None:
        engine = Engine([parse("loss no data for 10s")])
        engine.feed(point(1, 1), 100.0)
        engine.ended("run", START, 101.0)
        engine.running("run", 500.0)
        assert engine.tick(505.0) == []
        assert len(engine.tick(510.0)) == 1


def test_a_run_whose_records_are_gone_is_forgotten() -> None:
    engine = Engine([parse("loss > 1"), parse("no data for 10s")])
    fed(engine, point(1, 2), point(1, 2, run="other"))
    engine.tick(START + 100)
    told = engine.forget("run", START + 200)
    assert [(each.run, each.firing) for each in told] == [("run", False)] * 2
    assert {each.run for each in engine.firing()} == {"other"}
    assert engine.tick(START + 300) == []
    assert fed(engine, point(1, 2)) == [(1, True)]


TAGS = st.sampled_from(["a", "b", "x/a"])
PATTERNS = st.builds(Pattern, st.sampled_from(["a", "b", "x/a", "*"]))
SPANS = st.builds(Span, st.integers(1, 6).map(float), st.sampled_from(["s", "steps"]))
VALUES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0, -1.0, NAN, INF, -INF])
LEAVES = st.one_of(
    st.builds(Compare, PATTERNS, st.sampled_from(list(COMPARISONS)), st.sampled_from([0.5, 1.0])),
    st.builds(IsNan, PATTERNS),
    st.builds(NotFinite, PATTERNS),
    st.builds(
        Change, PATTERNS, st.booleans(), st.sampled_from([0.5, 1.0, 50.0]), st.booleans(), SPANS
    ),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(AllOf, st.lists(parts, min_size=2, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(parts, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
# Mostly forwards, sometimes again, sometimes back: by step and by time.
MOVES = st.sampled_from([1, 1, 1, 1, 2, 0, -2, -5])
SERIES = st.lists(st.tuples(TAGS, MOVES, MOVES, VALUES), max_size=25)


CHANGES = st.builds(
    Change, st.just(Pattern("a")), st.booleans(), st.sampled_from([0.5, 50.0]), st.booleans(), SPANS
)
ONE_SERIES = st.lists(st.tuples(st.just("a"), MOVES, MOVES, VALUES), max_size=25)


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        st.tuples(st.builds(Rule, CONDITIONS, st.none() | SPANS), SERIES),
        st.tuples(st.builds(Rule, CHANGES), ONE_SERIES),
    )
)
def test_it_agrees_with_the_naive_way(
    case: tuple[Rule, list[tuple[str, int, int, float]]],
) -> None:
    rule, series = case
    points, step, wall_time = [], 20, START
    for tag, steps, seconds, value in series:
        step, wall_time = step + steps, wall_time + seconds
        points.append(Point("run", 0, tag, step, wall_time, value))
    engine = Engine([rule])
    found: list[tuple[int, Transition]] = []
    for at, each in enumerate(points):
        found += [(at, transition) for transition in engine.feed(each, START)]
    # The alert of a rule about one tag is that of the tag of the value.
    expected = naive.transitions(rule, points)
    assert [(at, told.firing) for at, told in found] == [entry[:2] for entry in expected]
    assert all(key in (None, points[at].tag) for at, _, key in expected)
    firing: dict[str | None, bool] = {}
    for _, begins, key in expected:
        assert firing.get(key, False) is not begins
        firing[key] = begins
    assert len(engine.firing()) == sum(firing.values())
