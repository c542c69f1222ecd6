"""The one place that knows MindSpore's private names.

`RecModel` extends MindSpore's training loop, and for that it needs a few names that
MindSpore does not promise to keep. They are all looked up here, on import, so that a
MindSpore that renamed one fails at once and says which, instead of at step one million.
Every name was checked against the source of MindSpore 2.10.
"""

from __future__ import annotations

import importlib
from typing import Any

import mindspore
from mindspore.train import Model

# What `RecModel` calls on, or reads from, its base class.
_MODEL_METHODS = (
    "_build_train_network",
    "_check_methods_for_custom_callbacks",
    "_check_network_mode",
    "_check_reuse_dataset",
    "_exec_preprocess",
    "_flush_from_cache",
    "_transform_callbacks",
)
_MODEL_ATTRIBUTES = (
    "_device_number",
    "_loss_fn",
    "_loss_scale_manager",
    "_network",
    "_optimizer",
    "_parallel_mode",
    "_parameter_broadcast",
    "_train_network",
)


def _missing(name: str) -> ImportError:
    return ImportError(
        f"MindSpore {mindspore.__version__} has no {name}, which rec_summary needs. "
        "rec_summary works with MindSpore 2.7 to 2.10; please install one of these or a newer "
        "rec_summary."
    )


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _missing(f"{module}.{name}") from error


CallbackManager = _private("mindspore.train.callback", "_CallbackManager")
CallbackParameters = _private("mindspore.train.callback", "_InternalCallbackParam")
StepSync = _private("mindspore.train.model", "_StepSync")
FrameworkProfilerCallback = _private("mindspore.train.model", "_FrameworkProfilerCallback")
save_final_checkpoint = _private("mindspore.train.model", "_save_final_ckpt")
device_number_check = _private("mindspore.parallel._utils", "_device_number_check")

for _name in _MODEL_METHODS:
    if not hasattr(Model, _name):
        raise _missing(f"mindspore.train.Model.{_name}")


def check_model(model: Any) -> None:
    """Raises ImportError when a constructed `Model` lacks an attribute that is needed here."""
    for name in _MODEL_ATTRIBUTES:
        if not hasattr(model, name):
            raise _missing(f"mindspore.train.Model.{name}")


def set_up_parallel_context(network: Any) -> None:
    """Does for `network` what `Model.train` does before it trains (nothing before 2.8)."""
    _call_if_there("mindspore.parallel._utils", "_init_auto_parallel_context", network)


def clear_parallel_context(network: Any) -> None:
    """Undoes `set_up_parallel_context`."""
    _call_if_there("mindspore.parallel._utils", "_clear_auto_parallel_context", network)


def _call_if_there(module: str, name: str, *args: Any) -> None:
    function = getattr(importlib.import_module(module), name, None)
    if function is not None:
        function(*args)


def recovery_parameters() -> dict[str, Any]:
    """Returns what `Model.train` tells callbacks of its recovery: nothing but in MindSpore 2.7.0.

    There, the callback `TrainFaultTolerance` reads it at each step.
    """
    try:
        context = importlib.import_module("mindspore.parallel._recovery_context")
        return {"is_arf": context._get_recovery_context("is_arf")}
    except (ImportError, AttributeError, ValueError):
        return {}


def release_iterator(dataset_helper: Any) -> None:
    """Stops the data pipeline behind a `DatasetHelper` that was made without sink.

    Waits until the source has finished the row it is working on.
    """
    stop = getattr(dataset_helper.iter.iter, "stop", None)
    if stop is not None:
        stop()


def remembered_generator(source: Any) -> bool:
    """Whether `source` is MindSpore's wrapper of a generator object.

    The wrapper makes a generator repeatable by keeping all that it ever gave (`itertools.tee`).
    """
    return type(source).__name__ == "_GeneratorWrapper" and hasattr(source, "generator_new")
