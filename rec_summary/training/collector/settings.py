"""The settings of a training: what makes a restart the same training.

The number of epochs, the step, the host, versions and the number of ranks are no settings: they
may change when a training is started again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from mindspore import Tensor, nn

from rec_summary.checks import valid_unicode
from rec_summary.records.failures import Troubles
from rec_summary.training.collector.options import CollectorOptions
from rec_summary.training.lineage import lineage
from rec_summary.training.step_view import StepView

_RECOMMENDER: Final = (
    *("task", "logits", "predictions", "labels", "weights", "users", "ids", "features"),
)
_LONGEST: Final = 200


def training_settings(
    view: StepView,
    data: lineage.DatasetInfo,
    optimizers: Sequence[Any],
    options: CollectorOptions,
    troubles: Troubles,
) -> dict[str, str]:
    """Returns the settings as text, by name. What cannot be read is left out.

    Args:
        view: The callback arguments of a training that begins.
        data: Its data set.
        optimizers: Its optimizers.
        options: The collector's options: custom lineage counts, and of the metrics of recommenders
            those settings that change their meaning.
        troubles: Receives a failure.
    """
    settings = network_settings(view, troubles)
    with troubles.attempt("settings of the loss"):
        loss = lineage.loss_function(view)
        if loss is not None:
            settings["loss_function"] = type(loss).__name__
    with troubles.attempt("settings of the optimizer"):
        for number, optimizer in enumerate(optimizers):
            prefix = "" if len(optimizers) == 1 else f"optimizer_{number}."
            settings |= {prefix + name: _text(value) for name, value in _optimizer(optimizer)}
    with troubles.attempt("settings of the data set"):
        if data.path is not None:
            settings["train_dataset_path"] = data.path
        if data.batch_size > 1:  # a generator of whole batches reports 1
            settings["batch_size"] = str(data.batch_size)
        dataset = view.get("train_dataset")
        if dataset is not None:
            kinds = (type(step).__name__ for step in lineage.operations(dataset))
            settings["train_dataset"] = " of ".join(kind.removesuffix("Dataset") for kind in kinds)
    settings |= {f"custom.{name}": _text(value) for name, value in options.custom_lineage.items()}
    recommender = options.recommender
    if recommender is not None:
        for name in _RECOMMENDER:
            settings[f"recommender.{name}"] = _text(getattr(recommender, name))
        for name, task in recommender.tasks.items():
            settings[f"recommender.tasks.{name}"] = _text(vars(task))
    return {name: valid_unicode(text) for name, text in settings.items()}


def network_settings(view: StepView, troubles: Troubles) -> dict[str, str]:
    """Returns those settings that an evaluation has as well: what is trained.

    Args:
        view: The callback arguments of a training or an evaluation.
        troubles: Receives a failure.
    """
    settings: dict[str, str] = {}
    with troubles.attempt("settings of the network"):
        network = lineage.backbone(view)
        if network is not None:
            settings["network"] = type(network).__name__
            settings["parameters"] = _parameters(network)
    return settings


def _parameters(network: nn.Cell) -> str:
    shapes = [
        f"{name} {getattr(param, 'shape', None)} {getattr(param, 'dtype', None)}"
        for name, param in network.parameters_and_names()
    ]
    digest = zlib.crc32("\n".join(sorted(shapes)).encode())
    return f"{len(shapes)} parameters, checksum {digest:08x}"


def _optimizer(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Yields the arguments that an optimizer was made with, but its parameters."""
    yield "optimizer", type(optimizer).__name__
    # MindSpore keeps the arguments of most optimizers. Others have the current learning rate only.
    rate = getattr(optimizer, "init_learning_rate", None)
    yield "learning_rate", optimizer.learning_rate if rate is None else rate
    yield from sorted((getattr(optimizer, "init_args", None) or {}).items())
    groups = (getattr(optimizer, "init_params", None) or {}).get("params") or ()
    for number, group in enumerate(groups):
        if isinstance(group, Mapping):
            for name in ("lr", "weight_decay"):
                if name in group:
                    yield f"group_{number}.{name}", group[name]


def _text(value: object) -> str:
    """Returns a text that is the same in the next process; long ones end in a checksum."""
    if isinstance(value, nn.Cell):  # a schedule of learning rates
        numbers = {
            name: number
            for name, number in sorted(vars(value).items())
            if not name.startswith("_") and type(number) in (int, float)
        }
        text = f"{type(value).__name__}({', '.join(f'{k}={v}' for k, v in numbers.items())})"
    elif isinstance(value, Tensor):
        text = _text(value.asnumpy().tolist())
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key}: {_text(entry)}" for key, entry in value.items())
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(_text, value))
    elif isinstance(value, float):
        text = f"{value:.7g}"  # float32 has no more digits
    elif isinstance(value, (str, int, np.generic, type(None))):
        text = str(value)
    else:  # its repr may contain a memory address
        text = str(getattr(value, "__qualname__", type(value).__name__))
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}… (checksum {zlib.crc32(text.encode()):08x})"
