"""Units on processes of this machine: retried, in order, reported; workers are killed."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from rec_summary import export_tensorboard
from rec_summary.engines.engine import Engine, EngineError, WorkerError
from rec_summary.engines.loky import LokyPool
from rec_summary.engines.units import PartialError, check_failures, is_here, run_units
from rec_summary.tensorboard.event_files import export
from tests.support import units
from tests.support.landscape_workers import landscape
from tests.support.record_dirs import event, scalar, write_segment
from tests.support.waiting import eventually

_TWO = Engine(jobs=2)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("in_order", [False, True])
def test_every_unit_is_done_once(jobs: int, in_order: bool) -> None:
    outcomes = list(run_units(Engine(jobs=jobs), units.square, range(100), in_order=in_order))
    assert {each.number: each.result for each in outcomes} == {n: n * n for n in range(100)}
    assert len(outcomes) == 100
    assert all(each.error is None for each in outcomes)
    if in_order or jobs == 1:
        assert [each.number for each in outcomes] == list(range(100))


def test_little_work_starts_no_process() -> None:
    assert is_here(_TWO, [1000] * 100)
    assert is_here(_TWO, [1 << 40])
    assert is_here(Engine(jobs=1), [1 << 40] * 2)
    assert not is_here(_TWO, [1 << 30] * 2)
    assert not is_here(Engine("dask"), [1])
    [outcome] = run_units(_TWO, units.process, [None])
    assert outcome.result == os.getpid()
    here = {each.result for each in run_units(_TWO, units.process, range(9), sizes=[9] * 9)}
    assert here == {os.getpid()}
    there = {each.result for each in run_units(_TWO, units.process, range(9))}
    assert os.getpid() not in there


def test_units_that_are_sent_together_are_prepared_together() -> None:
    sizes = [1 << 24] * 32
    found = list(run_units(_TWO, units.same, range(32), sizes=sizes, ahead=units.counted))
    assert {each.number: each.result for each in found} == {n: (n, 2) for n in range(32)}


@pytest.mark.parametrize("in_order", [False, True])
def test_a_unit_that_fails_is_tried_again(tmp_path: Path, in_order: bool) -> None:
    work = functools.partial(units.fails_first, str(tmp_path), [3], "raise")
    outcomes = list(run_units(_TWO, work, range(6), in_order=in_order))
    assert {each.number: each.result for each in outcomes} == {n: n for n in range(6)}


@pytest.mark.parametrize("in_order", [False, True])
def test_a_unit_whose_worker_is_killed_is_done_again(tmp_path: Path, in_order: bool) -> None:
    work = functools.partial(units.fails_first, str(tmp_path), [2, 5], "die")
    outcomes = list(run_units(_TWO, work, range(12), sizes=[1 << 24] * 12, in_order=in_order))
    assert {each.number: each.result for each in outcomes} == {n: n for n in range(12)}
    assert len(outcomes) == 12


def test_the_rest_is_done_when_units_fail_each_time() -> None:
    work = functools.partial(units.fails_always, {1: "raise", 4: "die", 6: "odd"})
    found = {each.number: each for each in run_units(_TWO, work, range(8))}
    assert {place: each.result for place, each in found.items()} == {
        **{n: n for n in range(8)},
        **dict.fromkeys((1, 4, 6)),
    }
    assert str(found[1].error) == "unit 1"
    assert isinstance(found[1].error, ValueError)
    assert isinstance(found[4].error, WorkerError)
    assert str(found[6].error) == "Odd: unit 6"  # of a class that cannot be sent


def test_blocks_of_units_that_all_fail_are_reported_in_order() -> None:
    work = functools.partial(units.fails_always, dict.fromkeys(range(40), "raise"))
    outcomes = list(run_units(_TWO, work, range(40), sizes=[1 << 20] * 40, in_order=True))
    assert [(each.number, str(each.error)) for each in outcomes] == [
        (n, f"unit {n}") for n in range(40)
    ]


def test_a_worker_is_killed_while_an_outcome_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[Any] = []
    renew = LokyPool.renew

    def renewed(pool: Any) -> None:
        renew(pool)
        pools.append(pool._pool)

    monkeypatch.setattr(LokyPool, "renew", renewed)
    outcomes = run_units(_TWO, units.process, range(12))
    found = [next(outcomes)]
    psutil.Process(found[0].result).kill()
    broken = pools[0]
    eventually(lambda: broken._flags.broken)
    found += outcomes
    assert sorted(each.number for each in found) == list(range(12))
    assert not any(each.error for each in found)


def test_the_error_of_several_units() -> None:
    check_failures({}, 9, "read")
    with pytest.raises(KeyError):
        check_failures({"a": KeyError("a")}, 9, "read")
    with pytest.raises(PartialError, match=r"2 of 9 runs could not be read\.\n  a: one\n  b: two$"):
        check_failures({"a": OSError("one"), "b": OSError("two")}, 9, "read")


def test_a_pool_that_takes_nothing_is_reported_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(*_: Any) -> Any:
        raise RuntimeError("no process\nand much more")

    loky = pytest.importorskip("joblib.externals.loky")
    monkeypatch.setattr(loky.ProcessPoolExecutor, "submit", submit)
    with pytest.raises(EngineError, match=r"lost: no process\. Expected: .*fewer --jobs.*goes on"):
        list(run_units(_TWO, units.square, [1, 2]))


def _die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_workers_of_an_export_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rec_summary.engines.units._SMALL", 0)
    for name in ("a", "b"):
        write_segment(tmp_path / "records" / name, event(1, scalar("loss", 1)))
    with monkeypatch.context() as patch:
        patch.setattr(export, "_export_one", _die)
        with pytest.raises(
            (WorkerError, PartialError), match=r"killed.*fewer --jobs and run it again"
        ):
            export_tensorboard(tmp_path / "records", tmp_path / "logs", jobs=2)
    assert len(export_tensorboard(tmp_path / "records", tmp_path / "logs", jobs=2).runs) == 2


def test_a_killed_worker_of_a_landscape_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"killed.*points that are finished are kept"):
        landscape(tmp_path, "die")
