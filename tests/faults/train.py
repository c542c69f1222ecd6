"""Trains online, in one of the ways in which training meets trouble.

python -m tests.faults.train FOLDER SCENARIO [STEPS]

Prints `step <n> <seconds>` after each step, `flushed <n>` when the collector says that all up
to this step is with the operating system, `digest <sha256>` of the parameters at the end, and
`troubles <json>`. SCENARIO `alone…` trains without a collector.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore
import mindspore.dataset
import numpy as np
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback

from rec_summary import Durability, RecommenderMetrics, SummaryCollector
from tests.faults.children import TRAINER_FLUSH_SECS
from tests.faults.rows import Rows
from tests.support.nets import COLUMNS, ClickNet, batch_of_clicks, click_model, clicks
from tests.support.slow_disk import slow_down

DAY = 86_400.0
NOBODY = 65534
AT_STEP = 20  # the trouble comes
LAST_STEPS = 50  # when a disk that drops moves again; the queue is full long before
disk_moves = threading.Event()


class Fault(Callback):
    """Tells what happens, and does what the scenario says at a step."""

    def __init__(
        self, scenario: str, folder: Path, steps: int, collector: SummaryCollector | None
    ) -> None:
        super().__init__()
        self.scenario, self.folder, self.steps = scenario, folder, steps
        self.collector = collector

    def on_train_step_end(self, run_context: Any) -> None:
        step = run_context.original_args().cur_step_num
        print("step", step, time.monotonic(), flush=True)
        # A flush waits for a slow disk, and the queue would never be full.
        waits = self.collector is not None and not self.scenario.startswith("slow disk")
        if self.collector is not None and waits and step % 25 == 0 and self.collector.flush():
            print("flushed", step, flush=True)
        act = getattr(self, self.scenario.replace(" ", "_"), None)
        if act is not None and step == AT_STEP:
            act()
        if self.scenario == "slow disk, drop":  # slower than any training
            if step == AT_STEP:
                disk_moves.clear()
            elif step == self.steps - LAST_STEPS:
                disk_moves.set()
        if step == self.steps:
            run_context.request_stop()
        if self.scenario in ("endless", "directory deleted", "directory moved"):
            time.sleep(0.005)

    def directory_deleted(self) -> None:
        # At once: what is deleted file by file, the writer may find half deleted, and begin again.
        gone = self.folder.with_name("gone")
        self.folder.rename(gone)
        shutil.rmtree(gone)

    def directory_moved(self) -> None:
        self.folder.rename(f"{self.folder}-moved")

    def directory_read_only(self) -> None:
        self.folder.chmod(0o500)
        if os.getuid() == 0:
            os.setuid(NOBODY)  # permissions mean nothing to root

    def clock_steps_back(self) -> None:
        real = time.time
        time.time = lambda: real() - DAY  # type: ignore[assignment]

    def error_in_callback(self) -> None:
        raise ZeroDivisionError("a callback of the user's own")

    def sys_exit(self) -> None:
        sys.exit(3)

    def fork(self) -> None:
        child = os.fork()
        if child == 0:  # a child that uses, and closes, what it has inherited
            assert self.collector is not None
            self.collector.flush()
            self.collector.__exit__(None, None, None)
            os.kill(os.getpid(), signal.SIGKILL)  # it must not go on as the parent does
        os.waitpid(child, 0)


def break_network(network: Any) -> None:
    """Makes the network fail at its next call after `AT_STEP` of them."""
    calls = 0

    def failing(cell: Any, inputs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > AT_STEP:
            raise ZeroDivisionError("a network of the user's own")

    network.register_forward_pre_hook(failing)


def source(scenario: str, steps: int) -> Any:
    """Returns the data of a scenario."""
    if scenario == "error in dataset":

        def failing() -> Iterator[Any]:
            for number in range(AT_STEP):
                yield batch_of_clicks(number)
            raise ZeroDivisionError("the stream broke")

        return GeneratorDataset(failing, COLUMNS)
    if scenario.startswith("workers"):
        mindspore.dataset.config.set_multiprocessing_start_method(scenario.split()[1])
        return GeneratorDataset(
            Rows(steps), COLUMNS, shuffle=False, num_parallel_workers=2, python_multiprocessing=True
        )
    return GeneratorDataset(clicks(), COLUMNS)


def options(scenario: str) -> dict[str, Any]:
    """Returns the collector's options of a scenario."""
    if scenario == "directory read only":
        return {"max_file_size": 2000}
    if scenario in ("slow disk, drop", "slow disk, block"):
        global disk_moves
        disk_moves = slow_down(0.02 if scenario == "slow disk, block" else 0.0)
        return {"durability": Durability(back_pressure=scenario.split()[-1])}
    if scenario == "fsync at each flush":
        return {"durability": Durability(fsync="flush")}
    if scenario == "metrics slower than training":
        return {"recommender": slow_metrics()}
    return {}


def slow_metrics() -> RecommenderMetrics:
    """Returns metrics of so many examples in each step that counting takes seconds."""
    users = np.arange(1_000_000)
    scores, labels = users % 1000 / 1000, users % 3 == 0
    return RecommenderMetrics(
        predictions=lambda *_: scores,
        labels=lambda *_: labels,
        users=lambda *_: users,
        report_steps=10,
        detail=True,
    )


def main() -> None:
    folder, scenario = Path(sys.argv[1]), sys.argv[2]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_seed(1)
    collector = None
    if not scenario.startswith("alone"):
        collector = SummaryCollector(
            folder, collect_freq=1, flush_secs=TRAINER_FLUSH_SECS, **options(scenario)
        )
    network = ClickNet()
    model = click_model(network)
    data = source(scenario, steps)
    if scenario == "error in network":
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        break_network(network)
    fault = Fault(scenario, folder, steps, collector)
    callbacks = [fault] if collector is None else [collector, fault]
    try:
        model.online_train(data, callbacks=callbacks, dataset_sink_mode=False)
    finally:
        digest = hashlib.sha256()
        for parameter in network.get_parameters():
            digest.update(parameter.asnumpy().tobytes())
        print("digest", digest.hexdigest(), flush=True)
        if collector is not None:
            print("troubles", json.dumps(collector.troubles), flush=True)


if __name__ == "__main__":
    main()
