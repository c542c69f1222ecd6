"""What the metrics of recommenders cost: for a large batch, and for the steps of the demo."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..contest import ROOT, Contestant, Settings, alternate, column
from ..results import Row, Target

_ROWS, _TABLES, _BATCH = 100_000, 26, 4096
_WARM = 600  # steps that are left out
_TASKS = ("ctr", "cvr")
_WINDOW, _COMPUTED = 100_000, 100  # examples, and steps from one report to the next
_PEER_WINDOW = 10_000_000  # TorchRec's default: its AUC is of all examples of the run, as ours is
_STEP = 0.005  # seconds
_BLOCK = 200  # steps with or without the metrics
_TORCHREC = ROOT / ".venv-torchrec" / "bin" / "python"


def recommender(settings: Settings) -> tuple[str, list[Row]]:
    """Measures the step hook for a large batch, and the steps of the demo."""
    times, steps = settings.size(300, 20), settings.size(12_000, 2_000)
    reports = settings.size(500, 100)
    large = Contestant("batch", batch, {"times": times})
    trained = Contestant("demo", demo, {"steps": steps, "report_steps": reports})
    found = alternate([large, trained], settings)
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
    from rec_summary.training.lineage.lineage import this_environment
    from rec_summary.training.recommender.telemetry import RecommenderTelemetry
    from rec_summary.training.recorder import Recorder, RecorderOptions
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
    recorder = Recorder(RecorderOptions(work), troubles)
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


def beside_torchrec(settings: Settings) -> tuple[str, list[Row]]:
    """Measures two tasks beside the metrics of TorchRec, and what they add to a step of 5 ms."""
    steps, long = settings.size(1000, 200), settings.size(4000, 800)
    few = settings.size(300, 200)  # as a report with the default window sorts all examples so far
    windows = (("TorchRec", _WINDOW, steps), ("default window", _PEER_WINDOW, few))
    found = alternate(
        [
            Contestant("ours", two_tasks, {"steps": steps}),
            *(
                Contestant(name, torchrec_module, {"steps": n, "window": size}, str(_TORCHREC))
                for name, size, n in windows
            ),
            Contestant("step", five_ms, {"steps": long}),
        ],
        settings,
    )
    setting = (
        f"Two tasks, batches of {_BATCH:,}, {steps:,} steps with pauses of {1000 * _STEP:.0f} ms, "
        f"the metrics of all examples and of the last {_WINDOW:,}, reported every {_COMPUTED} "
        "steps. TorchRec's `RecMetricModule` computes NE, calibration, click rate, AUC and AUPRC "
        "on one thread, the training's; ours has these and the others of docs/recommender.md, with "
        "curves in every fourth report. TorchRec has AUC and AUPRC of the window only, ours also "
        f"of all examples; with its default window of {_PEER_WINDOW:,}, TorchRec's are of all "
        f"examples of the run, here of {few} steps, and of no shorter window. A step of 5 ms is a "
        f"product of matrices on one of the cores; {long:,} steps, with the metrics switched on "
        f"and off in turn in blocks of {_BLOCK}."
    )
    rows = []
    for name, *_ in windows:
        for what, bound in (("training thread", 0.1), ("CPU", 0.5)):
            ours, peer = column(found, "ours", what), column(found, name, what)
            ratio = [one / other for one, other in zip(ours, peer, strict=True)]
            rows.append(
                Row(
                    f"two tasks: {what}, a step" + ("" if name == "TorchRec" else f"; {name}"),
                    "ms",
                    ours,
                    peer,
                    "TorchRec",
                    ratio,
                    "cost",
                    Target("ratio", "<=", bound) if name == "TorchRec" else None,
                )
            )
    added = column(found, "step", "added")
    return setting, [*rows, Row("step of 5 ms: added", "%", added, target=Target("ours", "<=", 3))]


def _scored() -> list[list[Any]]:
    """Returns ten batches: predictions and labels of each task in turn."""
    import numpy as np

    random, batches = np.random.default_rng(0), []
    for _ in range(10):
        arrays = []
        for shift in (2.0, 4.0):
            scores = 1 / (1 + np.exp(shift - random.normal(size=_BATCH)))
            arrays += [scores, random.random(_BATCH) < scores]
        batches.append([each.astype(np.float32) for each in arrays])
    return batches


def torchrec_module(work: str, steps: int, window: int) -> dict[str, float]:
    """Times `RecMetricModule`, all of which is on the training thread."""
    import torch
    from torchrec.metrics.metric_module import RecMetricModule, generate_metric_module
    from torchrec.metrics.metrics_config import (
        MetricsConfig,
        RecMetricDef,
        RecMetricEnum,
        RecTaskInfo,
    )

    torch.set_num_threads(1)
    tasks = [RecTaskInfo(name, f"{name}-l", f"{name}-p", f"{name}-w") for name in _TASKS]
    metric = RecMetricDef(rec_tasks=tasks, window_size=window)
    names = ("NE", "CALIBRATION", "CTR", "AUC", "AUPRC")
    config = MetricsConfig(
        rec_tasks=tasks, rec_metrics={getattr(RecMetricEnum, name): metric for name in names}
    )
    module = generate_metric_module(RecMetricModule, config, _BATCH, 1, 0, {}, torch.device("cpu"))
    batches = []
    for arrays in _scored():
        batch = {}
        for name, scores, labels in zip(_TASKS, arrays[::2], arrays[1::2], strict=True):
            batch[f"{name}-p"], batch[f"{name}-l"] = torch.tensor(scores), torch.tensor(labels)
            batch[f"{name}-w"] = torch.ones(_BATCH)
        batches.append(batch)
    for batch in batches:
        module.update(batch)
    wall, cpu = 0.0, time.process_time()
    for step in range(1, steps + 1):
        began = time.perf_counter()
        module.update(batches[step % len(batches)])
        if step % _COMPUTED == 0:
            module.compute()
        wall += time.perf_counter() - began
        time.sleep(_STEP)
    return {
        "training thread": 1000 * wall / steps,
        "CPU": 1000 * (time.process_time() - cpu) / steps,
    }


def two_tasks(work: str, steps: int) -> dict[str, float]:
    """Times the step hook of two tasks, and the writer's thread behind it."""
    telemetry, views, close = _telemetry(work)
    wall = 0.0
    for step in range(1, len(views) + 1):
        telemetry.end_step(views[step % len(views)], step)
    cpu = time.process_time()
    for step in range(1, steps + 1):
        began = time.perf_counter()
        telemetry.begin_step()
        telemetry.end_step(views[step % len(views)], len(views) + step)
        wall += time.perf_counter() - began
        time.sleep(_STEP)
    close()
    return {
        "training thread": 1000 * wall / steps,
        "CPU": 1000 * (time.process_time() - cpu) / steps,
    }


def five_ms(work: str, steps: int) -> dict[str, float]:
    """Times steps of 5 ms with and without the metrics of two tasks, in turn."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is loaded
    import numpy as np

    telemetry, views, close = _telemetry(work)
    matrix = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    began = time.perf_counter()
    for _ in range(200):
        matrix @ matrix
    products = max(1, round(_STEP / ((time.perf_counter() - began) / 200)))
    taken: dict[bool, list[float]] = {False: [], True: []}
    number = 0
    for block in range(steps // _BLOCK):
        is_on = block % 2 == 1
        began = time.perf_counter()
        for _ in range(_BLOCK):
            for _ in range(products):
                matrix @ matrix
            if is_on:
                number += 1
                telemetry.begin_step()
                telemetry.end_step(views[number % len(views)], number)
        if block > 1:
            taken[is_on].append(1000 * (time.perf_counter() - began) / _BLOCK)
    close()
    without, with_them = (statistics.median(taken[is_on]) for is_on in (False, True))
    return {"without": without, "added": 100 * (with_them / without - 1)}


def _telemetry(work: str) -> tuple[Any, list[Any], Callable[[], None]]:
    """Returns the metrics of two tasks, steps for them, and what ends them."""
    from mindspore import Tensor

    from rec_summary import RecommenderMetrics, Task
    from rec_summary.records.failures import Troubles
    from rec_summary.training.lineage.lineage import this_environment
    from rec_summary.training.recommender.telemetry import RecommenderTelemetry
    from rec_summary.training.recorder import Recorder, RecorderOptions
    from rec_summary.training.step_view import StepView

    class Context:
        def __init__(self, **arguments: Any) -> None:
            self._arguments = arguments

        def original_args(self) -> dict[str, Any]:
            return self._arguments

    options = RecommenderMetrics(
        tasks={name: Task(2 * at, 2 * at + 1) for at, name in enumerate(_TASKS)},
        last=(_WINDOW,),
        half_lives=(),
        report_steps=_COMPUTED,
        throughput=False,
        host=False,
    )
    troubles = Troubles()
    recorder = Recorder(RecorderOptions(work), troubles)
    recorder.open(0)
    telemetry = RecommenderTelemetry(options, recorder, troubles)
    telemetry.begin(StepView(Context()), this_environment(), work)
    views = [
        StepView(Context(net_outputs=tuple(map(Tensor, arrays)), batch_num=1))
        for arrays in _scored()
    ]

    def close() -> None:
        telemetry.end()
        recorder.close()
        if troubles.counts:
            raise RuntimeError(f"telemetry failed: {troubles.counts}")

    return telemetry, views, close


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
