"""What the metrics of recommenders cost: for a large batch, and for the steps of the demo.

    python -m tools.benchmarks.recommender batch [--times 300]
    python -m tools.benchmarks.recommender demo [--steps 12000] [--rounds 3] [--report-steps 500]

`batch` hands 4,096 x 26 ids, predictions, labels and users to the step hook, as a training would,
and times the training thread; 26 tables of 100,000 rows. `demo` trains the model of `tools/demo`
on a synthetic stream and switches the metrics on and off in turn.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_ROWS, _TABLES, _BATCH = 100_000, 26, 4096
_WARM = 600  # steps that are left out


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("batch", "demo", "train"))
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--report-steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.what == "batch":
        batch(arguments.times)
    elif arguments.what == "demo":
        demo(arguments.steps, arguments.rounds, arguments.report_steps)
    else:
        train(arguments.steps, arguments.report_steps)


def batch(times: int) -> None:
    """Times the step hook for large batches, with one report every hundred steps."""
    import numpy as np
    from mindspore import Parameter, Tensor, nn

    from rec_summary import RecommenderMetrics
    from rec_summary.records.failures import Troubles
    from rec_summary.records.writing.run_writer import Durability, Retention
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
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, Retention(), 1.0, Durability(), troubles)
        recorder.open(0)
        telemetry = RecommenderTelemetry(options, folder, recorder, troubles)
        telemetry.begin(StepView(Context(network=network, train_network=network)), _environment())
        thread, wall, used, began = [], [], time.process_time(), time.perf_counter()
        for step in range(1, times + 1):
            inputs, outputs = steps[step % len(steps)]
            view = StepView(Context(train_dataset_element=inputs, net_outputs=outputs))
            time.sleep(0.02)  # what a training does meanwhile, without taking the processor
            telemetry.begin_step()
            before, cpu = time.perf_counter(), time.thread_time()
            telemetry.end_step(view, step)
            thread.append(1000 * (time.thread_time() - cpu))
            wall.append(1000 * (time.perf_counter() - before))
        own = sum(thread) / 1000
        telemetry.end()
        recorder.close()
        used, elapsed = time.process_time() - used, time.perf_counter() - began
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
    print(f"{times} batches of {_BATCH:,} x {_TABLES} ids, on the training thread:")
    for name, each in (("processor time", thread), ("wall time", wall)):
        ordered = sorted(each)
        print(
            f"  {name:15} mean {statistics.mean(each):.3f} ms, "
            f"median {statistics.median(each):.3f} ms, p99 {ordered[int(0.99 * times)]:.3f} ms, "
            f"largest {ordered[-1]:.3f} ms"
        )
    print(f"on the writer's thread: {1000 * (used - own) / times:.3f} ms a batch, processor time")
    print(f"{size / 1e6:.1f} MB of records in {elapsed:.0f} s; troubles: {troubles.counts}")


def _environment() -> Any:
    from rec_summary.training.lineage.lineage import this_environment

    return this_environment()


def demo(steps: int, rounds: int, report_steps: int) -> None:
    """Compares steps of the demo with and without the metrics."""
    for _ in range(rounds):
        # A process each: MindSpore compiles once for a process.
        command = [
            sys.executable,
            "-m",
            "tools.benchmarks.recommender",
            "train",
            f"--steps={steps}",
            f"--report-steps={report_steps}",
        ]
        subprocess.run(command, cwd=_ROOT, check=True)


def train(steps: int, report_steps: int) -> None:
    """Trains once, with the metrics switched on and off in turn, and prints the times of steps.

    Blocks of two reports begin and end half-way between two, so that what the writer's thread
    does for a block falls within it.
    """
    import mindspore
    from mindspore.train import Callback
    from rich.console import Console

    from rec_summary import RecModel
    from rec_summary.training.recommender.aggregator import Aggregator
    from tools.click_demo import model, sources, training
    from tools.click_demo.meter import Meter
    from tools.click_demo.progress import ProgressLine
    from tools.click_demo.stream import ClickStream

    block_steps = 2 * report_steps

    def is_on(step: int) -> bool:
        return (step + report_steps // 2) // block_steps % 2 == 1

    class Watch(Callback):
        def __init__(self) -> None:
            super().__init__()
            self.ends: list[float] = []

        def on_train_step_end(self, run_context: Any) -> None:
            self.ends.append(time.perf_counter())
            if len(self.ends) >= steps:
                run_context.request_stop()

    mindspore.set_seed(1)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    source = sources.choose("synthetic", Path(), 1)
    scorer = model.WideDeep(source.vocabulary)
    trainee = RecModel(
        model.ClickEvaluation(scorer), optimizer=model.adam(scorer), keep_outputs=True
    )
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        collector = training.make_collector(source, Path(folder), seed=1, batch_size=64)
        telemetry = collector._recommender
        assert telemetry is not None
        telemetry._options = replace(telemetry._options, report_steps=report_steps)
        take, spent = telemetry.step_ended, []

        def step_ended(view: Any, step: int) -> None:
            if is_on(step):
                began = time.thread_time()
                take(view, step)
                spent.append(1000 * (time.thread_time() - began))

        telemetry.step_ended = step_ended  # type: ignore[method-assign]
        work, counted = Aggregator.work, []

        def timed(engine: Aggregator, batches: Any, report: Any) -> bytes:
            began = time.thread_time()
            try:
                return work(engine, batches, report)
            finally:
                counted.append(1000 * (time.thread_time() - began))

        Aggregator.work = timed  # type: ignore[method-assign]
        trainee.online_train(
            training.as_dataset(ClickStream(source.chunks, source.vocabulary, 64)),
            callbacks=[collector, ProgressLine(Meter(64), steps, Console(quiet=True)), watch],
            dataset_sink_mode=False,
        )
        assert not collector.troubles, collector.troubles
    steps_of: dict[bool, list[float]] = {False: [], True: []}
    blocks: dict[bool, list[float]] = {False: [], True: []}
    taken = [1000 * (after - before) for before, after in pairwise(watch.ends)]
    warm = block_steps * -(-_WARM // block_steps)
    for first in range(warm + block_steps - report_steps // 2, steps - block_steps, block_steps):
        block = taken[first - 2 : first - 2 + block_steps]  # the first step has no time
        steps_of[is_on(first)] += block
        blocks[is_on(first)].append(statistics.mean(block))
    # Of the blocks the median: what other processes of the machine have done comes in bursts.
    mean, more = (statistics.median(blocks[metrics]) for metrics in (False, True))
    median, higher = (statistics.median(steps_of[metrics]) for metrics in (False, True))
    print(
        f"step without the metrics: mean of a block {mean:.3f} ms, median {median:.3f} ms; with "
        f"them: {more:.3f} ms ({100 * (more / mean - 1):+.1f} %), median {higher:.3f} ms "
        f"({100 * (higher / median - 1):+.1f} %); in the hook {statistics.mean(spent):.3f} ms and "
        f"on the writer's thread {sum(counted) / len(spent):.3f} ms, processor time of a step"
    )


if __name__ == "__main__":
    main()
