"""The last value of each series, and the state of each run, while records are watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts.rules import Rule
from rec_summary.alerts.states import NewData, Transition
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import by_tag
from rec_summary.series.options import Selection
from rec_summary.series.overview.rows import shows_life


class LastValue(NamedTuple):
    """The last value of a series."""

    value: float
    step: int
    wall_time: float


@dataclass
class LastOfRun:
    """The state of a run at its last reading.

    Attributes:
        run: The run, with its files.
        state: The state in the lineage of its lowest rank; None without a lineage.
        rank: That rank.
        values: The last value of each series, by rank and tag.
        recorded: When each rank recorded last, in seconds since the epoch, by its clock.
        arrived: When that arrived here, on the monotonic clock.
        steps: The last step of each rank.
    """

    run: Run
    state: RunState | None = None
    rank: int = 0
    values: dict[tuple[int, str], LastValue] = field(default_factory=dict)
    recorded: dict[int, float] = field(default_factory=dict)
    arrived: dict[int, float] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The status as the lineage states it: MindSpore's states none, and is complete."""
        if self.state is None:
            return RunState.Status.Name(RunState.UNKNOWN)
        status = self.state.status if self.state.HasField("status") else RunState.FINISHED
        return RunState.Status.Name(status)

    @property
    def rank_size(self) -> int:
        """The number of ranks that train, as the lineage states it; 0 if it states none."""
        return 0 if self.state is None else self.state.rank_size

    def has_left(self, rank: int) -> bool:
        """Whether the training has gone on with fewer ranks, without this one."""
        return 0 < self.rank_size <= rank

    def shows_life(self) -> bool:
        """Whether a run that should be running has a process, as far as can be known."""
        last = time.time() - (time.monotonic() - max(self.arrived.values()))
        return self.state is None or shows_life(self.run, self.state, last)


@dataclass(frozen=True)
class WatchReport:
    """What a watch has found so far.

    Attributes:
        firing: The alerts that fire, as they were when they began.
        unmatched: The rules that nothing has matched.
        runs: How many runs there are.
        problem_count: How many problems there were.
        matched: The tags that rules have matched, as in `AlertStates`.
    """

    firing: tuple[Transition, ...]
    unmatched: tuple[Rule, ...]
    runs: int
    problem_count: int
    matched: Mapping[Rule, Set[str | None]] = field(default_factory=dict)


class LastValues:
    """Keeps the last values of the runs that are watched. Thread-safe.

    Attributes:
        lock: Hold it while you read `runs` and `firing`.
        runs: What is known of each run, by name.
        firing: The alerts that fire.
        problems: How often something could not be read.
        polled: When the records were read last, in seconds since the epoch.
    """

    def __init__(self, selection: Selection) -> None:
        """Begins without runs.

        Args:
            selection: Whose tags are kept.
        """
        self.lock = threading.Lock()
        self.runs: dict[str, LastOfRun] = {}
        self.firing: tuple[Transition, ...] = ()
        self.problems = 0
        self.polled = 0.0
        self._selection = selection

    def take(self, name: str, run: Run, news: NewData, arrived: float) -> None:
        """Adds the data of new records.

        Args:
            name: The run's name.
            run: The run.
            news: The data of at least one record.
            arrived: When they arrived, on the monotonic clock.
        """
        with self.lock:
            entry = self.runs.setdefault(name, LastOfRun(run))
            entry.run = run
            last = max(float(news.wall_times[-1]), entry.recorded.get(news.rank, 0.0))
            entry.recorded[news.rank] = last
            entry.arrived[news.rank] = max(arrived, entry.arrived.get(news.rank, arrived))
            if news.steps is not None:
                # A landscape has step 0, and is computed after the training.
                steps = news.steps[news.steps > 0]
                entry.steps[news.rank] = (
                    int(steps[-1]) if len(steps) else entry.steps.get(news.rank, 0)
                )
            if news.state is not None and (entry.state is None or news.rank <= entry.rank):
                entry.state, entry.rank = news.state, news.rank
            for tag, columns in by_tag(news.scalars):
                if self._selection.tag(tag):
                    step, wall_time, value = (column[-1].item() for column in columns[2:])
                    entry.values[news.rank, tag] = LastValue(value, step, wall_time)

    def forget(self, name: str) -> None:
        """Forgets a run whose records are gone."""
        with self.lock:
            self.runs.pop(name, None)

    def done(self, report: WatchReport) -> None:
        """Notes that all records so far were read and judged."""
        with self.lock:
            self.problems, self.firing = report.problem_count, report.firing
            self.polled = time.time()
