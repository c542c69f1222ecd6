"""`rec-summary gate`: whether a model is better than the one that serves, for scripts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rec_summary.cli import options, terminal
from rec_summary.cli.command import choose_runs, cli
from rec_summary.records.files import FOLLOW_LINKS

if TYPE_CHECKING:
    from rec_summary.answers.gate import GateAnswer

EXAMPLES: Final = """\b
Examples:
  rec-summary gate records --since 2h
  rec-summary gate records/run-1 --min-gain 0.1% --no-slice-worse
  rec-summary gate records --task ctr --json && ./deploy

\b
Exit codes: 0 the gate holds; 1 it does not; 2 a mistake in the arguments;
3 it cannot be judged, or it failed.
"""
_BIAS: Final = (
    "The served model chose these items: its overestimates are among them, those of the new model "
    "are not, which favours the new one (docs/recipes.md)."
)
_CODES: Final = {True: 0, False: 1, None: 3}


@cli.command(epilog=EXAMPLES, failure=3, quiet="Print no progress and no hints.")
@options.source
@options.runs
@options.option("--task NAME", "Only this task.  [default: all; the worst one decides]")
@options.option(
    "--min-gain SHARE",
    "The NE must be better by this share, beyond chance: 0.1% or 0.001.",
    options.Share(0),
    default=0.0,
)
@options.flag("--no-slice-worse", "No slice may be worse beyond chance.")
@options.option(
    "--detectable SHARE",
    "The loss that the examples must suffice to see.",
    options.Share(0, min_open=True),
    default=0.005,
)
@options.since
@options.as_json()
def gate(
    source: str,
    runs: str | None,
    task: str | None,
    min_gain: float,
    no_slice_worse: bool,
    detectable: float,
    since: str | None,
) -> int:
    """Say whether a model is better than the one that serves.

    SRC is a record directory, or a URL; of a tree of them, the run counts that was written to
    last of those with served scores (`Task(served=...)`). By default the gate holds unless the
    normalised entropy (NE) is worse beyond chance, at 2.5 %. The errors are standard errors, as if
    all examples were independent.
    """
    from rec_summary.answers.gate import gate_of
    from rec_summary.errors import SourceError, three_part, verbatim
    from rec_summary.metrics.slices.gate import Gate

    asked = Gate(min_gain, no_slice_worse, task, detectable=detectable)
    chosen = choose_runs(source, runs)
    chosen.sort(key=lambda each: max(file.changed for file in each.files), reverse=True)
    for run in chosen:
        with terminal.reading_progress(source, [run]) as report:
            answer = gate_of(run, report, asked, since)
        if answer is not None:
            break
    else:
        then = "" if since is None else " since then"
        name = chosen[0].name if len(chosen) == 1 else f"any of {len(chosen)} runs"
        received = verbatim(f"no example with a served score{then} in {name}")
        expected = "reports of a task with Task(served=...), the column of the served score"
        raise SourceError(three_part("the source", received, expected))
    if len(chosen) > 1:
        which = f"of {len(chosen)} runs, the last one with served scores"
        terminal.hint(f"{run.name}: {which} (--runs chooses another)")
    if terminal.printing().as_json:
        terminal.print_json({"run": run.name, **answer.as_json()})
    else:
        terminal.echo(_sentence(answer))
    terminal.hint(_BIAS)
    terminal.print_problems(report.problems, report.problem_count)
    return _CODES[answer.verdict.holds]


def _sentence(answer: GateAnswer) -> str:
    verdict = answer.verdict
    first, *others = verdict.tasks
    begin = time.localtime(answer.times[0])
    is_today = begin[:3] == time.localtime()[:3]
    since = time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", begin)
    whole, name = first.whole, f"{first.whole.task}: " if first.whole.task else ""
    parts = [
        f"{name}{first.outcome}: ΔNE {whole} over {whole.examples:,.0f} examples since {since}",
        *first.reasons,
    ]
    if verdict.slices and not any(verdict.slices[0].title in reason for reason in first.reasons):
        worst = verdict.slices[0]
        of = f" of {worst.task}" if others and worst.task else ""
        is_worse = ", worse beyond chance" if verdict.worse_slices else ""
        parts.append(f"worst slice {worst.title}{of} {worst}{is_worse}")
    for other in others:
        known = dict.fromkeys((other.outcome, str(other.whole)))  # both may be unknown
        parts.append(f"{other.whole.task}: {' '.join(known)}")
    if answer.is_link:
        parts.append(f"checkpoints/ is a link, which is not followed without {FOLLOW_LINKS}=1")
    elif answer.checkpoint is None:
        parts.append("no checkpoint of this time in checkpoints/")
    else:
        parts.append(f"newest checkpoint judged: {answer.checkpoint}")
    return "; ".join(parts)
