"""Lineage to the Text dashboard: readable tables of everything that is known of a run."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.series.limits import MOST_ENTRIES
from rec_summary.series.lineage import Lineage, recorded_parameters, shortest
from rec_summary.series.text import valid
from rec_summary.tensorboard.dashboards.points import TEXT, Point, string_value

TAG: Final = "lineage"

_IN_OTHER_TABLES: Final = ("network", "train_dataset_path", "train_dataset_size")
_LONGEST: Final = 2000  # characters in a cell
_SPECIAL: Final = re.compile(r"[&<>|\\`*_\[\]~#$\x00-\x1f\x7f]")
_REPLACED: Final = {"\n": "<br>", "\t": " "}

Rows = Iterable[tuple[str, object]]


def lineage_point(lineage: Lineage) -> Point:
    """Returns the text point with the tables of a run's lineage, in Markdown."""
    sections = (
        ("Run", _run_rows(lineage)),
        ("Hyper-parameters", _hyper_rows(lineage)),
        ("Data", _data_rows(lineage)),
        ("Model", _model_rows(lineage)),
        ("Custom data", lineage.custom.items()),
        ("Evaluation", _evaluation_rows(lineage)),
    )
    text = "\n\n".join(part for title, rows in sections if (part := table(title, rows)))
    return text_point(TAG, text)


def text_point(tag: str, text: str) -> Point:
    """Returns the point of a text in Markdown."""
    return Point(tag, TEXT, string_value(text.encode()))


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


def table(title: str, rows: Rows) -> str:
    """Returns a Markdown table with a title above it, if it has one; nothing for no rows."""
    rows = iter(rows)
    chosen = itertools.islice(rows, MOST_ENTRIES)
    lines = [f"| {cell(what)} | {cell(value)} |" for what, value in chosen]
    if not lines:
        return ""
    more = sum(1 for _ in rows)
    if more:
        lines.append(f"| … | {more:,} more |")
    heading = [f"### {title}", ""] if title else []
    return "\n".join([*heading, "| what | value |", "| --- | --- |", *lines])


def _run_rows(lineage: Lineage) -> Iterator[tuple[str, object]]:
    if lineage.train is None:
        return
    state = lineage.train.run_state
    yield "status", RunState.Status.Name(lineage.status)
    yield from _stated(state, reason="reason", step="step", epoch="epoch", samples="samples")
    if state.HasField("start_time"):
        yield "start", _time(state.start_time)
    yield "last update", _time(lineage.train_time)
    yield from _stated(state, host="host", process="pid")
    if state.HasField("rank_size"):
        yield "rank", f"{state.rank} of {state.rank_size}"
    yield from _stated(state, MindSpore="mindspore_version", rec_summary="rec_summary_version")
    for kind, count in sorted(state.troubles.items()):
        yield f"trouble: {kind}", count


def _stated(message: Any, **fields: str) -> Iterator[tuple[str, object]]:
    """Yields labels and values of the fields that a message states, empty text excluded."""
    for label, field in fields.items():
        value = getattr(message, field)
        if message.HasField(field) and value not in ("", b""):
            yield label, valid(value) if isinstance(value, str | bytes) else value


def _hyper_rows(lineage: Lineage) -> Iterator[tuple[str, object]]:
    for name, value in recorded_parameters(lineage).items():
        if name not in _IN_OTHER_TABLES:
            yield name, value


def _data_rows(lineage: Lineage) -> Iterator[tuple[str, object]]:
    if lineage.train is not None:
        state, data = lineage.train.run_state, lineage.train.train_dataset
        if data.train_dataset_path:
            yield "training data", valid(data.train_dataset_path)
        if state.unbounded:
            yield "training samples", "unbounded stream"
        elif state.dataset_size or data.HasField("train_dataset_size"):
            yield "training samples", state.dataset_size or data.train_dataset_size
    if lineage.valid_dataset is not None:
        path, size = lineage.valid_dataset
        if path:
            yield "validation data", path
        yield "validation samples", size


def _model_rows(lineage: Lineage) -> Iterator[tuple[str, object]]:
    if lineage.train is None:
        return
    algorithm, model = lineage.train.algorithm, lineage.train.model
    if algorithm.network:
        yield "network", valid(algorithm.network)
    if algorithm.HasField("loss"):
        yield "last loss", shortest(algorithm.loss)
    if model.path:
        yield "checkpoint", valid(model.path)
    if model.HasField("size"):
        yield "checkpoint bytes", model.size


def _evaluation_rows(lineage: Lineage) -> Iterator[tuple[str, object]]:
    if lineage.evaluations:
        yield "evaluations", lineage.evaluations
    for name, metric in lineage.metrics.items():
        yield f"{name} (step {metric.step})", metric.value


def _time(seconds: float) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return str(seconds)  # no calendar reaches that far
    return moment.isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
