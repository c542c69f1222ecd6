"""The loggers of other packages behind one interface, each with its defaults, and how each is read.

What it takes to read is what the package itself offers; the records of MindSpore are read by ours,
because MindInsight does not run on the Pythons of today.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore.train import Callback

_LOSS = "loss"
_WANDB_HEAD, _LEVELDB_HEAD, _LEVELDB_BLOCK = 7, 7, 1 << 15
_FULL, _LAST = 1, 4  # kinds of parts of a record


class Logger(ABC):
    """Writes values of steps into a folder."""

    @abstractmethod
    def scalar(self, step: int, value: float) -> None:
        """Writes the loss."""

    @abstractmethod
    def histograms(self, step: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Writes the distributions of arrays."""

    @abstractmethod
    def close(self) -> None:
        """Returns when everything is on disk."""

    @staticmethod
    @abstractmethod
    def steps(folder: Path) -> list[int]:
        """Reads the steps of all losses back."""


class Records(Logger):
    """`SummaryRecord`, ours or MindSpore's."""

    def __init__(self, folder: Path, package: Any) -> None:
        self._record = package.SummaryRecord(str(folder))
        self._takes_numbers = package is not mindspore

    def scalar(self, step: int, value: float) -> None:
        number = value if self._takes_numbers else mindspore.Tensor(np.float32(value))
        self._record.add_value("scalar", _LOSS, number)
        self._record.record(step)

    def histograms(self, step: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        raise NotImplementedError("the collectors record them")

    def close(self) -> None:
        self._record.close()

    @staticmethod
    def steps(folder: Path) -> list[int]:
        import rec_summary

        scalars = rec_summary.load(folder).scalars()
        return list(scalars.loc[scalars["tag"] == _LOSS, "step"])


class EventFiles(Logger):
    """TensorBoard's `SummaryWriter`, as PyTorch has it, or tensorboardX."""

    def __init__(self, folder: Path, package: Any) -> None:
        self._writer = package.SummaryWriter(str(folder))

    def scalar(self, step: int, value: float) -> None:
        self._writer.add_scalar(_LOSS, value, step)

    def histograms(self, step: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name, array in arrays.items():
            self._writer.add_histogram(name, array, step)

    def close(self) -> None:
        self._writer.close()

    @staticmethod
    def steps(folder: Path) -> list[int]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        return [point.step for point in events.Scalars(_LOSS)] if events.Tags()["scalars"] else []


class WeightsAndBiases(Logger):
    """W&B, offline. Its files are for its server: they are read as `wandb sync` does."""

    def __init__(self, folder: Path, package: Any) -> None:
        self._package = package
        folder.mkdir(parents=True, exist_ok=True)
        settings = package.Settings(silent=True)
        self._run = package.init(mode="offline", dir=str(folder), project="x", settings=settings)

    def scalar(self, step: int, value: float) -> None:
        self._run.log({_LOSS: value}, step=step)

    def histograms(self, step: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        made = {name: self._package.Histogram(array) for name, array in arrays.items()}
        self._run.log(made, step=step)

    def close(self) -> None:
        self._run.finish()
        self._package.teardown()

    @staticmethod
    def steps(folder: Path) -> list[int]:
        from wandb.proto.wandb_internal_pb2 import Record

        [path] = folder.rglob("*.wandb")
        steps = []
        for data in _leveldb_records(path.read_bytes()):
            record = Record.FromString(data)
            if any(_LOSS in (item.key, *item.nested_key) for item in record.history.item):
                steps.append(record.history.step.num)
        return steps


def _leveldb_records(data: bytes) -> Iterator[bytes]:
    """Yields the whole records of a log of LevelDB, in blocks of 32 KiB behind W&B's own head."""
    offset, parts = _WANDB_HEAD, b""
    while offset + _LEVELDB_HEAD <= len(data):
        left = _LEVELDB_BLOCK - offset % _LEVELDB_BLOCK
        if left < _LEVELDB_HEAD:
            offset += left
            continue
        length, kind = struct.unpack_from("<HB", data, offset + 4)
        begin, offset = offset + _LEVELDB_HEAD, offset + _LEVELDB_HEAD + length
        if not kind or offset > len(data):
            return
        parts += data[begin:offset]
        if kind in (_FULL, _LAST):
            yield parts
            parts = b""


class Aim(Logger):
    """Aim."""

    def __init__(self, folder: Path, package: Any) -> None:
        self._package = package
        folder.mkdir(parents=True, exist_ok=True)
        self._run = package.Run(repo=str(folder))

    def scalar(self, step: int, value: float) -> None:
        self._run.track(value, name=_LOSS, step=step)

    def histograms(self, step: int, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        for name, array in arrays.items():
            self._run.track(self._package.Distribution(array), name=name, step=step)

    def close(self) -> None:
        self._run.close()

    @staticmethod
    def steps(folder: Path) -> list[int]:
        from aim import Repo, Run

        repo = Repo(str(folder))
        # Without the index that `aim up` makes, a run is found only if it is opened to be written.
        every = repo.list_all_runs()
        runs = [Run(name, repo=repo, system_tracking_interval=None) for name in every]
        losses = [metric for run in runs for metric in run.metrics() if metric.name == _LOSS]
        return [int(step) for metric in losses for step in metric.data.items_list()[0]]


LOGGERS: dict[str, tuple[type[Logger], str]] = {
    "ours": (Records, "rec_summary"),
    "mindspore": (Records, "mindspore"),
    "torch": (EventFiles, "torch.utils.tensorboard"),
    "tensorboardX": (EventFiles, "tensorboardX"),
    "wandb": (WeightsAndBiases, "wandb"),
    "aim": (Aim, "aim"),
}
"""By name, how it is used, and the module that is imported."""


def logger(who: str, folder: Path) -> Logger:
    """Returns a logger that writes into a folder."""
    from importlib import import_module

    kind, module = LOGGERS[who]
    made: Logger = kind(folder, import_module(module))  # type: ignore[call-arg]
    return made


class LoggingCallback(Callback):
    """What its users write to have a loss and the parameters of a network in a logger."""

    def __init__(self, who: str, folder: Path, every: int) -> None:
        super().__init__()
        self._logger, self._every = logger(who, folder), every

    def on_train_step_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        step = params.cur_step_num
        if step % self._every:
            return
        self._logger.scalar(step, float(params.net_outputs.asnumpy()))
        parameters = params.network.trainable_params()
        self._logger.histograms(step, {weight.name: weight.asnumpy() for weight in parameters})

    def on_train_end(self, run_context: Any) -> None:
        self._logger.close()
