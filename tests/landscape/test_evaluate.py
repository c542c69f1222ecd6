from __future__ import annotations

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary.engines.engine import Engine
from rec_summary.landscape.evaluate import (
    EvaluationTask,
    _claim_device,
    _evaluate,
    evaluate,
    forget,
)
from rec_summary.landscape.store import Store, read_plane
from tests.support import quadratic
from tests.support.quadratic import Maker, plane_store


def claimed(task: EvaluationTask, count: int) -> list[int | None]:
    """Returns the devices of several workers at the same time."""
    with contextlib.ExitStack() as stack:
        claims = [_claim_device(task) for _ in range(count)]
        for _, claim in claims:
            if claim is not None:
                stack.enter_context(claim)
        return [device for device, _ in claims]


def test_each_worker_gets_a_device_of_its_own(tmp_path: Path) -> None:
    task = EvaluationTask(Maker(), str(tmp_path), devices=(3, 5))
    other = EvaluationTask(Maker(), str(tmp_path), devices=(3, 5))
    assert claimed(task, 3) == [3, 5, 3]  # more workers than devices
    assert claimed(task, 3) == [3, 5, 3]  # the first ones have ended
    with contextlib.ExitStack() as stack:
        _, claim = _claim_device(task)
        assert claim is not None
        stack.enter_context(claim)
        assert claimed(task, 1) == [5]
        assert claimed(other, 1) == [3]  # workers may keep the devices of an earlier computation
    assert claimed(EvaluationTask(Maker(), str(tmp_path)), 1) == [None]
    assert not os.listdir(tmp_path)


def test_a_device_of_a_process_that_is_gone_is_claimed_again(tmp_path: Path) -> None:
    token = uuid.uuid4().hex
    script = (
        "import os, signal\n"
        "from rec_summary.landscape.evaluate import EvaluationTask, _claim_device\n"
        f"claim = _claim_device(EvaluationTask(None, {str(tmp_path)!r}, (3, 5), {token!r}))\n"
        "print(claim[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    gone = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        for _ in range(2)
    ]
    assert [process.stdout for process in gone] == ["3\n", "3\n"]
    assert claimed(EvaluationTask(Maker(), str(tmp_path), (3, 5), token), 3) == [3, 5, 3]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return plane_store(tmp_path)


def test_a_store_holds_the_plane_for_all_workers(store: Store) -> None:
    origin, first, second = read_plane(store.folder)
    assert set(origin) == {*quadratic.SHAPES, "norm.moving_mean", "global_step"}
    assert set(first) == set(second) == set(quadratic.SHAPES)
    assert isinstance(first["head.bias"], np.memmap)  # shared, not copied


def test_losses_are_there_after_they_were_saved(store: Store) -> None:
    assert len(store.missing) == 5 * 5 + 6
    store.put([7, 26], [0.5, 0.25], 64)
    store.save()
    again = Store.__new__(Store)
    again.__dict__.update(store.__dict__, samples=0)
    assert again._resume('{"n": 1}')
    assert again.known.sum() == 2
    assert (again.grid[1, 2], again.path[1]) == (0.5, 0.25)
    assert again.samples == 64
    assert not again._resume('{"n": 2}')


@pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04"])
def test_damaged_losses_are_computed_again(store: Store, damage: bytes) -> None:
    (Path(store.folder) / "losses.npz").write_bytes(damage)
    assert not store._resume('{"n": 1}')


@dataclass(frozen=True)
class Counting:
    """Creates models of which it counts how many there are, and has a function that is sent."""

    file: str
    function: Callable[[], int]
    fingerprint = "counting"

    def __call__(self, device: int | None) -> Slow:
        with open(self.file, "a") as lines:
            lines.write(f"{os.getpid()} {device}\n")
        return Slow()


def test_each_worker_makes_a_model_once_of_a_function_that_is_sent(
    store: Store, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    make = Counting(str(made), lambda: 1)  # a new object in each block
    for devices in ((3,), (5,)):  # the second computation makes a model of its own
        task = EvaluationTask(make, store.folder, devices)
        found = list(evaluate(task, store.points, range(9), Engine("loky", jobs=2)))
        assert sorted(index for indices, *_ in found for index in indices) == list(range(9))
    lines = made.read_text().splitlines()
    assert len(set(lines)) == len(lines)
    assert {line.split()[1] for line in lines} == {"3", "5"}


class Slow:
    """A model whose loss is its only parameter, after other threads had their turn."""

    fingerprint = "slow"
    samples = 1

    def __call__(self, device: int | None) -> Slow:
        return self

    def set(self, name: str, value: Any) -> None:
        if name == "head.bias":
            self.value = float(value[0])

    def loss(self) -> float:
        time.sleep(0.001)
        return self.value


def test_threads_of_a_worker_do_not_share_a_point(store: Store) -> None:
    task = EvaluationTask(Slow(), store.folder)
    alone, _ = _evaluate(task, store.points)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda point: _evaluate(task, point[None])[0][0], store.points))
    forget()
    assert found == alone
