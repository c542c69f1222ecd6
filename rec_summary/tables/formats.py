"""Records as files of tables: CSV, JSON Lines or Parquet."""

from __future__ import annotations

import collections
import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rec_summary.errors import DestinationError, SourceError, three_part, verbatim
from rec_summary.records.files import write_atomically
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.options import (
    ArgumentError,
    ExportOptions,
    Selection,
    check_apart,
    some_matching_runs,
)
from rec_summary.series.report import Problem, Report
from rec_summary.series.runs import columns, rows
from rec_summary.series.values import Value, evaluations, recorded_values
from rec_summary.series.words import printable
from rec_summary.tables.outlets import (
    PLAIN,
    CsvOutlet,
    JsonLinesOutlet,
    Outlet,
    ParquetOutlet,
    Row,
    require_pyarrow,
)
from rec_summary.values.histogram import population
from rec_summary.values.landscape import from_landscape

FORMATS: Final = ("csv", "jsonl", "parquet")

Progress = Callable[[str, int, int], None]

_PLACE: Final = {
    "run": "string",
    "rank": "int64",
    "tag": "string",
    "step": "int64",
    "wall_time": "float64",
}
_SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "scalars": {**_PLACE, "value": "float32"},
    "histograms": {
        **_PLACE,
        **dict.fromkeys(("count", "population"), "int64"),
        **dict.fromkeys(("min", "max", "sum"), "float64"),
        **dict.fromkeys(("nan_count", "pos_inf_count", "neg_inf_count"), "int64"),
        **dict.fromkeys(("left", "right"), "list<float64>"),
        "counts": "list<int64>",
    },
    "landscapes": {
        **_PLACE,
        "part": "string",
        **dict.fromkeys("xyz", "float64"),
    },
    "evaluations": {
        **{name: kind for name, kind in _PLACE.items() if name != "tag"},
        "metric": "string",
        "value": "float64",
    },
}
_KINDS: Final = {
    "scalar_value": "scalars",
    "histogram": "histograms",
    "loss_landscape": "landscapes",
}


@dataclass(frozen=True)
class TableReport:
    """What an export to tables did.

    Attributes:
        tables: The number of rows of each file that was written, by its path.
        problems: What could not be read; at most a thousand of them.
        problem_count: How many there were in truth.
        left_out: How many values have no table, by kind: images, tensors and graphs.
    """

    tables: Mapping[str, int]
    problems: tuple[Problem, ...]
    problem_count: int
    left_out: Mapping[str, int]


def export_tables(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    form: str,
    tags: str | None = None,
    runs: str | None = None,
    since: int | None = None,
    until: int | None = None,
    progress: Progress | None = None,
) -> TableReport:
    """Writes records as the tables scalars, histograms, landscapes, evaluations and lineage.

    A table without rows is not written. Each file is complete or not written at all, and
    takes the place of one of the same name. Memory is bounded by the largest record, apart
    from the lineage, which has a row for each run.

    In CSV, the edges and counts of a histogram are JSON arrays in a cell. In JSON Lines,
    what is no finite number is one of the strings `NaN`, `Infinity` and `-Infinity`.
    Numbers are written so that they are read back as the same float32 or float64.

    Args:
        source: A record directory, or a tree of them.
        destination: The directory of the files; made if need be. Not inside `source`, nor
            around it.
        form: `csv`, `jsonl` or `parquet`.
        tags: As in `ExportOptions`.
        runs: A pattern as of `fnmatch`: only runs whose name matches.
        since: As in `ExportOptions`.
        until: As in `ExportOptions`.
        progress: Told the run at hand, the bytes read so far, the bytes in all.

    Returns:
        What was written and what was not.

    Raises:
        ArgumentError: A choice cannot be meant, or no run matches.
        SourceError: There are no records, or none that can be read.
        DestinationError: A file cannot be written.
        ImportError: Parquet is asked for and pyarrow is not installed.
    """
    source, destination = os.fspath(source), os.fspath(destination)
    if form not in FORMATS:
        raise ArgumentError(three_part("the format", form, f"one of {', '.join(FORMATS)}"))
    selection = Selection(ExportOptions(tags=tags, since=since, until=until))
    check_apart(source, destination, "the directory of the tables")
    if form == "parquet":
        require_pyarrow()
    chosen = some_matching_runs(find_runs(source), runs)
    report = Report()
    try:
        os.makedirs(destination, exist_ok=True)
        with _Tables(destination, form) as tables:
            _write_values(chosen, selection, report, tables, progress)
            _write_lineage(chosen, report, tables)
            if not report.records:
                raise SourceError(
                    three_part(
                        "the source of records",
                        verbatim(f"{report.files} files without a readable record"),
                        "at least one record",
                    )
                )
    except OSError as error:
        received = verbatim(f"{printable(destination)}: {error.strerror or error}")
        raise DestinationError(
            three_part("the directory of the tables", received, "one that can be written to")
        ) from error
    return TableReport(
        tables=tables.written,
        problems=tuple(report.problems),
        problem_count=report.problem_count,
        left_out=dict(sorted(report.unknown.items())),
    )


def _write_values(
    runs: Sequence[Run],
    selection: Selection,
    report: Report,
    tables: _Tables,
    progress: Progress | None,
) -> None:
    total, done = sum(run.nbytes for run in runs), 0
    for run in runs:

        def advance(nbytes: int, run: Run = run) -> None:
            nonlocal done
            done += nbytes
            if progress is not None:
                progress(run.name, done, max(total, done))

        for value in recorded_values(run, [*_KINDS, "image", "tensor"], selection, report, advance):
            recorded = value.recorded
            table = _KINDS.get(recorded.kind)
            if table is None:
                report.unknown[recorded.kind] += 1
                continue
            try:
                for row in _ROWS[table](value):
                    tables.write(table, row)
            except ValueError as error:
                what = f"{recorded.kind} {recorded.tag!r} cannot be read: {error}"
                report.problem(recorded.origin.path, recorded.origin.offset, what)


def _write_lineage(runs: Sequence[Run], report: Report, tables: _Tables) -> None:
    for run in runs:
        for each in evaluations(run, report):
            tables.write("evaluations", each._asdict())
    seen = Report()  # these files have been read before: nothing is told twice
    found = [row for row in rows(runs, seen) if row["status"] != "UNKNOWN" or len(row) > 2]
    if found:
        tables.begin("lineage", dict.fromkeys(columns(found), PLAIN))
    for row in found:
        tables.write("lineage", row)


def _place(value: Value) -> dict[str, Any]:
    recorded = value.recorded
    return {
        "run": value.run,
        "rank": value.rank,
        "tag": recorded.tag,
        "step": value.step,
        "wall_time": recorded.origin.wall_time,
    }


def _scalar_rows(value: Value) -> Iterator[Row]:
    yield {**_place(value), "value": np.float32(value.recorded.value.scalar_value)}


def _histogram_rows(value: Value) -> Iterator[Row]:
    histogram = value.recorded.value.histogram
    row = _place(value)
    for name in ("count", "min", "max", "sum", "nan_count", "pos_inf_count", "neg_inf_count"):
        row[name] = getattr(histogram, name)
    row["population"] = population(histogram)
    row["left"] = [bucket.left for bucket in histogram.buckets]
    row["right"] = [bucket.left + bucket.width for bucket in histogram.buckets]
    row["counts"] = [bucket.count for bucket in histogram.buckets]
    yield row


def _landscape_rows(value: Value) -> Iterator[Row]:
    landscape = from_landscape(value.recorded.value.loss_landscape)
    place = _place(value)
    for y, line in zip(landscape.y.tolist(), landscape.z.tolist(), strict=True):
        for x, z in zip(landscape.x.tolist(), line, strict=True):
            yield {**place, "part": "surface", "x": x, "y": y, "z": z}
    for x, y, z in landscape.path.tolist():
        yield {**place, "part": "path", "x": x, "y": y, "z": z}
    if landscape.convergence is not None:
        x, y, z = landscape.convergence
        yield {**place, "part": "convergence", "x": x, "y": y, "z": z}


_ROWS: Final[Mapping[str, Callable[[Value], Iterable[Row]]]] = {
    "scalars": _scalar_rows,
    "histograms": _histogram_rows,
    "landscapes": _landscape_rows,
}


class _Tables:
    """The tables of an export: each begun with its first row, all put in place in the end."""

    def __init__(self, directory: str, form: str) -> None:
        self.written: collections.Counter[str] = collections.Counter()
        self._directory = directory
        self._form = form
        self._outlets: dict[str, Outlet] = {}
        self._files = contextlib.ExitStack()
        self._schemas = dict(_SCHEMAS)

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self._files.__exit__(*error)
            return
        with self._files:
            for outlet in self._outlets.values():
                outlet.finish()

    def begin(self, table: str, schema: Mapping[str, str]) -> None:
        self._schemas[table] = schema

    def write(self, table: str, row: Row) -> None:
        outlet = self._outlets.get(table)
        if outlet is None:
            outlet = self._outlets[table] = self._open(table)
        outlet.write(row)
        self.written[self._path(table)] += 1

    def _open(self, table: str) -> Outlet:
        schema = self._schemas[table]
        binary = self._files.enter_context(write_atomically(self._path(table)))
        if self._form == "parquet":
            return ParquetOutlet(binary, schema)
        file = self._files.enter_context(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        return CsvOutlet(file, schema) if self._form == "csv" else JsonLinesOutlet(file)

    def _path(self, table: str) -> str:
        return os.path.join(self._directory, f"{table}.{self._form}")
