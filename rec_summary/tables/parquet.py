"""Tables as Parquet: scalars, histograms and slices as datasets by run and day, others as files.

    scalars/run=<name>/day=<YYYY-MM-DD>/part-00000.parquet

Names are percent-encoded, as Arrow, DuckDB, polars and Spark read them.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from rec_summary.errors import DestinationError, required, three_part, verbatim
from rec_summary.records.files import refuse_link, temporary_name
from rec_summary.series.text import printable

Cells = Mapping[str, Sequence[Any]]
"""The columns of a table."""

Schema = Mapping[str, str]
"""The columns of a table and their types."""

PART_BYTES: Final = 1 << 26  # of columns in memory; a part of a dataset
_DATASETS: Final = ("scalars", "histograms", "slices")
_PART: Final = re.compile(r"run=[^/]+/day=[^/]+/part-\d{5,}\.parquet")
_LONGEST_NAME: Final = 255  # bytes, of a directory
_OPEN_FILES: Final = 100  # at the same time: a process may have few
_DAY_SECS: Final = 86_400
_LAST_DAY: Final = 47_482  # the end of 2099, in days since the epoch


class ParquetFiles:
    """Tables as Parquet; all take their places in `finish`.

    Until then they are in a hidden directory beside these places. The next export removes what a
    killed one has left there.
    """

    def __init__(self, directory: str, files: contextlib.ExitStack, part_bytes: int) -> None:
        """Makes the hidden directory.

        Args:
            directory: Where the tables go.
            files: Removes the hidden directory when it is closed.
            part_bytes: The size of a table in memory from which on it is written to a part.

        Raises:
            OSError: The directory cannot be written to.
        """
        self._directory = directory
        self._part_bytes = part_bytes
        self._staged = os.path.join(directory, temporary_name("parquet"))
        self._held: collections.defaultdict[str, list[Any]] = collections.defaultdict(list)
        self._nbytes: collections.Counter[str] = collections.Counter()
        self._parts = 0
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._staged)
        os.mkdir(self._staged)
        files.callback(shutil.rmtree, self._staged, ignore_errors=True)

    def write(self, table: str, columns: Cells, schema: Schema) -> str:
        """Adds rows to a table; returns its path."""
        arrow, _ = require_pyarrow()
        types = arrow_schema(schema)
        arrays = [_array(columns[field.name], field.type) for field in types]
        rows = arrow.Table.from_arrays(arrays, schema=types)
        self._held[table].append(rows)
        self._nbytes[table] += rows.nbytes
        if table not in _DATASETS:
            return os.path.join(self._directory, f"{table}.parquet")
        if self._nbytes[table] >= self._part_bytes:
            self._write_part(table)
        return os.path.join(self._directory, table)

    def finish(self) -> None:
        """Writes what is held, and replaces the tables of an earlier export.

        Raises:
            DestinationError: The name of a run is too long for a directory.
            OSError: A table cannot be written, or is a link.
        """
        arrow, parquet = require_pyarrow()
        for table, held in list(self._held.items()):
            if table in _DATASETS:
                self._write_part(table)
            else:
                file = os.path.join(self._staged, f"{table}.parquet")
                parquet.write_table(arrow.concat_tables(held), file)
        for table in _DATASETS:
            self._replace(table)
        for name in os.listdir(self._staged):
            if name not in _DATASETS:
                os.replace(os.path.join(self._staged, name), os.path.join(self._directory, name))

    def _write_part(self, table: str) -> None:
        if not self._held[table]:
            return
        arrow, _ = require_pyarrow()
        dataset = required("pyarrow.dataset", "the format parquet", "tables")
        rows = arrow.concat_tables(self._held.pop(table))
        self._nbytes[table] = 0
        for run in rows["run"].unique().to_pylist():
            _check_name(run)
        days = np.clip(rows["wall_time"].to_numpy() // _DAY_SECS, 0, _LAST_DAY)
        days = days.astype(np.int64).astype("datetime64[D]")
        keys = arrow.schema([("run", arrow.string()), ("day", arrow.date32())])
        dataset.write_dataset(
            rows.append_column("day", arrow.array(days)),
            os.path.join(self._staged, table),
            format="parquet",
            partitioning=dataset.partitioning(keys, flavor="hive"),
            basename_template=f"{self._parts:06}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",  # parts of before have other names
            use_threads=False,  # keeps the order of the rows
            max_partitions=len(rows),
            max_open_files=_OPEN_FILES,
        )
        self._parts += 1

    def _replace(self, table: str) -> None:
        """Moves the parts of a dataset to their places, and removes those of an earlier export.

        Each file is complete when it gets its name. Nothing but parts is removed.
        """
        staged, target = (os.path.join(each, table) for each in (self._staged, self._directory))
        placed = set()
        for folder, _, names in os.walk(staged):
            place = os.path.join(target, os.path.relpath(folder, staged))
            for number, name in enumerate(sorted(names)):
                if not number:
                    _make_partition(place)
                path = os.path.join(place, f"part-{number:05}.parquet")
                os.replace(os.path.join(folder, name), path)
                placed.add(path)
        for folder, _, names in os.walk(target):  # which follows no links
            for path in (os.path.join(folder, name) for name in names):
                if path not in placed and _PART.fullmatch(os.path.relpath(path, target)):
                    os.unlink(path)
                    with contextlib.suppress(OSError):  # of a directory that is not empty
                        os.removedirs(folder)


def _make_partition(path: str) -> None:
    """Makes the directory of a run and day, in which no link leads elsewhere."""
    run = os.path.dirname(path)
    for place in (os.path.dirname(run), run, path):
        refuse_link(place)
    os.makedirs(path, exist_ok=True)


def _check_name(run: str) -> None:
    nbytes = len(f"run={quote(run, safe='')}")
    if nbytes > _LONGEST_NAME:
        received = verbatim(f"{nbytes:,} bytes for {printable(run)}")
        expected = (
            f"at most {_LONGEST_NAME} bytes in a directory of Parquet, where a quoted character "
            "takes several: leave the run out, or use another format"
        )
        raise DestinationError(three_part("the length of the name of a run", received, expected))


def _array(cells: Sequence[Any], kind: Any) -> Any:
    arrow, _ = require_pyarrow()
    convert = {arrow.string(): str, arrow.float64(): float}.get(kind)
    if convert is not None and isinstance(cells, list):
        cells = [None if cell is None else convert(cell) for cell in cells]
    return arrow.array(cells, kind)


def arrow_schema(columns: Schema) -> Any:
    """Returns columns with their types, for Arrow."""
    arrow, _ = require_pyarrow()

    def type_of(kind: str) -> Any:
        if kind.startswith("list<"):
            return arrow.list_(type_of(kind[5:-1]))
        return getattr(arrow, kind)()

    return arrow.schema([(name, type_of(kind)) for name, kind in columns.items()])


def require_pyarrow() -> tuple[Any, Any]:
    """Returns pyarrow and its module for Parquet.

    Raises:
        ImportError: It is not installed, or not for this NumPy.
    """
    what = "the format parquet"
    return required("pyarrow", what, "tables"), required("pyarrow.parquet", what, "tables")
