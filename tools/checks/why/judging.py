"""Whether an answer of `rec-summary why --json` names what was broken, and the table of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rec_summary.errors import three_part

from .streams import REPORT_STEPS, WORDS, Break

BEGIN: Final = "<!-- written by tools/check why: begin -->"
END: Final = "<!-- written by tools/check why: end -->"
MOST_FALSE: Final = 1 / 20
"""Of quiet runs, that have a finding."""
LEAST_RIGHT: Final = 9 / 10
_ONSET_STEPS: Final = 2 * REPORT_STEPS
_MIX: Final = "mix"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one answer.

    Attributes:
        kind: What was broken.
        seed: The seed of the stream.
        is_first: Whether the first finding is right; of a quiet stream, whether there is none.
        is_in_time: Whether it began within two reports; False without a finding.
        seen: What was broken and what was answered, in words.
    """

    kind: str
    seed: int
    is_first: bool
    is_in_time: bool
    seen: str


def judged(kind: str, seed: int, broken: Break, answer: Mapping[str, Any]) -> Verdict:
    """Judges an answer by what was broken."""
    findings, begin = answer["findings"], answer.get("begin") or {}
    seen = "; ".join(_words(finding) for finding in findings[:3]) or "nothing"
    if not broken.step:
        return Verdict(kind, seed, not findings, True, f"nothing is broken: {seen}")
    step = begin.get("step")
    is_in_time = step is not None and abs(step - broken.step) <= _ONSET_STEPS
    names = " and ".join(broken.names if broken.all_names else broken.names[-1:])
    seen = f"{names} from step {broken.step}: from {step}, {seen}"
    return Verdict(kind, seed, _is_right(broken, findings), is_in_time, seen)


def table(verdicts: Sequence[Verdict]) -> str:
    """Returns the table in Markdown, and what was missed below it."""
    lines = ["| what breaks | first named right | onset within two reports |", "|---|---|---|"]
    for kind in dict.fromkeys(verdict.kind for verdict in verdicts):
        of_kind = [verdict for verdict in verdicts if verdict.kind == kind]
        counts = [f"{sum(flags)} of {len(flags)}" for flags in _flags(of_kind)]
        if kind == "quiet":
            counts = [f"{counts[0]} without a finding", ""]
        lines.append(f"| {WORDS[kind]} | {' | '.join(counts)} |")
    misses = [each for each in verdicts if not (each.is_first and each.is_in_time)]
    lines += [""] + [f"* `{each.kind}`, seed {each.seed}: {each.seen}" for each in misses]
    return "\n".join(lines).rstrip() + "\n"


def written(page: str, text: str) -> str:
    """Returns a page with a text between its comments.

    Raises:
        ValueError: It has no such comments.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(three_part("the page", page[:80], f"a page with {BEGIN} and {END}"))
    return f"{before}{begin}\n{text}{end}{after}"


def holds(verdicts: Sequence[Verdict]) -> bool:
    """Whether as many are right as is promised, of those that break and of those that do not."""
    quiet = [not verdict.is_first for verdict in verdicts if verdict.kind == "quiet"]
    flags = _flags([verdict for verdict in verdicts if verdict.kind != "quiet"])
    is_right = all(sum(each) >= LEAST_RIGHT * len(each) for each in flags)
    return is_right and sum(quiet) <= max(MOST_FALSE * len(quiet), 1)


def _is_right(broken: Break, findings: Sequence[Mapping[str, Any]]) -> bool:
    if not findings:
        return False
    first, names = findings[0], {finding["name"] for finding in findings}
    if broken.is_mix:
        return all(each["kind"] == _MIX for each in findings) and first["name"] in broken.names
    is_named = first["name"] in broken.names and (first["kind"] != _MIX or broken.is_new)
    is_of_task = broken.task in ("", first["task"])
    return is_named and is_of_task and (not broken.all_names or names.issuperset(broken.names))


def _flags(verdicts: Sequence[Verdict]) -> tuple[list[bool], list[bool]]:
    return [each.is_first for each in verdicts], [each.is_in_time for each in verdicts]


def _words(finding: Mapping[str, Any]) -> str:
    name = " ".join(str(finding[key]) for key in ("kind", "name", "task", "metric") if finding[key])
    before, after, z = (_rounded(finding[key]) for key in ("before", "after", "z"))
    return f"{name} {before} → {after} (z {z})"


def _rounded(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.3g}"
