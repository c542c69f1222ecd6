"""Lineage to the Text dashboard: readable tables of everything that is known of a run."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import RunState, TrainLineage
from rec_summary.records.format.limits import MOST_ENTRIES
from rec_summary.series.lineage import Lineage, Note, provenance, recorded_parameters, shortest
from rec_summary.series.text import utc, valid
from rec_summary.tensorboard.dashboards.points import TEXT, Point, tensor_value

TAG: Final = "lineage"

_HEADING_LINES: Final = 2
_LONGEST: Final = 2000  # characters in a cell
_SPECIAL: Final = re.compile(r"[&<>|\\`*_\[\]~#$\x00-\x1f\x7f]")
_REPLACED: Final = {"\n": "<br>", "\t": " "}

Facts = Mapping[str, object]


def lineage_point(lineage: Lineage) -> Point:
    """Returns the text point with the tables of a run's lineage, in Markdown."""
    hyper: dict[str, Any] = dict(recorded_parameters(lineage))
    train = lineage.train or TrainLineage()
    loss = shortest(train.algorithm.loss) if train.algorithm.HasField("loss") else None
    elsewhere = ("network", "train_dataset_path", "train_dataset_size")
    network, train_path, train_size = (hyper.pop(name, None) for name in elsewhere)
    path, size = lineage.valid_dataset or ("", None)
    sections: dict[str, Facts] = {
        "Run": _run_facts(lineage),
        "Hyper-parameters": hyper,
        "Data": {
            "training data": train_path,
            "training samples": "unbounded stream" if train.run_state.unbounded else train_size,
            "validation data": path or None,
            "validation samples": size,
        },
        "Model": {
            "network": network,
            "last loss": loss,
            "checkpoint": _stated(train.model, "path"),
            "checkpoint bytes": _stated(train.model, "size"),
        },
        "Custom data": lineage.custom,
        "Evaluation": {
            "evaluations": lineage.evaluations or None,
            **{f"{name} (step {last.step})": last.value for name, last in lineage.metrics.items()},
        },
    }
    tables = [table(title, facts.items()) for title, facts in sections.items()]
    tables.insert(1, table("Notes", map(_note, reversed(lineage.notes))))
    return text_point(TAG, "\n\n".join(filter(None, tables)))


def text_point(tag: str, text: str) -> Point:
    """Returns the point of a text in Markdown."""
    return Point(tag, TEXT, tensor_value(text.encode()))


def cell(value: object) -> str:
    """Returns a value as the text of a Markdown table's cell.

    What means something to Markdown or HTML is written as a character reference, line
    breaks become `<br>`, and other control characters are replaced.
    """
    text = valid(str(value))
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    return _SPECIAL.sub(_reference, text.replace("\r\n", "\n"))


def _reference(match: re.Match[str]) -> str:
    character = match[0]
    if character in _REPLACED:
        return _REPLACED[character]
    return f"&#{ord(character)};" if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Returns a Markdown table; an empty text if there are no rows.

    Args:
        title: The title above it; none if empty.
        rows: Names and values; those with None as their value are left out.
    """
    rows = (row for row in rows if row[1] is not None)
    chosen = itertools.islice(rows, MOST_ENTRIES)
    lines = grid([("what", "value"), *chosen])
    if len(lines) == _HEADING_LINES:
        return ""
    more = sum(1 for _ in rows)
    if more:
        lines += [f"| … | {more:,} more |"]
    heading = [f"### {title}", ""] if title else []
    return "\n".join([*heading, *lines])


def grid(rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns the lines of a Markdown table; the first row is its heading."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def _run_facts(lineage: Lineage) -> Facts:
    if lineage.train is None:
        return {}
    state = lineage.train.run_state
    fact = functools.partial(_stated, state)
    start = utc(state.start_time) if state.HasField("start_time") else None
    troubles = {f"trouble: {kind}": count for kind, count in sorted(state.troubles.items())}
    return {
        "status": RunState.Status.Name(lineage.status),
        **{name: fact(name) for name in ("reason", "step", "epoch", "samples")},
        "start": start,
        "last update": utc(lineage.train_time),
        "host": fact("host"),
        "process": fact("pid"),
        "rank": f"{state.rank} of {state.rank_size}" if state.HasField("rank_size") else None,
        "MindSpore": fact("mindspore_version"),
        "rec_summary": fact("rec_summary_version"),
        **provenance(state),
        **troubles,
    }


def _note(note: Note) -> tuple[str, str]:
    by = f" ({note.author})" if note.author else ""
    return f"step {note.step:,}, {utc(note.wall_time)}", note.text + by


def _stated(message: Any, name: str) -> object:
    """Returns the value of a field; None if the message does not state it, or as empty text."""
    value = getattr(message, name)
    if not message.HasField(name) or value in ("", b""):
        return None
    return valid(value) if isinstance(value, str | bytes) else value
