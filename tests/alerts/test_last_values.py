"""The last values of runs, beside a plain reading of what was taken."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts.last_values import LastOfRun, LastValue, LastValues
from rec_summary.alerts.states import NewData
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import Columns
from rec_summary.series.options import ExportOptions, Selection

RUN = Run("run", "/records/run", ())


class News(NamedTuple):
    """What new records of a rank say: their steps, or the step of the run's state."""

    rank: int
    at: float
    steps: list[int]
    state: int | None


NEWS = st.builds(
    News,
    st.integers(0, 2),
    st.integers(1, 9).map(float),
    st.lists(st.integers(0, 3), max_size=3),
    st.none() | st.integers(1, 9),
)


def data(news: News) -> NewData:
    count = max(len(news.steps), 1)
    steps = np.array(news.steps, np.int64)
    times = news.at + np.arange(count) / 8
    codes = np.zeros(len(steps), np.int64)
    scalars = Columns(("loss",), codes, steps, times[: len(steps)], steps / 2)
    state = None if news.state is None else RunState(step=news.state)
    return NewData(news.rank, times, steps if news.steps else None, scalars, None, state)


@given(st.lists(NEWS, min_size=1, max_size=8))
def test_of_each_rank_the_last_is_kept_and_the_state_of_the_lowest(every: list[News]) -> None:
    values = LastValues(Selection(ExportOptions()))
    for news in every:
        values.take("run", RUN, data(news), arrived=1000.0)
    entry = values.runs["run"]
    for rank in {news.rank for news in every}:
        mine = [news for news in every if news.rank == rank]
        ends = [news.at + max(len(news.steps) - 1, 0) / 8 for news in mine]
        assert entry.recorded[rank] == max(ends)
        trained = [step for news in mine for step in news.steps if step > 0]
        assert entry.steps.get(rank, 0) == (trained[-1] if trained else 0)
        recorded = [
            (news.steps[-1], end) for news, end in zip(mine, ends, strict=True) if news.steps
        ]
        last = [LastValue(step / 2, step, at) for step, at in recorded]
        assert entry.values.get((rank, "loss")) == (last[-1] if last else None)
    stated = [(news.rank, news.state) for news in every if news.state is not None]
    lowest = [state for rank, state in stated if rank == min(stated)[0]]
    assert (entry.state.step if entry.state is not None else None) == (
        lowest[-1] if lowest else None
    )


def test_a_run_without_a_lineage_is_of_unknown_status_and_not_dead() -> None:
    entry = LastOfRun(RUN, arrived={0: time.monotonic() - 601})
    assert (entry.status, entry.shows_life()) == ("UNKNOWN", True)
    entry.state = RunState()  # as MindSpore's collector leaves it, at the end
    assert (entry.status, entry.shows_life()) == ("FINISHED", True)
    entry.state = RunState(status=RunState.RUNNING)
    assert (entry.status, entry.shows_life()) == ("RUNNING", False)  # silent for ten minutes


def test_nothing_is_known_at_the_beginning() -> None:
    values = LastValues(Selection(ExportOptions()))
    assert (values.runs, values.firing, values.problems, values.polled) == ({}, (), 0, 0.0)
