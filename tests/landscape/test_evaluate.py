from __future__ import annotations

import concurrent.futures
import os
import signal
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
from rec_summary.landscape.evaluate import EvaluationTask, evaluate, forget
from rec_summary.landscape.store import Store, read_plane
from tests.support import quadratic
from tests.support.quadratic import plane_store
from tests.support.waiting import eventually


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return plane_store(tmp_path)


def test_a_store_holds_the_plane_for_all_workers(store: Store) -> None:
    origin, first, second = read_plane(store.folder)
    assert set(origin) == {*quadratic.SHAPES, "norm.moving_mean", "global_step"}
    assert set(first) == set(second) == set(quadratic.SHAPES)
    assert isinstance(first["head.bias"], np.memmap)  # shared, not copied


def test_losses_are_there_after_they_were_saved(store: Store, tmp_path: Path) -> None:
    assert len(store.missing) == 5 * 5 + 6
    store.put([7, 26], [0.5, np.nan], 64)
    store.save()
    again = quadratic.opened_store(tmp_path)
    assert sorted({*range(31)} - {*again.missing.tolist()}) == [7, 26]
    assert again.grid[1, 2] == 0.5
    assert np.isnan(again.path[1])
    assert again.samples == 64
    assert len(quadratic.opened_store(tmp_path, {"n": 2}).missing) == 31  # another computation


@pytest.mark.parametrize("damage", [b"", b"damage", bytes(31 * 16 - 1), bytes(31 * 16 + 1)])
def test_damaged_losses_are_computed_again(store: Store, tmp_path: Path, damage: bytes) -> None:
    store.put([7], [0.5], 64)
    store.save()
    (Path(store.folder) / "losses.bin").write_bytes(damage)
    assert len(quadratic.opened_store(tmp_path).missing) == 31


@dataclass(frozen=True)
class Counting:
    """Creates models of which it counts how many there are, and has a function that is sent.

    Attributes:
        file: Gets a line for each model: the process and its device.
        function: The function.
        at_once: How many models there must be before the first one is there.
        then: What else happens.
    """

    file: str
    function: Callable[[], int] = int
    at_once: int = 1
    then: Callable[[], object] = int
    fingerprint = "counting"

    def __call__(self, device: int | None) -> Slow:
        with open(self.file, "a") as lines:
            lines.write(f"{os.getpid()} {device}\n")
        eventually(Path(self.file).read_text, lambda text: text.count("\n") >= self.at_once)
        self.then()
        return Slow()


def devices(file: Path) -> list[str]:
    """Returns the devices of the models so far, sorted, and forgets them."""
    found = sorted(line.split()[1] for line in file.read_text().splitlines())
    file.unlink()
    return found


def test_each_worker_makes_a_model_once_of_a_function_that_is_sent(
    store: Store, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    make = Counting(str(made), lambda: 1)  # a new object in each block
    for number in (3, 5):  # the second computation makes a model of its own
        task = EvaluationTask(make, store.folder, (number,))
        found = list(evaluate(task, store.points, range(9), Engine("loky", jobs=2)))
        assert sorted(index for indices, *_ in found for index in indices) == list(range(9))
    lines = made.read_text().splitlines()
    assert len(set(lines)) == len(lines)
    assert {line.split()[1] for line in lines} == {"3", "5"}


def test_each_worker_gets_a_device_of_its_own(store: Store, tmp_path: Path) -> None:
    made = tmp_path / "made"
    make = Counting(str(made), at_once=3)
    for _ in range(2):  # workers may keep the devices of an earlier computation
        task = EvaluationTask(make, store.folder, (3, 5))
        assert len(list(evaluate(task, store.points, range(9), Engine("loky", jobs=3)))) == 9
        assert devices(made) == ["3", "3", "5"]  # more workers than devices
    task = EvaluationTask(Counting(str(made)), store.folder)
    assert list(evaluate(task, store.points, [0], Engine("sequential")))
    forget()
    assert devices(made) == ["None"]


def test_a_device_of_a_process_that_is_gone_is_claimed_again(store: Store, tmp_path: Path) -> None:
    made, token = tmp_path / "made", uuid.uuid4().hex
    program = (
        f"import os, sys; from {__name__} import evaluated; evaluated(*sys.argv[1:], then=os.abort)"
    )
    command = [sys.executable, "-c", program, store.folder, str(made), token]
    for _ in range(2):
        process = subprocess.run(command, cwd=os.getcwd(), capture_output=True, check=False)
        assert process.returncode == -signal.SIGABRT
        assert devices(made) == ["3"]
    evaluated(store.folder, str(made), token)
    assert devices(made) == ["3"]


def evaluated(folder: str, made: str, token: str, then: Callable[[], object] = int) -> None:
    """Evaluates a point in this process, which has one of the devices 3 and 5 meanwhile."""
    task = EvaluationTask(Counting(made, then=then), folder, (3, 5), token)
    assert list(evaluate(task, np.zeros((1, 2)), [0], Engine("sequential")))
    forget()


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

    def loss(index: int) -> float:
        [(_, [found], _)] = evaluate(task, store.points, [index], Engine("sequential"))
        return found

    indices = range(len(store.points))
    alone = list(map(loss, indices))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(loss, indices)) == alone
    forget()
