"""A real Dask cluster of two workers on this machine."""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")

import pandas as pd

import rec_summary.dask
from rec_summary import export_tensorboard, load
from rec_summary.compaction.directory import compact
from rec_summary.engines.engine import WorkerError, parse_engine
from rec_summary.engines.units import run_units
from tests.support import command, units
from tests.support.observing import run
from tests.support.quadratic import Maker, Options, compute
from tests.support.record_dirs import event, scalar, tree, write_segment
from tests.support.scalar_rows import is_same, several_runs

_ENGINE_SECS = 300  # a busy machine starts workers slowly


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REC_SUMMARY_ENGINE_SECS", str(_ENGINE_SECS))
        # Workers have the modules of this process, tests among them.
        patch.setenv("PYTHONPATH", os.pathsep.join(each for each in sys.path if each))
        # Dask ends a worker for good that is being replaced 15 s after an earlier one was killed.
        patch.setenv("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "1h")
        importlib.import_module("dask").config.refresh()
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as started:
            yield started.scheduler_address.replace("tcp://", "dask://")


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


def test_the_error_of_a_unit_does_not_lose_the_others(cluster: str) -> None:
    work = functools.partial(units.fails_always, {1: "raise", 4: "odd"})
    engine = parse_engine(cluster)
    found = {each.number: each for each in run_units(engine, work, range(6), in_order=True)}
    assert [*found] == [*range(6)]
    assert [place for place, each in found.items() if each.error is not None] == [1, 4]
    assert str(found[1].error) == "unit 1"


def test_a_path_that_workers_do_not_have_is_said(tmp_path: Path, cluster: str) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(
        WorkerError,
        match=rf"the run a is invalid.*{path}, which is not on .*"
        r"a path on a file system that all workers share, or a URL",
    ):
        list(run_units(parse_engine(cluster), units.square, [1], shared=[("the run a", path)]))


def test_a_module_that_workers_do_not_have_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    (tmp_path / "of_this_process.py").write_text("def work(unit):\n    return unit\n")
    monkeypatch.syspath_prepend(tmp_path)
    of_this_process: Any = importlib.import_module("of_this_process")
    with pytest.raises(
        WorkerError, match=r"No module named 'of_this_process'.*the same modules as here"
    ):
        list(run_units(parse_engine(cluster), of_this_process.work, range(9)))


def test_a_worker_with_another_version_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package of the worker has a version and nothing else."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("REC_SUMMARY_ENGINE_SECS", str(_ENGINE_SECS))
    (tmp_path / "rec_summary").mkdir()
    (tmp_path / "rec_summary" / "__init__.py").touch()
    (tmp_path / "rec_summary-0.0.7.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: rec_summary\nVersion: 0.0.7\n"
    (tmp_path / "rec_summary-0.0.7.dist-info" / "METADATA").write_text(metadata)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        words = ["-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        with subprocess.Popen(
            [sys.executable, *words], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL
        ) as worker:
            try:
                engine = parse_engine(address.replace("tcp://", "dask://"))
                with pytest.raises(
                    WorkerError,
                    match=r"a worker of dask://.*rec_summary 0\.0\.7, Python .*Expected: rec_summ",
                ):
                    list(run_units(engine, units.square, range(4)))
            finally:
                worker.kill()


def test_a_landscape_on_a_cluster(tmp_path: Path, cluster: str) -> None:
    here = compute(tmp_path / "here")
    there = compute(tmp_path / "there", Options(engine=cluster), Maker())
    assert here.keys() == there.keys()
    for tag, landscape in here.items():
        assert (landscape.z == there[tag].z).all()


def test_the_reader_reads_what_load_reads(tmp_path: Path, cluster: str) -> None:
    source = several_runs(tmp_path)
    distributed = importlib.import_module("distributed")
    with distributed.Client(cluster.replace("dask://", "tcp://")) as client:
        found = rec_summary.dask.read_scalars(source)
        count = found[found["tag"] == "loss"].groupby("run")["value"].count()
        table: pd.DataFrame = load(source, tags="^loss$").scalars()
        expected = table.groupby("run", observed=True)["value"].count()
        assert count.compute(scheduler=client).to_dict() == expected.to_dict()
        is_same(found.compute(scheduler=client), source)


def test_a_command_reaches_a_cluster_by_its_address(records: Path, cluster: str) -> None:
    """A process of its own has no connection yet."""
    words = ("lineage", "--json", records)
    here = command.run(*words)
    # The command itself gives up sooner: it waits once for the engine, and once for a worker.
    there = command.run(*words, "--engine", cluster, timeout=3 * _ENGINE_SECS)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr
    assert json.loads(here.stdout)


def test_killed_workers_change_nothing(tmp_path: Path, cluster: str) -> None:
    work = functools.partial(units.dies_first, str(tmp_path), [2, 5])
    outcomes = list(run_units(parse_engine(cluster), work, range(12)))
    assert {each.number: each.result for each in outcomes} == {n: n for n in range(12)}


def test_a_unit_that_kills_all_its_workers_is_an_error(cluster: str) -> None:
    work = functools.partial(units.fails_always, {4: "die"})
    found = {each.number: each for each in run_units(parse_engine(cluster), work, range(8))}
    assert sorted(found) == list(range(8))
    assert isinstance(found[4].error, WorkerError)
    assert "killed" in str(found[4].error)
