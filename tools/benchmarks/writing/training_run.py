"""One training of a click network, with a collector or without, in a process of its own."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import psutil
from mindspore import Tensor, nn
from mindspore.dataset import BatchDataset, NumpySlicesDataset
from mindspore.train import Callback, Model

from ..child import disk_usage, peak_memory
from ..comparison.loggers import LoggingCallback
from ..reading.event_files import check, frames

BATCH, FIELDS = 64, 26
BLOCK = 200  # steps between two switches of the collector
WARM_UP = 10  # steps whose times do not count: the graph is compiled in the first


class WideDeep(nn.Cell):
    """A small Wide & Deep network: ids (batch, FIELDS) to logits (batch, 1).

    Cheng et al. 2016, https://doi.org/10.1145/2988450.2988454
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.wide_embedding = nn.Embedding(rows, 1)
        self.deep_embedding = nn.Embedding(rows, width)
        self.hidden = nn.Dense(FIELDS * width, 32, activation="relu")
        self.head = nn.Dense(32, 1, has_bias=False)
        self._deep = (-1, FIELDS * width)

    def construct(self, ids: Tensor) -> Tensor:
        deep = self.hidden(self.deep_embedding(ids).reshape(self._deep))
        wide = self.wide_embedding(ids).reshape((-1, FIELDS)).sum(axis=1, keepdims=True)
        return self.head(deep) + wide


class First(Callback):
    """Stands before the collector: its end hook comes first, and it is left last."""

    def __init__(self) -> None:
        super().__init__()
        self.end_began = self.left = 0.0

    def on_train_end(self, run_context: Any) -> None:
        self.end_began = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.left = time.perf_counter()


class Last(Callback):
    """Stands behind the collector: from one of its step ends to the next is a whole step."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.ends.append(time.perf_counter())


def wide_deep(
    work: str, who: str, rows: int, width: int, steps: int, collect_freq: int = 1
) -> dict[str, float]:
    """Trains the click network.

    Args:
        work: A directory for the records.
        who: `none`, `ours`, `mindspore`, or another one of `LOGGERS`.
        rows: Of the embedding tables.
        width: Of the deep one.
        steps: How many.
        collect_freq: Of the collector.
    """
    model, data = model_and_data(rows, width, steps * BATCH)
    records = Path(work, "records")
    hooks: list[float] = []
    first, last = First(), Last()
    collectors = []
    if who != "none":
        collectors = [_collector(who, records, collect_freq)]
        _time_hook(collectors[0], hooks)
    before = _cpu()
    model.train(1, data, callbacks=[first, *collectors, last], dataset_sink_mode=False)
    psutil.wait_procs(psutil.Process().children(recursive=True), timeout=60)
    on_disk = time.perf_counter() if who == "mindspore" else first.left
    after = _cpu()
    if who in ("ours", "mindspore"):
        [path] = [path for path in records.glob("*_MS") if "lineage" not in path.name]
        check(frames(path), steps // collect_freq)
    for collector in collectors:
        _check_troubles(collector)
    times = np.diff(last.ends)[WARM_UP - 1 :] * 1000
    result = {
        "mean": float(times.mean()),
        "median": float(np.median(times)),
        "cpu": after[0] + after[1] - before[0] - before[1],
        "closing": 1000 * (on_disk - first.end_began),
        "memory": peak_memory(),
        "disk": disk_usage(records),
    }
    if hooks:
        result["hook_mean"] = 1000 * statistics.fmean(hooks[WARM_UP:])
        result["hook"] = 1000 * statistics.median(hooks)
        result["hook_p95"] = 1000 * sorted(hooks)[int(0.95 * len(hooks))]
    return result


def in_turns(
    work: str, who: str, rows: int, width: int, steps: int, collect_freq: int
) -> dict[str, float]:
    """Trains the click network, with the collector's hooks called in every second block of steps.

    Two processes differ by more than a good collector costs: which thread runs on which core is
    settled when they begin. The blocks of one process do not.

    Args:
        work: A directory for the records.
        who: `ours` or `mindspore`.
        rows: Of the embedding tables.
        width: Of the deep one.
        steps: How many.
        collect_freq: Of the collector.
    """
    model, data = model_and_data(rows, width, steps * BATCH)
    collector, last = _collector(who, Path(work, "records"), collect_freq), Last()
    for name in ("on_train_step_begin", "on_train_step_end"):
        setattr(collector, name, _every_second_block(getattr(collector, name), last.ends))
    model.train(1, data, callbacks=[collector, last], dataset_sink_mode=False)
    _check_troubles(collector)
    times = np.diff(last.ends) * 1000  # of the second step, and so on
    starts = range(2 * BLOCK, steps - BLOCK, BLOCK)  # without the compilation
    blocks = [float(times[start - 1 : start - 1 + BLOCK].mean()) for start in starts]
    # Each block without hooks is compared with those beside it: a machine's pace changes.
    beside = zip(blocks[1::2], blocks[0::2], blocks[2::2], strict=False)
    return {
        "without": statistics.median(blocks[1::2]),
        "added": statistics.median((one + other) / 2 - off for off, one, other in beside),
    }


def _every_second_block(hook: Callable[[Any], None], ends: list[float]) -> Callable[[Any], None]:
    def switched(run_context: Any) -> None:
        if len(ends) // BLOCK % 2 == 0:
            hook(run_context)

    return switched


def model_and_data(rows: int, width: int, samples: int) -> tuple[Model, BatchDataset]:
    """Returns a model in graph mode, and clicks to train it with."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_seed(1)
    network = WideDeep(rows, width)
    optimizer = nn.Adam(network.trainable_params(), 1e-3)
    return Model(network, nn.BCEWithLogitsLoss(), optimizer), clicks(rows, samples)


def clicks(rows: int, samples: int) -> BatchDataset:
    """Returns batches of ids below `rows`, and labels."""
    ids = np.random.default_rng(0).integers(0, rows, (samples, FIELDS), dtype=np.int32)
    labels = (ids[:, :1] % 2).astype(np.float32)
    return NumpySlicesDataset((ids, labels), ["ids", "label"], shuffle=False).batch(BATCH)


def _collector(who: str, records: Path, collect_freq: int) -> Any:
    if who == "ours":
        from rec_summary import SummaryCollector
    elif who == "mindspore":
        from mindspore import SummaryCollector
    else:
        return LoggingCallback(who, records, collect_freq)
    return SummaryCollector(
        str(records),
        collect_freq=collect_freq,
        collect_specified_data={
            "collect_metric": True,
            "collect_graph": True,
            "collect_train_lineage": True,
            "collect_dataset_graph": True,
            "histogram_regular": ".*",
        },
        keep_default_action=False,  # no landscape, which MindSpore's has on by default
    )


def _check_troubles(collector: Any) -> None:
    """Raises if ours has failed, which would be fast."""
    if getattr(collector, "troubles", None):
        raise RuntimeError(f"telemetry failed: {collector.troubles}")


def _time_hook(collector: Any, times: list[float]) -> None:
    """Times the collector's hook at the end of a step."""
    hook = collector.on_train_step_end

    def timed(run_context: Any) -> None:
        began = time.perf_counter()
        hook(run_context)
        times.append(time.perf_counter() - began)

    collector.on_train_step_end = timed


def _cpu() -> tuple[float, float]:
    """Returns the CPU seconds of this process, and of its children, dead or alive."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    dead = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            used = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        alive += used.user + used.system
    return own.ru_utime + own.ru_stime, dead.ru_utime + dead.ru_stime + alive
