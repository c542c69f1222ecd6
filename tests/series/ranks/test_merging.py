"""Metrics of all ranks as one, from record files, against sums in plain Python."""

import itertools
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert, to_builtins

from rec_summary.records.reading.runs import list_files
from rec_summary.series.event_reader import read_batches
from rec_summary.series.ranks.merging import Merging, MergingState
from rec_summary.series.report import Report
from tests.support.corpus import NAN, event, put, scalar, states

RMSE = "recommender/rmse/1h"


def recorded(step, rank, size, final=False):
    value = states(step, rank, final=final)
    value.metric_states.rank_size = size
    return event(step, value)


def read(path):
    """Returns the files of a run, and the records with a step of each."""
    files = list_files(str(path))
    records = [[each for each in read_batches(file, Report()) if each.step] for file in files]
    return files, records


def scalars(point):
    return {value.tag: value.scalar_value for value in point.values if value.tag}


@st.composite
def schedules(draw):
    """Steps of each rank, which may be started again, and whether it has ended."""
    ranks = []
    for _ in range(draw(st.integers(1, 3))):
        steps = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6).map(sorted))
        if draw(st.booleans()) and steps[-1] > 1:
            again = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6).map(sorted))
            steps += [min(again[0], steps[-1] - 1), *again[1:]]
        ranks.append((steps, draw(st.booleans())))
    return ranks


def expected(ranks):
    """Returns RMSE, size and last step of what is merged at each start and step."""
    places = []
    for steps, _ in ranks:
        backs = (after < before for before, after in itertools.pairwise(steps))
        starts = itertools.accumulate(backs, initial=0)
        places.append(list(zip(starts, steps, strict=True)))
    ends = [
        (of_rank[-1][0], math.inf if final else of_rank[-1][1])
        for of_rank, (_, final) in zip(places, ranks, strict=True)
    ]
    found = {}
    for point in sorted({place for of_rank in places for place in of_rank}):
        latest = [max((each for each in p if each <= point), default=(-1, 0)) for p in places]
        if point <= min(ends) and all(start == point[0] for start, _ in latest):
            squared = sum(20 + step + rank for rank, (_, step) in enumerate(latest))
            rmse = math.sqrt(squared / (16 * len(ranks)))
            found[point] = pytest.approx(rmse), max(step for _, step in latest)
    return found


@settings(max_examples=60)
@given(ranks=schedules(), data=st.data())
def test_each_point_is_the_sum_of_the_latest_states_of_all_ranks(ranks, data):
    """As soon as all ranks have reached it, once, also if the state is stored between."""
    with tempfile.TemporaryDirectory() as folder:
        for rank, (steps, final) in enumerate(ranks):
            last = len(steps) - 1
            events = [
                recorded(step, rank, len(ranks), final and n == last)
                for n, step in enumerate(steps)
            ]
            put(Path(folder), *events, rank=rank)
        files, records = read(folder)
        order = data.draw(
            st.permutations([rank for rank, (steps, _) in enumerate(ranks) for _ in steps])
        )
        merging, state, found = None, MergingState({}, 0, (0, -1)), {}
        for number, rank in enumerate(order, start=1):
            merging = merging or Merging("run", Report(), state)
            merging.take(rank, records[rank].pop(0))
            if number == len(order) or data.draw(st.booleans()):
                for point in merging.points(files):
                    assert (point.start, point.step) not in found
                    found[point.start, point.step] = scalars(point)[RMSE], point.origin.step
                assert list(merging.points(files)) == []
                state, merging = convert(to_builtins(state), MergingState), None
    assert list(found) == sorted(found)
    assert found == expected(ranks)


def test_a_metric_that_one_rank_has_lost_is_nan_and_one_that_it_does_not_have_is_left_out(
    tmp_path,
):
    both = states(5, 0)
    both.metric_states.states.add().CopyFrom(both.metric_states.states[0])
    both.metric_states.states[0].key = "quality/1d"
    first = event(5, scalar("loss", NAN), both, scalar("recommender/auc/1h", 0.5))
    second = event(5, states(5, 1), scalar(RMSE, NAN))
    for rank, each in enumerate((first, second)):
        put(tmp_path, each, rank=rank)
    files, records = read(tmp_path)
    report = Report()
    merging = Merging("run", report, MergingState({}, 0, (0, -1)))
    for rank in (0, 1):
        merging.take(rank, *records[rank])
    [point] = merging.points(files)
    found = scalars(point)
    assert math.isnan(found.pop(RMSE))
    assert found == pytest.approx(
        {"recommender/mae/1h": 26 / 32, "recommender/bias/1h": -3 / 32}
        | {"recommender/examples/1h": 32, "recommender/refused/1h": 1}
    )
    assert report.notes == []


@pytest.mark.parametrize(
    ("kind", "key", "known", "noted"),
    [
        ("RatingErrors", "quality/1h", 1, "is gone, with states of its rank"),
        ("Nonsense", "quality/1h", 2, "Nonsense"),
        ("RatingErrors", "quality/1d", 2, None),
    ],
    ids=["gone", "unknown", "another"],
)
def test_states_without_a_counterpart_make_no_point_and_are_noted_once(
    tmp_path, kind, key, known, noted
):
    for rank in (0, 1):
        values = [states(step, rank, kind="RatingErrors" if rank == 0 else kind) for step in (5, 6)]
        for value in values:
            value.metric_states.states[0].key = key if rank else "quality/1h"
        put(tmp_path, *(event(step, value) for step, value in enumerate(values, 5)), rank=rank)
    files, records = read(tmp_path)
    report = Report()
    merging = Merging("run", report, MergingState({}, 0, (0, -1)))
    for rank in (0, 1):
        for each in records[rank]:
            merging.take(rank, each)
    assert list(merging.points(files[:known])) == []
    assert list(merging.points(files)) == []
    assert [noted in note for note in report.notes] == [True] * bool(noted)
