"""A very long online training with the collector: do memory and disk stay flat?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..contest import Contestant, Settings, alternate, column
from ..results import Row

_VOCABULARY, _WIDTH, _BATCH = 1000, 8, 32
_SAMPLES = 20  # of memory and disk
_MIB = 1 << 20


def online(settings: Settings) -> tuple[str, list[Row]]:
    """Trains once, for a million steps."""
    steps = settings.size(1_000_000, 4_000)
    rounds = alternate([Contestant("ours", train, {"steps": steps})], settings.once())
    setting = (
        f"{steps:,} steps of `online_train` with collect_freq=10 and a budget of 32 MiB; "
        f"{_SAMPLES} samples, memory without the first tenth of them and without the process that "
        "makes old records coarser."
    )
    units = {"memory, least": "MiB", "memory, most": "MiB", "memory, slope": "MiB/million steps"}
    units |= {"disk, most": "MiB", "files, most": "files", "pace": "steps/s", "failures": "counted"}
    return setting, [Row(what, unit, column(rounds, "ours", what)) for what, unit in units.items()]


def train(work: str, steps: int) -> dict[str, float]:
    """Trains, and measures this process and its records on the way."""
    import time

    import mindspore
    import numpy as np
    import psutil
    from mindspore import nn
    from mindspore.dataset import GeneratorDataset
    from mindspore.train import Callback

    from rec_summary import RecModel, Retention, SummaryCollector

    samples: list[tuple[int, int, int, int]] = []  # step, resident bytes, bytes on disk, files
    process = psutil.Process()

    class Watch(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            step = run_context.original_args().cur_step_num
            if step % (steps // _SAMPLES) == 0:
                sizes = [path.stat().st_size for path in Path(work).glob("*summary*")]
                samples.append((step, process.memory_info().rss, sum(sizes), len(sizes)))
            if step >= steps:
                run_context.request_stop()

    class Network(nn.Cell):
        """Ids (N, 2) to logits (N, 1)."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(_VOCABULARY, _WIDTH)
            self.head = nn.Dense(2 * _WIDTH, 1)

        def construct(self, ids: Any) -> Any:
            return self.head(self.table(ids).reshape((-1, 2 * _WIDTH)))

    def rows() -> Iterator[tuple[Any, Any]]:
        random = np.random.default_rng(0)
        ids = [random.integers(0, _VOCABULARY, (_BATCH, 2), dtype=np.int32) for _ in range(64)]
        yield from itertools.cycle(
            [(batch, (batch[:, :1] % 2).astype(np.float32)) for batch in ids]
        )

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    network = Network()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=1e-3)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    budget = Retention(total_bytes=32 * _MIB)
    collector = SummaryCollector(work, collect_freq=10, retention=budget)
    began = time.perf_counter()
    stream = GeneratorDataset(rows, ["ids", "label"])
    model.online_train(stream, callbacks=[collector, Watch()], dataset_sink_mode=False)
    pace = steps / (time.perf_counter() - began)
    watched = np.array(samples, dtype=np.float64)
    settled = watched[_SAMPLES // 10 :]
    memory = settled[:, 1] / _MIB
    return {
        "memory, least": memory.min(),
        "memory, most": memory.max(),
        "memory, slope": np.polyfit(settled[:, 0] / 1e6, memory, 1)[0],
        "disk, most": watched[:, 2].max() / _MIB,
        "files, most": watched[:, 3].max(),
        "pace": pace,
        "failures": sum(collector.troubles.values()),
    }
