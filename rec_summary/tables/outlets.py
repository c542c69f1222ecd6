"""The files that tables are written to, row by row: CSV, JSON Lines, Parquet."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from typing import IO, Any, Final, Protocol

import numpy as np

Row = Mapping[str, Any]

PLAIN: Final = "plain"
"""The type of a column whose values may be anything: it is found by looking at all of them."""

_ROWS_AT_ONCE: Final = 16_384


class Outlet(Protocol):
    """A table being written."""

    def write(self, row: Row) -> None:
        """Adds a row; what it lacks is missing in the table, too."""

    def finish(self) -> None:
        """Writes what is held; the file stays the caller's to close."""


def without_nul(value: Any) -> Any:
    """Returns a value that the csv module of every Python can write: 3.10's takes no NUL."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


class CsvOutlet:
    """CSV with a line of names; lists are JSON arrays, and NUL is the replacement character."""

    def __init__(self, file: IO[str], schema: Mapping[str, str]) -> None:
        self._writer = csv.writer(file)
        self._names = list(schema)
        self._writer.writerow(map(without_nul, self._names))

    def write(self, row: Row) -> None:
        self._writer.writerow([without_nul(_cell(row.get(name))) for name in self._names])

    def finish(self) -> None:
        pass


class JsonLinesOutlet:
    """An object in a line for each row."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, row: Row) -> None:
        values = {name: plain(value) for name, value in row.items()}
        # ASCII: some readers take other characters for the end of a line.
        self._file.write(json.dumps(values, allow_nan=False) + "\n")

    def finish(self) -> None:
        pass


class ParquetOutlet:
    """Parquet, in groups of rows."""

    def __init__(self, file: IO[bytes], schema: Mapping[str, str]) -> None:
        self._file = file
        self._kinds = schema
        self._rows: list[Row] = []
        self._writer: Any = None

    def write(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= _ROWS_AT_ONCE and PLAIN not in self._kinds.values():
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        arrow, parquet = require_pyarrow()
        arrays = {}
        for name in self._kinds:
            kind = self._type(name, arrow)  # may change the rows
            arrays[name] = arrow.array([row.get(name) for row in self._rows], kind)
        table = arrow.table(arrays)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)
        self._rows.clear()

    def _type(self, name: str, arrow: Any) -> Any:
        """Returns a column's type; that of a column of the lineage is found by looking at it."""
        kind = self._kinds[name]
        if kind == PLAIN:
            types = {type(row[name]) for row in self._rows if name in row}
            if types == {bool}:
                return arrow.bool_()
            if types == {int}:
                return arrow.int64()
            return arrow.float64() if types <= {int, float} else self._as_text(name, arrow)
        if kind.startswith("list<"):
            return arrow.list_(getattr(arrow, kind[5:-1])())
        return getattr(arrow, kind)()

    def _as_text(self, name: str, arrow: Any) -> Any:
        self._rows = [{**row, name: str(row[name])} if name in row else row for row in self._rows]
        return arrow.string()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return json.dumps([plain(each) for each in value])
    return str(value)


def plain(value: Any) -> Any:
    """Returns a value for JSON: what is no finite number becomes a string."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.float32):
        # The shortest number that is this float32.
        value = float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def require_pyarrow() -> tuple[Any, Any]:
    """Returns pyarrow and its module for Parquet.

    Raises:
        ImportError: It is not installed, or not for this NumPy.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ImportError(
            "Parquet files need pyarrow, which is not installed: pip install 'rec_summary[tables]'"
        ) from error
    return pyarrow, parquet
