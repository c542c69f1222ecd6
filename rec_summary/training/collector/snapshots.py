"""The values of a step: copies, made on the training thread."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from mindspore import Tensor, ops

from rec_summary.arrays import Array
from rec_summary.errors import three_part
from rec_summary.metrics.tags import EVALUATION
from rec_summary.records.failures import Troubles
from rec_summary.training.collector.options import CollectorOptions
from rec_summary.training.lineage.optimizers import learning_rates, parameters_of
from rec_summary.training.operators import Mailbox, snapshot
from rec_summary.training.probes.gradient_metrics import GradientMetrics, GradientReader
from rec_summary.training.probes.probe import choose_graph
from rec_summary.training.step_view import StepView, losses
from rec_summary.training.tensors import as_array, as_number, is_on_cpu, own_array
from rec_summary.values.image import MAX_TILES, is_image
from rec_summary.values.summary import HISTOGRAM, IMAGE, SCALAR, TENSOR, SummaryValue

logger = logging.getLogger("rec_summary.training")

# MindSpore's suffix for values of its collector, as opposed to those of the network's operators.
_AUTO: Final = "/auto"
_MOST_TENSOR_VALUES: Final = 1 << 22  # of a parameter that is recorded whole
_FEWEST_ROWS: Final = 16  # with fewer rows, a single row is too large a part of a sample


class Snapshots:
    """Copies the values of a step that are collected and due."""

    def __init__(
        self, options: CollectorOptions, view: StepView, optimizers: list[Any], troubles: Troubles
    ) -> None:
        """Finds the sources of the values; it searches the network only once.

        Args:
            options: The collector's options: what is collected.
            view: The callback arguments of a run that begins.
            optimizers: The run's optimizers.
            troubles: Receives every kind of value that cannot be read.
        """
        self._troubles = troubles
        self._rates: list[tuple[str, Callable[[], float]]] = []
        with troubles.attempt("learning rate"):
            self._rates = list(learning_rates(optimizers))
        self._all: list[Any] = []  # parameters
        # A constant loss scale (a float) is a hyper-parameter, not a series.
        scale = getattr(view.network, "scale_sense", None)
        self._scale = scale if isinstance(scale, Tensor) else None
        with troubles.attempt("histogram"):
            self._all = parameters_of(optimizers, view.network)
        self._turn = 0  # how often histograms were taken
        self._images = options.collect.input_data
        self._mailbox = Mailbox(troubles)
        self._network = view.network
        self._gradients: GradientReader | None = None
        self._measured: GradientMetrics | None = None
        self._always = view.sink_mode
        self.use(options)

    def use(self, options: CollectorOptions) -> None:
        """Collects what other options say, from now on."""
        if options.gradients != self._measured:
            self._measure(options.gradients)
        self._options = options
        collect = options.collect
        self._parameters: list[tuple[str, Any]] = []
        with self._troubles.attempt("histogram"):
            chosen = self._chosen(self._all)
            self._parameters = [(parameter.name + _AUTO, parameter) for parameter in chosen]
        sources: list[tuple[str, bool, Callable[[StepView], Iterable[SummaryValue]]]] = [
            ("input data", collect.input_data, self._input_images),
            ("loss", collect.metric, self._loss),
            ("learning rate", collect.metric, self._learning_rates),
            ("loss scale", collect.metric and self._scale is not None, self._loss_scale),
            ("histogram", bool(self._parameters), self._histograms),
            ("tensor", options.tensors is not None, self._tensors),
        ]
        self._sources = [(what, read) for what, wanted, read in sources if wanted]

    def _measure(self, wanted: GradientMetrics | None) -> None:
        self._measured = wanted
        if self._gradients is not None:
            self._gradients.close()
            self._gradients = None
        with self._troubles.attempt("gradients"):
            if wanted is not None:
                self._gradients = GradientReader(
                    wanted, self._network, self._troubles, always=self._always
                )

    @property
    def names(self) -> list[str]:
        """The names of the trained parameters: no others are recorded."""
        return [parameter.name for parameter in self._all]

    def begin_step(self, step: int) -> None:
        """Lets the network compute what is wanted of the step that begins."""
        if self._gradients is not None:
            self._gradients.begin_step(step)
        choose_graph(self._network)

    def take(self, view: StepView, regular: bool, tensors: bool) -> list[SummaryValue]:
        """Returns the values of the step that has just ended.

        It always takes the values of the network's operators, due or not. Otherwise they would
        pile up in MindSpore.

        Args:
            view: The callback arguments.
            regular: Whether everything except tensors is due.
            tensors: Whether tensors are due.
        """
        values: list[SummaryValue] = []
        if regular:
            for what, read in self._sources:
                with self._troubles.attempt(what):
                    values.extend(read(view))
        wanted = self._options.tensors
        for (kind, tag), tensor in self._mailbox.take().items():
            is_due = regular
            if kind == TENSOR:
                is_named = wanted is not None and wanted.search(tag) is not None
                is_due = tensors or (regular and is_named)
            if is_due:
                with self._troubles.attempt(f"{kind} operator {tag}"):
                    value = snapshot(kind, tag, tensor)
                    if kind == SCALAR and tag.startswith("loss"):
                        self._check_finite(tag, value.content, view)
                    values.append(value)
        if self._gradients is not None:
            with self._troubles.attempt("gradients"):
                values.extend(self._gradients.take())
        return values

    def close(self) -> None:
        """Receives no values of operators from now on."""
        if self._gradients is not None:
            self._gradients.close()
        self._mailbox.close()
        choose_graph(self._network)

    def learning_rate(self) -> float | None:
        """Returns the learning rate of the first group, or None if there is none."""
        return self._rates[0][1]() if self._rates else None

    def _loss(self, view: StepView) -> Iterable[SummaryValue]:
        for index, loss in enumerate(losses(view.outputs)):
            tag = f"loss/{index}{_AUTO}" if index else f"loss{_AUTO}"
            self._check_finite(tag, loss, view)
            yield SummaryValue(SCALAR, tag, loss)

    def _check_finite(self, tag: str, loss: float, view: StepView) -> None:
        if not math.isfinite(loss):
            text = f"{tag} is {loss} at step {view.step} of this training"
            self._troubles.report("loss is not finite", text)

    def _learning_rates(self, view: StepView) -> Iterable[SummaryValue]:
        return [SummaryValue(SCALAR, name + _AUTO, read()) for name, read in self._rates]

    def _loss_scale(self, view: StepView) -> Iterable[SummaryValue]:
        yield SummaryValue(SCALAR, "loss_scale" + _AUTO, as_number(self._scale, "the loss scale"))

    def _histograms(self, view: StepView) -> Iterable[SummaryValue]:
        turn, self._turn = self._turn, self._turn + 1
        most = self._options.most_histogram_values
        for tag, parameter in self._parameters:
            with self._troubles.attempt(f"histogram {tag}"):
                # Copied before the next step moves the weights.
                yield SummaryValue(HISTOGRAM, tag, *sample(parameter, most, turn))

    def _tensors(self, view: StepView) -> Iterable[SummaryValue]:
        wanted = self._options.tensors
        for parameter in self._all:
            if wanted is None or not wanted.search(parameter.name):
                continue
            if math.prod(parameter.shape) > _MOST_TENSOR_VALUES:
                expected = f"at most {_MOST_TENSOR_VALUES:,} values; a histogram has no such limit"
                text = three_part(f"the shape of {parameter.name}", parameter.shape, expected)
                self._troubles.report("tensor", text)
                continue
            tag = f"{parameter.name}/tensor"
            with self._troubles.attempt(f"tensor {tag}"):
                yield SummaryValue(TENSOR, tag, own_array(parameter, parameter.name))

    def _chosen(self, parameters: list[Any]) -> list[Any]:
        choice = self._options.histograms
        if choice is None:
            return []
        if isinstance(choice, int):
            return parameters[:choice]
        chosen = [p for p in parameters if choice.match(p.name)]
        if not chosen:
            names = ", ".join(p.name for p in parameters) or "there are none"
            self._troubles.report(
                "histogram_regular",
                f"{choice.pattern!r} matches the start of no parameter's name ({names})",
            )
        return chosen

    def _input_images(self, view: StepView) -> Iterable[SummaryValue]:
        if not self._images:
            return
        first = view.first_column
        array = as_array(first, "the input data") if hasattr(first, "shape") else None
        if array is None or not is_image(array):
            self._images = False
            shape = "not available" if array is None else f"of shape {array.shape}"
            logger.info("SummaryCollector: the input data is %s, no images: not recorded", shape)
            return
        yield SummaryValue(IMAGE, "input_data" + _AUTO, np.array(array[:MAX_TILES], copy=True))


def sample(
    parameter: Any, most: int | None, turn: int, on_cpu: bool | None = None
) -> tuple[Array, int | None]:
    """Returns a copy of a parameter, or of every k-th of its rows if it is large.

    An embedding table can have more values than can be copied between two steps, and more than a
    histogram needs: with 65,536 values, the count of a bin with one value in ninety has a standard
    deviation of 4 %. Each turn takes the next row of every k, so k turns cover all rows.

    Args:
        parameter: A `Parameter` of any shape.
        most: The largest number of values; None for all.
        turn: The number of earlier samples; it chooses the rows.
        on_cpu: Whether numpy can view the parameter; None for whether MindSpore computes there.

    Returns:
        The values, of any shape, and the size of the parameter if they are a sample of it.

    Raises:
        TypeError: The elements are not real numbers.
    """
    shape = parameter.shape
    size = math.prod(shape)
    if most is None or size <= most:
        return own_array(parameter, parameter.name), None
    every = -(-size // most)
    by_rows = shape[0] >= _FEWEST_ROWS * every
    first = turn % every
    if is_on_cpu() if on_cpu is None else on_cpu:
        view = np.asarray(parameter.asnumpy())  # of live weights, of any type
        part = (view if by_rows else view.reshape(-1))[first::every]
        return own_array(part, parameter.name), size
    source = parameter if by_rows else parameter.reshape(-1)
    rows = Tensor(np.arange(first, source.shape[0], every, dtype=np.int64))
    return own_array(ops.gather(source, rows, 0), parameter.name), size


def metric_values(metrics: Mapping[str, Any]) -> list[SummaryValue]:
    """Returns the metrics of an evaluation as scalars `eval/<metric>`.

    A metric with several values, for example one for each class, becomes `eval/<metric>/<n>`. A
    metric that is not a number appears only in the lineage.
    """
    values: list[SummaryValue] = []
    for name, value in metrics.items():
        try:
            numbers = own_array(value, name)
        except (TypeError, ValueError):
            continue
        if numbers.ndim == 0:
            values.append(SummaryValue(SCALAR, f"{EVALUATION}{name}", float(numbers)))
        elif numbers.ndim == 1:
            values += [
                SummaryValue(SCALAR, f"{EVALUATION}{name}/{index}", float(number))
                for index, number in enumerate(numbers)
            ]
    return values
