"""Clusters that cannot be reached are reported, with what is missing."""

from __future__ import annotations

import socket
import sys

import pytest

from rec_summary.engines.engine import Engine, EngineError, parse_engine
from rec_summary.engines.units import run_units
from tests.support import units


def test_a_scheduler_that_is_not_there() -> None:
    pytest.importorskip("distributed")
    message = r"the engine is invalid\. Received: dask://localhost:1: .*refused.*Expected: a sched"
    with pytest.raises(EngineError, match=message):
        list(run_units(parse_engine("dask://localhost:1"), units.square, [1]))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EngineError, match=r"Expected: one .*pip install 'rec_summary\[dask\]'"):
        list(run_units(parse_engine("dask://localhost:1"), units.square, [1]))


def test_an_address_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("REC_SUMMARY_ENGINE_SECS", "0.5")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EngineError, match=r"dask://127.*Expected: a scheduler with workers"):
            list(run_units(Engine("dask", address), units.square, [1]))


@pytest.mark.parametrize("text", ["abc", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_of_seconds(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("REC_SUMMARY_ENGINE_SECS", text)
    message = f"^REC_SUMMARY_ENGINE_SECS is invalid.*{text}.*a number of seconds above 0"
    with pytest.raises(EngineError, match=message):
        list(run_units(Engine("dask", "localhost:1"), units.square, [1]))


def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("REC_SUMMARY_ENGINE_SECS", "1")
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        engine = Engine("dask", cluster.scheduler_address.removeprefix("tcp://"))
        with pytest.raises(EngineError, match=r"Expected: a scheduler with workers: "):
            list(run_units(engine, units.square, [1]))
