"""A small click model, small data, and a callback that writes down what it receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mindspore import Tensor, nn
from mindspore.dataset import Dataset, GeneratorDataset, NumpySlicesDataset
from mindspore.train.callback import Callback, RunContext

from rec_summary.training.online.rec_model import RecModel

VOCABULARY, FIELDS, WIDTH, BATCH = 20, 3, 4, 8
LEARNING_RATE = 0.5
COLUMNS = ["fields", "label"]

Row = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


class ClickNet(nn.Cell):
    """An embedding table and one dense layer: int32 ids (batch, FIELDS) to logits (batch, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Dense(FIELDS * WIDTH, 1)

    def construct(self, fields: Tensor) -> Tensor:
        return self.head(self.table(fields).reshape((-1, FIELDS * WIDTH)))


def click_model(network: nn.Cell | None = None, **kwargs: Any) -> RecModel:
    """A `RecModel` of a network, by default a fresh `ClickNet`, with cross entropy and SGD."""
    network = network or ClickNet()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=LEARNING_RATE)
    return RecModel(network, nn.BCEWithLogitsLoss(), optimizer, **kwargs)


def batch_of_clicks(seed: int = 0, rows: int = BATCH) -> Row:
    """One batch: int32 ids (rows, FIELDS) and float32 clicks (rows, 1)."""
    random = np.random.default_rng(seed)
    fields = random.integers(0, VOCABULARY, (rows, FIELDS), dtype=np.int32)
    return fields, (fields[:, :1] % 2).astype(np.float32)


def clicks(batches: int | None = None) -> Callable[[], Iterator[Row]]:
    """A generator function of whole batches; endless without a number."""

    def generate() -> Iterator[Row]:
        number = 0
        while batches is None or number < batches:
            yield batch_of_clicks(number)
            number += 1

    return generate


def stream(source: Any = None) -> Dataset:
    """A `GeneratorDataset` of whole batches, by default endless."""
    return GeneratorDataset(source if source is not None else clicks(), COLUMNS)


def bounded(batches: int) -> Dataset:
    """A set in memory that knows its size."""
    fields, label = batch_of_clicks(rows=batches * BATCH)
    return NumpySlicesDataset((fields, label), COLUMNS, shuffle=False).batch(BATCH)


class Journal(Callback):
    """Writes down every hook, and requests a stop.

    Attributes:
        hooks: The names of the hooks in order, with ``"enter"`` and ``"exit"``.
        parameters: For each hook name, the callback parameters as they were at each call.
        error: The type of the exception that the callback was left with.
    """

    def __init__(self, stop_after: int | None = None, stop_in: str = "step_end") -> None:
        super().__init__()
        self.hooks: list[str] = []
        self.parameters: dict[str, list[dict[str, Any]]] = {}
        self.stop_seen: dict[str, bool] = {}
        self.error: type[BaseException] | None = None
        self._stop = stop_in, stop_after

    def __enter__(self) -> Journal:
        self.hooks.append("enter")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.hooks.append("exit")
        self.error = kind

    def on_train_begin(self, run_context: RunContext) -> None:
        self._note("begin", run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        self._note("epoch_begin", run_context)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        self._note("step_begin", run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        self._note("step_end", run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        self._note("epoch_end", run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        self._note("end", run_context)

    def _note(self, hook: str, run_context: RunContext) -> None:
        parameters = run_context.original_args()
        self.hooks.append(hook)
        self.parameters.setdefault(hook, []).append(dict(parameters))
        self.stop_seen[hook] = run_context.get_stop_requested()
        if (hook, parameters.cur_step_num) == self._stop:
            run_context.request_stop()
