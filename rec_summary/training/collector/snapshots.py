"""What is taken from a step: copies of values, made on the training thread and nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from rec_summary.records.failures import Troubles
from rec_summary.training.collector.operators import Mailbox, Operator, snapshot
from rec_summary.training.collector.options import Collect
from rec_summary.training.collector.sampling import sample
from rec_summary.training.collector.step_view import StepView, as_array
from rec_summary.training.lineage.optimizers import LearningRates, parameters_of
from rec_summary.values.image import MAX_TILES, is_image
from rec_summary.values.scalar import to_number
from rec_summary.values.summary import HistogramValue, ImageValue, ScalarValue, SummaryValue

logger = logging.getLogger("rec_summary.training")

# MindSpore's own suffix for what its collector gathers, as opposed to the network's operators.
_AUTO: Final = "/auto"


class Snapshots:
    """Reads the values of a step, as far as they are collected and due."""

    def __init__(
        self, collect: Collect, view: StepView, optimizers: list[Any], troubles: Troubles
    ) -> None:
        """Finds out where the values are; the network is looked through only once.

        Args:
            collect: What is collected.
            view: The callback arguments of a run that begins.
            optimizers: The run's optimizers.
            troubles: Told of every kind of value that could not be read.
        """
        self._collect = collect
        self._troubles = troubles
        self._rates = LearningRates(optimizers)
        chosen = self._chosen(parameters_of(optimizers, view.network))
        self._parameters = [(parameter.name + _AUTO, parameter) for parameter in chosen]
        self._most = None if collect.histogram is None else collect.histogram.most_values
        self._turn = 0  # how often histograms have been taken
        self._images = collect.input_data
        self._mailbox = Mailbox(troubles)

    def take(self, view: StepView, *, regular: bool, tensors: bool) -> list[SummaryValue]:
        """Returns the values of the step that has just ended.

        What the network's operators have put out is always taken out of MindSpore's hands,
        due or not: nobody else would, and it would pile up.

        Args:
            view: The callback arguments.
            regular: Whether everything but tensors is due.
            tensors: Whether tensors are due.
        """
        values: list[SummaryValue] = []
        if regular:
            self._regular(view, values)
        waiting = self._mailbox.take()
        if waiting:
            try:
                values.extend(self._operators(waiting, regular, tensors))
            except Exception as error:  # noqa: BLE001  # one kind must not cost the others
                self._troubles.report("summary operator", error)
        return values

    def _regular(self, view: StepView, values: list[SummaryValue]) -> None:
        sources: list[tuple[str, Callable[[], Iterable[SummaryValue]]]] = []
        if self._images:
            sources.append(("input data", lambda: self._input_images(view)))
        if self._collect.metric:
            sources.append(("loss", lambda: [ScalarValue("loss" + _AUTO, self.loss(view))]))
            sources.append(("learning rate", self._learning_rates))
        if self._parameters:
            sources.append(("histogram", self._histograms))
        for what, source in sources:
            try:
                values.extend(source())
            except Exception as error:  # noqa: BLE001  # one kind must not cost the others
                self._troubles.report(what, error)

    def close(self) -> None:
        """Leaves the network's operators to others."""
        self._mailbox.close()

    def loss(self, view: StepView) -> float:
        """Returns the step's loss, the mean if it has several elements.

        Raises:
            TypeError: The network's output is nothing that could be a loss.
            ValueError: It is empty.
        """
        return to_number(view.loss())

    def learning_rate(self) -> float | None:
        """Returns the learning rate of the first group, or None if there is none."""
        rates = self._rates.read()
        return rates[0][1] if rates else None

    def _learning_rates(self) -> Iterable[ScalarValue]:
        return [ScalarValue(name + _AUTO, rate) for name, rate in self._rates.read()]

    def _histograms(self) -> Iterable[HistogramValue]:
        turn, self._turn = self._turn, self._turn + 1
        for tag, parameter in self._parameters:
            # Copied before the next step moves the weights.
            yield HistogramValue(tag, *sample(parameter, self._most, turn))

    def _chosen(self, parameters: list[Any]) -> list[Any]:
        choice = self._collect.histogram
        if choice is None:
            return []
        if choice.pattern is None:
            return parameters[: choice.count]
        return [p for p in parameters if choice.pattern.match(p.name)]

    def _input_images(self, view: StepView) -> Iterable[ImageValue]:
        element = view.get("train_dataset_element")
        first = element[0] if isinstance(element, (list, tuple)) and element else element
        array = None if first is None else as_array(first, "the input data")
        if array is None or not is_image(array):
            self._images = False
            shape = "not shown" if array is None else f"of shape {array.shape}"
            logger.info("SummaryCollector: the input data is %s, no images: not recorded", shape)
            return
        yield ImageValue("input_data" + _AUTO, np.array(array[:MAX_TILES], copy=True))

    def _operators(
        self, waiting: Mapping[Operator, Any], regular: bool, tensors: bool
    ) -> Iterable[SummaryValue]:
        for (kind, tag), tensor in waiting.items():
            if not (tensors if kind == "tensor" else regular):
                continue
            try:
                yield snapshot(kind, tag, tensor)
            except (TypeError, ValueError) as error:
                self._troubles.report(f"{kind} operator {tag}", error)


def metric_values(metrics: Mapping[str, Any]) -> list[SummaryValue]:
    """Returns the metrics of an evaluation as scalars `eval/<metric>`.

    A metric with several values, such as one for each class, becomes `eval/<metric>/<n>`.
    One that is no number is left to the lineage.
    """
    values: list[SummaryValue] = []
    for name, value in metrics.items():
        try:
            numbers = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            continue
        if numbers.ndim == 0:
            values.append(ScalarValue(f"eval/{name}", float(numbers)))
        elif numbers.ndim == 1:
            values += [
                ScalarValue(f"eval/{name}/{index}", float(number))
                for index, number in enumerate(numbers)
            ]
    return values
