"""What a landscape checkpoint and the replay buffer cost the training thread.

    python -m tools.benchmarks.snapshot [--times 30]

A step that is due copies all parameters, and hands them to the writer's thread; every step
hands its input rows to the replay buffer. Both are timed here as the step hook calls them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import mindspore
import numpy as np
from mindspore import Tensor, nn

from rec_summary.records.failures import Troubles
from rec_summary.training.landscape.checkpoints import LandscapeCheckpoints
from rec_summary.training.landscape.options import LandscapeOptions
from rec_summary.training.landscape.policy import EverySteps, SavePolicy

_TABLES = ((1_000, 8), (100_000, 16))
_BATCH, _FIELDS = 64, 26


def timed(action: Callable[[], object]) -> float:
    """Returns how long something takes, in milliseconds."""
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def row(what: str, times: list[float]) -> str:
    """Returns a line of the table."""
    times = sorted(times)
    p95 = times[int(len(times) * 0.95)]
    return f"{what:44} median {statistics.median(times):7.3f} ms   p95 {p95:7.3f} ms"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=30)
    times = parser.parse_args().times
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    random = np.random.default_rng(0)
    batch = [Tensor(random.integers(0, 9, (_BATCH, _FIELDS), dtype=np.int32))]
    for rows, width in _TABLES:
        network = nn.SequentialCell(nn.Embedding(rows, width), nn.Dense(width, 1))
        nbytes = sum(each.asnumpy().nbytes for each in network.get_parameters())
        options = LandscapeOptions(policy=SavePolicy(EverySteps(1)), intervals=(), replay=None)
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = LandscapeCheckpoints(folder, options, Troubles())
            found = []
            for number in range(1, times + 1):
                found.append(timed(partial(checkpoints.take, network, number, 0)))
                time.sleep(0.1)  # the writer is done before the next one
            checkpoints.close()
        print(row(f"checkpoint of {rows:,} x {width} ({nbytes / 1e6:.1f} MB)", found))
    for kind in ("first", "reservoir"):
        options = LandscapeOptions(intervals=(), replay=kind, num_samples=2048)
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = LandscapeCheckpoints(folder, options, Troubles())
            found = [timed(partial(checkpoints.see, batch)) for _ in range(50 * times)]
            checkpoints.close()
        print(row(f"replay buffer, {kind}, a batch of {_BATCH}", found))


if __name__ == "__main__":
    main()
