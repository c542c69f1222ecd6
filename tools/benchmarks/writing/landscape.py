"""Loss landscapes: grid points a second beside MindSpore's, and what checkpoints cost training."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..contest import Contestant, Settings, alternate, call, column, temporary_directory
from ..results import Row

_STEPS = [2, 4, 6, 8, 10]
_ROWS, _WIDTH, _SAMPLES = 1000, 8, 512
_TABLES = ((1_000, 8), (100_000, 16))
_PEER = "MindSpore's"


def landscape(settings: Settings) -> tuple[str, list[Row]]:
    """Computes the same landscape with both, in turn; then times the training thread."""
    size = settings.size(8, 3)
    points = size**2 + len(_STEPS)
    with temporary_directory() as base:
        call(train, run=str(base / "run"), size=size)
        both = [
            Contestant(who, compute, {"run": str(base / "run"), "who": who})
            for who in ("ours", "mindspore")
        ]
        rounds = alternate(both, settings)
    ours, theirs = (
        [points / seconds for seconds in column(rounds, who)] for who in ("ours", "mindspore")
    )
    ratio = [one / other for one, other in zip(ours, theirs, strict=True)]
    rows = [Row(f"{size} × {size} grid", "points/s", ours, theirs, _PEER, ratio, "speed")]
    times = settings.size(30, 5)
    thread = [
        Contestant(f"checkpoint of {rows_:,} × {width}", checkpoint, arguments)
        for rows_, width in _TABLES
        for arguments in [{"rows": rows_, "width": width, "times": times}]
    ]
    thread += [
        Contestant(
            f"replay buffer, {kind}",
            replay,
            {"kind": kind, "times": 50 * times},
        )
        for kind in ("first", "reservoir")
    ]
    rounds = alternate(thread, settings)
    rows += [Row(name, "ms", column(rounds, name, "median")) for name in rounds]
    setting = (
        f"A Wide & Deep network, {len(_STEPS)} checkpoints, {_SAMPLES} samples, graph mode; each "
        "landscape in a process of its own, from the call to the record on disk, compilation "
        "included, without the import of MindSpore. Then, on the training thread: a checkpoint "
        "that is due, and a batch of 64 rows of input for the replay buffer."
    )
    return setting, rows


def _parts() -> tuple[Any, ...]:
    """Returns what both landscape classes take: model, network, data and metrics."""
    from mindspore import nn
    from mindspore.train import Loss, Model

    from .training_run import WideDeep, clicks

    network, metrics = WideDeep(_ROWS, _WIDTH), {"Loss": Loss()}
    model = Model(network, nn.BCEWithLogitsLoss(), metrics=metrics)
    return model, network, clicks(_ROWS, _SAMPLES), metrics


def train(work: str, run: str, size: int) -> dict[str, float]:
    """Trains for a few steps, and keeps the checkpoints."""
    from rec_summary import SummaryCollector

    from .training_run import BATCH, model_and_data

    options = {
        "landscape_size": size,
        "unit": "step",
        "num_samples": _SAMPLES,
        "intervals": [_STEPS],
        "create_landscape": {"train": True, "result": False},
    }
    collector = SummaryCollector(run, collect_specified_data={"collect_landscape": options})
    model, data = model_and_data(_ROWS, _WIDTH, BATCH * _STEPS[-1])
    model.train(1, data, callbacks=[collector], dataset_sink_mode=False)
    return {}


def compute(work: str, run: str, who: str) -> dict[str, float]:
    """Computes the landscape of a run."""
    import mindspore

    import rec_summary

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    if who == "ours":
        shutil.rmtree(Path(run, "landscape"), ignore_errors=True)
        began = time.perf_counter()
        landscape = rec_summary.SummaryLandscape(run)
        landscape.gen_landscapes_with_multi_process(_parts, engine="sequential")
    else:
        began = time.perf_counter()
        landscape = mindspore.SummaryLandscape(run)
        landscape.gen_landscapes_with_multi_process(_parts, device_ids=[0])
    return {"seconds": time.perf_counter() - began}


def checkpoint(work: str, rows: int, width: int, times: int) -> dict[str, float]:
    """Copies all parameters and hands them to the writer's thread."""
    from mindspore import nn

    from rec_summary.training.landscape.policy import EverySteps, SavePolicy

    network = nn.SequentialCell(nn.Embedding(rows, width), nn.Dense(width, 1))
    checkpoints = _checkpoints(work, policy=SavePolicy(EverySteps(1)), replay=None)
    milliseconds = []
    for number in range(1, times + 1):
        milliseconds.append(_milliseconds(partial(checkpoints.take, network, number, 0)))
        time.sleep(0.1)  # the writer finishes before the next one
    checkpoints.close()
    return {"median": statistics.median(milliseconds)}


def replay(work: str, kind: str, times: int) -> dict[str, float]:
    """Hands a batch of input to the replay buffer."""
    import numpy as np
    from mindspore import Tensor

    checkpoints = _checkpoints(work, replay=kind, num_samples=2048)
    batch = [Tensor(np.random.default_rng(0).integers(0, 9, (64, 26), dtype=np.int32))]
    milliseconds = [_milliseconds(partial(checkpoints.add_rows, batch)) for _ in range(times)]
    checkpoints.close()
    return {"median": statistics.median(milliseconds)}


def _checkpoints(folder: str, **options: Any) -> Any:
    from rec_summary.records.failures import Troubles
    from rec_summary.records.writing.run_writer import Durability
    from rec_summary.training.landscape.checkpoints import LandscapeCheckpoints
    from rec_summary.training.landscape.options import LandscapeOptions

    chosen = LandscapeOptions(intervals=(), **options)
    return LandscapeCheckpoints(folder, chosen, Durability(), Troubles())


def _milliseconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)
