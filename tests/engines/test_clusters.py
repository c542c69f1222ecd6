"""Real clusters of two workers on this machine: Dask, Ray, and Spark where it is installed.

`tools/check engines` installs Spark, and kills workers of all of them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import rec_summary.dask
import rec_summary.ray
import rec_summary.spark
from rec_summary import export_tensorboard, load
from rec_summary.compaction.directory import compact
from rec_summary.engines.engine import WorkerError, parse_engine
from rec_summary.engines.units import need_shared, run_units
from rec_summary.errors import SourceError
from tests.support import command, units
from tests.support.observing import run
from tests.support.quadratic import Maker, Options, compute
from tests.support.record_dirs import event, scalar, tree, write_segment
from tests.support.scalar_rows import is_same, several_runs
from tests.support.waiting import eventually

_ENGINE_SECS = 300  # a busy machine starts Java and workers slowly
KILLS = bool(os.environ.get("REC_SUMMARY_CLUSTERS"))
in_check_only = pytest.mark.skipif(not KILLS, reason="takes long; run by tools/check engines")


@contextlib.contextmanager
def _dask_cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    dask = importlib.import_module("dask")
    # Dask ends a worker for good that is being replaced 15 s after an earlier one was killed.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster,
    ):
        yield cluster.scheduler_address.replace("tcp://", "dask://")


def _dask() -> Iterator[str]:
    with _dask_cluster() as address:
        yield address


def _ray() -> Iterator[str]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield "ray"
    ray.shutdown()


def _spark() -> Iterator[str]:
    """Starts a standalone cluster: a master, and two workers with an executor each."""
    pyspark = pytest.importorskip("pyspark")
    with contextlib.ExitStack() as stack:
        deploy = "org.apache.spark.deploy"
        asked = (f"{deploy}.master.Master", "--port", "0", "--webui-port", "0")
        master = _spark_daemon(stack, *asked, says=r"Starting Spark master at (spark://\S+)")
        for _ in range(2):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            room = ("--cores", "2", "--memory", "2g", "--work-dir", folder, "--webui-port", "0")
            asked = (f"{deploy}.worker.Worker", *room, master)
            _spark_daemon(stack, *asked, says=r"Successfully registered with master (\S+)")
        conf = pyspark.SparkConf().setAppName("tests").setMaster(master)
        conf.set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
        conf.set("spark.cores.max", "2")  # one of each worker: there is room for another program
        context = pyspark.SparkContext(conf=conf)
        stack.callback(_end_spark, context)
        context.setLogLevel("OFF")
        known = context._jsc.sc().getExecutorMemoryStatus
        eventually(lambda: known().size(), lambda count: count == 3)  # this process is one
        yield master


def _spark_daemon(stack: contextlib.ExitStack, *asked: str, says: str) -> str:
    """Starts a program of Spark's, and returns what it says when it is ready."""
    pyspark = importlib.import_module("pyspark")
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    log = stack.enter_context(tempfile.TemporaryFile("a+"))  # noqa: SIM115
    process = subprocess.Popen([program, *asked], stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.kill)

    def said() -> str:
        log.seek(0)
        return log.read()

    text = eventually(said, lambda text: re.search(says, text) or process.poll() is not None)
    found = re.search(says, text)
    assert found is not None, text
    return found[1]


def _end_spark(context: Any) -> None:
    """Stops Spark, and the process of Java that would stay as long as this one."""
    gateway = context._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    type(context)._gateway = type(context)._jvm = None


_CLUSTERS = {"dask": _dask, "ray": _ray, "spark": _spark}


@pytest.fixture(scope="module", params=_CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REC_SUMMARY_ENGINE_SECS", str(_ENGINE_SECS))
        patch.setenv("RAY_raylet_start_wait_time_s", str(_ENGINE_SECS))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        # Workers have the modules of this process, tests among them.
        patch.setenv("PYTHONPATH", os.pathsep.join(each for each in sys.path if each))
        yield from _CLUSTERS[request.param]()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    for number in range(5):
        values = (event(step, scalar("loss", number + 1 / step)) for step in range(1, 60))
        write_segment(tmp_path / "records" / f"run-{number}", *values)
    damaged = tmp_path / "records" / "run-2" / "events.out.events.summary.1.1.host_MS"
    damaged.write_bytes(b"?" * 99)
    return tmp_path / "records"


def shown(folder: Path) -> dict[str, bytes]:
    """Returns what is in a folder without the cursors, which name inodes."""
    return {name: data for name, data in tree(folder).items() if not name.endswith(".json")}


def test_a_cluster_gives_what_this_process_gives(
    records: Path, tmp_path: Path, cluster: str
) -> None:
    here = export_tensorboard(records, tmp_path / "here")
    there = export_tensorboard(records, tmp_path / "there", engine=cluster)
    assert shown(tmp_path / "there") == shown(tmp_path / "here")
    assert sorted(there.runs) == sorted(here.runs)
    assert there.problems == here.problems
    assert len(here.problems) == 1
    with pytest.warns(UserWarning, match="1 problems"):
        expected = load(records).scalars()
    with pytest.warns(UserWarning, match="1 problems"):
        found = load(records, engine=cluster).scalars()
    assert found.equals(expected)
    for words in (["lineage"], ["inspect"], ["verify"]):
        done = [run(*words, records, "--json", *more) for more in ((), ("--engine", cluster))]
        assert done[1] == done[0]
        assert json.loads(done[0].out)
    shutil.rmtree(records / "run-2")
    small = [compact(records, 600, output=tmp_path / "small", engine=cluster)]
    small.append(compact(records, 600, output=tmp_path / "same"))
    assert [each.bytes_after for each in small[0]] == [each.bytes_after for each in small[1]]
    assert tree(tmp_path / "small") == tree(tmp_path / "same")


def test_units_of_a_cluster_fail_and_are_retried(tmp_path: Path, cluster: str) -> None:
    engine = parse_engine(cluster)
    work = functools.partial(units.fails_first, str(tmp_path), [2], "raise")
    found = {each.number: each for each in run_units(engine, work, range(6))}
    assert {place: each.result for place, each in found.items()} == {n: n for n in range(6)}
    work = functools.partial(units.fails_always, {1: "raise", 4: "odd"})
    found = {each.number: each for each in run_units(engine, work, range(6), in_order=True)}
    assert [place for place, each in found.items() if each.error is not None] == [1, 4]
    assert str(found[1].error) == "unit 1"


def test_what_workers_do_not_have_is_said(tmp_path: Path, cluster: str) -> None:
    work = functools.partial(need_shared, what="the run a")
    [outcome] = run_units(parse_engine(cluster), work, [str(tmp_path / "none")], tries=1)
    assert isinstance(outcome.error, SourceError)
    assert "a path on a file system that all workers share, or a URL" in str(outcome.error)


def test_a_module_that_workers_do_not_have_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    (tmp_path / "of_this_process.py").write_text("def work(unit):\n    return unit\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("rec_summary.engines.units._REFUSALS", 1)
    of_this_process: Any = importlib.import_module("of_this_process")
    with pytest.raises(
        WorkerError, match=r"No module named 'of_this_process'.*the same modules as here"
    ):
        list(run_units(parse_engine(cluster), of_this_process.work, range(9)))


def test_a_landscape_on_a_cluster(tmp_path: Path, cluster: str) -> None:
    here = compute(tmp_path / "here")
    there = compute(tmp_path / "there", Options(engine=cluster), Maker())
    assert here.keys() == there.keys()
    for tag, landscape in here.items():
        assert (landscape.z == there[tag].z).all()


def _read_dask(cluster: str, source: Path) -> pd.DataFrame:
    distributed = importlib.import_module("distributed")
    with distributed.Client(cluster.replace("dask://", "tcp://")) as client:
        found = rec_summary.dask.read_scalars(source)
        assert found.npartitions == 5
        count = found[found["tag"] == "loss"].groupby("run")["value"].count()
        table = load(source, tags="^loss$").scalars()
        expected = table.groupby("run", observed=True)["value"].count()
        assert count.compute(scheduler=client).to_dict() == expected.to_dict()
        chosen = {"runs": "group/*", "tags": "loss", "since": 3, "until": 20, "ranks": "1-2"}
        some = rec_summary.dask.read_scalars(source, **chosen)
        is_same(some.compute(scheduler=client), source, **chosen)
        return found.compute(scheduler=client)


def _read_ray(cluster: str, source: Path) -> pd.DataFrame:
    pytest.importorskip("ray.data")
    refs = rec_summary.ray.read_scalars(source).to_arrow_refs()
    blocks = importlib.import_module("ray").get(refs)
    assert sum(each.num_rows > 0 for each in blocks) == 4  # one run has no scalars
    return pa.concat_tables(blocks).to_pandas()


def _read_spark(cluster: str, source: Path) -> pd.DataFrame:
    session = importlib.import_module("pyspark.sql").SparkSession.builder.getOrCreate()
    return rec_summary.spark.read_scalars(session, source).toPandas()


_READERS = {"dask": _read_dask, "ray": _read_ray, "spark": _read_spark}


def test_readers_read_what_load_reads(tmp_path: Path, cluster: str) -> None:
    source = several_runs(tmp_path)
    is_same(_READERS[parse_engine(cluster).name](cluster, source), source)


@in_check_only
def test_workers_with_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    for module in ("worker", "units", "dask"):
        monkeypatch.setattr(f"rec_summary.engines.{module}.version", lambda: "0.0.7")
    monkeypatch.setattr("rec_summary.engines.units._REFUSALS", 1)
    with pytest.raises(WorkerError, match=r"rec_summary \d+\.\d.*Expected: rec_summary 0\.0\.7"):
        list(run_units(parse_engine(cluster), units.square, range(4)))


@in_check_only
def test_a_command_reaches_a_cluster_by_its_address(records: Path, cluster: str) -> None:
    """A process of its own has no connection yet."""
    if not parse_engine(cluster).address:
        pytest.skip("the cluster is found without an address")
    words = ("lineage", "--json", records)
    here = command.run(*words)
    # The command itself gives up sooner: it waits once for the engine, and once for a worker.
    there = command.run(*words, "--engine", cluster, timeout=3 * _ENGINE_SECS)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
    assert json.loads(here.stdout)


@in_check_only
def test_killed_workers_change_nothing(tmp_path: Path, cluster: str) -> None:
    work = functools.partial(units.fails_first, str(tmp_path), [2, 5], "die")
    outcomes = list(run_units(parse_engine(cluster), work, range(12)))
    assert {each.number: each.result for each in outcomes} == {n: n for n in range(12)}
    work = functools.partial(units.fails_always, {4: "die"})
    found = {each.number: each for each in run_units(parse_engine(cluster), work, range(8))}
    assert {place: each.result for place, each in found.items()} == {
        **{n: n for n in range(8)},
        4: None,
    }
    assert isinstance(found[4].error, WorkerError)


@in_check_only
def test_the_only_worker_of_this_version_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("REC_SUMMARY_ENGINE_SECS", str(_ENGINE_SECS))
    get_versions = distributed.Client.get_versions
    other: list[str] = []

    def one_is_other(client: Any, **asked: Any) -> Any:
        found = get_versions(client, **asked)
        other.extend(() if other else [min(found["workers"])])
        found["workers"][other[0]]["packages"]["rec_summary"] = "0.0.9"
        return found

    monkeypatch.setattr(distributed.Client, "get_versions", one_is_other)
    work = functools.partial(units.fails_first, str(tmp_path), [1], "die")
    with _dask_cluster() as address:
        outcomes = list(run_units(parse_engine(address), work, range(6)))
    assert {each.number: each.result for each in outcomes} == {n: n for n in range(6)}
