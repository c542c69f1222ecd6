"""The user's choice of runs and tags; one that leaves nothing is explained."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from rec_summary.errors import ArgumentError, three_part
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.batch import SCALAR
from rec_summary.series.event_reader import read_batches
from rec_summary.series.lineage import evaluations
from rec_summary.series.options import compiled, matching_runs, read_ranks
from rec_summary.series.report import Report
from rec_summary.series.text import printable

_NAMED = 5  # tags and runs in a message
_COMPARED = 10_000  # names with a pattern, in a third of a second


def chosen_runs(runs: Sequence[Run], pattern: str | None) -> list[Run]:
    """Returns the runs whose names match a pattern for `fnmatch`; all of them for None.

    Raises:
        ArgumentError: No run matches. If tags match the pattern, or runs match it as a regular
            expression or with its brackets as they are, the message says so.
    """
    matching = matching_runs(runs, pattern)
    if matching:
        return matching
    near = _near([run.name for run in runs], pattern or "")
    expected = f"a pattern that matches a run; there are: {near}"
    message = three_part("the choice of runs", pattern, expected)
    literal = (pattern or "").replace("[", "[[]")
    if matching_runs(runs, literal):
        raise ArgumentError(f"{message} `[` begins a set of characters: write {literal!r}.")
    if searched := [run.name for run in runs if pattern and _finds(pattern, run.name)]:
        hint = f" As a regular expression it finds runs: {_named(searched)}. Runs are chosen by a"
        raise ArgumentError(f"{message}{hint} shell pattern, such as 'ctr-*'.")
    tags = [tag for tag in _tags(runs) if pattern and _finds(pattern, tag)]
    hint = f" Tags match it, not runs: {_named(tags)}. Use --tags (in Python, tags=)."
    raise ArgumentError(message + (hint if tags else ""))


def check_tags(
    runs: Iterable[Run],
    pattern: str | None,
    *,
    scalars: bool = True,
    evaluated: bool = False,
    ranks: str | None = None,
    whole: Sequence[Run] = (),
) -> None:
    """Checks that a regular expression finds something in a tag.

    Args:
        runs: The runs.
        pattern: The expression; None finds everything.
        scalars: Whether only the tags of scalars count.
        evaluated: Whether the metrics of evaluations are tags, too; those that are numbers.
        ranks: The ranks whose tags these are; None means all.
        whole: The runs with all their ranks.

    Raises:
        ArgumentError: There are tags, and none matches. If runs match the pattern, tags match it
            as a shell pattern, or tags of other ranks match it, the message says so.
    """
    if pattern is None:
        return
    runs = list(runs)
    wanted, others = compiled(pattern, "the choice of tags"), []
    metrics = _metrics(runs) if evaluated else ()
    for tag in itertools.chain(_tags(runs, scalars=scalars), metrics):
        if wanted.search(tag):
            return
        others.append(tag)
    if not others:
        return
    of = "" if ranks in (None, "all") else f" of ranks {ranks}"
    expected = f"a pattern that is found in a tag{of}; there are: {_near(others, pattern)}"
    message = three_part("the choice of tags", pattern, expected)
    if matched := fnmatch.filter(others, pattern):
        hint = f" As a shell pattern it matches tags: {_named(matched)}. Tags are chosen by a"
        raise ArgumentError(f"{message}{hint} regular expression, such as 'auc/.*'.")
    parts = [part for run in whole for part in run.by_rank()]
    elsewhere = {
        part.ranks[0] for part in parts if any(map(wanted.search, _tags([part], scalars=scalars)))
    }
    if elsewhere:
        raise ArgumentError(f"{message} Ranks with such a tag: {_named(_texts(elsewhere))}.")
    matching = [run.name for run in runs if _finds(pattern, run.name)]
    hint = f" Runs match it, not tags: {_named(matching)}. Use --runs (in Python, runs=)."
    raise ArgumentError(message + (hint if matching else ""))


def check_ranks(runs: Iterable[Run], ranks: str | None) -> None:
    """Checks that a run has one of the chosen ranks.

    Args:
        runs: The runs.
        ranks: The ranks, as in `ExportOptions`; None means any.

    Raises:
        ArgumentError: There are ranks, and none of them is chosen.
    """
    if ranks is None:
        return
    spans, others = read_ranks(ranks), {rank for run in runs for rank in run.ranks}
    if others and not any(first <= rank <= last for first, last in spans for rank in others):
        expected = f"ranks that a run has; there are: {_named(_texts(others))}"
        raise ArgumentError(three_part("the choice of ranks", ranks, expected))


def _texts(ranks: Iterable[int]) -> list[str]:
    return list(map(str, sorted(ranks)))


def _near(names: Sequence[str], pattern: str) -> str:
    """Returns names as text, those that are like a pattern first."""
    near = difflib.get_close_matches(pattern, names[:_COMPARED], _NAMED)
    return _named([*near, *(name for name in names if name not in near)])


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(map(printable, names[:_NAMED])) + more


def _tags(runs: Sequence[Run], *, scalars: bool = True) -> Iterator[str]:
    """Yields the tags of runs, or those of their scalars, each once."""
    known: set[str] = set()
    for run in runs:
        for file in run.files:
            if file.name.kind is not Kind.SUMMARY:
                continue
            for batch in read_batches(file, Report()):
                new = {tag for kind, tag in batch.series() if kind == SCALAR or not scalars}
                new -= known | {""}
                known |= new
                yield from sorted(new)


def _metrics(runs: Sequence[Run]) -> Iterator[str]:
    """Yields the metrics of evaluations that are numbers, each once."""
    rows = itertools.chain.from_iterable(evaluations(run, Report()) for run in runs)
    yield from dict.fromkeys(row["metric"] for row in rows if row["value"] is not None)


def _finds(pattern: str, name: str) -> bool:
    if fnmatch.fnmatchcase(name, pattern):
        return True
    try:
        return re.search(pattern, name) is not None
    except (re.error, OverflowError, RecursionError):
        return False
