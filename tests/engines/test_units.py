"""Units on processes of this machine: in order, reported; workers are killed."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rec_summary.engines.engine import Engine, WorkerError
from rec_summary.engines.units import PartialError, check_failures, is_here, run_units
from tests.support import units
from tests.support.landscape_workers import landscape

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
def test_what_a_killed_worker_has_not_done_is_done_by_others(
    tmp_path: Path, in_order: bool
) -> None:
    work = functools.partial(units.dies_first, str(tmp_path), [2])
    outcomes = list(run_units(_TWO, work, range(12), sizes=[1 << 24] * 12, in_order=in_order))
    assert {each.number: each.result for each in outcomes} == {n: n for n in range(12)}
    assert len(outcomes) == 12


def test_a_unit_that_kills_the_new_workers_too_is_an_error() -> None:
    work = functools.partial(units.fails_always, {4: "die"})
    outcomes = run_units(_TWO, work, range(8), in_order=True)
    assert [next(outcomes).result for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(
        WorkerError, match=r"killed; .*memory runs out.*use fewer --jobs and run it again; it goes"
    ):
        next(outcomes)


def test_the_rest_is_done_when_units_fail() -> None:
    work = functools.partial(units.fails_always, {1: "raise", 6: "odd"})
    found = {each.number: each for each in run_units(_TWO, work, range(8))}
    assert {place: each.result for place, each in found.items()} == {
        **{n: n for n in range(8)},
        **dict.fromkeys((1, 6)),
    }
    assert str(found[1].error) == "unit 1"
    assert isinstance(found[1].error, ValueError)
    assert str(found[6].error) == "Odd: unit 6"  # of a class that cannot be sent


def test_blocks_of_units_that_all_fail_are_reported_in_order() -> None:
    work = functools.partial(units.fails_always, dict.fromkeys(range(40), "raise"))
    outcomes = list(run_units(_TWO, work, range(40), sizes=[1 << 20] * 40, in_order=True))
    assert [(each.number, str(each.error)) for each in outcomes] == [
        (n, f"unit {n}") for n in range(40)
    ]


def test_workers_are_killed_while_an_outcome_is_held() -> None:
    outcomes = run_units(_TWO, units.process, range(12))
    found = [next(outcomes)]
    children = psutil.Process().children()
    workers = [child for child in children if "popen_loky" in " ".join(child.cmdline())]
    psutil.Process(found[0].result).kill()
    psutil.wait_procs(workers)  # the pool ends them all, and takes nothing more
    found += outcomes
    assert sorted(each.number for each in found) == list(range(12))
    assert not any(each.error for each in found)


def test_the_error_of_several_units() -> None:
    check_failures({}, 9, "read")
    with pytest.raises(KeyError):
        check_failures({"a": KeyError("a")}, 9, "read")
    with pytest.raises(PartialError, match=r"2 of 9 runs could not be read\.\n  a: one\n  b: two$"):
        check_failures({"a": OSError("one"), "b": OSError("two")}, 9, "read")


_NO_PROCESS = """
import os, resource
from rec_summary.engines.engine import Engine, EngineError
from rec_summary.engines.units import run_units
from tests.support import units
import joblib.externals.loky
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), 1 << 10))
try:
    list(run_units(Engine(jobs=2), units.square, [1, 2]))
except EngineError as error:
    print(error)
"""


def test_processes_that_cannot_be_started_are_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NO_PROCESS], stdout=subprocess.PIPE, text=True, check=True
    )
    expected = r"Received: loky, which was lost: .*files\. Expected: .*fewer --jobs.*goes on"
    assert re.search(expected, done.stdout)


def test_a_killed_worker_of_a_landscape_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"killed.*points that are finished are kept"):
        landscape(tmp_path, "die")
