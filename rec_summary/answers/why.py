"""Which part moved a metric, since when, and what moved with it.

1. Each task, and each value of its columns, is compared with its own recent past (`scan`): its
   calibration, the quality of the model, its AUC, its traffic. So are the scalars of `scalars`.
2. What is beyond chance for all comparisons together is a finding (Bonferroni, `scan.threshold`).
3. The findings are ranked: a cause whose onset is that of the damage, then the slice that explains
   it or the task if all slices are alike, then all else. What only overlaps with the first is
   marked as `also`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from rec_summary.answers import orders, parts, scalars, sums
from rec_summary.answers.scalars import Scalars, Watched
from rec_summary.answers.scan import Compare, Onset, Scan, scan, threshold
from rec_summary.arrays import Floats, Integers
from rec_summary.metrics.slices.states import OTHER
from rec_summary.metrics.slices.sums import (
    EXAMPLES,
    WEIGHT,
    calibration_of,
    normalised_entropy_of,
)
from rec_summary.series.runs.slices import SliceHistory

METRICS: Final = ("auc", "ne", "calibration")
"""The metrics that can be asked for."""

SLICE: Final = "slice"
TASK: Final = "task"
MIX: Final = "mix"
RATE: Final = "rate"
THROUGHPUT: Final = "throughput"
_CAUSES: Final = ("feature", "table", "label_delay", "freshness", "gradient", "learning_rate")
_ALIKE: Final = 0.35  # of the change of a slice: if all else moved by it, all slices are alike
_STOPPED: Final = 0.1  # of a change: less of it means that it stopped in the report before
_EXPLAINED: Final = 1.25  # of the damage of a slice: that of others which have the same examples
_BEYOND: Final = 2.0  # standard errors, and that much is damage of their own
_WARM: Final = 10  # the part of scalars without slices that is passed over at the beginning
_NEAR: Final = 2  # reports around a step that was asked for


@dataclass(frozen=True)
class Begin:
    """When something began: the step, and the first and last one that it may be."""

    step: int
    low: int
    high: int


@dataclass(frozen=True)
class Finding:
    """Something that moved beyond chance.

    Attributes:
        kind: `slice`, `task`, `mix` (traffic), `rate` (clicks), `feature`, `table`, `label_delay`,
            `freshness`, `gradient`, `learning_rate`, `throughput` or `rank`.
        name: What moved: `country=ES`, the name of a feature, table or rank; empty for a task.
        task: The task; None for what is of no task.
        metric: What of it moved.
        before: Its value in the past that it is compared with.
        after: Its value from the onset on, as long as it differs most from chance.
        share: The part of the quality that its column has lost in all, at most 1; None if it is not
            known.
        z: The change in standard errors.
        step: The step of the onset.
        low: The first step that it may be.
        high: The last one.
        until: The step at which it was back at the value before; None if it is not.
        also: Whether it overlaps with the first finding, and may be its consequence.
    """

    kind: str
    name: str
    task: str | None
    metric: str
    before: float | None
    after: float | None
    share: float | None
    z: float
    step: int
    low: int
    high: int
    until: int | None = None
    also: bool = False


@dataclass(frozen=True)
class Event:
    """Something that was done or said around the onset.

    Attributes:
        kind: `restart`, `note`, `control`, `incident`, `data` or `alert`.
        step: The step.
        wall_time: Seconds since the epoch.
        text: What was done or said.
    """

    kind: str
    step: int
    wall_time: float
    text: str


@dataclass(frozen=True)
class Answer:
    """What moved.

    Attributes:
        metric: The metric that was asked for; None for all.
        task: The task that was asked for; None for all.
        tasks: The tasks that were compared.
        first: The first step that was compared.
        last: The last one.
        begin: When the first finding began; None if nothing moved beyond chance.
        findings: What moved, the likeliest culprit first.
        events: What happened around the onset.
    """

    metric: str | None
    task: str | None
    tasks: tuple[str, ...]
    first: int
    last: int
    begin: Begin | None
    findings: tuple[Finding, ...]
    events: tuple[Event, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the answer as `rec-summary why --json` prints it."""
        return {
            "metric": self.metric,
            "task": self.task,
            "from": self.first,
            "to": self.last,
            "begin": self.begin and asdict(self.begin),
            "findings": [asdict(finding) for finding in self.findings],
            "events": [asdict(event) for event in self.events],
        }


class Scanned(NamedTuple):
    """Series that were compared together.

    Attributes:
        kind: The kind of their findings.
        metric: The metric.
        scan: The comparisons.
        steps: The steps of their reports.
        history: The slices, if they are; `whole` is their task.
        whole: Their task.
        watched: The scalar, if it is one.
    """

    kind: str
    metric: str
    scan: Scan
    steps: Integers
    history: SliceHistory | None = None
    whole: SliceHistory | None = None
    watched: Watched | None = None


class _Move(NamedTuple):
    """A series that moved.

    Attributes:
        scanned: What it was scanned with.
        series: Its number there.
        onset: Where it moved.
        rank: The largest z of all metrics of the same slice, by which slices are compared.
    """

    scanned: Scanned
    series: int
    onset: Onset
    rank: float

    @property
    def lag(self) -> int:
        """How many reports before its first one it began, beside that in which it began."""
        watched = self.scanned.watched
        if watched is None or not watched.kind.is_change:
            return 0
        return int(watched.values[self.onset.first] < _STOPPED * watched.values[self.onset.begin])

    @property
    def first(self) -> int:
        """The step before the first report that moved."""
        return self._step(self.onset.low - self.lag - 1)

    @property
    def last(self) -> int:
        """The step of the last report that may be the first that moved."""
        return self._step(self.onset.high - self.lag)

    def _step(self, report: int) -> int:
        steps = self.scanned.steps
        return int(steps[min(max(report, 0), len(steps) - 1)])

    def meets(self, other: _Move) -> bool:
        """Whether both may have begun at the same time, give or take a report."""
        slack = max(_spacing(self.scanned.steps), _spacing(other.scanned.steps))
        return self.first <= other.last + slack and other.first <= self.last + slack

    def windows(self) -> tuple[slice, slice]:
        """The reports before and after."""
        return slice(self.onset.begin, self.onset.first), slice(self.onset.first, self.onset.end)


def why(
    histories: Sequence[SliceHistory],
    series: Iterable[Scalars] = (),
    events: Iterable[Event] = (),
    *,
    metric: str | None = None,
    task: str | None = None,
    since: float | None = None,
    at: int | None = None,
) -> Answer:
    """Returns what moved a metric, the likeliest culprit first.

    Args:
        histories: The sums of all columns of all tasks.
        series: Scalars; those that can be no cause are passed over.
        events: What happened in the run.
        metric: One of `METRICS`; None for all.
        task: Only this task; None for all.
        since: Only what began at this step or later.
        at: Only what began around this step.
    """
    return compared(histories, series, metric=metric, task=task, since=since, at=at).answer(events)


class Compared(NamedTuple):
    """All that `why` looks at, each compared with its own past.

    Attributes:
        scanned: What was compared.
        wholes: The tasks, by name.
        metric: Only this metric was; None for all.
        task: Only this task was; None for all.
    """

    scanned: list[Scanned]
    wholes: dict[str, SliceHistory]
    metric: str | None
    task: str | None

    def click_rates(self) -> Iterator[Scanned]:
        """Yields the click rates of slices, which are shown: `answer` is about that of a task."""
        for each in self.scanned:
            if (each.kind, each.metric) == (SLICE, "calibration"):
                assert each.history is not None
                assert each.whole is not None
                totals = sums.totals_of(each.history), sums.totals_of(each.whole)
                compare = sums.comparing(sums.rate, *totals)
                rates = _scan(compare, each.steps, _warm(each.whole), None, None, steady=True)
                yield each._replace(metric="click_rate", scan=rates)

    def answer(self, events: Iterable[Event]) -> Answer:
        """Returns what moved, the likeliest culprit first.

        Args:
            events: What happened in the run.
        """
        least = threshold(sum(each.scan.count for each in self.scanned))
        moves = [
            _Move(each, number, onset, onset.z)
            for each in self.scanned
            for number in range(_width(each))
            if (onset := each.scan.onset(number, least)) is not None
        ]
        findings = tuple(_ranked(moves, least))
        every = [each.steps for each in self.scanned if len(each.steps)]
        first = min((int(steps[0]) for steps in every), default=0)
        last = max((int(steps[-1]) for steps in every), default=0)
        about = self.metric, self.task, tuple(self.wholes), first, last
        if not findings:
            return Answer(*about, None, (), ())
        begin = Begin(findings[0].step, findings[0].low, findings[0].high)
        slack = 2 * _spacing(_reports(self.wholes)) + 1
        low, high = begin.low - slack, begin.high + slack
        near = tuple(event for event in events if low <= event.step <= high)
        return Answer(*about, begin, findings, near)


def compared(
    histories: Sequence[SliceHistory],
    series: Iterable[Scalars] = (),
    *,
    metric: str | None = None,
    task: str | None = None,
    since: float | None = None,
    at: int | None = None,
) -> Compared:
    """Compares all that `why` looks at with its own past.

    Args:
        histories: As of `why`, like all others.
        series: Scalars.
        metric: One of `METRICS`.
        task: Only this task.
        since: Only from this step on.
        at: Only around this step.
    """
    wholes = _wholes(histories, task)
    scanned: list[Scanned] = []
    # Other tasks, such as purchases, have only some of its examples: their traffic is its quality.
    widest = max(wholes, key=lambda name: wholes[name].sums[..., EXAMPLES].sum(), default="")
    for name, whole in wholes.items():
        own = [history for history in histories if history.task == name and len(history.values)]
        scanned += _scan_task(whole, own, metric, since, at, with_traffic=name == widest)
    scanned += _scan_scalars([*series], wholes, _reports(wholes), since, at)
    return Compared(scanned, wholes, metric, task)


def _wholes(histories: Sequence[SliceHistory], task: str | None) -> dict[str, SliceHistory]:
    """Returns the tasks that are compared, by name."""
    return {
        history.task: history
        for history in histories
        if not history.column and task in (None, history.task) and len(history.steps)
    }


def _reports(wholes: dict[str, SliceHistory]) -> Integers:
    """Returns the steps of the task with the most reports."""
    return max((whole.steps for whole in wholes.values()), key=len, default=np.zeros(0, int))


def _scan_task(
    whole: SliceHistory,
    histories: Sequence[SliceHistory],
    metric: str | None,
    since: float | None,
    at: int | None,
    *,
    with_traffic: bool,
) -> Iterable[Scanned]:
    """Yields the comparisons of all columns of a task."""
    warm = _warm(whole)
    for history in histories:
        aligned = _of_same_reports(whole, history)
        totals = sums.totals_of(history), sums.totals_of(aligned)
        kind = SLICE if history.column else TASK
        statistics: list[tuple[str, str, sums.Statistic]] = [
            (kind, "calibration", sums.calibration),
            (kind, "ne", sums.quality),
            (MIX, "traffic", sums.traffic) if history.column else (RATE, "click_rate", sums.rate),
        ]
        for found, name, statistic in statistics:
            if with_traffic if found in (MIX, RATE) else metric in (None, name):
                of_values = found == MIX and OTHER in history.values
                wholes = sums.whole_of_values(*totals) if of_values else totals[1]
                compare = sums.comparing(statistic, totals[0], wholes)
                steady = found in (MIX, RATE)
                comparisons = _scan(compare, history.steps, warm, since, at, steady=steady)
                yield Scanned(found, name, comparisons, history.steps, history, aligned)
        if metric in (None, "auc") and len(history.order_steps):
            comparisons = _scan(
                orders.comparing(history, totals[0]), history.order_steps, warm, since, at
            )
            yield Scanned(kind, "auc", comparisons, history.order_steps, history, aligned)


def _warm(whole: SliceHistory) -> int:
    """Returns the step at which the warm-up of a task ends."""
    return int(whole.steps[min(sums.warm_up(whole), len(whole.steps) - 1)])


def _of_same_reports(whole: SliceHistory, history: SliceHistory) -> SliceHistory:
    """Returns a task with the reports of one of its columns."""
    if len(whole.steps) == len(history.steps) and (whole.steps == history.steps).all():
        return whole
    ends = np.searchsorted(whole.steps, history.steps, "right")
    totals = np.concatenate([np.zeros((1, *whole.sums.shape[1:])), whole.sums.cumsum(0)])
    table = np.diff(totals[ends], axis=0, prepend=0)
    return replace(whole, steps=history.steps, wall_times=history.wall_times, sums=table)


def _scan_scalars(
    series: Sequence[Scalars],
    wholes: dict[str, SliceHistory],
    reports: Integers,
    since: float | None,
    at: int | None,
) -> Iterable[Scanned]:
    """Yields the comparisons of all scalars that can be a cause."""
    whole = max(wholes.values(), key=lambda each: len(each.steps), default=None)
    times = np.zeros(0) if whole is None else whole.wall_times
    examples = None if whole is None else whole.sums[:, 0, EXAMPLES]
    warm = 0 if whole is None else int(whole.steps[min(sums.warm_up(whole), len(reports) - 1)])
    for each in scalars.watched(series, reports, times):
        start = max(warm, int(each.steps[len(each.steps) // _WARM])) if len(each.steps) else 0
        compare = scalars.comparing(each, examples)
        comparisons = _scan(compare, each.steps, start, since, at, each.kind.shortest, steady=True)
        yield Scanned(each.kind.kind, each.metric, comparisons, each.steps, watched=each)


def _scan(
    compare: Compare,
    steps: Integers,
    warm: int,
    since: float | None,
    at: int | None,
    shortest: int = 1,
    *,
    steady: bool = False,
) -> Scan:
    count = len(steps)
    first = 0 if since is None else int(np.searchsorted(steps, since))
    span = range(first, count)
    if at is not None:
        near = int(np.searchsorted(steps, at))
        span = range(max(near - _NEAR, first), near + _NEAR + 1)
    start = int(np.searchsorted(steps, warm))
    return scan(compare, count, start, span, shortest, steady=steady)


def _width(scanned: Scanned) -> int:
    return 1 if scanned.history is None else len(scanned.history.values)


def _spacing(steps: Integers) -> int:
    return int(np.median(np.diff(steps))) if len(steps) > 1 else 0


def _ranked(moves: Sequence[_Move], least: float) -> list[Finding]:
    """Returns the findings, the likeliest culprit first."""
    by_z = sorted(_strongest(moves), key=lambda move: -move.rank)
    # How fast a machine is says nothing of a model; it may say something of what happened to it.
    others = [move for move in by_z if move.scanned.kind != THROUGHPUT]
    by_z = [move for move in by_z if any(move is each or move.meets(each) for each in others)]
    first = _culprit([move for move in by_z if move.scanned.kind in (SLICE, TASK)], least)
    causes = [move for move in by_z if move.scanned.kind in _CAUSES]
    if first is not None:
        before = [move for move in causes if move.meets(first)]
    else:
        # The drift of a feature may be that of the traffic.
        before = [move for move in causes if move.scanned.metric != "psi"]
        first = next((move for move in by_z if move.scanned.kind in (MIX, RATE)), None)
    before.sort(key=lambda move: _CAUSES.index(move.scanned.kind))
    ordered = [*before, *([] if first is None else [first])]
    also = {id(move): first is not None and _is_consequence(move, first, by_z) for move in by_z}
    rest = [move for move in by_z if move not in ordered]
    rest.sort(key=lambda move: also[id(move)])
    return [
        *(_finding(move) for move in ordered),
        *(_finding(move, also=also[id(move)]) for move in rest),
    ]


def _strongest(moves: Sequence[_Move]) -> list[_Move]:
    """Returns the move of the metric that says most of each slice, task and scalar."""
    best, ranks = dict[tuple[Any, ...], _Move](), dict[tuple[Any, ...], float]()
    for move in moves:
        scanned = move.scanned
        if scanned.history is not None:
            key: tuple[Any, ...] = (scanned.kind, scanned.history.task, _name(move))
        else:
            key = (scanned.kind, _name(move))
        ranks[key] = max(ranks.get(key, 0.0), move.rank)
        if key not in best or _weight(move) > _weight(best[key]):
            best[key] = move
    return [move._replace(rank=ranks[key]) for key, move in best.items()]


def _weight(move: _Move) -> tuple[bool, float]:
    """Returns which metric of a slice is shown: the AUC is known in detailed reports only."""
    return move.scanned.metric != "auc", move.onset.z


def _culprit(damage: Sequence[_Move], least: float) -> _Move | None:
    """Returns the slice that lost most beyond chance; its task if all slices are alike."""
    by_z = sorted(damage, key=lambda move: -move.rank)
    slices = [move for move in by_z if move.scanned.kind == SLICE]
    for move in slices[:1]:
        own = [each for each in by_z if each.scanned.kind == TASK and _task(each) == _task(move)]
        if own and not _stands_out(move, least):
            return own[0]
        return move
    return by_z[0] if by_z else None


def _stands_out(move: _Move, least: float) -> bool:
    """Whether all other examples of the task did not move in the same way."""
    history, whole, metric = move.scanned.history, move.scanned.whole, move.scanned.metric
    assert history is not None
    assert whole is not None
    own = _windows(move, history)[..., move.series]
    rest = _windows(move, whole)[..., 0] - own
    statistic = sums.calibration if metric == "calibration" else sums.quality
    change = statistic(*rest, *rest)
    if not change.is_bad or not change.delta**2 >= least**2 * change.variance:
        return True
    return bool(abs(_effect(rest, metric)) < _ALIKE * abs(_effect(own, metric)))


def _effect(sums_of: Floats, metric: str) -> float:
    """Returns how far a part moved, on a scale on which parts of any size compare."""
    if metric == "calibration":
        was, now = (float(np.log(calibration_of(each + 0.5))) for each in sums_of)
        return now - was
    return float(sums.quality(*sums_of, *sums_of).delta)


def _windows(move: _Move, history: SliceHistory) -> Floats:
    """Returns the sums of a column before and after a move, (2, 11, values)."""
    steps = move.scanned.steps
    before, after = move.windows()
    bounds = [before.start, before.stop, after.stop]
    # Detailed reports are only some of the reports.
    edges = [
        int(np.searchsorted(history.steps, steps[at - 1], "right")) if at else 0 for at in bounds
    ]
    return np.stack([history.sums[low:high].sum(0).T for low, high in itertools.pairwise(edges)])


def _is_consequence(move: _Move, first: _Move, moves: Sequence[_Move]) -> bool:
    """Whether a move may come of the examples, or of the damage, of the first one."""
    own, other = move.scanned, first.scanned
    if own.history is None:
        return other.kind == MIX and own.metric == "psi" and move.meets(first)
    if other.history is None:
        return False
    if not move.meets(first):
        return own.kind != MIX and _follows_end(move, first)
    if own.kind != SLICE or other.kind != SLICE:
        return True
    if _name(move) == _name(first):
        return False  # of another task
    if own.history.column == other.history.column and _task(move) == _task(first):
        # It has other examples; but the model makes up for the first one there.
        return abs(_moved(move)) < abs(_moved(first)) / 2
    same = (each for each in moves if (_task(each), _name(each)) == (_task(move), _name(first)))
    source = next(same, None)
    return source is None or not _has_damage_of_its_own(move, source)


def _has_damage_of_its_own(move: _Move, source: _Move) -> bool:
    """Whether a slice has lost more than one of another column that has some of its examples."""
    statistic = sums.calibration if move.scanned.metric == "calibration" else sums.quality
    history, other = move.scanned.history, source.scanned.history
    assert history is not None
    assert other is not None
    own, of_source = (
        _windows(move, each)[..., series]
        for each, series in ((history, move.series), (other, source.series))
    )
    change, explained = statistic(*own, *own), statistic(*of_source, *of_source)
    weight = own[1, WEIGHT]
    damage = abs(float(change.delta)) - _BEYOND * float(change.variance) ** 0.5
    most = _EXPLAINED * abs(float(explained.delta)) * of_source[1, WEIGHT]
    return bool(damage * weight > most)


def _follows_end(move: _Move, first: _Move) -> bool:
    """Whether a move begins where the first one ended: the model has learnt what was wrong."""
    until = first.scanned.scan.until(first.series, first.onset)
    if until is None:
        return False
    step, slack = int(first.scanned.steps[until]), 2 * _spacing(first.scanned.steps)
    return move.first - slack <= step <= move.last + slack


def _moved(move: _Move) -> float:
    history = move.scanned.history
    assert history is not None
    return _effect(_windows(move, history)[..., move.series], move.scanned.metric)


def _task(move: _Move) -> str | None:
    return None if move.scanned.history is None else move.scanned.history.task


def _name(move: _Move) -> str:
    history, watched = move.scanned.history, move.scanned.watched
    if history is not None:
        return f"{history.column}={history.values[move.series]}" if history.column else ""
    assert watched is not None
    return watched.name


def _finding(move: _Move, *, also: bool = False) -> Finding:
    scanned = move.scanned
    before, after = _values(move)
    onset, steps = move.onset, scanned.steps
    until, at = scanned.scan.until(move.series, onset), max(onset.first - move.lag, 0)
    return Finding(
        kind=scanned.kind,
        name=_name(move),
        task=_task(move),
        metric=scanned.metric,
        before=before,
        after=after,
        share=_share(move),
        z=onset.z,
        # It began between two reports.
        step=int(steps[max(at - 1, 0)] + steps[at]) // 2,
        low=move.first,
        high=move.last,
        until=None if until is None else int(steps[until]),
        also=also,
    )


def _values(move: _Move) -> tuple[float | None, float | None]:
    """Returns the value of the metric before and after."""
    history, watched, metric = move.scanned.history, move.scanned.watched, move.scanned.metric
    before, after = move.windows()
    if watched is not None:
        numbers = [float(np.mean(watched.values[part])) for part in (before, after)]
    elif history is not None and metric == "auc":
        cells = [history.orders[part, move.series].sum(0) for part in (before, after)]
        numbers = [orders.area_of(each) for each in cells]
    elif history is not None and metric == "traffic":
        assert move.scanned.whole is not None
        own, every = (_windows(move, each) for each in (history, move.scanned.whole))
        numbers = (own[:, WEIGHT, move.series] / every[:, WEIGHT, 0]).tolist()
    else:
        assert history is not None
        of = {"calibration": calibration_of, "click_rate": sums.click_rate_of}
        function = of.get(metric, normalised_entropy_of)
        numbers = [float(function(each)) for each in _windows(move, history)[..., move.series]]
    was, now = (number if np.isfinite(number) else None for number in numbers)
    return was, now


def _share(move: _Move) -> float | None:
    """Returns the part of the quality that a slice has lost of that of its column."""
    history = move.scanned.history
    if history is None or move.scanned.kind != SLICE or not history.is_partition:
        return None
    if move.scanned.metric == "auc":
        before, after = (history.orders[part].sum(0) for part in move.windows())
        kept = (before.sum(-1).min(-1) > 0) & (after.sum(-1).min(-1) > 0)
        quality = -parts.auc_parts(before[kept], after[kept]).quality
    else:
        before, after = _windows(move, history)
        kept = parts.common(before, after)
        quality = parts.entropy_parts(before[:, kept], after[:, kept]).quality
    total = float(quality.sum())
    own = float(quality[int(kept[: move.series].sum())]) if kept[move.series] else 0.0
    return min(own / total, 1.0) if total > 0 and own > 0 else None
