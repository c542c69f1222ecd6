"""The private names of MindSpore that this package uses.

MindSpore does not promise to keep these names. They are looked up on import, so a MindSpore
release that renames one fails at once with a message that names it, and not at some later step.
Every name was checked against the source of MindSpore 2.10.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import mindspore
from mindspore.train import Model

# The members of `Model` that `RecModel` uses.
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


def private(module: str, name: str) -> Any:
    """Returns a private name of a module of MindSpore; raises ImportError if there is none."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _missing(f"{module}.{name}") from error


CallbackManager = private("mindspore.train.callback", "_CallbackManager")
CallbackParameters = private("mindspore.train.callback", "_InternalCallbackParam")
StepSync = private("mindspore.train.model", "_StepSync")
FrameworkProfilerCallback = private("mindspore.train.model", "_FrameworkProfilerCallback")
save_final_checkpoint = private("mindspore.train.model", "_save_final_ckpt")
device_number_check = private("mindspore.parallel._utils", "_device_number_check")
# A Cell per group that holds the learning rate of each step, or a constant one.
LearningRateTable = private("mindspore.nn.optim.optimizer", "_IteratorLearningRate")
ConstantLearningRate = private("mindspore.nn.optim.optimizer", "_ConvertToCell")


def check_model(model: Any, names: Iterable[str] = _MODEL_ATTRIBUTES) -> None:
    """Raises ImportError if a `Model` lacks an attribute that this package needs."""
    for name in names:
        if not hasattr(model, name):
            raise _missing(f"mindspore.train.Model.{name}")


check_model(Model, _MODEL_METHODS)


def set_up_parallel_context(network: Any) -> None:
    """Prepares `network` for training as `Model.train` does; does nothing before MindSpore 2.8."""
    _call_if_there("mindspore.parallel._utils", "_init_auto_parallel_context", network)


def clear_parallel_context(network: Any) -> None:
    """Reverts `set_up_parallel_context`."""
    _call_if_there("mindspore.parallel._utils", "_clear_auto_parallel_context", network)


def _call_if_there(module: str, name: str, *args: Any) -> None:
    function = getattr(importlib.import_module(module), name, None)
    if function is not None:
        function(*args)


def recovery_parameters(model: Any) -> dict[str, Any]:
    """Returns the callback parameters about recovery, for MindSpore's `TrainFaultTolerance`.

    In MindSpore 2.7.0 it reads `is_arf` at each step. Later releases do not have it.
    """
    parameters = {"initial_step": getattr(model, "_initial_step", None)}
    try:
        context = importlib.import_module("mindspore.parallel._recovery_context")
        return {**parameters, "is_arf": context._get_recovery_context("is_arf")}
    except (ImportError, AttributeError, ValueError):
        return parameters


def built_helper(dataset: Any) -> Any:
    """Returns the `DatasetHelper` that `Model.build` has made for a dataset, or None."""
    return getattr(dataset, "_dataset_helper", None)


def release_iterator(dataset_helper: Any) -> None:
    """Stops the data pipeline of a `DatasetHelper` that was made without sink.

    Waits until the source has finished its current row.
    """
    stop = getattr(dataset_helper.iter.iter, "stop", None)
    if stop is not None:
        stop()


def is_remembered_generator(source: object) -> bool:
    """Whether `source` is MindSpore's wrapper of a generator object.

    The wrapper repeats a generator. For that, it keeps every row (`itertools.tee`).
    """
    return type(source).__name__ == "_GeneratorWrapper" and hasattr(source, "generator_new")


def wrapped_network(network: Any) -> Any:
    """Returns the network inside MindSpore's wrapper of a network and its loss."""
    return getattr(network, "_backbone", network)


# Summary operators leave their values in a dictionary (graph mode) and in a list (PyNative mode).
# MindSpore replaces both objects, so they are always read through their modules.
_take_graph_values = private("mindspore.train.summary.summary_record", "_get_summary_tensor_data")
private("mindspore.train.summary.summary_record", "SUMMARY_TENSOR_CACHE")
private("mindspore.ops.operations.debug_ops", "SUMMARY_TENSOR_CACHE")
_graph_mode: Any = importlib.import_module("mindspore.train.summary.summary_record")
_pynative_mode: Any = importlib.import_module("mindspore.ops.operations.debug_ops")


def has_operator_values() -> bool:
    """Whether summary operators have values that nobody has taken."""
    return bool(_graph_mode.SUMMARY_TENSOR_CACHE or _pynative_mode.SUMMARY_TENSOR_CACHE)


def take_operator_values() -> tuple[dict[str, Any], list[tuple[str, Any, Any]]]:
    """Returns the values of summary operators, and removes them from MindSpore.

    Returns:
        The values of graph mode by `TAG[:KIND]`, and those of PyNative mode as tuples of the
        operator's class, its tag and the value, oldest first.
    """
    by_name = _take_graph_values()
    waiting = _pynative_mode.SUMMARY_TENSOR_CACHE
    taken = waiting[:]
    del waiting[: len(taken)]  # in place: another thread may append meanwhile
    return by_name, taken
