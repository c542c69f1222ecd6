"""A Parquet dataset that grows with the records: each value that counts is in it once, always."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rec_summary.errors import ArgumentError, DestinationError
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.exports import following
from rec_summary.series.exports.cursor import CURSOR_NAME
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.series.runs.writers import Writer
from rec_summary.series.step_buffer import StepBuffer
from rec_summary.tables import dataset
from rec_summary.tables.dataset import follow_dataset
from rec_summary.tables.frames import load
from tests.support.corpus import losses, put, two_writers
from tests.support.following import write
from tests.support.record_dirs import START, event, histo, scalar, write_segment
from tests.support.waiting import PATIENCE_SECS, eventually

pyarrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

DAY = 86_400
COLUMNS = ["run", "rank", "tag", "step", "wall_time", "value"]

Row = tuple[Any, ...]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


class Following:
    """Follows in a thread until it is left, as a context; commits whenever something was read."""

    def __init__(self, source: Path, out: Path, **options: Any) -> None:
        self._stop = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._follow = functools.partial(
            *(follow_dataset, source, out),
            **{"stop": self._stop, "every": 0.0, "interval": 0.02, **options},
        )

    def __enter__(self) -> Following:
        self._task = self._pool.submit(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.report: Report = self._task.result(PATIENCE_SECS)
        self._pool.shutdown()


def once(records: Path, out: Path, **options: Any) -> Report:
    """Exports what there is."""
    stop = threading.Event()
    return follow_dataset(
        records, out, stop=stop, reported=lambda report: stop.set(), every=1e9, **options
    )


def rows(out: Path) -> list[Row]:
    """Returns all rows, as pandas reads the directory."""
    if not [*out.glob("*/*/*.parquet")]:
        return []
    found = pandas.read_parquet(out)
    return sorted(found[COLUMNS].astype({"run": str}).itertuples(index=False, name=None))


def loaded(records: Path) -> list[Row]:
    found = load(records).scalars()
    return sorted(found[COLUMNS].astype({"run": str}).itertuples(index=False, name=None))


def steps(out: Path, tag: str = "loss") -> list[tuple[int, float]]:
    return sorted((row[3], row[5]) for row in rows(out) if row[2] == tag)


def parts(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.glob("*/*/*"))


@pytest.fixture
def writer(records: Path) -> Iterator[RunWriter]:
    opened = RunWriter(records / "run", 0)
    yield opened
    opened.close()


def test_the_dataset_grows_while_records_are_written(
    records: Path, out: Path, writer: RunWriter
) -> None:
    with Following(records, out) as following:
        for step in range(1, 4):
            write(writer, event(step, scalar("loss", step), histo("weights", [1, 2])))
            eventually(lambda step=step: len(steps(out)) == step)
        write_segment(records / "b", event(1, scalar("loss", 5)), rank=3)
        eventually(lambda: len(rows(out)) == 4)
    assert rows(out) == loaded(records)
    assert parts(out)[:2] == [
        "run=b/day=2023-11-14/part-00000.parquet",
        "run=run/day=2023-11-14/part-00000.parquet",
    ]
    assert sorted(following.report.runs) == ["b", "run"]
    assert following.report.exported == {"scalar_value": 4}


def test_chosen_ranks_are_followed(records: Path, out: Path) -> None:
    for rank in range(4):
        write_segment(records / "run", event(1, scalar("loss", rank)), rank=rank)
    chosen = ExportOptions(ranks="1,3-9")
    once(records, out, options=chosen)
    assert [row[1] for row in rows(out)] == [1, 3]
    for rank in (0, 5):
        write_segment(records / "run", event(2, scalar("loss", rank), at=START + 60), rank=rank)
    once(records, out, options=chosen)
    assert [row[1] for row in rows(out)] == [1, 3, 5]
    once(records, out, options=ExportOptions())
    assert rows(out) == loaded(records)


def test_the_columns_of_a_part_are_always_the_same(records: Path, out: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_segment(records / "run", event(1, scalar("loss", 0.1)))
    once(records, out)
    [part] = out.glob("*/*/*.parquet")
    with open(part, "rb") as file:
        schema = parquet.ParquetFile(file).schema_arrow
    assert [(field.name, str(field.type)) for field in schema] == [
        ("rank", "int64"),
        ("tag", "string"),
        ("step", "int64"),
        ("wall_time", "double"),
        ("value", "float"),
    ]


def test_a_value_that_comes_again_at_its_step_replaces_the_earlier_one(
    records: Path, out: Path, writer: RunWriter
) -> None:
    with Following(records, out):
        write(writer, event(1, scalar("loss", 1), scalar("auc", 1)))
        eventually(lambda: steps(out) == [(1, 1)])
        # At the same step, on another day.
        write(writer, event(1, scalar("loss", 2), scalar("new", 1), at=START + DAY))
        eventually(lambda: steps(out) == [(1, 2)])
    assert rows(out) == loaded(records)
    once(records, out)
    write(writer, event(1, scalar("loss", 3)))
    once(records, out)
    assert rows(out) == loaded(records)


def test_a_restart_removes_what_it_supersedes_from_all_days(records: Path, out: Path) -> None:
    def segment(*numbers: int, after: float, value: float) -> None:
        events = [
            event(
                step, scalar("loss", value), scalar("other", value), at=START + after + step * DAY
            )
            for step in numbers
        ]
        write_segment(records / "run", *events)

    segment(1, 2, 3, 4, after=0, value=1)
    write_segment(records / "run", event(4, scalar("loss", 7)), rank=1)
    once(records, out)
    assert len(parts(out)) == 5
    segment(2, 3, after=10 * DAY, value=2)
    once(records, out, options=ExportOptions())
    assert rows(out) == loaded(records)
    assert [row[1:4:2] for row in rows(out) if row[2] == "loss"] == [(0, 1), (0, 2), (0, 3), (1, 4)]
    # Days without a value are gone.
    assert sorted(path.name for path in (out / "run=run").glob("day=*")) == [
        "day=2023-11-14",
        "day=2023-11-15",
        "day=2023-11-26",
        "day=2023-11-27",
    ]


def test_ranks_that_supersede_the_same_are_one_term() -> None:
    """An expression with a term for each of a thousand ranks takes seconds for each part."""
    scalars = []
    for rank in range(5):
        buffer = StepBuffer("run", Report())
        scalars.append(dataset._Scalars(Writer(rank, 1, 0.0), buffer, Selection(ExportOptions())))
        scalars[-1].restarted = 5 if rank < 4 else None
    expression = dataset._superseded(scalars)
    assert str(expression).count("rank") == 1
    table = pyarrow.table({"rank": [0, 3, 3, 4], "step": [4, 5, 6, 7], "tag": ["loss"] * 4})
    assert table.filter(~expression)["step"].to_pylist() == [4, 7]


def test_a_restart_is_known_by_tags_that_are_not_exported(records: Path, out: Path) -> None:
    both = (event(n, scalar("loss", n), scalar("a", n)) for n in (1, 2, 3))
    write_segment(records / "run", *both)
    once(records, out, options=ExportOptions(tags="^loss$"))
    write_segment(records / "run", event(2, scalar("a", 9), at=START + 60))
    once(records, out, options=ExportOptions(tags="^loss$"))
    assert steps(out) == [(1, 1)]


def test_a_part_stays_as_it_is_until_its_day_has_ended_or_has_many(
    records: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "_MOST_PARTS", 4)

    def add(step: int, at: float = START, rank: int = 0) -> dict[Path, bytes]:
        write_segment(records / "run", event(step, scalar("loss", step), at=at + step), rank=rank)
        once(records, out)
        assert rows(out) == loaded(records)
        return {path: path.read_bytes() for path in out.glob("*/*/*")}

    before: dict[Path, bytes] = {}
    for step in range(1, 5):
        after = add(step)
        assert before.items() < after.items()
        before = after
    assert len(before) == 4
    assert [path.name for path in add(5)] == ["part-00000.parquet"]
    add(6)
    assert len(add(7, START + DAY)) == 2
    late = add(8, rank=1)  # of the day that has ended
    assert sorted(path.parent.name for path in late) == ["day=2023-11-14", "day=2023-11-15"]


def test_parts_have_bounded_rows(records: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_MOST_ROWS", 10)
    monkeypatch.setattr(dataset, "_HELD_ROWS", 4)
    monkeypatch.setattr(dataset, "_MOST_PARTS", 3)
    for first in range(0, 50, 10):
        events = (event(n, scalar("loss", n)) for n in range(first, first + 7))
        write_segment(records / "run", *events)
        once(records, out)
    assert rows(out) == loaded(records)
    assert all(len(pandas.read_parquet(path)) <= 10 for path in out.glob("*/*/*"))
    write_segment(records / "run", event(15, scalar("loss", 0), at=START + 60))
    once(records, out)
    assert rows(out) == loaded(records)


def test_a_merge_holds_one_part_in_memory(
    records: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = pytest.importorskip("pyarrow")
    number, size = 12, 400
    for part in range(number):
        events = (event(part * size + n, scalar("loss", n), at=START + part) for n in range(size))
        write_segment(records / "run", *events)
        once(records, out)
    assert len(parts(out)) == number
    whole = arrow.Table.from_pandas(pandas.read_parquet(out)[COLUMNS[1:]]).nbytes
    before, most = arrow.total_allocated_bytes(), 0
    plain = dataset.Dataset.write

    def write(*arguments: Any) -> int:
        nonlocal most
        most = max(most, arrow.total_allocated_bytes() - before)
        return plain(*arguments)

    monkeypatch.setattr(dataset.Dataset, "write", write)
    monkeypatch.setattr(dataset, "_MOST_ROWS", 2 * size)
    write_segment(records / "run", event(number * size, scalar("loss", 1), at=START + DAY))
    once(records, out)
    assert rows(out) == loaded(records)
    assert len(parts(out)) == number // 2 + 1
    assert 0 < most < whole / 2


@pytest.mark.parametrize("name", ["a=b", "..%2F%", "ü n*[?", "7", "day=2026-01-01"])
def test_names_of_runs_are_escaped_and_read_back(records: Path, out: Path, name: str) -> None:
    write_segment(records / name / "x", event(1, scalar("loss", 1)))
    once(records, out)
    assert [row[0] for row in rows(out)] == [f"{name}/x"]
    assert {path.parent.parent.parent for path in out.glob("*/*/*.parquet")} == {out}


def test_two_writers_of_a_rank_are_two_runs(records: Path, out: Path) -> None:
    for host, after, count in (("a", 0.0, 100), ("b", 0.5, 50)):
        put(
            records / "run",
            *(event(n, scalar("loss", n), at=START + after + n / 4) for n in range(1, count)),
            stamp=int(after),
            host=host,
        )
    once(records, out)
    assert rows(out) == loaded(records)
    assert {row[0] for row in rows(out)} == {"run", "run/writer_2"}


def test_other_options_or_another_training_make_a_run_again(records: Path, out: Path) -> None:
    files = write_segment(records / "run", *(event(n, scalar("loss", n)) for n in (1, 2, 3)))
    once(records, out)
    once(records, out, options=ExportOptions(until=2))
    assert steps(out) == [(1, 1), (2, 2)]
    for file in files:
        file.unlink()
    write_segment(records / "run", event(1, scalar("loss", 9), at=START + 1000))
    once(records, out, options=ExportOptions(until=2))
    assert steps(out) == [(1, 9)]


def test_a_run_that_is_made_again_has_no_part_of_before(records: Path, out: Path) -> None:
    put(records / "run", *losses((1, 2)))
    once(records, out)
    put(records / "run", *losses((1,), after=50), stamp=50, at=50)  # begins again at its first step
    once(records, out)
    assert parts(out) == ["run=run/day=2023-11-14/part-00001.parquet"]
    once(records, out, options=ExportOptions(until=1))
    [row] = rows(out)
    assert row in loaded(records)


def test_writers_of_records_that_are_gone_are_removed(records: Path, out: Path) -> None:
    two_writers(records / "run")
    write_segment(records / "run" / "writer_5", event(1, scalar("loss", 1)))  # a run of its own
    once(records, out)
    assert {row[0] for row in rows(out)} == {"run", "run/writer_2", "run/writer_5"}
    for file in (records / "run").glob("*.*"):
        file.unlink()
    put(records / "run", *losses(range(1, 4), after=1000), stamp=1000, at=1000)
    once(records, out)
    assert rows(out) == loaded(records)
    assert {row[0] for row in rows(out)} == {"run", "run/writer_5"}


def test_a_run_with_the_name_of_a_writer_that_is_gone_stays(records: Path, out: Path) -> None:
    two_writers(records / "run")
    once(records, out)
    for file in (records / "run").glob("*.*"):
        file.unlink()
    put(records / "run", *losses(range(1, 4), after=1000), stamp=1000, at=1000)
    once(records, out)  # this commit removes the parts of the second writer
    put(records / "run" / "writer_2", *losses(range(1, 4), after=2000))
    for runs in ("run/writer_2", "run"):
        once(records, out, runs=runs)
    assert rows(out) == loaded(records)


def test_it_can_be_stopped_before_its_first_look(records: Path, out: Path) -> None:
    write_segment(records / "run", event(1, scalar("loss", 1)))
    with contextlib.closing(RunPoller(os.fspath(records))) as poller:
        assert poller.find()
        stop = threading.Event()
        stop.set()
        follow_dataset(records, out, stop=stop, poller=poller)
    assert rows(out) == loaded(records)


def test_files_that_make_room_stay_in_the_dataset(records: Path, out: Path) -> None:
    first, _ = write_segment(records / "run", event(1, scalar("loss", 1)))
    once(records, out)
    first.unlink()
    write_segment(records / "run", event(2, scalar("loss", 2)))
    once(records, out)
    assert steps(out) == [(1, 1), (2, 2)]


class Killed(BaseException):
    """Ends an export where a process may be killed."""


@pytest.mark.parametrize("fatal", range(17))
def test_an_export_that_is_killed_anywhere_is_completed(
    records: Path, out: Path, monkeypatch: pytest.MonkeyPatch, fatal: int
) -> None:
    """Each step on the way to the disk is the last one once."""
    write_segment(
        records / "run", *(event(n, scalar("loss", n), at=START + n * DAY) for n in (1, 2))
    )
    once(records, out)
    write_segment(
        records / "run",
        *(event(n, scalar("loss", -n), at=START + (n + 1) * DAY) for n in (2, 3)),
    )
    done = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **names: Any) -> Any:
            nonlocal done
            done += 1
            if done == fatal:
                raise Killed
            return function(*arguments, **names)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "unlink", "fsync"):
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            once(records, out)
        except Killed:
            assert fatal
    assert done < 17
    once(records, out)
    assert rows(out) == loaded(records)
    assert not list(out.rglob("*.new"))


def test_a_follower_that_is_killed_goes_on_without_loss(records: Path, out: Path) -> None:
    script = (
        "import sys, threading\n"
        "from rec_summary.tables.dataset import follow_dataset\n"
        "follow_dataset(*sys.argv[1:], stop=threading.Event(), every=0.0, interval=0.001)\n"
    )
    opened = RunWriter(records / "run", 0)
    step = 0
    for target in (5, 10):
        process = subprocess.Popen([sys.executable, "-c", script, str(records), str(out)])
        try:
            while len(steps(out)) < target:
                step += 1
                write(opened, event(step, scalar("loss", step), scalar("auc", step)))
                assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    opened.close()
    once(records, out)
    assert rows(out) == loaded(records)
    assert len(steps(out)) == step


def test_a_cursor_of_somebody_else_moves_nothing(records: Path, out: Path, tmp_path: Path) -> None:
    write_segment(records / "run", event(1, scalar("loss", 1)))
    once(records, out)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    cursor = out / "run=run" / CURSOR_NAME
    content = json.loads(cursor.read_text())
    for move in (["", "../victim"], ["../../victim", "run=run/day=2023-11-14/part-00000.parquet"]):
        content["moves"] = [move]
        cursor.write_text(json.dumps(content))
        once(records, out)
        assert victim.read_text() == "mine"
        assert rows(out) == loaded(records)


def test_a_damaged_part_is_reported_with_what_repairs_it(records: Path, out: Path) -> None:
    put(records / "run", *losses(range(1, 10)))
    once(records, out)
    [part] = out.glob("*/*/*")
    os.truncate(part, 50)
    put(records / "run", *losses(range(5, 8), after=50), stamp=50, at=50)
    [problem] = once(records, out).problems
    assert ".. Expected" not in problem.text
    assert "remove run=run, it is then exported again" in problem.text
    shutil.rmtree(out / "run=run")
    once(records, out)
    assert rows(out) == loaded(records)


def test_a_name_that_is_too_long_for_a_directory_is_reported(records: Path, out: Path) -> None:
    write_segment(records / ("\u6a21" * 30), event(1, scalar("loss", 1)))
    write_segment(records / "run", event(1, scalar("loss", 1)))
    [problem] = once(records, out).problems
    assert "the length of the name of a run" in problem.text
    assert "274 bytes" in problem.text
    assert {row[0] for row in rows(out)} == {"run"}


def test_what_cannot_be_written_is_reported_and_tried_again(
    records: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_RETRY_SECS", 0.05)
    write_segment(records / "run", event(1, scalar("loss", 1)))
    out.mkdir()
    (out / "run=run").write_text("in the way")
    reported = threading.Event()
    with Following(records, out, reported=lambda _: reported.set()) as follower:
        assert reported.wait(PATIENCE_SECS)
        (out / "run=run").unlink()
        eventually(lambda: steps(out) == [(1, 1)])
    assert rows(out) == loaded(records)
    assert follower.report.problem_count == 1
    assert "can be written again" in follower.report.notes[-1]


def test_mistakes_are_reported(records: Path, out: Path) -> None:
    write_segment(records / "run", event(1, scalar("loss", 1)))
    stop = threading.Event()
    with pytest.raises(ArgumentError, match="max_points"):
        follow_dataset(records, out, stop=stop, options=ExportOptions(max_points=10))
    for every in (-1.0, math.nan, math.inf):  # with the last two, nothing would be written
        with pytest.raises(ArgumentError, match="every is invalid"):
            follow_dataset(records, out, stop=stop, every=every)
    with pytest.raises(ArgumentError, match="the directory of the dataset"):
        follow_dataset(records, records / "out", stop=stop)
    with pytest.raises(DestinationError, match="a local directory"):
        follow_dataset(records, "s3://bucket/out", stop=stop)
    with Following(records, out):
        eventually(lambda: steps(out) == [(1, 1)])
        with pytest.raises(DestinationError, match="another export"):
            once(records, out)


def test_no_value_is_there_twice_at_any_moment(records: Path, out: Path) -> None:
    """Also while a restart takes values away; a file that is gone then is an error."""
    opened = RunWriter(records / "run", 0)
    with Following(records, out):
        for start in range(3):
            for step in range(1, 20):
                write(opened, event(step, scalar("loss", start), at=START + start * 100 + step))
                with contextlib.suppress(FileNotFoundError):
                    found = [number for number, _ in steps(out)]
                    assert len(found) == len(set(found))
        eventually(lambda: rows(out) == loaded(records), despite=FileNotFoundError)
    opened.close()


def with_duckdb(out: Path) -> list[Row]:
    duckdb = pytest.importorskip("duckdb")
    query = f"""
        SELECT run, rank, tag, step, wall_time, value
        FROM read_parquet('{out}/*/*/*.parquet', hive_types = {{'run': VARCHAR, 'day': DATE}})
    """
    return sorted(duckdb.sql(query).fetchall())


def with_polars(out: Path) -> list[Row]:
    polars = pytest.importorskip("polars")
    types = {"run": polars.String, "day": polars.Date}
    found = polars.scan_parquet(f"{out}/*/*/*.parquet", hive_schema=types).select(COLUMNS)
    return sorted(found.collect().rows())


@pytest.mark.parametrize("read", [with_duckdb, with_polars])
def test_other_tools_read_the_same_while_it_grows(
    records: Path, out: Path, read: Callable[[Path], list[Row]]
) -> None:
    opened = RunWriter(records / "7", 0)
    write_segment(records / "a=ü" / "b", event(1, scalar("loss", 0.1)), rank=1)
    with Following(records, out):
        for step in range(1, 4):
            write(opened, event(step, scalar("loss", step), at=START + step * DAY))
            eventually(lambda step=step: len(rows(out)) == step + 1)
            assert read(out) == rows(out)
    opened.close()
    assert {row[0] for row in read(out)} == {"7", "a=ü/b"}
