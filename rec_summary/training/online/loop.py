"""The loop of online training: passes, steps and the reasons to stop.

The order of hooks is that of `Model.train`, with one difference: a pass begins when its first batch
is available. An exhausted source therefore makes no empty epochs, in which callbacks such as
`History` would find no output.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore.dataset import Dataset
from mindspore.train.callback import RunContext

from rec_summary.checks import check_that
from rec_summary.training._mindspore import built_helper, release_iterator
from rec_summary.training.online.stream import INT32_MAX, OpenStream
from rec_summary.training.process.signals import StopSignals

_log = logging.getLogger("rec_summary.training")

UNBOUNDED = INT32_MAX
"""The value of `epoch_num`, and for a stream of `batch_num`: there is no planned end.

An int32, because MindSpore's lineage stores one, and because `epoch_num * batch_num` must be a
valid length of a `range` in its `SummaryCollector`. With `sys.maxsize` the product overflows.
"""

REQUEST_STOP = "request_stop"
SOURCE_EXHAUSTED = "source exhausted"

_PASS_END = object()


@dataclass
class OnlineRun:
    """One call of `RecModel.online_train`, from the begin hook to the end hook.

    Attributes:
        model: The `Model` that trains. Its protected methods are called as in `Model.train`.
        callbacks: MindSpore's manager of the callbacks, already entered.
        parameters: The callback parameters. The run adds `stop_reason` at the end.
        signals: Already entered.
        stream: The opened dataset.
    """

    model: Any
    callbacks: Any
    parameters: Any
    signals: StopSignals
    stream: OpenStream

    def __post_init__(self) -> None:
        self._context = RunContext(self.parameters)
        self._steps_in_pass = 0
        self._initial_step = self.parameters.cur_step_num

    def feed(self, dataset: Dataset) -> None:
        """Trains with batches that the host fetches."""
        model = self.model
        helper, network = model._exec_preprocess(
            is_train=True, dataset=dataset, dataset_sink_mode=False, epoch_num=-1
        )
        batches = iter(helper)
        try:
            self.callbacks.on_train_begin(self._context)
            while not self._stopping():
                with self.signals.waiting():
                    batch = next(batches, _PASS_END)
                if batch is _PASS_END:
                    if self.stream.was_woken():
                        continue
                    if self._steps_in_pass == 0:
                        self._note_exhausted()
                        break
                    dataset.reset()
                    self._end_pass()
                    continue
                batch = (batch,) if isinstance(batch, Tensor) else batch
                self._check_elements(batch)
                if self._steps_in_pass == 0:
                    self._begin_pass()
                outputs = self._step(network, batch)
                self._update_loss_scale(outputs)
                self._end_step()
            if self._steps_in_pass:
                dataset.reset()
                self._end_pass()
            self._end()
        finally:
            self.stream.close()
            release_iterator(helper)

    def sink(self, dataset: Dataset) -> None:
        """Trains with batches that the device takes from a queue, one for each pass.

        Here the device waits for data, and not the host. So a stop takes effect after the current
        step, and the end of the data cannot be detected.
        """
        model = self.model
        self.callbacks.on_train_begin(self._context)
        helper = built_helper(dataset)
        while not self._stopping():
            self._begin_pass()
            helper, network = model._exec_preprocess(
                is_train=True,
                dataset=dataset,
                dataset_sink_mode=True,
                sink_size=1,
                epoch_num=-1,
                dataset_helper=helper,
            )
            self.parameters.train_network = network
            self.parameters.dataset_helper = helper
            for inputs in helper:
                self._step(network, inputs)
                self._end_step()
            helper.continue_send()
            self._end_pass()
        if helper is not None:
            helper.stop_send()
            helper.release()
        self._end()

    def _begin_pass(self) -> None:
        parameters = self.parameters
        parameters.cur_epoch_num = parameters.get("cur_epoch_num", 0) + 1
        self.model._current_epoch_num = parameters.cur_epoch_num
        self.callbacks.on_train_epoch_begin(self._context)

    def _step(self, network: Any, batch: Any) -> Any:
        model, parameters = self.model, self.parameters
        self._steps_in_pass += 1
        parameters.cur_step_num += 1
        model._current_step_num = self._steps_in_pass
        parameters.train_dataset_element = batch
        self.callbacks.on_train_step_begin(self._context)
        # An evaluation in a callback leaves the network in evaluation mode.
        network = model._check_network_mode(network, True)
        parameters.net_outputs = network(*batch)
        return parameters.net_outputs

    def _end_step(self) -> None:
        self._note_signal()
        self.callbacks.on_train_step_end(self._context)

    def _end_pass(self) -> None:
        parameters = self.parameters
        planned = parameters.batch_num
        if planned == UNBOUNDED:
            # Known only now; `TimeMonitor` divides the time of the epoch by it.
            parameters.batch_num = self._steps_in_pass
        self._steps_in_pass = 0
        self.model._flush_from_cache(parameters)
        self.callbacks.on_train_epoch_end(self._context)
        parameters.batch_num = planned

    def _end(self) -> None:
        if "net_outputs" not in self.parameters:
            # No step was trained; MindSpore's `SummaryCollector` reads this key in its end hook.
            self.parameters.net_outputs = None
        self.callbacks.on_train_end(self._context)

    def _stopping(self) -> bool:
        self._note_signal()
        if self._context.get_stop_requested():
            self.parameters.setdefault("stop_reason", REQUEST_STOP)
        return "stop_reason" in self.parameters

    def _note_signal(self) -> None:
        """Requests a stop after a signal, with its name as the reason."""
        name = self.signals.received
        if name is not None and "stop_reason" not in self.parameters:
            _log.info("%s received: training stops after this step.", name)
            self.parameters.stop_reason = name
            self._context.request_stop()

    def _note_exhausted(self) -> None:
        self.parameters.stop_reason = SOURCE_EXHAUSTED
        steps = self.parameters.cur_step_num - self._initial_step
        count = self.parameters.get("cur_epoch_num", 0)
        passes = f"{count} pass" if count == 1 else f"{count} passes"
        _log.warning(
            "The data source is exhausted: a whole pass gave no batch. Training ends after "
            f"{steps} steps in {passes}. A source that can be read again, such as a generator "
            "function, is repeated."
        )

    def _check_elements(self, batch: Any) -> None:
        what = "The number of elements that 'train_dataset' gives for a batch"
        expected = "two, data and label, because 'loss_fn' is not None"
        check_that(self.model._loss_fn is None or len(batch) == 2, what, len(batch), expected)

    def _update_loss_scale(self, outputs: Any) -> None:
        manager = self.model._loss_scale_manager
        if manager and manager.get_drop_overflow_update():
            manager.update_loss_scale(np.all(outputs[1].asnumpy()))
