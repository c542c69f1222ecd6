"""Records as table files: CSV, JSON Lines or Parquet."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import math
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np

from rec_summary.engines.engine import Engine
from rec_summary.errors import (
    ArgumentError,
    DestinationError,
    SourceError,
    os_errors_as,
    three_part,
    verbatim,
)
from rec_summary.records.files import write_atomically
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.batch import HISTOGRAM, SCALAR, Columns, Recorded, concatenated
from rec_summary.series.lineage import evaluations, lineage_of
from rec_summary.series.options import (
    EVERYTHING,
    ExportOptions,
    Selection,
    chosen_engine,
    places_apart,
)
from rec_summary.series.overview.choice import chosen_runs
from rec_summary.series.overview.each_run import each_run
from rec_summary.series.overview.rows import rows_of
from rec_summary.series.report import Problem, Progress, Report
from rec_summary.series.runs.slices import SLICE_COLUMNS, slice_table
from rec_summary.series.runs.values import finished
from rec_summary.series.text import printable, valid
from rec_summary.tables.frames import column_types, histogram_columns
from rec_summary.tables.parquet import PART_BYTES, Cells, ParquetFiles, Schema, require_pyarrow

FORMATS: Final = ("csv", "jsonl", "parquet")

Row = Mapping[str, Any]

_PLACE: Final = {
    "run": "string",
    "rank": "int64",
    "tag": "string",
    "step": "int64",
    "wall_time": "float64",
}
SCHEMAS: Final[Mapping[str, Schema]] = {
    "scalars": {**_PLACE, "value": "float32"},
    "histograms": {
        **_PLACE,
        **dict.fromkeys(("count", "population"), "int64"),
        **dict.fromkeys(("min", "max", "sum"), "float64"),
        **dict.fromkeys(("nan_count", "pos_inf_count", "neg_inf_count"), "int64"),
        **dict.fromkeys(("left", "right"), "list<float64>"),
        "counts": "list<int64>",
    },
    "slices": SLICE_COLUMNS,
    "evaluations": {
        **{name: kind for name, kind in _PLACE.items() if name != "tag"},
        "metric": "string",
        "value": "float64",
    },
}
_LINEAGE: Final = "lineage"
_WITHOUT_TABLE: Final = ("image", "tensor", "loss_landscape")
_SCALARS_AT_ONCE: Final = 16_384
_RECORDS_AT_ONCE: Final = 128  # whose histograms are converted together; more take much memory


@dataclass(frozen=True)
class TableReport:
    """What an export to tables did.

    Attributes:
        tables: The number of rows of each file or dataset that was written, by its path.
        problems: What could not be read; at most a thousand problems.
        problem_count: How many problems there were.
        left_out: The number of values that have no table, by kind: images, tensors and
            landscapes.
    """

    tables: Mapping[str, int]
    problems: list[Problem]
    problem_count: int
    left_out: Mapping[str, int]


def export_tables(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    form: str,
    tags: str | None = None,
    runs: str | None = None,
    since: int | str | None = None,
    until: int | str | None = None,
    ranks: str | None = None,
    engine: str = "loky",
    jobs: int | None = None,
    progress: Progress | None = None,
    part_bytes: int = PART_BYTES,
) -> TableReport:
    """Writes records as the tables scalars, histograms, slices, evaluations and lineage.

    A table without rows is not written. Each file is complete or not written at all, and
    replaces a file of the same name. Memory is bounded by the largest record, apart from the
    lineage, which has a row for each run, the slices of a run of several ranks, and in Parquet
    the evaluations.

    In Parquet, scalars and histograms are datasets with partitions `run=<name>/day=<YYYY-MM-DD>`
    (UTC) of files `part-<number>.parquet`. An export replaces all parts, also those of runs that it
    does not have; other files stay.

    In CSV, the edges and counts of a histogram are JSON arrays in a cell. In JSON Lines, a
    number that is not finite is one of the strings `NaN`, `Infinity` and `-Infinity`.
    Numbers are written so that they are read back as the same float32 or float64.

    Args:
        source: A record directory, or a tree of them.
        destination: The directory of the files; it is created if it does not exist. It is
            neither inside `source` nor around it.
        form: `csv`, `jsonl` or `parquet`.
        tags: As in `ExportOptions`.
        runs: A pattern for `fnmatch`: only runs whose name matches.
        since: As in `ExportOptions`.
        until: As in `ExportOptions`.
        ranks: Only what these ranks have recorded, such as `3,7,16-31`; None means all.
        engine: What reads the runs, as in `load`.
        jobs: How many runs are read at the same time, as in `load`.
        progress: Called with the name of the current run, the bytes that were read, and the
            bytes of all runs.
        part_bytes: The size in memory of a part of a Parquet dataset.

    Returns:
        The numbers of rows, and the problems.

    Raises:
        ArgumentError: A choice is invalid, or no run matches.
        SourceError: There are no records, or none that can be read.
        DestinationError: A file cannot be written.
        ImportError: The format is `parquet`, and pyarrow is not installed.
    """
    if form not in FORMATS:
        raise ArgumentError(three_part("the format", form, f"one of {', '.join(FORMATS)}"))
    selection = Selection(ExportOptions(tags=tags, since=since, until=until, ranks=ranks))
    reader = chosen_engine(engine, jobs)
    source, destination = places_apart(source, destination, "the directory of the tables")
    if form == "parquet":
        require_pyarrow()
    chosen = chosen_runs(find_runs(source), runs)
    report = Report()
    what, printed = "the directory of the tables", printable(destination)
    with os_errors_as(DestinationError, what, printed, "one that can be written to"):
        os.makedirs(destination, exist_ok=True)
        with contextlib.ExitStack() as files:
            tables: _TextFiles | ParquetFiles
            if form == "parquet":
                tables = ParquetFiles(destination, files, part_bytes)
            else:
                tables = _TextFiles(destination, form, files)
            written = _write_values(chosen, selection, report, tables, reader, progress)
            if not report.records:
                received = verbatim(f"{report.files} files without a readable record")
                raise SourceError(
                    three_part("the source of records", received, "at least one record")
                )
            tables.finish()
    return TableReport(written, report.problems, report.problem_count, report.unknown)


def _write_values(
    runs: Sequence[Run],
    selection: Selection,
    report: Report,
    tables: _TextFiles | ParquetFiles,
    engine: Engine,
    progress: Progress | None,
) -> dict[str, int]:
    """Returns the number of rows of each table, by its path."""
    total = sum(run.nbytes for run in runs)
    paths: dict[str, str] = {}
    written: collections.Counter[str] = collections.Counter()
    lineage: list[Row] = []

    def write(table: str, columns: Cells, schema: Schema) -> None:
        paths[table] = tables.write(table, columns, schema)
        written[table] += len(columns["run"])

    work = functools.partial(_rows_of_tables, selection=selection)
    for run, (table, content) in each_run(work, runs, engine, report, stream=True):
        if progress is not None:
            progress(run.name, report.bytes_read, max(total, report.bytes_read))
        if table == _LINEAGE:
            lineage += content
        elif table == "scalars":
            write(table, _scalar_columns(*content), SCHEMAS[table])
        elif table in ("histograms", "slices"):
            write(table, content, SCHEMAS[table])
        else:
            write(table, _columns(content, SCHEMAS[table]), SCHEMAS[table])
    if lineage:
        # Text files have integers and fractions in one column.
        rounding = report if isinstance(tables, ParquetFiles) else Report()
        schema = column_types(lineage, runs[0].path, rounding)
        write(_LINEAGE, _columns(lineage, schema), schema)
    return {paths[table]: written[table] for table in (*SCHEMAS, _LINEAGE) if table in paths}


def _rows_of_tables(run: Run, selection: Selection, report: Report) -> Iterator[tuple[str, Any]]:
    """Yields what is in a run: tables with their rows, and run, rank and values of scalars."""
    values = finished(run, (SCALAR, HISTOGRAM, *_WITHOUT_TABLE), selection, report)
    for writer, batches in itertools.groupby(values, key=operator.itemgetter(0)):
        name, rank = writer.name(valid(run.name)), writer.rank
        scalars: list[Columns] = []
        held = 0
        for _, batch in batches:
            scalars.append(batch.scalars())
            held += len(scalars[-1].codes)
            if held >= _SCALARS_AT_ONCE:  # small parts are gathered, because each costs the same
                yield "scalars", (name, rank, concatenated(scalars))
                scalars, held = [], 0
            for (kind, _), span in batch.series().items():
                if kind in _WITHOUT_TABLE:
                    report.unknown[kind] += span.values
            recorded = batch.select(EVERYTHING, (HISTOGRAM,)).records()
            while records := list(itertools.islice(recorded, _RECORDS_AT_ONCE)):
                histograms = [value for record in records for value in record.values]
                if histograms:
                    yield "histograms", _histogram_columns(name, rank, histograms)
        if held:
            yield "scalars", (name, rank, concatenated(scalars))
    # These files have been read before: their problems are not reported twice.
    for part in slice_table(run, selection, Report()):
        yield "slices", part
    results = list(evaluations(run, report))
    if results:
        yield "evaluations", results
    # A row is of the whole run; without a lineage, no file of another time is opened for it.
    described = not lineage_of(run, Report()).empty
    yield _LINEAGE, list(rows_of(run if described else selection.narrowed(run), Report()))


def _histogram_columns(run: str, rank: int, values: Sequence[Recorded]) -> Cells:
    columns: dict[str, list[Any]] = {
        "run": [run] * len(values),
        "rank": [rank] * len(values),
        "tag": [value.tag for value in values],
        "step": [value.origin.step for value in values],
        "wall_time": [value.origin.wall_time for value in values],
        **histogram_columns([value.value.histogram for value in values]),
    }
    return {name: columns[name] for name in SCHEMAS["histograms"]}


def _scalar_columns(run: str, rank: int, scalars: Columns) -> Cells:
    count = len(scalars.codes)
    return {
        "run": [run] * count,
        "rank": np.full(count, rank, np.int64),
        "tag": np.array(scalars.tags, object)[scalars.codes].tolist(),
        "step": scalars.steps,
        "wall_time": scalars.wall_times,
        "value": scalars.values.astype(np.float32),
    }


def _columns(rows: Sequence[Row], schema: Schema) -> Cells:
    return {name: [row.get(name) for row in rows] for name in schema}


class _TextFiles:
    """Tables as text files, which the caller closes: then they replace those of before."""

    def __init__(self, directory: str, form: str, files: contextlib.ExitStack) -> None:
        self._directory, self._form, self._files = directory, form, files
        self._open: dict[str, IO[str]] = {}

    def write(self, table: str, columns: Cells, schema: Schema) -> str:
        """Adds rows to a table; returns its path."""
        path = os.path.join(self._directory, f"{table}.{self._form}")
        if path not in self._open:
            binary = self._files.enter_context(write_atomically(path))
            text = io.TextIOWrapper(binary, encoding="utf-8", newline="")
            self._open[path] = self._files.enter_context(text)
            if self._form == "csv":
                text.write(csv_line(schema))
        file = self._open[path]
        cells = [_shortest(column) for column in columns.values()]
        if self._form == "csv":
            csv.writer(file).writerows(zip(*map(_csv_texts, cells), strict=True))
        else:
            for row in zip(*map(json_value, cells), strict=True):
                known = {
                    name: cell for name, cell in zip(schema, row, strict=True) if cell is not None
                }
                # ASCII, because some readers split lines at other characters.
                file.write(json.dumps(known) + "\n")
        return path

    def finish(self) -> None:
        """Writes what is held."""
        for file in self._open.values():
            file.flush()


def _shortest(column: Sequence[Any]) -> Sequence[Any]:
    """Returns a column; a float32 becomes the shortest number that is read back as it."""
    if isinstance(column, np.ndarray) and column.dtype == np.float32:
        return column.astype(str).astype(np.float64)
    return column


def _csv_texts(column: Sequence[Any]) -> Sequence[Any]:
    if isinstance(column, np.ndarray):
        numbers: list[Any] = column.tolist()
        return numbers
    return [_csv_text(cell) for cell in column]


def csv_line(cells: Iterable[object]) -> str:
    """Returns a line of CSV; None is an empty cell, and NUL the replacement character."""
    line = io.StringIO(newline="")
    csv.writer(line).writerow(map(_csv_text, cells))
    return line.getvalue()


def _csv_text(cell: object) -> str:
    if isinstance(cell, np.ndarray):
        return json.dumps(json_value(cell))
    return "" if cell is None else str(cell).replace("\0", "\ufffd")


def json_value(value: object) -> Any:
    """Returns a value for JSON; a dataclass becomes an object.

    A float that is not finite becomes one of the strings `NaN`, `Infinity` and `-Infinity`, as in
    the JSON of Protobuf: JSON has no such numbers, and `float` reads these strings.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        is_finite, value = np.isfinite(value).all(), value.tolist()
        if is_finite:
            return value
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, np.float32):
        value = float(str(value))  # the shortest number that is this float32
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
