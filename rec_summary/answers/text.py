"""An answer in words: a sentence, and a line for each further finding and event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rec_summary.answers.why import MIX, RATE, SLICE, TASK, Answer, Finding
from rec_summary.metrics.tags import IMPORTANCE

NOTHING: Final = "Nothing moved beyond chance."
_NOTHING_ELSE: Final = "Nothing else moved beyond chance."
_MOST_LINES: Final = 10
_MOST_EVENTS: Final = 3
_LONGEST: Final = 100  # characters of an event

_NAMES: Final = {
    "ne": "NE",
    "auc": "AUC",
    "click_rate": "click rate",
    "missing_share": "missing",
    "default_share": "default",
    "out_of_range_share": "out of range",
    "dead_share": "dead rows",
    "unknown_share": "unknown ids",
    "not_finite_share": "not finite",
    "colliding_share": "colliding ids",
    "window/new_share": "new ids",
    "relative_change": "change of rows",
    "samples_per_second": "samples/s",
    "input_stall_share": "waiting for input",
    "step_seconds/p50": "step time",
    "seconds/p50": "median seconds",
}
_SHARES: Final = ("_share", "traffic", "click_rate")


def lines(answer: Answer) -> list[str]:
    """Returns an answer in at most ten lines; the first one is a sentence."""
    return [*_lines(answer)][:_MOST_LINES]


def _lines(answer: Answer) -> Iterator[str]:
    named = [task for task in answer.tasks if task]
    start = f"{' and '.join(named)}: " if named else ""
    own = [finding for finding in answer.findings if not finding.also]
    if not own:
        text = NOTHING if start == "" else NOTHING[0].lower() + NOTHING[1:]
        yield start + text
        return
    first, rest = own[0], own[1:]
    text = _sentence(first)
    damage = next((each for each in rest if each.kind in (SLICE, TASK)), None)
    if first.kind not in (SLICE, TASK, MIX, RATE) and damage is not None:
        rest.remove(damage)
        text += f"; {_sentence(damage)}"
    elif first.kind in (MIX, RATE):
        text += "; no quality was lost beyond chance"
    text = f"{start}{text}." if start else f"{text[0].upper()}{text[1:]}."
    yield text if rest else f"{text} {_NOTHING_ELSE}"
    also = [finding for finding in answer.findings if finding.also]
    events = answer.events[-_MOST_EVENTS:]
    room = _MOST_LINES - 1 - len(events) - bool(also)
    if len(rest) > room:
        yield from (f"  {_sentence(each)}" for each in rest[: room - 1])
        yield f"  and {len(rest) - room + 1} more findings (--json has all)"
    else:
        yield from (f"  {_sentence(each)}" for each in rest)
    if also:
        names = dict.fromkeys(_what(each) for each in also)
        more = f", and {len(names) - 5} more" if len(names) > 5 else ""
        yield f"  With it, and maybe because of it: {', '.join([*names][:5])}{more}"
    for event in events:
        words = " ".join(event.text.split())
        short = words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
        yield f"  {event.kind} at step {event.step}: {short}"


def _sentence(finding: Finding) -> str:
    """Returns what moved, without a full stop."""
    width = max(finding.step - finding.low, finding.high - finding.step)
    when = f"from step {finding.step} (±{width})"
    back = "" if finding.until is None else f", back since step {finding.until}"
    change = f"{_change(finding)}, z {finding.z:.0f}{back}"
    task = finding.task or "the model"
    if finding.kind == SLICE:
        share = finding.share
        part = "" if share is None else f" explains {share:.0%}".replace("%", " %")
        return f"{task} lost quality {when}: {finding.name}{part} ({change})"
    if finding.kind == TASK:
        return f"{task} lost quality {when}: all slices alike ({change})"
    if finding.kind == MIX:
        return f"traffic shifted {when}: {_what(finding)} ({change})"
    if finding.kind == RATE:
        return f"the click rate of {task} changed {when} ({change})"
    verb = "lost importance" if finding.metric.endswith(IMPORTANCE) else "changed"
    return f"{_what(finding)} {verb} {when} ({change})"


def _what(finding: Finding) -> str:
    if finding.kind in (SLICE, TASK, MIX, RATE):
        words = {TASK: "all of it", RATE: "click rate", MIX: "traffic of "}.get(finding.kind, "")
        parts = finding.task or "", words + finding.name
        return " ".join(part for part in parts if part)
    kind = finding.kind.replace("_", " ")
    return kind if finding.name in (finding.kind, f"{finding.kind}s") else f"{kind} {finding.name}"


def _change(finding: Finding) -> str:
    metric = _NAMES.get(finding.metric, finding.metric)
    before, after = (_number(finding, each) for each in (finding.before, finding.after))
    return f"{metric} {before} → {after}"


def _number(finding: Finding, value: float | None) -> str:
    if value is None:
        return "none"
    if finding.metric.endswith(_SHARES):
        return f"{100 * value:.3g} %"
    return f"{value:.3g}"
