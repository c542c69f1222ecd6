"""What is exported of the records: the user's options, validated once."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rec_summary.arrays import Flags, Floats
from rec_summary.engines.engine import Engine, parse_engine
from rec_summary.errors import ArgumentError, three_part, verbatim
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import RecordFile, Run
from rec_summary.records.remote import overlap, path_or_url
from rec_summary.series import DASHBOARDS
from rec_summary.series.text import printable, utc, valid

TENSOR_FILES: Final = ("npy",)
_FEWEST_POINTS: Final = 10
_AUTOMATIC: Final = r"(?:/auto|/lifetime|/last_\d+)?"  # added by collectors and by metrics


SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
"""Units of time, by what follows a number."""

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_RANKS: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
MOST_SUB_RUNS: Final = 8
"""Ranks that have a sub-run each in TensorBoard, unless some are chosen."""

_WHEN: Final = "an age (30s, 5m, 2h, 1d) or a date and time (2026-01-31T12:00)"


def chosen_engine(engine: str, jobs: int | None) -> Engine:
    """Returns the engine that reads runs; without a number, loky has one job, a cluster has all.

    Raises:
        ArgumentError: There is no such engine, or the number is invalid.
    """
    try:
        return parse_engine(engine, (1 if engine == "loky" else -1) if jobs is None else jobs)
    except ValueError as error:
        raise ArgumentError(str(error)) from error


@dataclass(frozen=True)
class Since:
    """From where on values are selected; or, as `ExportOptions.ending`, up to where.

    Attributes:
        step: A step; None for any.
        wall_time: A wall time, in seconds since the epoch; infinite for any.
    """

    step: int | None = None
    wall_time: float = -math.inf


Moment = int | str | Since | None
"""What a user gives as `since` or `until`: a step, a text as of `read_since`, or its result."""


def read_since(text: str, now: float, what: str = "since") -> Since:
    """Returns what a text such as `5000` (a step), `2h` or `2026-01-31T12:00` means.

    Args:
        text: A step; an age in seconds, minutes, hours or days; or a local date, with a time or
            without one.
        now: The time from which the age is counted, in seconds since the epoch.
        what: The name of the argument in the error.

    Raises:
        ArgumentError: It is none of these.
    """
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return Since(step=int(text))
    age = _AGE.fullmatch(text)
    if age is not None:
        return Since(wall_time=now - float(age[1]) * SECONDS[age[2]])
    try:
        return Since(wall_time=datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        raise ArgumentError(three_part(what, text, f"a step (5000), {_WHEN}")) from error


def read_ranks(text: str) -> tuple[tuple[int, int], ...]:
    """Returns the first and the last rank of each part of a text such as `3,7,16-31`, or `all`.

    Raises:
        ArgumentError: It is no such text.
    """
    if text.strip() == "all":
        return ((0, 10**9),)
    matches = [_RANKS.fullmatch(part.strip()) for part in text.split(",")]
    spans = tuple((int(match[1]), int(match[2] or match[1])) for match in matches if match)
    if len(spans) < len(matches) or any(first > last for first, last in spans):
        expected = "numbers of ranks, or spans of them (3,7,16-31), or 'all'"
        raise ArgumentError(three_part("ranks", text, expected))
    return spans


@dataclass(frozen=True)
class ExportOptions:
    """What is exported.

    Attributes:
        tags: A regular expression; only values in whose tag it is found are exported,
            evaluation results included. Lineage and graphs are exported in any case.
        plugins: Only what is for these of TensorBoard's plugins (see `DASHBOARDS`); None
            means all.
        since: Only values of this step or later; or, as a text, of an age (`2h`) or a local date
            and time (`2026-11-01`, `2026-11-01T12:00`) on. These become a `Since` at construction.
        until: Only values of this step, or up to this age or date, in the same forms. A date
            without a time is its beginning.
        max_points: At most so many values of a series. Of scalars, the first, minimum, maximum
            and last of each bucket are kept (M4), NaN and infinities among them, so that no
            peak is lost; of everything else, values at even distances. None means all.
        tensors: `npy` also writes each recorded tensor to a file of its own.
        ranks: The ranks that are shown one by one beside what all ranks have in common, such as
            `3,7,16-31` or `all`. None means all where there are at most eight, else the first one.
    """

    tags: str | None = None
    plugins: Sequence[str] | None = None
    since: Moment = None
    until: Moment = None
    max_points: int | None = None
    tensors: str | None = None
    ranks: str | None = None

    def __post_init__(self) -> None:
        """Validates the options.

        Raises:
            ArgumentError: A value is invalid.
        """
        if self.tags is not None:
            compiled(self.tags, "the choice of tags")
        if self.plugins is not None:
            chosen = (self.plugins,) if isinstance(self.plugins, str) else tuple(self.plugins)
            unknown = [name for name in chosen if name not in DASHBOARDS]
            if unknown or not chosen:
                received = unknown[0] if unknown else "none"
                expected = f"one or more of {', '.join(DASHBOARDS)}"
                raise ArgumentError(three_part("the choice of plugins", received, expected))
            object.__setattr__(self, "plugins", tuple(sorted(set(chosen))))
        for name in ("since", "until"):
            value = getattr(self, name)
            if isinstance(value, str):
                limit = read_since(value, time.time(), name)
                object.__setattr__(self, name, limit if limit.step is None else limit.step)
            elif isinstance(value, bool) or not isinstance(value, int | Since | None):
                raise ArgumentError(three_part(name, value, f"an int (a step), {_WHEN}"))
        if isinstance(self.since, int) and isinstance(self.until, int) and self.since > self.until:
            expected = f"a step not after `until`, which is {self.until}"
            raise ArgumentError(three_part("since", self.since, expected))
        if self.beginning.wall_time > self.ending.wall_time:
            received = verbatim(utc(self.beginning.wall_time))
            expected = f"a time not after `until`, which is {utc(self.ending.wall_time)}"
            raise ArgumentError(three_part("since", received, expected))
        most = self.max_points
        is_int = isinstance(most, int) and not isinstance(most, bool)
        if most is not None and not (is_int and most >= _FEWEST_POINTS):
            expected = f"an int of at least {_FEWEST_POINTS}"
            raise ArgumentError(three_part("max_points", most, expected))
        if self.tensors is not None and self.tensors not in TENSOR_FILES:
            raise ArgumentError(three_part("tensors", self.tensors, "'npy', or None"))
        if self.ranks is not None:
            read_ranks(self.ranks)

    @property
    def beginning(self) -> Since:
        """From where on values are selected."""
        return _limit(self.since, -math.inf)

    @property
    def ending(self) -> Since:
        """Up to where values are selected."""
        return _limit(self.until, math.inf)

    @property
    def resumable(self) -> bool:
        """Whether later records can be added to the export; not if series are downsampled."""
        return self.max_points is None

    def fingerprint(self) -> str:
        """Returns a text that is the same for the same options only."""
        chosen = dataclasses.asdict(self)
        if self.ranks is None:  # as versions without this option have it
            del chosen["ranks"]
        return json.dumps(chosen, sort_keys=True)


def _limit(moment: Moment, any_time: float) -> Since:
    assert not isinstance(moment, str)  # it was read at construction
    return moment if isinstance(moment, Since) else Since(moment, any_time)


class Selection:
    """Which values are selected.

    Attributes:
        since: From where on.
        until: Up to where.
        everything: Whether these are all values.
    """

    def __init__(self, options: ExportOptions) -> None:
        self.everything = options.tags is options.since is options.until is None
        self._tag = None if options.tags is None else re.compile(options.tags)
        self._plugins = None if options.plugins is None else frozenset(options.plugins)
        self.since = options.beginning
        self.until = options.ending
        self._ranks = None if options.ranks is None else read_ranks(options.ranks)

    def narrowed(self, run: Run, *, newest: bool = False) -> Run:
        """Returns a run without the ranks, and the summary files, that have no selected value.

        No file is opened for that (see `may_hold`).

        Args:
            run: The run.
            newest: Whether the newest summary file of each rank stays in any case: it says when a
                process recorded for the last time.
        """
        if self._ranks is not None:
            files = (
                file
                for file in run.files
                if file.name.kind is not Kind.SUMMARY or self._has(file.name.rank)
            )
            run = dataclasses.replace(run, files=tuple(files))
        if self.since.wall_time == -math.inf and self.until.wall_time == math.inf:
            return run
        last = {file.name.rank: file for file in run.files if file.name.kind is Kind.SUMMARY}
        kept = tuple(
            file
            for file in run.files
            if file.name.kind is not Kind.SUMMARY
            or (newest and file is last[file.name.rank])
            or self.may_hold(file)
        )
        return dataclasses.replace(run, files=kept)

    def may_hold(self, file: RecordFile) -> bool:
        """Whether values of selected times may be in a file (see `RecordFile.may_hold`)."""
        return file.may_hold(self.since.wall_time, self.until.wall_time)

    def tag(self, tag: str) -> bool:
        """Whether values of a tag are selected."""
        return self._tag is None or self._tag.search(tag) is not None

    def times(self, wall_times: Floats) -> Flags:
        """Which of many wall times are selected."""
        return (wall_times >= self.since.wall_time) & (wall_times <= self.until.wall_time)

    def among(self, steps: Any, wall_times: Any) -> Any:
        """Which of many records are selected, by their steps and wall times; or whether one is."""
        wanted: Any = self.times(wall_times)
        if self.since.step is not None:
            wanted &= steps >= self.since.step
        if self.until.step is not None:
            wanted &= steps <= self.until.step
        return wanted

    def rank(self, rank: int, ranks: Sequence[int]) -> bool:
        """Whether a rank is shown by itself, beside what all ranks of its run have in common.

        Args:
            rank: The rank.
            ranks: All ranks, ascending.
        """
        if self._ranks is None or len(ranks) == 1:
            return len(ranks) <= MOST_SUB_RUNS or rank == ranks[0]
        return self._has(rank)

    def _has(self, rank: int) -> bool:
        return any(first <= rank <= last for first, last in self._ranks or ())

    def plugin(self, dashboard: str) -> bool:
        """Whether a dashboard is selected, by one of the names in `DASHBOARDS`."""
        return self._plugins is None or dashboard in self._plugins


EVERYTHING: Final = Selection(ExportOptions())
"""All tags and steps."""


def compiled(pattern: str, what: str) -> re.Pattern[str]:
    """Returns a user's regular expression, compiled.

    Raises:
        ArgumentError: It does not compile.
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        expected = f"a regular expression that compiles ({error})"
        if pattern[:1] in ("*", "?"):
            expected += "; `.*` stands for any text, `*` does not"
        raise ArgumentError(three_part(what, pattern, expected)) from error


def tags_named(name: str) -> str:
    """Returns a regular expression that finds something in the tags with a short name only.

    A short name is a tag, or its last part or parts, where a trailing `/auto`, `/lifetime` or
    `/last_<n>` does not count: `loss` is `loss`, `loss/auto` and `eval/loss`, but neither `loss/x`
    nor `total_loss`; `auc` is `recommender/auc/last_100000`.
    """
    return rf"\A(?s:.*/)?{re.escape(name)}{_AUTOMATIC}\Z"


def matching_runs(runs: Iterable[Run], pattern: str | None) -> list[Run]:
    """Returns the runs whose names match a pattern as of `fnmatch`; all of them for None.

    A name matches itself, also if it has brackets, which are special in a pattern, and as tables
    show it, where it is not UTF-8.
    """
    if pattern is None:
        return list(runs)
    return [
        run
        for run in runs
        if pattern in (run.name, valid(run.name)) or fnmatch.fnmatchcase(run.name, pattern)
    ]


def places_apart(
    source: str | os.PathLike[str], destination: str | os.PathLike[str], what: str
) -> tuple[str, str]:
    """Returns the places of an export, which cannot read what it writes.

    Args:
        source: The directory that is read; it may be a `Url` then.
        destination: The directory that is written to.
        what: The name of the destination in the error.

    Raises:
        ArgumentError: One directory is in the other.
    """
    source, place = path_or_url(source), path_or_url(destination)
    if overlap(source, place):
        received = verbatim(f"{printable(place)} for the source {printable(source)}")
        expected = "two directories of which neither is in the other"
        raise ArgumentError(three_part(what, received, expected))
    return source, place
