"""Records as table files: CSV, JSON Lines or Parquet."""

from __future__ import annotations

import abc
import collections
import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Final

import numpy as np

from rec_summary.arrays import Floats
from rec_summary.engines.engine import Engine
from rec_summary.errors import (
    ArgumentError,
    DestinationError,
    SourceError,
    os_errors_as,
    required,
    three_part,
    verbatim,
)
from rec_summary.records.files import write_atomically
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.series.batch import HISTOGRAM, SCALAR, Columns, concatenated
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
from rec_summary.series.overview.rows import column_names, rows_of
from rec_summary.series.report import Problem, Progress, Report
from rec_summary.series.runs.values import Value, finished
from rec_summary.series.text import printable, valid
from rec_summary.tables.frames import histogram_rows, place_row

FORMATS: Final = ("csv", "jsonl", "parquet")

Row = Mapping[str, Any]
Schema = Mapping[str, str]

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
_MOST_EXACT: Final = 1 << 53  # larger integers are rounded in a float64
_ROW_GROUP_BYTES: Final = 1 << 24  # of a Parquet file


@dataclass(frozen=True)
class TableReport:
    """What an export to tables did.

    Attributes:
        tables: The number of rows of each file that was written, by its path.
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
) -> TableReport:
    """Writes records as the tables scalars, histograms, evaluations and lineage.

    A table without rows is not written. Each file is complete or not written at all, and
    replaces a file of the same name. Memory is bounded by the largest record, apart from the
    lineage, which has a row for each run.

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
            tables = _Tables(destination, form, files)
            _write_values(chosen, selection, report, tables, reader, progress)
            if not report.records:
                received = verbatim(f"{report.files} files without a readable record")
                raise SourceError(
                    three_part("the source of records", received, "at least one record")
                )
            tables.finish()
    return TableReport(tables.written, report.problems, report.problem_count, report.unknown)


def _write_values(
    runs: Sequence[Run],
    selection: Selection,
    report: Report,
    tables: _Tables,
    engine: Engine,
    progress: Progress | None,
) -> None:
    total = sum(run.nbytes for run in runs)
    lineage: list[Row] = []
    work = functools.partial(_rows_of_tables, selection=selection)
    for run, (table, content) in each_run(work, runs, engine, report):
        if progress is not None:
            progress(run.name, report.bytes_read, max(total, report.bytes_read))
        if table == "scalars":
            tables.write_scalars(*content)
        elif table == _LINEAGE:
            lineage += content
        else:
            tables.write(table, content)
    if lineage:
        tables.schemas[_LINEAGE] = {
            name: _type_of([row[name] for row in lineage if name in row])
            for name in column_names(lineage)
        }
        tables.write(_LINEAGE, lineage)


def _rows_of_tables(run: Run, selection: Selection, report: Report) -> Iterator[tuple[str, Any]]:
    """Yields what is in a run: tables with their rows, and run, rank and values of scalars."""
    kinds = (SCALAR, HISTOGRAM, *_WITHOUT_TABLE)
    for writer, batch in finished(run, kinds, selection, report):
        name, rank = writer.name(valid(run.name)), writer.rank
        yield "scalars", (name, rank, batch.scalars())
        for (kind, _), span in batch.series().items():
            if kind in _WITHOUT_TABLE:
                report.unknown[kind] += span.values
        recorded = batch.select(EVERYTHING, (HISTOGRAM,)).records()
        while records := list(itertools.islice(recorded, _RECORDS_AT_ONCE)):
            values = [
                Value(name, rank, record.step, histogram)
                for record in records
                for histogram in record.values
            ]
            if values:
                yield "histograms", _histogram_rows(values)
    results = list(evaluations(run, report))
    if results:
        yield "evaluations", results
    # These files have been read before: their problems are not reported twice.
    # A row is of the whole run; without a lineage, no file of another time is opened for it.
    described = not lineage_of(run, Report()).empty
    yield _LINEAGE, list(rows_of(run if described else selection.narrowed(run), Report()))


def _histogram_rows(values: Sequence[Value]) -> list[Row]:
    rows = histogram_rows([value.recorded.value.histogram for value in values])
    return [place_row(value) | row for value, row in zip(values, rows, strict=True)]


def _type_of(values: Sequence[Any]) -> str:
    """Returns the type of a column that has these values; `string` if none holds all of them."""
    types = {type(value) for value in values}
    if types == {bool}:
        return "bool_"
    if types == {int}:
        return "int64"
    is_exact = all(abs(value) <= _MOST_EXACT for value in values if type(value) is int)
    return "float64" if types <= {int, float} and is_exact else "string"


class _Tables:
    """The tables of an export.

    A table begins with its first row. All files are replaced when `files` is closed.

    Attributes:
        written: The number of rows of each file.
        schemas: The columns of each table, and their types.
    """

    def __init__(self, directory: str, form: str, files: contextlib.ExitStack) -> None:
        self.written: collections.Counter[str] = collections.Counter()
        self.schemas = dict(SCHEMAS)
        self._directory = directory
        self._form = form
        self._tables: dict[str, _TextFile | _ParquetFile] = {}
        self._files = files
        self._series = ("", 0)  # the run and the rank of the scalars that are held
        self._scalars: list[Columns] = []
        self._held = 0

    def finish(self) -> None:
        """Writes what is held."""
        self._release()
        for table in self._tables.values():
            table.finish()

    def write(self, table: str, rows: Sequence[Row]) -> None:
        self._begun(table).write(rows)
        self.written[self._path(table)] += len(rows)

    def write_scalars(self, run: str, rank: int, scalars: Columns) -> None:
        """Takes scalars; small parts are gathered, because each costs the same."""
        if (run, rank) != self._series:
            self._release()
            self._series = (run, rank)
        if len(scalars.codes):
            self._begun("scalars")
            self.written[self._path("scalars")] += len(scalars.codes)
            self._scalars.append(scalars)
            self._held += len(scalars.codes)
        if self._held >= _SCALARS_AT_ONCE:
            self._release()

    def _release(self) -> None:
        if self._scalars:
            self._begun("scalars").write_scalars(*self._series, concatenated(self._scalars))
        self._scalars, self._held = [], 0

    def _begun(self, name: str) -> _TextFile | _ParquetFile:
        table = self._tables.get(name)
        if table is None:
            binary = self._files.enter_context(write_atomically(self._path(name)))
            if self._form == "parquet":
                table = _ParquetFile(binary, self.schemas[name])
                self._files.enter_context(table.writer)  # closed before its file
            else:
                file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
                self._files.enter_context(file)
                kind = _CsvFile if self._form == "csv" else _JsonLinesFile
                table = kind(file, self.schemas[name])
            self._tables[name] = table
        return table

    def _path(self, table: str) -> str:
        return os.path.join(self._directory, f"{table}.{self._form}")


class _TextFile(abc.ABC):
    """A table file with a line for each row; the file stays the caller's to close.

    Attributes:
        template: How the start of a line, a step, a wall time and a value are joined.
    """

    template: ClassVar[str]

    def __init__(self, file: IO[str], schema: Schema) -> None:
        self._file = file
        self._names = list(schema)

    def write(self, rows: Sequence[Row]) -> None:
        """Adds rows; a column that a row lacks is missing in the table."""
        self._file.writelines(map(self._line, rows))

    def write_scalars(self, run: str, rank: int, scalars: Columns) -> None:
        """Adds a row for each scalar."""
        starts = np.array([self._start(run, rank, tag) for tag in scalars.tags], object)
        values = self._values(map(str, scalars.values.astype(np.float32)))
        columns = (starts[scalars.codes].tolist(), scalars.steps.tolist())
        lines = zip(*columns, _texts(scalars.wall_times), values, strict=True)
        self._file.write("".join(map(self.template.__mod__, lines)))

    def finish(self) -> None:
        """Writes what is held."""
        self._file.flush()

    @abc.abstractmethod
    def _line(self, row: Row) -> str:
        """Returns a row as a line."""

    @abc.abstractmethod
    def _start(self, run: str, rank: int, tag: str) -> str:
        """Returns the first cells of a scalar."""

    def _values(self, texts: Iterable[str]) -> Iterable[str]:
        """Returns the cells of float32 values, of which NumPy has these texts."""
        return texts


class _CsvFile(_TextFile):
    """CSV with a line of names; lists are JSON arrays, and NUL is the replacement character."""

    template = "%s,%d,%s,%s\r\n"

    def __init__(self, file: IO[str], schema: Schema) -> None:
        super().__init__(file, schema)
        file.write(csv_line(self._names))

    def _line(self, row: Row) -> str:
        cells = map(row.get, self._names)
        return csv_line(_json(x) if isinstance(x, np.ndarray) else x for x in cells)

    def _start(self, run: str, rank: int, tag: str) -> str:
        return csv_line([run, rank, tag]).removesuffix("\r\n")


class _JsonLinesFile(_TextFile):
    """An object in a line for each row; ASCII, because some readers split at other characters."""

    template = '%s, "step": %d, "wall_time": %s, "value": %s}\n'

    def _line(self, row: Row) -> str:
        items = (f"{json.dumps(name)}: {_json(value)}" for name, value in row.items())
        return f"{{{', '.join(items)}}}\n"

    def _start(self, run: str, rank: int, tag: str) -> str:
        return json.dumps({"run": run, "rank": rank, "tag": tag})[:-1]

    def _values(self, texts: Iterable[str]) -> Iterable[str]:
        # Releases of NumPy differ in when they write an exponent.
        floats = map(repr, map(float, texts))
        return (_JSON_NUMBERS.get(text, text) for text in floats)


class _ParquetFile:
    """Parquet, in groups of rows; the file and its writer stay the caller's to close."""

    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        _, parquet = require_pyarrow()
        self._schema = arrow_schema(schema)
        self.writer = parquet.ParquetWriter(file, self._schema)
        self._group: list[Any] = []
        self._nbytes = 0

    def write(self, rows: Sequence[Row]) -> None:
        """Adds rows; a column that a row lacks is missing in the table."""
        arrow, _ = require_pyarrow()
        columns = [self._column(rows, field.name, field.type) for field in self._schema]
        self._append(arrow.Table.from_arrays(columns, schema=self._schema))

    def write_scalars(self, run: str, rank: int, scalars: Columns) -> None:
        """Adds a row for each scalar."""
        arrow, _ = require_pyarrow()
        runs = arrow.repeat(arrow.scalar(run, arrow.string()), len(scalars.codes))
        self._append(arrow.table({"run": runs, **scalar_arrays(rank, scalars)}, self._schema))

    def finish(self) -> None:
        """Writes what is held."""
        if self._group:
            self._write_group()

    def _column(self, rows: Sequence[Row], name: str, kind: Any) -> Any:
        arrow, _ = require_pyarrow()
        cells: list[Any] = [row.get(name) for row in rows]
        if arrow.types.is_string(kind):
            cells = [None if cell is None else str(cell) for cell in cells]
        if not arrow.types.is_list(kind):
            return arrow.array(cells, kind)
        offsets = np.cumsum([0, *map(len, cells)], dtype=np.int32)
        return arrow.ListArray.from_arrays(offsets, np.concatenate(cells), kind)

    def _append(self, table: Any) -> None:
        self._group.append(table)
        self._nbytes += table.nbytes
        if self._nbytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        arrow, _ = require_pyarrow()
        self.writer.write_table(arrow.concat_tables(self._group))
        self._group, self._nbytes = [], 0


# Texts of float32 values that JSON Lines has in another form than NumPy.
_JSON_NUMBERS: Final = {
    "nan": '"NaN"',
    "inf": '"Infinity"',
    "-inf": '"-Infinity"',
}


def csv_line(cells: Iterable[object]) -> str:
    """Returns a line of CSV; None is an empty cell, and NUL the replacement character."""
    line = io.StringIO(newline="")
    texts = ("" if cell is None else str(cell).replace("\0", "\ufffd") for cell in cells)
    csv.writer(line).writerow(texts)
    return line.getvalue()


def _texts(numbers: Floats) -> list[str]:
    """Returns the shortest texts of numbers; equal neighbours are formatted once."""
    starts = np.flatnonzero(np.diff(numbers, prepend=np.nan))
    texts = np.array(list(map(repr, numbers[starts].tolist())), object)
    repeated: list[str] = np.repeat(texts, np.diff(starts, append=len(numbers))).tolist()
    return repeated


def _json(value: Any) -> str:
    return json.dumps(json_value(value), allow_nan=False)


def json_value(value: Any) -> Any:
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


def arrow_schema(columns: Schema) -> Any:
    """Returns columns with their types, for Arrow."""
    arrow, _ = require_pyarrow()

    def type_of(kind: str) -> Any:
        if kind.startswith("list<"):
            return arrow.list_(type_of(kind[5:-1]))
        return getattr(arrow, kind)()

    return arrow.schema([(name, type_of(kind)) for name, kind in columns.items()])


def scalar_arrays(rank: int, scalars: Columns) -> dict[str, Any]:
    """Returns the columns of scalars of one rank, for Arrow, in order."""
    arrow, _ = require_pyarrow()
    tags = arrow.DictionaryArray.from_arrays(
        scalars.codes, arrow.array(scalars.tags, arrow.string())
    )
    return {
        "rank": np.full(len(scalars.codes), rank, np.int64),
        "tag": tags.cast(arrow.string()),
        "step": scalars.steps,
        "wall_time": scalars.wall_times,
        "value": scalars.values.astype(np.float32),
    }


def require_pyarrow() -> tuple[Any, Any]:
    """Returns pyarrow and its module for Parquet.

    Raises:
        ImportError: It is not installed, or not for this NumPy.
    """
    what = "the format parquet"
    return required("pyarrow", what, "tables"), required("pyarrow.parquet", what, "tables")
