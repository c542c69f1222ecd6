"""Which scalars can be the cause of a change, and how far they moved."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from rec_summary.answers.scan import ALL, Change, Compare
from rec_summary.arrays import Floats, Integers

_NORMAL_MEDIAN: Final = 0.6745
_LEAST: Final = 1e-9  # of a value on a logarithmic scale


class Scalars(NamedTuple):
    """The values of one tag, as one rank has recorded them; each array of shape (n,).

    Attributes:
        tag: The tag.
        rank: The rank.
        steps: The steps, ascending.
        wall_times: Seconds since the epoch.
        values: The values.
    """

    tag: str
    rank: int
    steps: Integers
    wall_times: Floats
    values: Floats


class Kind(NamedTuple):
    """What is known of the values of some tags.

    Attributes:
        pattern: Matches the tags; the group `name` is what they are about.
        kind: The kind of a finding.
        rises: Whether a rise is looked for.
        falls: Whether a fall is.
        is_relative: Whether the change is one of the logarithm.
        floor: The standard error that is there in any case.
        share: The part of it that is relative to the value.
        is_count: Whether values are shares of examples since the last report.
        is_sparse: Whether it is recorded only where it is not 0.
        shortest: The fewest reports that count: one slow report means nothing.
        is_change: Whether a value is a change since the value before: where it is 0, what changed
            had stopped by then.
    """

    pattern: re.Pattern[str]
    kind: str
    rises: bool = True
    falls: bool = False
    is_relative: bool = False
    floor: float = 0.005
    share: float = 0.05
    is_count: bool = False
    is_sparse: bool = False
    shortest: int = 1
    is_change: bool = False


def _kind(pattern: str, kind: str, **more: object) -> Kind:
    return Kind(re.compile(pattern), kind, **more)  # type: ignore[arg-type]


KINDS: Final = (
    _kind(
        r"recommender/feature/(?P<name>.+)/(?P<metric>(?:missing|default|out_of_range)_share)",
        "feature",
        is_count=True,
        is_sparse=True,
    ),
    _kind(r"recommender/drift/(?P<metric>missing_share)/(?P<name>.+)", "feature", is_count=True),
    _kind(
        r"recommender/drift/(?P<metric>psi)/(?!(?:.+/)?(?:label|prediction|rating)$)(?P<name>.+)",
        "feature",
        floor=0.01,
        share=0.1,
    ),
    _kind(
        r"recommender/(?P<metric>(?:[^/]+/)?importance)/(?!table$)(?P<name>.+)",
        "feature",
        rises=False,
        falls=True,
        floor=0.0005,  # of the AUC
        share=0.1,
        shortest=2,  # few passes say little of their own error
    ),
    _kind(
        r"recommender/table/(?P<name>.+?)/(?P<metric>out_of_range_share)", "table", is_sparse=True
    ),
    _kind(
        r"recommender/table/(?P<name>.+?)/"
        r"(?P<metric>dead_share|unknown_share|not_finite_share|colliding_share)",
        "table",
    ),
    _kind(
        r"recommender/table/(?P<name>.+?)/(?P<metric>window/new_share)",
        "table",
        floor=0.01,
        share=0.1,
    ),
    _kind(
        r"recommender/table/(?P<name>.+?)/(?P<metric>relative_change)",
        "table",
        rises=False,
        falls=True,
        is_relative=True,
        floor=0.4,  # it falls while a model learns, and is smaller after fewer steps
        is_change=True,
    ),
    _kind(
        r"recommender/table/(?P<name>.+?)/(?P<metric>row_norm/p50)",
        "table",
        falls=True,
        is_relative=True,
        floor=0.05,
    ),
    _kind(
        r"recommender/(?P<name>label_delay)/(?P<metric>seconds/p50)",
        "label_delay",
        falls=True,
        is_relative=True,
        floor=0.06,
        shortest=2,
    ),
    _kind(
        r"recommender/(?P<name>freshness)/(?P<metric>lag_seconds/p(?:50|99))",
        "freshness",
        is_relative=True,
        floor=0.08,
        shortest=2,
    ),
    _kind(r"recommender/(?P<name>freshness)/(?P<metric>future_share)", "freshness"),
    _kind(
        r"(?P<name>gradients)/(?P<metric>(?:norm|update_ratio)(?:/.+)?)",
        "gradient",
        falls=True,
        is_relative=True,
        floor=0.1,
        shortest=2,
    ),
    _kind(r"(?P<name>gradients)/(?P<metric>not_finite_share)", "gradient"),
    _kind(
        r"(?P<name>learning_rate)(?P<metric>(?:/.+)?)",
        "learning_rate",
        falls=True,
        is_relative=True,
        floor=0.03,
    ),
    _kind(
        r"recommender/(?P<name>throughput)/(?P<metric>samples_per_second)",
        "throughput",
        rises=False,
        falls=True,
        is_relative=True,
        floor=0.08,
        shortest=2,
    ),
    _kind(
        r"recommender/(?P<name>throughput)/(?P<metric>input_stall_share)",
        "throughput",
        floor=0.03,
        shortest=2,
    ),
)
"""The kinds of scalars that are looked at; those above count more."""

RANKS: Final = (
    _kind(
        r"recommender/throughput/(?P<metric>step_seconds/p50)",
        "rank",
        is_relative=True,
        floor=0.08,
        shortest=2,
    ),
    _kind(
        r"recommender/throughput/(?P<metric>samples_per_second)",
        "rank",
        rises=False,
        falls=True,
        is_relative=True,
        floor=0.08,
        shortest=2,
    ),
    _kind(r"recommender/throughput/(?P<metric>input_stall_share)", "rank", floor=0.015, shortest=2),
    # Of single batches, each rank with its own part of the data.
    _kind(r"(?P<metric>loss)(?:/auto)?", "rank", is_relative=True, floor=0.03, shortest=2),
)
"""What one rank is compared with the other ranks by."""


class Watched(NamedTuple):
    """A series to scan.

    Attributes:
        kind: What is known of it.
        name: What it is about: a feature, a table, a rank.
        metric: What of it is measured.
        steps: The steps, (n,).
        wall_times: Seconds since the epoch, (n,).
        values: The values, (n,).
    """

    kind: Kind
    name: str
    metric: str
    steps: Integers
    wall_times: Floats
    values: Floats


def watched(series: Iterable[Scalars], reports: Integers, times: Floats) -> Iterator[Watched]:
    """Yields the series to scan; of several ranks, their means, and each rank beside the others.

    Args:
        series: All scalars.
        reports: The steps of reports, (t,): a sparse series is 0 where it has no value.
        times: When they were recorded, (t,).
    """
    by_tag = defaultdict[str, list[Scalars]](list)
    for each in series:
        if len(each.steps):
            by_tag[each.tag].append(each)
    for tag, ranks in sorted(by_tag.items()):
        for kind in KINDS:
            match = kind.pattern.fullmatch(tag)
            if match:
                steps, times_of, table = _aligned(ranks)
                values = table.mean(0)
                if kind.is_sparse and len(reports):
                    steps, times_of, values = _filled(steps, values, reports, times)
                yield Watched(kind, match["name"], match["metric"], steps, times_of, values)
        for kind in RANKS:
            match = kind.pattern.fullmatch(tag)
            if match and len(ranks) > 1:
                steps, times_of, table = _aligned(ranks)
                for number, each in enumerate(ranks):
                    others = _median(np.delete(table, number, 0))
                    if kind.is_relative:
                        values = table[number] / np.where(others > 0, others, np.nan)
                    else:
                        values = table[number] - others
                    yield Watched(kind, str(each.rank), match["metric"], steps, times_of, values)


def _aligned(ranks: list[Scalars]) -> tuple[Integers, Floats, Floats]:
    """Returns the steps that all ranks have, their times, and the values, (ranks, n)."""
    steps = ranks[0].steps
    for each in ranks[1:]:
        steps = np.intersect1d(steps, each.steps)
    places = [np.searchsorted(each.steps, steps) for each in ranks]
    table = np.stack([each.values[at] for each, at in zip(ranks, places, strict=True)])
    return steps, ranks[0].wall_times[places[0]], table


def _median(table: Floats) -> Floats:
    """Returns the median of the finite values of each column; NaN where there is none."""
    known = np.isfinite(table)
    medians = np.full(table.shape[1], np.nan)
    has_one = known.any(0)
    medians[has_one] = np.nanmedian(np.where(known, table, np.nan)[:, has_one], 0)
    return medians


def _filled(
    steps: Integers, values: Floats, reports: Integers, times: Floats
) -> tuple[Integers, Floats, Floats]:
    """Returns the values at all reports, 0 where there is none."""
    full = np.zeros(len(reports))
    at = np.searchsorted(reports, steps)
    known = at < len(reports)
    known[known] &= reports[at[known]] == steps[known]
    full[at[known]] = values[known]
    return reports, times, full


def comparing(series: Watched, examples: Floats | None) -> Compare:
    """Returns what compares the means of intervals of a series.

    Args:
        series: The series.
        examples: The examples of a report, if they are known: a share has a sampling error.
    """
    kind = series.kind
    known = np.isfinite(series.values)
    values = np.where(known, series.values, np.median(series.values[known]) if known.any() else 0.0)
    if kind.is_relative:
        values = np.log(np.maximum(values, _LEAST))
    differences = np.abs(np.diff(values))
    noise = float(np.median(differences)) / _NORMAL_MEDIAN if len(differences) else 0.0
    totals = np.concatenate([[0.0], np.cumsum(values)])

    def compare(
        begin: Integers, end: Integers, start: Integers, stop: Integers, _: slice = ALL
    ) -> Change:
        was = (totals[end] - totals[begin]) / (end - begin)
        now = (totals[stop] - totals[start]) / (stop - start)
        delta = now - was
        one = np.full(delta.shape, noise**2 / 2)
        if kind.is_count and examples is not None:
            share = np.clip((was + now) / 2, 0, 1)
            one = np.maximum(one, share * (1 - share) / np.median(examples))
        floor = kind.floor if kind.is_relative else kind.floor + kind.share * np.abs(was)
        variance = one * (1 / (end - begin) + 1 / (stop - start)) + floor**2
        is_bad = (delta > 0) & kind.rises | (delta < 0) & kind.falls
        return Change(delta[:, None], variance[:, None], is_bad[:, None])

    return compare
