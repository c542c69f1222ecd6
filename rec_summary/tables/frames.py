"""Records as pandas DataFrames: `rec_summary.load`."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary.engines.engine import HERE, Engine
from rec_summary.errors import ArgumentError, required, three_part, verbatim
from rec_summary.records.reading.runs import Run, find_runs
from rec_summary.records.remote import path_or_url
from rec_summary.series.batch import Columns, concatenated, rows_of
from rec_summary.series.comparison.groups import GROUP, grouped
from rec_summary.series.limits import MOST_CELLS
from rec_summary.series.lineage import evaluations, parameters_of
from rec_summary.series.options import ExportOptions, Selection, chosen_engine
from rec_summary.series.overview.choice import check_ranks, check_tags, chosen_runs
from rec_summary.series.overview.each_run import each_run
from rec_summary.series.overview.rows import column_names, rows
from rec_summary.series.report import Problem, Report
from rec_summary.series.runs.slices import SLICE_COLUMNS, slice_table
from rec_summary.series.runs.values import (
    RankScalars,
    Value,
    finished_scalars,
    recorded_values,
    scalars_in_memory,
)
from rec_summary.series.runs.writers import Writer
from rec_summary.series.text import printable, valid
from rec_summary.tables.groups import Groups
from rec_summary.tables.notebook import RunView, overview_html
from rec_summary.values.histogram import decode_histograms, population
from rec_summary.values.landscape import Landscape, from_landscape
from rec_summary.values.tensor import from_tensor

if TYPE_CHECKING:
    import pandas as pd

_OURS: Final = "rec_summary."  # how the names of our modules begin
_CHUNK: Final = 65_536
_STATISTICS: Final = ("count", "min", "max", "sum", "nan_count", "pos_inf_count", "neg_inf_count")
_NUMBERS: Final = (*_STATISTICS, "population")
_HISTOGRAM: Final = (*_NUMBERS, "left", "right", "counts")
_TYPES: Final = {
    frozenset({bool}): "bool_",
    frozenset({int}): "int64",
    frozenset({float}): "float64",
    frozenset({int, float}): "float64",
}
_NULLABLE: Final = {"bool_": "boolean", "int64": "Int64", "float64": "float64", "string": "object"}


@dataclass(frozen=True)
class RecordedLandscape:
    """A loss landscape and where it was recorded.

    Attributes:
        run: The run's name.
        rank: The rank that recorded it.
        tag: Its tag.
        step: Its step.
        wall_time: Seconds since the epoch.
        landscape: Its arrays.
    """

    run: str
    rank: int
    tag: str
    step: int
    wall_time: float
    landscape: Landscape


def load(
    source: str | os.PathLike[str],
    *,
    runs: str | None = None,
    tags: str | None = None,
    since: int | str | None = None,
    until: int | str | None = None,
    ranks: str | None = None,
    engine: str = "loky",
    jobs: int | None = None,
) -> Records:
    """Opens records for analysis; they are read when a table is asked for.

    Args:
        source: A record directory, or a tree of them; ours or MindSpore's. A URL such as
            `s3://bucket/records` is read by ranges.
        runs: A pattern for `fnmatch`, where `*` also matches `/`: only these runs.
        tags: A regular expression: only values in whose tag it is found.
        since: Only values of this step or later; or, as a text, of an age (`2h`) or a local date
            and time (`2026-11-01`, `2026-11-01T12:00`) on. Files that were not written to since
            then are not opened.
        until: Only values of this step, or up to this age or date, in the same forms.
        ranks: Only what these ranks have recorded, such as `3,7,16-31`; None means all.
        engine: What reads the runs: `loky` (processes on this machine) or `dask://HOST:PORT`. The
            workers of a cluster need the records at the same path.
        jobs: How many runs are read at the same time; by default one, and on a cluster as many as
            it has room for.

    Raises:
        ArgumentError: A choice is invalid, or no run or no tag matches.
        SourceError: There are no records.
        ImportError: pandas is not installed.
    """
    _pandas()
    selection = Selection(ExportOptions(tags=tags, since=since, until=until, ranks=ranks))
    reader = chosen_engine(engine, jobs)
    location = path_or_url(source)
    left_out: dict[str, str] = {}
    chosen = chosen_runs(find_runs(location, left_out), runs)
    check_ranks(chosen, ranks)
    check_tags(map(selection.narrowed, chosen), tags, scalars=False, ranks=ranks)
    records = Records(location, chosen, selection, reader)
    report = Report()
    for path, why in left_out.items():
        report.problem(path, 0, f"it is left out: {why}")
    records._take_problems(report)
    return records


class Records:
    """The values of runs as DataFrames.

    In all of them `run` and `tag` are categories, `step` is an int64, and `wall_time` is in
    seconds since the epoch. Of a value that was recorded several times for a step, the last
    counts; a value that a restart of the training supersedes does not. Where a second process
    records as the same rank at the same time, its values are of a run `<run>/writer_2`. Damaged
    records are skipped, with one warning for each table.

    Attributes:
        source: Where the records are.
        runs: The names of the runs.
        problems: What could not be read so far.
    """

    def __init__(
        self, source: str, runs: list[Run], selection: Selection, engine: Engine = HERE
    ) -> None:
        """Use `load`."""
        self.source = source
        self.runs = tuple(run.name for run in runs)
        self.problems: tuple[Problem, ...] = ()
        self._runs = runs
        self._selection = selection
        self._engine = engine

    def __repr__(self) -> str:
        count = len(self.runs)
        return f"<Records of {count} run{'' if count == 1 else 's'} in {printable(self.source)}>"

    def _repr_html_(self) -> str:
        return overview_html(self.source, self._runs, self._selection)

    def run(self, name: str) -> RunView:
        """Returns a summary of one run: status, lineage, last values; a notebook shows a table.

        Raises:
            ArgumentError: There is no such run.
        """
        matching = [run for run in self._runs if run.name == name]
        if not matching:
            expected = f"one of the runs, such as {', '.join(map(printable, self.runs[:5]))}"
            raise ArgumentError(three_part("the run", name, expected))
        return RunView(matching[0], self._selection)

    def scalars(self, *, wide: bool = False) -> pd.DataFrame:
        """Returns all scalars.

        Args:
            wide: Whether there is a column for each tag.

        Returns:
            A row for each value: `run`, `rank`, `tag`, `step`, `wall_time` and `value` (a
            float64). If `wide`, a row for each run, rank and step, which are the index, and a
            column for each tag, NaN where there is none.

        Raises:
            ValueError: A wide table would have more than a hundred million cells.
        """
        long = _scalar_frame(list(self._scalars(scalars_in_memory)))
        # The values of a very large step come in parts, and may be in two of them.
        if not _steps_rise(long):
            series = ["run", "rank", "tag", "step"]
            long = long.drop_duplicates(series, keep="last", ignore_index=True)
        if not wide:
            return long
        _check_width(long)
        table = long.pivot(index=["run", "rank", "step"], columns="tag", values="value")
        table.columns = [str(name) for name in table.columns]
        return table.sort_index()

    def iter_scalars(self, chunk: int = _CHUNK) -> Iterator[pd.DataFrame]:
        """Yields the scalars in tables of at most `chunk` rows, in bounded memory.

        Raises:
            ValueError: `chunk` is not an int of at least 1.
        """
        if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
            raise ValueError(three_part("chunk", chunk, "an int of at least 1"))
        held: list[RankScalars] = []
        size = 0
        for run, rank, scalars in self._scalars(finished_scalars, stream=True):
            while len(scalars.codes) >= (room := chunk - size):
                part = RankScalars(run, rank, rows_of(scalars, slice(room)))
                yield _scalar_frame([*held, part])
                scalars = rows_of(scalars, slice(room, None))
                held, size = [], 0
            if len(scalars.codes):
                held.append(RankScalars(run, rank, scalars))
                size += len(scalars.codes)
        if held:
            yield _scalar_frame(held)

    def _scalars(
        self,
        read: Callable[[Run, Selection, Report], Iterable[tuple[Writer, Columns]]],
        *,
        stream: bool = False,
    ) -> Iterator[RankScalars]:
        for run, (writer, scalars) in self._read(read, stream=stream, selection=self._selection):
            yield RankScalars(writer.name(valid(run.name)), writer.rank, scalars)

    def _read(
        self, read: Callable[..., Any], *, stream: bool = False, **arguments: Any
    ) -> Iterator[tuple[Run, Any]]:
        """Yields what a function finds in each run, on the engine; takes what it cannot read."""
        report = Report()
        work = functools.partial(read, **arguments)
        yield from each_run(work, self._runs, self._engine, report, stream=stream)
        self._take_problems(report)

    def parts(self, large: int) -> Iterator[Records]:
        """Yields the same records run by run, and of a run of `large` bytes and more by rank.

        Each can be sent to another process, where it is read.
        """
        for run in self._runs:
            is_large = len(run.ranks) > 1 and run.nbytes >= large
            for part in run.by_rank() if is_large else [run]:
                yield Records(self.source, [part], self._selection)

    def histograms(self) -> pd.DataFrame:
        """Returns all histograms, a row for each.

        Returns:
            `run`, `rank`, `tag`, `step`, `wall_time`; `count` of all values that were counted,
            `min`, `max` and `sum` of the finite ones, `nan_count`, `pos_inf_count`,
            `neg_inf_count`; `population`, which is larger than `count` where they are a sample;
            and of the buckets the arrays `left`, `right` (float64) and `counts` (int64), shape
            (buckets,).
        """
        return self._table("histogram", _HISTOGRAM, lambda value: _histogram_row(value.histogram))

    def slices(self, *, total: bool = False) -> pd.DataFrame:
        """Returns the sums of each task by slice: all values that were counted, of all ranks.

        Args:
            total: Whether the examples of all chosen steps are added up, so that there is one row
                for each value.

        Returns:
            `run`, `task` (empty for the unnamed one), `column` (empty for the whole task),
            `value`, `step`, `wall_time`; `examples`, `weight`, `clicks`, `predicted` clicks and
            `loss`, which are sums over the examples since the report before and add up;
            `normalised_entropy` and `calibration` of these; `auc` and its standard error
            `auc_error`, of the examples since the detailed report before, NaN in other reports. Of
            a task with served scores: `served_examples` that have one, and of these `ne_change`,
            the change of the normalised entropy against the served scores as a part of theirs
            (below 0 is better), its standard error `ne_change_error`, and the calibration of the
            served scores, `served_calibration`, and of the new ones, `compared_calibration`.
        """
        pd = _pandas()
        read = functools.partial(slice_table, total=total)
        parts = [part for _, part in self._read(read, selection=self._selection)]
        columns: dict[str, Any] = {}
        for name, kind in SLICE_COLUMNS.items():
            cells = [part[name] for part in parts]
            if kind == "string":
                columns[name] = pd.Categorical([text for each in cells for text in each])
            else:
                columns[name] = np.concatenate([*cells, np.zeros(0, kind)])
        return pd.DataFrame(columns)

    def images(self) -> pd.DataFrame:
        """Returns all images, a row for each: `height`, `width`, and the bytes `encoded`."""
        return self._table(
            "image",
            ("height", "width", "encoded"),
            lambda value: (value.image.height, value.image.width, value.image.encoded_image),
        )

    def tensors(self) -> pd.DataFrame:
        """Returns all tensors, a row for each, with an array of its own shape in `tensor`."""
        return self._table("tensor", ("tensor",), lambda value: (from_tensor(value.tensor),))

    def landscapes(self) -> list[RecordedLandscape]:
        """Returns all loss landscapes."""
        pairs = self._recorded("loss_landscape", lambda value: from_landscape(value.loss_landscape))
        return [RecordedLandscape(**columns, landscape=landscape) for columns, landscape in pairs]

    def evaluations(self) -> pd.DataFrame:
        """Returns the results of all evaluations, a row for each metric.

        `step` is missing where MindSpore has not recorded it; `value` is NaN where it is not
        a number.
        """
        pd = _pandas()
        results = [evaluation for _, evaluation in self._read(evaluations)]
        names = ["run", "rank", "step", "wall_time", "metric", "value"]
        table = pd.DataFrame(results, columns=names)
        # Not by way of float64, which a missing step would lead to: it rounds large steps.
        table["step"] = pd.array([evaluation["step"] for evaluation in results], dtype="Int64")
        return table.astype({"value": "float64"})

    def lineage(self) -> pd.DataFrame:
        """Returns a row for each run: status, hyper-parameters, metrics, custom data.

        It is of whole runs, whatever steps are chosen in `load`. The columns are those of
        `rec-summary lineage`; `run` is the index. The type of a column follows from the types of
        its values: `Int64`, `boolean`, `float64` (also of integers beside fractions; a warning
        says if one is rounded), and `object` for text and for anything else.
        """
        pd = _pandas()
        report = Report()
        table_rows = rows(self._runs, report, engine=self._engine)
        types = column_types(table_rows, self.source, report) or {"run": "string"}
        self._take_problems(report)
        table = pd.DataFrame(table_rows, columns=list(types), dtype="object")
        return table.astype({name: _NULLABLE[kind] for name, kind in types.items()}).set_index(
            "run"
        )

    def groups(self, by: str = GROUP) -> Groups:
        """Returns groups of runs: their means, and how far they spread.

        Args:
            by: One or more hyper-parameters, separated by commas, such as `seed`: runs that differ
                in nothing but these form a group. Or `group`: runs with the same entry `group` of
                the lineage.

        Raises:
            ArgumentError: No run has such a hyper-parameter.
        """
        report = Report()
        parameters = parameters_of(self._runs, report)
        self._take_problems(report)
        return Groups(self.scalars, grouped(parameters, by))

    def _table(self, kind: str, names: tuple[str, ...], fields: Any) -> pd.DataFrame:
        pd = _pandas()
        values = [(*columns.values(), *parts) for columns, parts in self._recorded(kind, fields)]
        table = pd.DataFrame(values, columns=["run", "rank", "tag", "step", "wall_time", *names])
        types = {"run": "category", "tag": "category", "step": "int64", "wall_time": "float64"}
        return table.astype(types)

    def _recorded(self, kind: str, fields: Any) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yields where each value of a kind was recorded, and what `fields` returns for it."""
        for _, row in self._read(_fields, kind=kind, fields=fields, selection=self._selection):
            yield row

    def _take_problems(self, report: Report) -> None:
        new = [problem for problem in report.problems if problem not in self.problems]
        self.problems = (*self.problems, *new)
        if new:
            warnings.warn(
                f"{report.problem_count} problems in {self.source}, the first one: {new[0]} "
                "(all are in `problems`)",
                stacklevel=_depth(),
            )


def _depth() -> int:
    """Returns how many callers of the caller are in this package: the next one is the user's."""
    # From Python 3.12 on, `skip_file_prefixes` does the same.
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_OURS):
        frame, depth = frame.f_back, depth + 1
    return depth


def _fields(
    run: Run, kind: str, fields: Any, selection: Selection, report: Report
) -> Iterator[tuple[dict[str, Any], Any]]:
    for value in recorded_values(run, [kind], selection, report):
        recorded = value.recorded
        try:
            content = fields(recorded.value)
        except ValueError as error:
            what = f"{recorded.kind} {recorded.tag!r} cannot be read: {error}"
            report.problem(recorded.origin.path, recorded.origin.offset, what)
            continue
        yield place_row(value), content


def _check_width(table: pd.DataFrame) -> None:
    steps = len(table[["run", "rank", "step"]].drop_duplicates())
    tags = table["tag"].nunique()
    if steps * tags > MOST_CELLS:
        received = verbatim(f"{steps:,} steps × {tags:,} tags")
        expected = f"at most {MOST_CELLS:,} cells: choose tags, runs or steps"
        raise ValueError(three_part("a wide table", received, expected))


def place_row(value: Value) -> dict[str, Any]:
    """Returns the columns that say where a value was recorded."""
    recorded = value.recorded
    return {
        "run": value.run,
        "rank": value.rank,
        "tag": recorded.tag,
        "step": value.step,
        "wall_time": recorded.origin.wall_time,
    }


def column_types(table: Sequence[Mapping[str, Any]], source: str, report: Report) -> dict[str, str]:
    """Returns the type of each column of a table of runs; it follows from the types of the values.

    They are `bool_`, `int64`, `float64` (also of integers beside fractions) and `string`. An
    integer that a float64 rounds is a problem of the source.
    """
    types = {}
    for name in column_names(table):
        values = [row[name] for row in table if name in row]
        types[name] = _TYPES.get(frozenset(map(type, values)), "string")
        rounded = [value for value in values if type(value) is int and value != float(value)]
        if types[name] == "float64" and rounded:
            what = f"{name} has fractions in other runs, so that {rounded[0]} is rounded"
            report.problem(source, 0, f"{what}; record integers in all runs, or in none")
    return types


def histogram_columns(histograms: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns the columns of recorded histograms; those of the buckets have arrays."""
    contents = [histogram.SerializePartialToString() for histogram in histograms]
    sizes = np.array([*map(len, contents)], np.int64)
    rows: list[Any] = [None] * len(histograms)
    for numbers, left, width, counts, statistics in decode_histograms(
        b"".join(contents), sizes.cumsum() - sizes, sizes
    ):
        with np.errstate(all="ignore"):  # edges may be any numbers
            buckets = left, left + width, counts
        numbers_of = (statistics[name].tolist() for name in _NUMBERS)
        for number, *row in zip(numbers.tolist(), *numbers_of, *buckets, strict=True):
            rows[number] = row
    for number, row in enumerate(rows):
        if row is None:
            rows[number] = _histogram_row(histograms[number])
    return {
        name: [*column] for name, column in zip(_HISTOGRAM, zip(*rows, strict=True), strict=True)
    }


def _histogram_row(histogram: Any) -> tuple[Any, ...]:
    statistics = (getattr(histogram, name) for name in _STATISTICS)
    return *statistics, population(histogram), *_bucket_arrays(histogram)


def _bucket_arrays(histogram: Any) -> Sequence[Any]:
    buckets = histogram.buckets
    left = np.array([bucket.left for bucket in buckets], np.float64)
    right = left + np.array([bucket.width for bucket in buckets], np.float64)
    return left, right, np.array([bucket.count for bucket in buckets], np.int64)


def _scalar_frame(parts: Sequence[RankScalars]) -> pd.DataFrame:
    """Returns a row for each value: `run`, `rank`, `tag`, `step`, `wall_time`, `value`."""
    import pandas as pd

    sizes = [len(part.columns.codes) for part in parts]
    joined = concatenated([part.columns for part in parts])
    runs = sorted({part.run for part in parts})
    numbers = {run: number for number, run in enumerate(runs)}
    run_codes = _smallest_codes([numbers[part.run] for part in parts], runs)
    ranks = np.array([part.rank for part in parts], np.int64)
    order = sorted(range(len(joined.tags)), key=joined.tags.__getitem__)
    return pd.DataFrame(
        {
            "run": pd.Categorical.from_codes(np.repeat(run_codes, sizes), runs),
            "rank": np.repeat(ranks, sizes),
            "tag": pd.Categorical.from_codes(
                _smallest_codes(np.argsort(order), order)[joined.codes],
                [joined.tags[number] for number in order],
            ),
            "step": joined.steps,
            "wall_time": joined.wall_times,
            "value": joined.values,
        },
        copy=False,
    )


def _smallest_codes(codes: Any, categories: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Returns codes of categories in as few bytes as pandas has them, without a copy by it."""
    return np.array(codes, np.min_scalar_type(-len(categories)))


def _steps_rise(table: pd.DataFrame) -> bool:
    """Whether the steps of each series only rise, so that none comes twice."""
    steps, series = table["step"].to_numpy(), None
    for column in (table["run"].cat.codes, table["rank"], table["tag"].cat.codes):
        if column.min() < column.max():
            numbers = column.to_numpy(np.int64)
            series = numbers if series is None else series * (numbers.max() + 1) + numbers
    if series is None:
        return bool((steps[1:] > steps[:-1]).all())
    order = np.argsort(series, kind="stable")
    series, steps = series[order], steps[order]
    return bool(((np.diff(steps) > 0) | (np.diff(series) != 0)).all())


def _pandas() -> Any:
    return required("pandas", "rec_summary.load", "tables")
