"""`RecModel`: MindSpore's `Model` with training on streams that never end."""

from __future__ import annotations

import logging
from typing import Any

import mindspore
from mindspore import nn
from mindspore.dataset import Dataset
from mindspore.train import Model
from mindspore.train.callback import Callback

from rec_summary.errors import three_part
from rec_summary.training import _mindspore
from rec_summary.training.online.loop import UNBOUNDED, OnlineRun
from rec_summary.training.online.signals import StopSignals
from rec_summary.training.online.stream import OpenStream, batches_in_pass, opened
from rec_summary.training.online.train_step import TrainStep

_log = logging.getLogger("rec_summary.training")


class RecModel(Model):
    """A `mindspore.train.Model` for recommenders, which can train online.

    `train`, `fit`, `eval`, `predict` and `build` are MindSpore's own; `online_train` is added.
    It is a replacement of `mindspore_rec.RecModel` with the same signature.

    Args:
        network: The network to train, a `Cell`.
        loss_fn: The loss, a `Cell` of output and label. None if `network` computes the loss.
        optimizer: Updates the weights. None if `network` does so itself.
        metrics: A dict or set of metrics for `eval`.
        eval_network: The network for `eval`; by default made of `network` and `loss_fn`.
        eval_indexes: Three positions in the output of `eval_network`: loss, prediction, label.
        amp_level: ``"O0"``, ``"O1"``, ``"O2"``, ``"O3"`` or ``"auto"``: mixed precision.
        boost_level: ``"O0"``, ``"O1"`` or ``"O2"``.
        keep_outputs: Whether training gives callbacks all that the network returns, and not the
            loss alone: with a `loss_fn` (loss, prediction, label), else the outputs of `network`,
            of which the first is the loss. The predictions are those from before the update;
            `SummaryCollector(recommender=...)` uses them. Without mixed precision only.
        **kwargs: What `Model` takes besides: `loss_scale_manager`, `keep_batchnorm_fp32`,
            `boost_config_dict`.

    Raises:
        ValueError: For combinations that `Model` refuses, such as `metrics` without `loss_fn` and
            `eval_network`.
        ImportError: If the installed MindSpore lacks a name that this class needs.
    """

    def __init__(
        self,
        network: Any,
        loss_fn: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        eval_network: Any = None,
        eval_indexes: Any = None,
        amp_level: str = "O0",
        boost_level: str = "O0",
        *,
        keep_outputs: bool = False,
        **kwargs: Any,
    ) -> None:
        self._keep_outputs = _checked_keep_outputs(
            keep_outputs, optimizer, amp_level, boost_level, kwargs
        )
        super().__init__(
            network,
            loss_fn=loss_fn,
            optimizer=optimizer,
            metrics=metrics,
            eval_network=eval_network,
            eval_indexes=eval_indexes,
            amp_level=amp_level,
            boost_level=boost_level,
            **kwargs,
        )
        _mindspore.check_model(self)

    def _build_train_network(self) -> Any:
        """Makes the network that `Model` trains; called by its constructor."""
        if not self._keep_outputs:
            return super()._build_train_network()
        return TrainStep(self._network, self._optimizer, self._loss_fn)

    def online_train(
        self,
        train_dataset: Dataset,
        callbacks: Callback | list[Callback] | None = None,
        dataset_sink_mode: bool = True,
        sink_size: int = 1,
    ) -> None:
        """Trains until a callback, a signal or the end of the data stops it.

        A pass over the data is an epoch. A stream is one pass without end; a set, or a generator
        function that returns, is repeated, pass after pass. A source that can be read only once
        ends the training with a warning when it has run dry.

        Training stops in good order, after the step under way and with the hooks for the end of
        the epoch and of the training, for one of four reasons. It is told in the callback
        parameter `stop_reason`:

        - ``"request_stop"``: a callback called `run_context.request_stop()`.
        - ``"source exhausted"``: a whole pass gave no batch.
        - ``"SIGTERM"``: afterwards SystemExit is raised, with code 143.
        - ``"SIGINT"``, Ctrl-C: afterwards KeyboardInterrupt is raised, and an uncaught one makes
          exit code 130. During a step MindSpore turns Ctrl-C into SIGTERM.

        The signals also end a wait for data on a stream that has gone quiet, though not a wait
        inside a function given to `map`, which only the function can end. A second signal, more
        than a second later, does not wait for the hooks. A handler for SIGTERM or SIGINT that was
        installed by the user decides alone. Called outside the main thread, `online_train` leaves
        signals alone.

        Callbacks get what `Model.train` gives them. Without a planned end, `epoch_num` is
        2,147,483,647. On a stream, `batch_num` is that number too, so that a step's number within
        the epoch, in checkpoint names and logs, is the step number; only in the hooks for the end
        of an epoch is it the number of steps that the epoch had. `get_dataset_size()` of a stream
        is never called; while training runs, `train_dataset.get_dataset_size()` answers the
        largest number for which batches times batch size fits an int32. An error in a callback or
        in the data source is raised after the callbacks have been left; their end hooks are not
        called then, as in `Model.train`.

        Args:
            train_dataset: Gives (data, label) if there is a `loss_fn`, else the arguments of
                `network`. Bound to this model afterwards.
            callbacks: A callback, a list of them, or None.
            dataset_sink_mode: Whether the device takes the data from a queue. Each step is then
                an epoch of its own, as in the original. On CPU data is fed from the host.
            sink_size: Batches for each sink; only 1 is supported.

        Raises:
            TypeError: If an argument is of the wrong type.
            ValueError: If `sink_size` is not 1 with sink mode; if sink mode is asked for with a
                GraphCell; if there is a `loss_fn` and a batch has not two elements.
            RuntimeError: If `train_dataset` belongs to another model, or the data source raised.
            SystemExit: After SIGTERM.
            KeyboardInterrupt: After Ctrl-C.
        """
        self._check_online_arguments(train_dataset, callbacks, dataset_sink_mode, sink_size)
        _mindspore.device_number_check(self._parallel_mode, self._device_number)
        several = self._transform_callbacks(callbacks)
        self._check_methods_for_custom_callbacks(several, "train")
        self._check_reuse_dataset(train_dataset)

        sink = dataset_sink_mode
        if sink and mindspore.get_context("device_target") == "CPU":
            _log.info("Data sink is not available on CPU: data is fed from the host.")
            sink = False
        _mindspore.set_up_parallel_context(self._network)
        with opened(train_dataset) as stream, StopSignals(stream.wake) as signals:
            self._online_train(
                train_dataset,
                callbacks=several,
                sink=sink,
                signals=signals,
                stream=stream,
            )
        _mindspore.clear_parallel_context(self._network)
        signals.raise_received()

    # MindSpore's decorator honours `CheckpointConfig(exception_save=True)`.
    @_mindspore.save_final_checkpoint  # type: ignore[untyped-decorator]
    def _online_train(
        self,
        train_dataset: Dataset,
        *,
        callbacks: list[Any],
        sink: bool,
        signals: StopSignals,
        stream: OpenStream,
    ) -> None:
        if self._parameter_broadcast:
            self._train_network.set_broadcast_flag()
        size = 1 if sink else batches_in_pass(train_dataset)
        parameters = self._callback_parameters(train_dataset, callbacks, sink, size)
        with _mindspore.CallbackManager(parameters.list_callback) as manager:
            run = OnlineRun(self, manager, parameters, signals, stream, size)
            if sink:
                run.sink(train_dataset)
            else:
                run.feed(train_dataset)

    def _callback_parameters(
        self, train_dataset: Dataset, callbacks: list[Any], sink: bool, size: int | None
    ) -> Any:
        """Makes the parameters that callbacks find at the begin hook, as `Model.train` does."""
        parameters = _mindspore.CallbackParameters()
        own = [_mindspore.FrameworkProfilerCallback()]
        if mindspore.get_context("mode") == mindspore.PYNATIVE_MODE:
            own.insert(0, _mindspore.StepSync())
        parameters.update(
            mode="train",
            epoch_num=UNBOUNDED,
            batch_num=UNBOUNDED if size is None else size,
            cur_step_num=0,
            dataset_sink_mode=sink,
            train_dataset=train_dataset,
            train_dataset_element=None,
            train_network=self._train_network,
            network=self._network,
            loss_fn=self._loss_fn,
            optimizer=self._optimizer,
            parallel_mode=self._parallel_mode,
            device_number=self._device_number,
            list_callback=[*own, *callbacks],
            initial_step=getattr(self, "_initial_step", None),  # of its fault tolerance
            last_save_ckpt_step=None,
            latest_ckpt_file=None,
            loss_scale_mananger=self._loss_scale_manager,  # MindSpore's spelling
            **_mindspore.recovery_parameters(),
        )
        if sink:
            parameters.sink_size = 1
        self.batch_num = parameters.batch_num
        return parameters

    def _check_online_arguments(
        self, train_dataset: object, callbacks: object, dataset_sink_mode: object, sink_size: object
    ) -> None:
        if not isinstance(train_dataset, Dataset):
            raise TypeError(three_part("train_dataset", train_dataset, "a mindspore Dataset"))
        several = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        if callbacks is not None and not all(isinstance(one, Callback) for one in several):
            raise TypeError(
                three_part("callbacks", callbacks, "a mindspore Callback, a list of them, or None")
            )
        if not isinstance(dataset_sink_mode, bool):
            raise TypeError(three_part("dataset_sink_mode", dataset_sink_mode, "a bool"))
        if not isinstance(sink_size, int) or isinstance(sink_size, bool):
            raise TypeError(three_part("sink_size", sink_size, "an int"))
        if dataset_sink_mode and sink_size != 1:
            raise ValueError(three_part("sink_size", sink_size, "1, the only supported size"))
        if dataset_sink_mode and isinstance(self._train_network, nn.GraphCell):
            raise ValueError(
                three_part(
                    "dataset_sink_mode",
                    dataset_sink_mode,
                    "False, because a GraphCell cannot be trained with data sink",
                )
            )


def _checked_keep_outputs(
    keep: object, optimizer: object, amp_level: object, boost_level: object, others: dict[str, Any]
) -> bool:
    if not isinstance(keep, bool):
        raise TypeError(three_part("keep_outputs", keep, "a bool"))
    if not keep:
        return False
    scaled = others.get("loss_scale_manager")
    wrong = {
        "optimizer": (optimizer, optimizer is None, "an optimizer"),
        "amp_level": (amp_level, amp_level != "O0", "'O0'"),
        "boost_level": (boost_level, boost_level != "O0", "'O0'"),
        "loss_scale_manager": (scaled, scaled is not None, "None"),
    }
    for name, (received, is_wrong, expected) in wrong.items():
        if is_wrong:
            raise ValueError(three_part(name, received, f"{expected}, where outputs are kept"))
    return True
