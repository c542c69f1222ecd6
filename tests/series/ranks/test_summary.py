"""What all ranks have in common, compared with plain NumPy on all values."""

import itertools

import numpy as np
import pytest
from msgspec import ValidationError, convert, to_builtins

from rec_summary.series.batch import Record
from rec_summary.series.blocks.scan import scan
from rec_summary.series.ranks.summary import (
    _ROW,
    MEASURES,
    STATISTICS,
    RankSummary,
    RankTable,
)
from tests.support.corpus import START, event, framed, histo, scalar
from tests.support.many_ranks import SECS, SLOW, STALL, events, value

TAGS = {"loss": "loss", "input_stall": STALL, "gradient_norm": "gradients/norm"}


def give(summary, rank, messages):
    for message in messages:
        summary.take(rank, Record("file", 0, 10, message.wall_time, message))


def summary_of(of_rank, ranks=(0, 1)):
    """Returns a summary of what each rank has recorded."""
    summary = RankSummary()
    for rank in ranks:
        give(summary, rank, of_rank(rank))
    return summary


def give_at_once(summary, rank, messages):
    """Gives records as one block, as where a file is read for the first time."""
    records = scan(b"".join(map(framed, messages)), 0, 0, frames=False)
    summary.take(rank, records.block("file", 0, len(messages)))


def points(summary, expected=2):
    return {(each.start, each.step): each.values for each in summary.points(expected)}


def saved(summary):
    """Returns the summary that a later process continues with."""
    summary.pack()
    return convert(to_builtins(summary, str_keys=True), RankSummary, str_keys=True)


def naive(ranks, steps):
    """Returns the statistics of all measures but the step time, of the recorded values."""
    found = {}
    for step in steps:
        at_step = found[0, step] = {}
        for measure, tag in TAGS.items():
            column = [value(rank, step, tag) for rank in ranks]
            numbers = (
                *(min(column), np.median(column), max(column)),
                *(ranks[int(np.argmax(column))], len(column)),
            )
            for name, number in zip(STATISTICS, numbers, strict=True):
                at_step[f"ranks/{measure}/{name}"] = number
    return found


def assert_in_force(found, ranks, steps):
    """Compares what counts of several starts: of each step the values of the last one."""
    in_force = {step: values for (_, step), values in sorted(found.items())}
    expected = {step: values for (_, step), values in naive(ranks, steps).items()}
    assert without_time(in_force) == expected


def without_time(found):
    return {
        place: {tag: each for tag, each in values.items() if "/step_time/" not in tag}
        for place, values in found.items()
    }


def test_all_values_of_256_ranks_at_each_step():
    ranks, steps = range(256), range(10, 60, 10)
    summary = summary_of(lambda rank: events(rank, steps), ranks)
    found = points(summary)
    assert without_time(found) == naive(ranks, steps)
    assert {values["ranks/input_stall/max_rank"] for values in found.values()} == {SLOW}
    times = [values.get("ranks/step_time/median") for values in found.values()]
    assert times == [None, *[SECS] * 4]
    assert points(summary) == {}  # each step once


def test_values_of_a_block_are_summarised_as_those_of_single_records():
    """Also where training began again, and far more steps than of many ranks."""
    found = []
    for giving in (give, give_at_once):
        summary = RankSummary()
        for rank in (0, 1):
            giving(summary, rank, events(rank, range(1, 1201)))
            again = events(rank, range(1151, 1301), after=100)
            giving(summary, rank, [*again, event(1301, scalar("loss", 1), at=START + 500)])
        found.append((points(summary), summary.restarts, summary.reached))
    assert found[0] == found[1]
    assert len({step for _, step in found[0][0]}) == 1301


def test_a_point_has_the_time_at_which_the_last_rank_recorded_it():
    summary = summary_of(lambda rank: events(rank, range(1, 4), after=rank))
    assert [point.wall_time for point in summary.points()] == [
        START + step * SECS + 1 for step in range(1, 4)
    ]


def test_points_of_measures_that_are_recorded_in_turn_are_in_order():
    recorded = [event(n, scalar(tag, 1)) for n, tag in enumerate(("loss", STALL, "loss"), start=1)]
    summary = summary_of(lambda _: recorded)
    assert [step for _, step in points(summary)] == [1, 2, 3]


def test_a_measure_may_come_in_a_later_record_of_its_step():
    summary = RankSummary()
    give(summary, 0, events(0, range(1, 6)))
    give(summary, 1, [*events(1, range(1, 5)), event(5, scalar("x", 1))])
    assert max(points(summary)) == (0, 4)
    give(summary, 1, events(1, [5]))
    assert points(summary)[0, 5]["ranks/loss/count"] == 2


def test_a_step_that_is_recorded_twice_is_no_restart():
    twice = ((1, 0), (2, 0), (2, SECS), (3, SECS))
    summary = summary_of(
        lambda rank: [events(rank, [step], after=after)[0] for step, after in twice]
    )
    found = points(summary)
    assert summary.restarts == []
    assert [values.get("ranks/step_time/max") for values in found.values()] == [None, SECS, SECS]


def test_only_scalars_are_measures():
    histogram = histo("loss", [1, 2])
    summary = summary_of(
        lambda _: [event(1, histogram), event(1, scalar("train/loss", 1), histogram)]
    )
    assert points(summary)[0, 1]["ranks/loss/max"] == 1


def test_a_better_tag_that_comes_later_repeats_no_step():
    summary = RankSummary()
    for tag, steps, expected in (("train/loss", (1, 2, 3), (1, 2, 3)), ("loss", (3, 4), (4,))):
        for rank in (0, 1):
            give(summary, rank, [event(step, scalar(tag, rank)) for step in steps])
        assert [step for _, step in points(summary)] == [*expected]


def test_of_equal_ranks_the_lowest_has_the_maximum():
    summary = summary_of(lambda rank: [event(1, scalar("loss", min(rank, 1)))], (1, 2, 0))
    assert points(summary)[0, 1]["ranks/loss/max_rank"] == 1


@pytest.mark.parametrize("saves", [False, True])
def test_a_live_reader_gets_the_same_points(saves):
    ranks, steps = range(5), range(1, 40)
    summary, found = RankSummary(), {}
    given = dict.fromkeys(ranks, 0)
    of_rank = {rank: events(rank, steps) for rank in ranks}
    for turn in itertools.count():
        for rank in ranks:  # each at a pace of its own
            more = (turn * (rank + 1) + rank) % 4
            give(summary, rank, of_rank[rank][given[rank] : given[rank] + more])
            given[rank] += more
        new = points(summary, 5)
        assert not new.keys() & found.keys()
        found.update(new)
        if saves:
            summary = saved(summary)
        if all(count >= len(steps) for count in given.values()):
            break
    assert without_time(found) == naive(ranks, steps)
    assert list(found) == sorted(found)


def test_steps_of_which_ranks_are_missing_say_how_many_there_are():
    summary = RankSummary()
    give(summary, 0, events(0, range(1, 401)))
    give(summary, 1, events(1, range(1, 31)))  # it ends there
    give(summary, 2, [each for each in events(2, range(1, 401)) if each.step % 2])
    found = points(summary)
    counts = [found[0, step]["ranks/loss/count"] for step in (29, 30, 31, 32)]
    assert counts == [3, 2, 2, 1]
    assert found[0, 31]["ranks/loss/max_rank"] in (0, 2)
    assert max(found) == (0, 399)  # the last record of rank 2: more may come


def test_a_rank_that_lags_is_waited_for_a_minute_and_for_three_records():
    summary = RankSummary()
    give(summary, 0, events(0, range(1, 200)))  # 50 s
    give(summary, 1, events(1, range(1, 5)))
    assert max(points(summary)) == (0, 4)
    give(summary, 0, events(0, range(200, 300)))
    assert max(points(summary)) == (0, 299)
    give(summary, 1, events(1, range(5, 301)))  # what comes too late is left out
    give(summary, 0, events(0, [300]))
    assert {place: each["ranks/loss/count"] for place, each in points(summary).items()} == {
        (0, 300): 2
    }
    slow = RankSummary()  # a record each ten minutes
    for rank, steps in ((0, (1, 2, 3)), (1, (1,))):
        give(slow, rank, [event(step, scalar("loss", 1), at=START + 600 * step) for step in steps])
    assert max(points(slow)) == (0, 1)
    give(slow, 0, [event(4, scalar("loss", 1), at=START + 2400)])
    assert max(points(slow)) == (0, 4)


def test_nothing_is_summarised_before_all_expected_ranks_have_begun():
    summary = summary_of(lambda rank: events(rank, range(1, 5)), range(3))
    assert points(summary, expected=4) == {}
    give(summary, 3, events(3, range(1, 5)))
    assert len(points(summary, expected=4)) == 4
    waiting = RankSummary()
    for rank in (0, 1):
        give(waiting, rank, events(rank, [1, 241][: rank + 1]))  # a minute
    assert len(points(waiting, expected=4)) == 1


def test_one_rank_alone_is_no_summary():
    summary = RankSummary()
    give(summary, 0, events(0, range(1, 50)))
    assert points(summary) == points(summary, expected=1) == {}


@pytest.mark.parametrize("is_live", [False, True])
def test_a_restart_supersedes_what_is_behind_it(is_live):
    summary, found = RankSummary(), {}
    before = {rank: events(rank, range(1, 51)) for rank in (0, 1)}
    after = {rank: events(rank, range(31, 81), after=100) for rank in (0, 1)}
    for rank in (0, 1):
        give(summary, rank, before[rank])
        if not is_live:
            give(summary, rank, after[rank])
    found.update(points(summary))
    if is_live:
        assert max(found) == (0, 50)
        give(summary, 0, after[0])
        assert points(summary) == {}  # rank 1 has not begun again
        give(summary, 1, after[1])
        found.update(points(summary))
    assert_in_force(found, (0, 1), range(1, 81))
    assert {place for place in found if place[0] == 1} == {(1, step) for step in range(31, 81)}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_ranks_that_do_not_go_back_at_a_restart_do_not_hold_up_the_others(order):
    summary = RankSummary()
    before = {0: range(1, 51), 1: range(1, 31), 2: range(0)}  # 1 lost the rest, 2 is new
    for rank in order:
        give(summary, rank, events(rank, before[rank]))
        give(summary, rank, events(rank, range(31, 81), after=100))
    found = points(summary)
    assert max(step for start, step in found if not start) == 30
    if order[0] == 0:  # the restart is known when the step behind it is read
        times = {values.get("ranks/step_time/max") for values in found.values()}
        assert times == {None, SECS}
    assert [found[1, step]["ranks/loss/count"] for step in (31, 80)] == [3, 3]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (2, 0, 1)])
def test_each_restart_is_known_once_from_whatever_ranks_have_seen_of_it(order):
    summary = RankSummary()
    before = {0: range(1, 41), 1: range(1, 241), 2: range(0)}  # 0 ended early, 2 is new
    for rank in order:
        give(summary, rank, events(rank, before[rank]))
        give(summary, rank, events(rank, range(31, 61), after=100))
        give(summary, rank, events(rank, range(41, 71), after=200))
    found = points(summary)
    assert summary.restarts == [
        (START + 240 * SECS, START + 31 * SECS + 100),
        (START + 60 * SECS + 100, START + 41 * SECS + 200),
    ]
    assert [found[2, step]["ranks/loss/count"] for step in (41, 70)] == [3, 3]
    times = {values.get("ranks/step_time/max") for values in found.values()}
    assert times == {None, SECS}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_rank_that_ended_before_the_others_restarts_with_them(order):
    """The last record of the first rank that is read again does not decide what is superseded."""
    summary, found = RankSummary(), {}
    for rank in range(3):
        give(summary, rank, events(rank, range(1, 9 if rank == 2 else 11)))
    found.update(points(summary, 3))
    for rank in order:
        give(summary, rank, events(rank, range(5, 16), after=30))
        found.update(points(summary, 3))
    assert_in_force(found, range(3), range(1, 16))
    assert [start for start, step in found if step > 10] == [1] * 5


def test_a_clock_that_is_set_back_makes_no_negative_step_time():
    times = enumerate((0.0, 0.5, -60.0, -59.5, -59.5), start=1)
    recorded = [event(step, scalar("loss", 1), at=START + at) for step, at in times]
    summary = summary_of(lambda _: recorded)
    found = points(summary)
    times = [found[0, step].get("ranks/step_time/min") for step in range(2, 6)]
    assert times == [0.5, None, 0.5, 0.0]


@pytest.mark.parametrize(("step", "at"), [((1 << 63) - 1, None), (9, 1e300)])
def test_steps_and_times_that_no_training_reaches_do_not_spoil_the_state(step, at):
    recorded = [event(1, scalar("loss", 1)), event(step, scalar("loss", 2), at=at)]
    summary = summary_of(lambda _: recorded)
    assert [step for _, step in points(saved(summary))] == [1]
    assert [step for _, step in points(summary)] == [1]
    saved(summary)


def test_nan_is_the_greatest_and_names_its_rank():
    numbers = [0, 1, float("nan"), 3]
    summary = summary_of(lambda rank: [event(1, scalar("loss", numbers[rank]))], range(4))
    [values] = points(summary).values()
    assert np.isnan(values["ranks/loss/max"])
    assert (values["ranks/loss/max_rank"], values["ranks/loss/min"]) == (2, 0)
    assert values["ranks/loss/median"] == 2


def test_the_best_tag_is_taken_for_a_measure():
    tags = ("task/loss", "loss/auto", "eval/loss", "perf/step_time", "recommender/log_loss/x")
    values = [scalar(tag, len(tag)) for tag in tags]
    summary = summary_of(lambda _: [event(step, *values) for step in (1, 2)])
    found = points(summary)
    assert found[0, 2]["ranks/loss/max"] == len("loss/auto")
    assert found[0, 2]["ranks/step_time/max"] == len("perf/step_time")
    assert {tag.split("/")[1] for tag in found[0, 2]} == {"loss", "step_time"}
    assert set(MEASURES) >= {"loss", "step_time"}


@pytest.mark.parametrize(
    ("tags", "taken"),
    [
        (("loss_scale", "train_loss"), "train_loss"),
        (("scale/loss_scale/auto", "lossScale", "z/logloss"), "z/logloss"),
        (("test/loss", "train/loss"), "train/loss"),
        (("aux_loss", "training/ctr_loss/auto"), "training/ctr_loss/auto"),
        (("val_loss", "valLoss", "task/valid/loss", "validation_loss", "zLoss"), "zLoss"),
        (("best/loss", "best_loss", "ctr/eval/loss", "z/losses"), "z/losses"),
        (("train/lossless", "auc_loss_weight", "glossary", "value_loss"), "value_loss"),
        (("lossless", "loss_weights", "train/loss_scaler", "eval/loss"), None),
    ],
)
def test_the_loss_is_that_of_the_training(tags, taken):
    summary = summary_of(lambda rank: [event(1, *(scalar(tag, i) for i, tag in enumerate(tags)))])
    found = [values["ranks/loss/max"] for values in points(summary).values()]
    assert [tags[int(number)] for number in found] == ([] if taken is None else [taken])


class FewWait(RankSummary):
    most_waiting = 512


class HardlyAnyWait(RankSummary):
    most_waiting = 48


def test_memory_is_bounded():
    """Of what waits for other ranks, neighbouring steps are joined."""
    summary, sizes = FewWait(), []
    for rank in range(12):
        give(summary, rank, [event(step, scalar("loss", step)) for step in range(1, 4000, 8)])
        sizes.append(summary.nbytes)
    assert max(sizes) < 512 * 40 * 2 * 4
    found = points(summary)
    assert found
    for (_, step), values in found.items():
        assert values["ranks/loss/min"] == values["ranks/loss/max"] <= step
        assert values["ranks/loss/count"] == 12
    summary.pack()
    packed = sum(len(measure.waiting.packed) for measure in summary.measures.values())
    assert summary.nbytes == packed < sizes[0]


@pytest.mark.parametrize("width", [2, 4])
def test_joined_steps_have_the_mean_of_each_rank(width):
    summary, steps = HardlyAnyWait(), range(16 * width)
    for rank in (0, 1, 2):
        give(summary, rank, [event(step, scalar("loss", step + rank)) for step in steps])
    found = [point for point in summary.points() if len(point.values) > 5 or not point.step]
    means = [point.values["ranks/loss/median"] for point in found]
    firsts = steps[::width]
    assert means == [np.mean(range(first, first + width)) + 1 for first in firsts]
    lasts = [first + width - 1 for first in firsts]
    assert [point.step for point in found] == lasts
    assert [point.wall_time for point in found] == [START + step / 4 for step in lasts]
    for rank in (0, 1, 2):  # nothing waits any more
        give(summary, rank, [event(len(steps) + n, scalar("loss", 1)) for n in (0, 1)])
    assert [step for _, step in points(summary)] == [len(steps), len(steps) + 1]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"start": -1}, {"rank": -1}, {"count": 0}, {"step": -(1 << 63)}, {"wall_time": 1e300}),
        *({"width": 0}, {"width": 1 << 63}, {"width": (1 << 62) + 1}, {"rows": b"short"}),
    ],
)
def test_a_state_with_impossible_numbers_is_refused(wrong):
    row = np.zeros(1, _ROW)
    row["count"] = 1
    state = {"width": 1, "rows": row.tobytes()}
    assert convert(to_builtins(state), RankTable).rows() == row
    for name, number in wrong.items():
        if name in state:
            state[name] = number
        else:
            row[name] = number
            state["rows"] = row.tobytes()
    with pytest.raises(ValidationError):
        convert(to_builtins(state), RankTable)


def test_a_state_of_a_measure_that_is_not_known_is_refused():
    summary = RankSummary()
    give(summary, 0, events(0, [1]))
    summary.pack()
    raw = to_builtins(summary, str_keys=True)
    raw["measures"]["other"] = raw["measures"]["loss"]
    with pytest.raises(ValidationError, match="measure"):
        convert(raw, RankSummary, str_keys=True)
