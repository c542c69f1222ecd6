"""Grid points a second: our SummaryLandscape and MindSpore's, in turn, on the same checkpoints.

    python -m tools.benchmarks.landscape [--pairs 5] [--size 8] [--samples 512]

A Wide & Deep network is trained for a few steps; each landscape is then computed in a process
of its own, in graph mode, on the same grid and samples. The time is that of the computation,
from the call to the record on disk, compiling included, without the import of MindSpore.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH, FIELDS, VOCABULARY, WIDTH = 64, 6, 1000, 8
STEPS = [2, 4, 6, 8, 10]


def network() -> Any:
    """Returns a small Wide & Deep network: ids (batch, FIELDS) to logits (batch, 1)."""
    from mindspore import nn

    class WideDeep(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.wide_weight = nn.Embedding(VOCABULARY, 1)
            self.deep_weight = nn.Embedding(VOCABULARY, WIDTH)
            self.hidden = nn.Dense(FIELDS * WIDTH, 32, activation="relu")
            self.head = nn.Dense(32, 1)

        def construct(self, ids: Any) -> Any:
            deep = self.deep_weight(ids).reshape((-1, FIELDS * WIDTH))
            wide = self.wide_weight(ids).reshape((-1, FIELDS)).sum(axis=1, keepdims=True)
            return self.head(self.hidden(deep)) + wide

    return WideDeep()


def data(samples: int) -> Any:
    """Returns clicks: ids and labels."""
    import numpy as np
    from mindspore.dataset import NumpySlicesDataset

    random = np.random.default_rng(0)
    ids = random.integers(0, VOCABULARY, (samples, FIELDS), dtype=np.int32)
    labels = (ids[:, :1] % 2).astype(np.float32)
    return NumpySlicesDataset((ids, labels), ["ids", "label"], shuffle=False).batch(BATCH)


def parts() -> tuple[Any, ...]:
    """Returns what both landscape tools want: model, network, data and metrics."""
    from mindspore import nn
    from mindspore.nn import Loss
    from mindspore.train import Model

    made, metrics = network(), {"Loss": Loss()}
    model = Model(made, nn.BCEWithLogitsLoss(), metrics=metrics)
    return model, made, data(int(os.environ["BENCH_SAMPLES"])), metrics


def train(folder: str, size: int, samples: int) -> None:
    """Trains for a few steps, and keeps the checkpoints."""
    import mindspore
    from mindspore import nn
    from mindspore.train import Model

    from rec_summary import SummaryCollector

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_seed(1)
    made = network()
    options = {
        "landscape_size": size,
        "unit": "step",
        "num_samples": samples,
        "intervals": [STEPS],
        "create_landscape": {"train": True, "result": False},
    }
    collector = SummaryCollector(folder, collect_specified_data={"collect_landscape": options})
    model = Model(made, nn.BCEWithLogitsLoss(), nn.Adam(made.trainable_params(), 1e-2))
    model.train(1, data(BATCH * STEPS[-1]), callbacks=[collector], dataset_sink_mode=False)


def compute(whose: str, folder: str) -> None:
    """Computes one landscape, and prints the seconds that it took."""
    import mindspore

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    if whose == "mindspore":
        from mindspore import SummaryLandscape

        began = time.perf_counter()
        SummaryLandscape(folder).gen_landscapes_with_multi_process(parts, device_ids=[0])
    else:
        import shutil

        from rec_summary import SummaryLandscape

        shutil.rmtree(os.path.join(folder, "landscape"), ignore_errors=True)
        began = time.perf_counter()
        SummaryLandscape(folder).gen_landscapes_with_multi_process(parts, engine="sequential")
    print(f"seconds {time.perf_counter() - began}")


def in_process(*arguments: str) -> str:
    """Runs a part of this in a process of its own; returns what it prints."""
    command = [sys.executable, "-m", "tools.benchmarks.landscape", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def main() -> None:
    """Measures in turn and prints medians, their ratio, and the spread."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["BENCH_SAMPLES"] = str(options.samples)
    os.environ.setdefault("GLOG_v", "3")
    if options.part:
        {"train": train, "compute": compute}[options.part[0]](
            *(int(each) if each.isdigit() else each for each in options.part[1:])
        )
        return
    common = ("--samples", str(options.samples), "--part")
    points = options.size**2 + len(STEPS)
    speeds: dict[str, list[float]] = {"rec_summary": [], "mindspore": []}
    with tempfile.TemporaryDirectory() as base:
        folder = str(Path(base, "run"))
        in_process(*common, "train", folder, str(options.size), str(options.samples))
        for _ in range(options.pairs):
            for whose, found in speeds.items():
                out = in_process(*common, "compute", whose, folder)
                [line] = [line for line in out.splitlines() if line.startswith("seconds ")]
                found.append(points / float(line.split()[1]))
    print(f"{options.size} x {options.size} grid, {options.samples} samples, {options.pairs} pairs")
    for whose, found in speeds.items():
        low, high = min(found), max(found)
        print(f"{whose:12} {statistics.median(found):8.1f} points/s ({low:.1f} to {high:.1f})")
    ratios = [a / b for a, b in zip(speeds["rec_summary"], speeds["mindspore"], strict=True)]
    print(
        f"ratio {statistics.median(ratios):.1f} (of pairs: {min(ratios):.1f} to {max(ratios):.1f})"
    )


if __name__ == "__main__":
    main()
