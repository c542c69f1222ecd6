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
from tests.support.corpus import NAN, START, event, name_of, put, scalar, states
from tests.support.record_dirs import write_payloads
from tests.support.versions import needs_lenient_strings

RMSE = "recommender/rmse/1h"


def recorded(step, rank, size, final=False, at=None):
    value = states(step, rank, final=final)
    value.metric_states.rank_size = size
    return event(step, value, at=at)


def read(path):
    """Returns the files of a run, and the records with a step of each."""
    files = list_files(str(path))
    records = [
        [each for batch in read_batches(file, Report()) for each in batch.records() if each.step]
        for file in files
    ]
    return files, records


def merged(path, report, *kept_bytes):
    """Returns the merging of all records of a run, and the files of the run."""
    files, records = read(path)
    merging = Merging("run", report, MergingState(), *kept_bytes)
    for rank, own in enumerate(records):
        for each in own:
            merging.take(rank, each)
    return merging, files


def scalars(point):
    return {value.tag: value.scalar_value for value in point.values if value.tag}


SECS = 1000  # between the first records of a training and those of the next one


@st.composite
def trainings(draw):
    """Returns the steps of each rank in each of the trainings of a run, and which have ended.

    In each training, each rank records again when all have begun: else the times do not tell two
    restarts from one.
    """
    size = draw(st.integers(1, 3))
    steps = st.lists(st.integers(1, 9), min_size=2, max_size=6).map(sorted)
    of_all = draw(st.lists(st.lists(steps, min_size=size, max_size=size), min_size=1, max_size=3))
    return of_all, draw(st.lists(st.booleans(), min_size=size, max_size=size))


def expected(of_all, final):
    """Returns the RMSE of what is merged at each start and step.

    A training begins again for all ranks if one of them goes back.
    """
    begun = [True] + [
        any(mine[0] < last[-1] for last, mine in zip(before, after, strict=True))
        for before, after in itertools.pairwise(of_all)
    ]
    starts = [sum(begun[: number + 1]) - 1 for number in range(len(of_all))]
    found = {}
    for start in sorted(set(starts)):
        ranks = [
            [
                step
                for steps, own in zip(of_all, starts, strict=True)
                if own == start
                for step in steps[rank]
            ]
            for rank in range(len(final))
        ]
        is_last = start == starts[-1]
        ends = [
            math.inf if not is_last or has_ended else steps[-1]
            for steps, has_ended in zip(ranks, final, strict=True)
        ]
        for step in sorted({step for steps in ranks for step in steps}):
            latest = [max((each for each in steps if each <= step), default=0) for steps in ranks]
            if step <= min(ends) and all(latest):
                squared = sum(20 + step + rank for rank, step in enumerate(latest))
                found[start, step] = pytest.approx(math.sqrt(squared / (16 * len(ranks))))
    return found


@settings(max_examples=60)
@given(run=trainings(), data=st.data())
def test_each_point_is_the_sum_of_the_latest_states_of_all_ranks(run, data):
    """As soon as all ranks have reached it, once, also if the state is stored between.

    A rank that lost its last records at a restart does not go back; the others do.
    """
    of_all, final = run
    ranks = range(len(final))
    with tempfile.TemporaryDirectory() as folder:
        for rank in ranks:
            events = []
            for number, steps in enumerate(of_all):
                is_last = number == len(of_all) - 1
                for place, step in enumerate(steps[rank]):
                    at = START + SECS * number + place + rank / 4
                    ends = is_last and final[rank] and place == len(steps[rank]) - 1
                    events.append(recorded(step, rank, len(final), ends, at))
            put(Path(folder), *events, rank=rank)
        files, records = read(folder)
        merging, state, found = None, MergingState(), {}
        for steps in of_all:
            rest = [rank for rank in ranks for _ in steps[rank][1:]]
            # That training began again is known when the ranks that go back have begun.
            for number, rank in enumerate([*ranks, *data.draw(st.permutations(rest))], start=1):
                merging = merging or Merging("run", Report(), state)
                merging.take(rank, records[rank].pop(0))
                is_last = number == len(final) + len(rest)
                if number < len(final) or not (is_last or data.draw(st.booleans())):
                    continue
                for point in merging.points(files):
                    assert (point.start, point.step) not in found
                    found[point.start, point.step] = scalars(point)[RMSE]
                assert list(merging.points(files)) == []
                state, merging = convert(to_builtins(state), MergingState), None
    assert list(found) == sorted(found)
    assert found == expected(of_all, final)


@pytest.mark.parametrize("back", [0, 2], ids=["on", "back"])
@pytest.mark.parametrize("final", [True, False], ids=["ended", "killed"])
@pytest.mark.parametrize("sizes", [(4, 2), (2, 1), (1, 2), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("kept_bytes", [1 << 20, 0])
def test_a_training_may_go_on_with_another_number_of_ranks(
    tmp_path, sizes, final, back, kept_bytes
):
    """A point is made of the ranks that train then: others have left, or are yet to come.

    States that do not fit into memory together are read again.
    """
    of_rank: dict[int, list] = {}
    expected = []
    for number, size in enumerate(sizes):
        steps = [step + number * (3 - back) for step in (1, 2, 3)]
        for rank, step in itertools.product(range(size), steps):
            at = START + SECS * number + step + rank / 8
            of_rank.setdefault(rank, []).append(
                recorded(step, rank, size, final and step == steps[-1], at)
            )
        start = number if back else 0
        squared = {step: sum(20 + step + rank for rank in range(size)) for step in steps}
        expected += [
            (start, step, pytest.approx(math.sqrt(squared[step] / (16 * size)))) for step in steps
        ]
    for rank, events in of_rank.items():
        put(tmp_path, *events, rank=rank)
    merging, files = merged(tmp_path, Report(), kept_bytes)
    found = [(point.start, point.step, scalars(point)[RMSE]) for point in merging.points(files)]
    assert found == expected


def test_a_clock_that_is_set_back_hides_no_restart(tmp_path):
    put(
        tmp_path, *(recorded(step, 0, 1, at=START - when) for when, step in enumerate((5, 6, 5, 6)))
    )
    merging, files = merged(tmp_path, Report())
    found = [(point.start, point.step) for point in merging.points(files)]
    assert found == [(0, 5), (0, 6), (1, 5), (1, 6)]


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
    merging, files = merged(tmp_path, report := Report())
    [point] = merging.points(files)
    found = scalars(point)
    assert math.isnan(found.pop(RMSE))
    assert found == pytest.approx(
        {"recommender/mae/1h": 26 / 32, "recommender/bias/1h": -3 / 32}
        | {"recommender/examples/1h": 32, "recommender/refused/1h": 1}
    )
    assert report.notes == []


@needs_lenient_strings
def test_a_tag_that_is_not_utf8_is_no_metric(tmp_path):
    for rank in (0, 1):
        content = event(5, scalar("odd", 1), states(5, rank)).SerializeToString()
        write_payloads(tmp_path / name_of(0, rank, "host"), content.replace(b"odd", b"\xffdd"))
    merging, files = merged(tmp_path, Report())
    [point] = merging.points(files)
    assert scalars(point)["recommender/examples/1h"] == 32


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
    merging, files = merged(tmp_path, report := Report())
    assert list(merging.points(files[:known])) == []
    assert list(merging.points(files)) == []
    assert [noted in note for note in report.notes] == [True] * bool(noted)
