"""A MindSpore network as the model of a landscape; the only module here that loads MindSpore."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Tensor, nn

from rec_summary.arrays import Array
from rec_summary.checks import check_that
from rec_summary.errors import three_part, verbatim
from rec_summary.landscape.evaluate import ModelError
from rec_summary.records.files import open_plain, refuse_link

_MOST_ROW_BYTES: Final = 1 << 33


@dataclass(frozen=True)
class ModelMaker:
    """Creates the model in each process; processes receive this object, not the model.

    Attributes:
        callback: MindSpore's `callback_fn`, which returns model, network, data set and metrics; or
            its name as `module:function`.
        num_samples: The number of samples of the loss.
        device_target: MindSpore's device target.
        replay: The file of the input rows that the run stored. If it is given, these rows are the
            samples, and the data set of the function is not read.
    """

    callback: Callable[[], Any] | str
    num_samples: int
    device_target: str = "CPU"
    replay: str = ""

    @property
    def fingerprint(self) -> str:
        """Identifies the samples: a landscape must not continue with other samples."""
        if not self.replay:
            return "data set"
        status = os.stat(self.replay)
        return f"replay {status.st_size} {status.st_mtime_ns}"

    def __call__(self, device: int | None) -> MindSporeModel:
        """Returns the model, on a device if one is given; sets graph mode."""
        mindspore.set_context(mode=mindspore.GRAPH_MODE)  # compiled once, then fast
        if device is not None:
            mindspore.set_device(self.device_target, device)
        callback = self.callback
        if isinstance(callback, str):
            callback = imported(callback)
        result = callback()
        if not isinstance(result, tuple) or len(result) != 4:
            expected = "a tuple of model, network, data set and metrics, as for MindSpore"
            raise ModelError(three_part("the result of the model's function", result, expected))
        model, network, dataset, _ = result
        batches = replayed(self.replay) if self.replay else decoded(dataset)
        return MindSporeModel(model, network, batches, self.num_samples)


class MindSporeModel:
    """A network with its loss, and samples that are decoded once.

    Layers such as dropout and normalisation do not behave as in training, so that the loss is a
    function of the parameters alone.
    """

    def __init__(
        self, model: Any, network: Any, batches: Iterable[Sequence[Tensor]], num_samples: int
    ) -> None:
        """Decodes the samples.

        Args:
            model: A `mindspore.train.Model`, with the loss function.
            network: Its network, a Cell.
            batches: Batches of the network's inputs and the labels.
            num_samples: The number of samples; the batch that reaches it is the last one.
        """
        loss_fn = getattr(model, "_loss_fn", None)
        self._network = network if loss_fn is None else nn.WithLossCell(network, loss_fn)
        self._network.set_train(False)
        self._parameters = {param.name: param for param in network.get_parameters()}
        self._batches: list[tuple[int, Sequence[Tensor]]] = []
        self.samples = 0
        for columns in batches:
            rows = int(columns[0].shape[0]) if columns[0].ndim else 1
            self._batches.append((rows, columns))
            self.samples += rows
            if self.samples >= num_samples:
                break
        received = verbatim("no batch")
        check_that(self.samples, "the samples", received, "at least one batch", ModelError)

    def set(self, name: str, value: Array) -> None:
        """Sets a parameter in place, so that the compiled graph stays valid.

        Raises:
            ModelError: The network has no such parameter, or of another shape.
        """
        parameter = self._parameters.get(name)
        if parameter is None or tuple(parameter.shape) != value.shape:
            received = "none" if parameter is None else str(tuple(parameter.shape))
            expected = f"a network with a parameter of that name and of shape {value.shape}"
            raise ModelError(three_part(f"the model's {name}", verbatim(received), expected))
        parameter.set_data(Tensor(np.ascontiguousarray(value), parameter.dtype))

    def loss(self) -> float:
        """Returns the mean loss over all samples."""
        total = 0.0
        for rows, columns in self._batches:
            loss = self._network(*columns)
            loss = loss[0] if isinstance(loss, tuple) else loss
            total += rows * float(np.mean(loss.asnumpy().astype(np.float64)))
        return total / self.samples


def decoded(dataset: Any) -> Iterator[Sequence[Tensor]]:
    """Yields the batches of a data set.

    Raises:
        ModelError: The object is not a data set.
    """
    if not hasattr(dataset, "create_tuple_iterator"):
        expected = "a mindspore.dataset.Dataset, since the run stored no input rows"
        raise ModelError(three_part("the model's data set", dataset, expected))
    yield from dataset.create_tuple_iterator(num_epochs=1, do_copy=True)


def replayed(path: str, most: int = _MOST_ROW_BYTES) -> Iterator[Sequence[Tensor]]:
    """Yields the input rows that a run stored, in batches of the size in the training.

    Args:
        path: The file, which may be anybody's: no link is followed, and nothing is unpickled.
        most: The maximum size of all rows, unpacked, in bytes.

    Raises:
        ModelError: They cannot be read.
    """
    try:
        refuse_link(os.path.dirname(path))
        with (
            os.fdopen(open_plain(path), "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            # `zipfile` unpacks no more of a member than its stated size.
            if sum(member.file_size for member in arrays.zip.infolist()) > most:
                raise ValueError(f"more than {most:,} bytes, unpacked")
            size = max(int(arrays["batch_size"]), 1)
            columns = [arrays[f"column_{index}"] for index in range(len(arrays) - 1)]
    except Exception as error:  # a damaged file may raise anything in NumPy and `zipfile`
        received = verbatim(f"{path}: {type(error).__name__}: {error}")
        raise ModelError(three_part("the stored rows", received, "a readable file")) from error
    for start in range(0, len(columns[0]) if columns else 0, size):
        yield [Tensor(column[start : start + size]) for column in columns]


def device_target() -> str:
    """Returns the current device target of MindSpore."""
    return str(mindspore.get_context("device_target"))


def sendable(callback: Callable[[], Any] | str) -> Callable[[], Any]:
    """Returns a function that is sent with its module: workers on other machines may lack it.

    Other modules that it imports, and packages, must be on the workers.
    """
    function = imported(callback) if isinstance(callback, str) else callback
    module = sys.modules.get(getattr(function, "__module__", ""))
    path = getattr(module, "__file__", None) or ""
    if path and "site-packages" not in path and module is not sys.modules["__main__"]:
        importlib.import_module("cloudpickle").register_pickle_by_value(module)
    return function


def imported(location: str) -> Callable[[], Any]:
    """Returns the function `module:function`; modules of the working directory are found too.

    Raises:
        ValueError: There is no such function.
    """
    module, _, name = location.partition(":")
    check_that(module and name, "the model", location, "module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        expected = f"a function that can be imported ({error})"
        raise ValueError(three_part("the model", location, expected)) from error
    check_that(callable(function), "the model", function, "a function")
    return function
