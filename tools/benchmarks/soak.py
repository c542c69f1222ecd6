"""A very long online training with the collector attached: do memory and disk stay flat?"""

from __future__ import annotations

import itertools
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import mindspore
import numpy as np
import psutil
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback

from rec_summary import RecModel, SummaryCollector

_VOCABULARY, _WIDTH, _BATCH = 1000, 8, 32
_SAMPLES = 20
_MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """What the process and its records took at a step."""

    step: int
    seconds: float
    memory: int  # resident, in bytes
    disk: int  # record files, in bytes
    files: int


class Watch(Callback):
    """Takes samples at even distances, and stops the training at the end."""

    def __init__(self, folder: Path, steps: int) -> None:
        super().__init__()
        self.samples: list[Sample] = []
        self._folder, self._steps = folder, steps
        self._process = psutil.Process()
        self._begin = time.perf_counter()

    def on_train_step_end(self, run_context) -> None:
        step = run_context.original_args().cur_step_num
        if step % max(1, self._steps // _SAMPLES) == 0:
            sizes = [path.stat().st_size for path in self._folder.glob("*summary*")]
            seconds = time.perf_counter() - self._begin
            memory = self._process.memory_info().rss
            sample = Sample(step, seconds, memory, sum(sizes), len(sizes))
            self.samples.append(sample)
            click.echo(
                f"{sample.step:>10,}  {sample.memory / _MIB:8.1f}  {sample.disk / _MIB:8.2f}  "
                f"{sample.files:5}  {step / seconds:8,.0f}"
            )
        if step >= self._steps:
            run_context.request_stop()


class Network(nn.Cell):
    """Ids (N, 2) to logits (N, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(_VOCABULARY, _WIDTH)
        self.head = nn.Dense(2 * _WIDTH, 1)

    def construct(self, ids):
        return self.head(self.table(ids).reshape((-1, 2 * _WIDTH)))


def _rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    batches = []
    for _ in range(64):
        ids = random.integers(0, _VOCABULARY, (_BATCH, 2), dtype=np.int32)
        batches.append((ids, (ids[:, :1] % 2).astype(np.float32)))
    yield from itertools.cycle(batches)


@click.command()
@click.option("--steps", type=click.IntRange(min=_SAMPLES), default=1_000_000, show_default=True)
@click.option("--collect-freq", type=click.IntRange(min=1), default=10, show_default=True)
def main(steps: int, collect_freq: int) -> None:
    """Train online for STEPS steps and print memory and disk along the way."""
    click.echo(
        f"{platform.processor() or platform.machine()}, {psutil.cpu_count()} cores, "
        f"Python {platform.python_version()}, MindSpore {mindspore.__version__}; "
        f"collect_freq={collect_freq}, files of 4 MiB, at most 32 MiB\n"
    )
    click.echo("      step    RSS MiB  disk MiB  files   steps/s")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    network = Network()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=1e-3)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        watch = Watch(folder, steps)
        collector = SummaryCollector(
            folder, collect_freq=collect_freq, max_file_size=4 * _MIB, max_total_bytes=32 * _MIB
        )
        stream = GeneratorDataset(_rows, ["ids", "label"])
        model.online_train(stream, callbacks=[collector, watch], dataset_sink_mode=False)
    _conclude(watch.samples, collector.troubles)


def _conclude(samples: list[Sample], troubles: dict[str, int]) -> None:
    """Prints how memory grew after the first tenth, in which everything warms up."""
    settled = samples[len(samples) // 10 :]
    steps = np.array([sample.step for sample in settled], dtype=np.float64)
    memory = np.array([sample.memory for sample in settled], dtype=np.float64)
    slope = np.polyfit(steps, memory, 1)[0] * 1e6 / _MIB
    click.echo(
        f"\nmemory after the first tenth: {memory.min() / _MIB:.1f} to {memory.max() / _MIB:.1f} "
        f"MiB, slope {slope:+.2f} MiB in a million steps; telemetry failures: {troubles or 'none'}"
    )


if __name__ == "__main__":
    main()
