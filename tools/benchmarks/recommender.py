"""What the metrics of recommenders cost: for a large batch, and for the steps of the demo."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from .contest import Contestant, Settings, alternate, column
from .results import Row

_ROWS, _TABLES, _BATCH = 100_000, 26, 4096
_WARM = 600  # steps that are left out


def recommender(settings: Settings) -> tuple[str, list[Row]]:
    """Measures the step hook for a large batch, and the steps of the demo."""
    times, steps = settings.size(300, 20), settings.size(12_000, 2_000)
    reports = settings.size(500, 100)
    batches = Contestant("batch", "recommender:batch", {"times": times})
    demo = Contestant("demo", "recommender:demo", {"steps": steps, "report_steps": reports})
    found = alternate([batches, demo], settings)
    setting = (
        f"Batch: {_BATCH:,} × {_TABLES} ids, predictions, labels and users, passed to the step "
        f"hook {times} times as a training would, with {_TABLES} tables of {_ROWS:,} rows; the "
        "hook on the training thread, and the CPU time of the writer's thread. Demo: its model "
        f"on a synthetic stream, {steps:,} steps, with the metrics switched on and off in turn "
        f"in blocks of {2 * reports:,} steps."
    )
    what = {
        "batch": {"hook, median": "ms", "hook, p99": "ms", "hook, largest": "ms"}
        | {"hook CPU, mean": "ms", "writer CPU": "ms"},
        "demo": {"step without": "ms", "added": "%"},
    }
    return setting, [
        Row(f"{name}: {each}", unit, column(found, name, each))
        for name, columns in what.items()
        for each, unit in columns.items()
    ]


def batch(work: str, times: int) -> dict[str, float]:
    """Times the step hook for large batches, with one report every hundred steps."""
    import numpy as np
    from mindspore import Parameter, Tensor, nn

    from rec_summary import RecommenderMetrics
    from rec_summary.records.failures import Troubles
    from rec_summary.records.writing.run_writer import Durability, Rotation
    from rec_summary.training.lineage.lineage import this_environment
    from rec_summary.training.recommender.telemetry import RecommenderTelemetry
    from rec_summary.training.recorder import Recorder
    from rec_summary.training.step_view import StepView

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            for number in range(_TABLES):
                table = Parameter(Tensor(np.ones((_ROWS, 8), np.float32)), name=f"table_{number}")
                self.insert_param_to_cell(f"table_{number}", table)

    class Context:
        def __init__(self, **arguments: Any) -> None:
            self._arguments = arguments

        def original_args(self) -> dict[str, Any]:
            return self._arguments

    random = np.random.default_rng(0)
    network = Network()
    steps = []
    for _ in range(10):
        ids = ((random.zipf(1.2, (_BATCH, _TABLES)) - 1) % _ROWS).astype(np.int32)
        scores = random.random(_BATCH).astype(np.float32)
        labels = (random.random(_BATCH) < scores).astype(np.float32)
        users = random.integers(0, 10_000, _BATCH, dtype=np.int32)
        outputs = (Tensor(np.float32(0)), Tensor(scores), Tensor(labels))
        steps.append(([Tensor(ids), Tensor(users)], outputs))
    options = RecommenderMetrics(
        predictions=1,
        labels=2,
        users=1,
        ids={f"table_{number}": (0, number) for number in range(_TABLES)},
    )
    troubles = Troubles()
    recorder = Recorder(work, Rotation(), 1.0, Durability(), troubles)
    recorder.open(0)
    telemetry = RecommenderTelemetry(options, recorder, troubles)
    view = StepView(Context(network=network, train_network=network))
    telemetry.begin(view, this_environment(), work)
    thread, wall, began = [], [], time.process_time()
    for step in range(1, times + 1):
        inputs, outputs = steps[step % len(steps)]
        view = StepView(Context(train_dataset_element=inputs, net_outputs=outputs))
        time.sleep(0.02)  # as long as a step of a training, without its use of the processor
        telemetry.begin_step()
        before, cpu = time.perf_counter(), time.thread_time()
        telemetry.end_step(view, step)
        thread.append(1000 * (time.thread_time() - cpu))
        wall.append(1000 * (time.perf_counter() - before))
    telemetry.end()
    recorder.close()
    if troubles.counts:
        raise RuntimeError(f"telemetry failed: {troubles.counts}")
    wall.sort()
    return {
        "hook, median": statistics.median(wall),
        "hook, p99": wall[int(0.99 * times)],
        "hook, largest": wall[-1],
        "hook CPU, mean": statistics.mean(thread),
        "writer CPU": (1000 * (time.process_time() - began) - sum(thread)) / times,
    }


def demo(work: str, steps: int, report_steps: int) -> dict[str, float]:
    """Trains once, with the metrics switched on and off in turn, and returns the times of steps.

    A block is as long as two reports, and begins half-way between two, so that it includes the
    work of the writer's thread for it.
    """
    import mindspore

    from rec_summary import RecModel
    from tools.click_demo import model, sources, training
    from tools.click_demo.stream import ClickStream

    block_steps = 2 * report_steps

    def is_on(step: int) -> bool:
        return (step + report_steps // 2) // block_steps % 2 == 1

    ends: list[float] = []
    meter = training.Meter(steps, lambda *_: ends.append(time.perf_counter()))
    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    source = sources.choose("synthetic", Path(), 1)
    scorer = model.WideDeep(source.vocabulary)
    trainee = RecModel(
        model.ClickEvaluation(scorer), optimizer=model.adam(scorer), keep_outputs=True
    )
    collector = training.make_collector(source, Path(work), seed=1, batch_size=64)
    telemetry = collector._recommender
    assert telemetry is not None
    telemetry._options = replace(telemetry._options, report_steps=report_steps)
    take = telemetry.end_step

    def end_step(view: Any, step: int) -> None:
        if is_on(step):
            take(view, step)

    telemetry.end_step = end_step  # type: ignore[method-assign]
    trainee.online_train(
        training.as_dataset(ClickStream(source.chunks, source.vocabulary, 64)),
        callbacks=[collector, meter],
        dataset_sink_mode=False,
    )
    assert not collector.troubles, collector.troubles
    blocks: dict[bool, list[float]] = {False: [], True: []}
    taken = [1000 * (after - before) for before, after in pairwise(ends)]
    warm = block_steps * -(-_WARM // block_steps)
    for first in range(warm + block_steps - report_steps // 2, steps - block_steps, block_steps):
        block = taken[first - 2 : first - 2 + block_steps]  # the first step has no time
        blocks[is_on(first)].append(statistics.mean(block))
    # The median of the blocks: other processes of the machine disturb some of them.
    without, with_them = (statistics.median(blocks[metrics]) for metrics in (False, True))
    return {"step without": without, "added": 100 * (with_them / without - 1)}
