"""`RecModel`: MindSpore's `Model` with training on unbounded streams."""

from __future__ import annotations

import logging
from typing import Any

import mindspore
from mindspore import nn
from mindspore.dataset import Dataset
from mindspore.train import Model
from mindspore.train.callback import Callback

from rec_summary.checks import check_bool, check_int, check_that, check_type
from rec_summary.errors import three_part
from rec_summary.training import _mindspore, operators
from rec_summary.training.online.loop import UNBOUNDED, OnlineRun
from rec_summary.training.online.stream import OpenStream, batches_in_pass, opened
from rec_summary.training.online.train_step import TrainStep
from rec_summary.training.process.signals import StopSignals

_log = logging.getLogger("rec_summary.training")


class RecModel(Model):
    """A `mindspore.train.Model` for recommenders with online training.

    It adds `online_train` to MindSpore's `train`, `fit`, `eval`, `predict` and `build`. It replaces
    `mindspore_rec.RecModel`, with the same signature.

    Args:
        network: The network to train, a `Cell`.
        loss_fn: The loss, a `Cell` of output and label. None if `network` computes the loss.
        optimizer: Updates the weights. None if `network` updates them.
        metrics: A dict or set of metrics for `eval`.
        eval_network: The network for `eval`; by default made of `network` and `loss_fn`.
        eval_indexes: Three positions in the output of `eval_network`: loss, prediction, label.
        amp_level: ``"O0"``, ``"O1"``, ``"O2"``, ``"O3"`` or ``"auto"``: mixed precision.
        boost_level: ``"O0"``, ``"O1"`` or ``"O2"``.
        keep_outputs: Whether callbacks receive all outputs of the network in training, and not only
            the loss: with a `loss_fn` (loss, prediction, label), else the outputs of `network`,
            with the loss first. The predictions are from before the update.
            `SummaryCollector(recommender=...)` uses them. Not available with mixed precision.
        **kwargs: Other arguments of `Model`: `loss_scale_manager`, `keep_batchnorm_fp32`,
            `boost_config_dict`.

    Raises:
        ValueError: `Model` does not accept the combination, for example `metrics` without `loss_fn`
            and `eval_network`.
        ImportError: The installed MindSpore lacks a name that this class needs.
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
        self._keep_outputs = _check_keep_outputs(
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
        """Returns the network that `Model` trains; its constructor calls this."""
        if not self._keep_outputs:
            return super()._build_train_network()
        return TrainStep(self._network, self._optimizer, self._loss_fn)

    def _transform_callbacks(self, callbacks: Any) -> list[Any]:
        """Returns the callbacks as a list; all ways of training and evaluation call this."""
        callback_list: list[Any] = super()._transform_callbacks(callbacks)
        return callback_list if self._keep_outputs else [*callback_list, _SummedOutputs()]

    def eval(
        self, valid_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False
    ) -> dict[str, Any]:
        """Evaluates the network, as `Model.eval` does.

        A callback may evaluate at the end of a training step, before others read what the summary
        operators of that step have put out. Those of the evaluation do not take their place.

        Args:
            valid_dataset: The data, a MindSpore `Dataset`.
            callbacks: A callback, a list of them, or None.
            dataset_sink_mode: Whether the device takes the data from a queue.

        Returns:
            The metrics by name.
        """
        operators.deliver()
        try:
            metrics: dict[str, Any] = super().eval(valid_dataset, callbacks, dataset_sink_mode)
        finally:
            operators.discard()
        return metrics

    def online_train(
        self,
        train_dataset: Dataset,
        callbacks: Callback | list[Callback] | None = None,
        dataset_sink_mode: bool = True,
        sink_size: int = 1,
        *,
        initial_step: int = 0,
    ) -> None:
        """Trains until a callback, a signal or the end of the data stops it.

        A pass over the data is an epoch. A stream is one unbounded pass. A set, or a generator
        function that returns, is repeated, pass after pass. A source that can be read only once
        ends the training with a warning when it is exhausted.

        Training stops after the current step, and calls the hooks for the end of the epoch and of
        the training. The callback parameter `stop_reason` has one of four reasons:

        - ``"request_stop"``: a callback called `run_context.request_stop()`.
        - ``"source exhausted"``: a whole pass gave no batch.
        - ``"SIGTERM"``: SystemExit is raised afterwards, with code 143.
        - ``"SIGINT"``, Ctrl-C: KeyboardInterrupt is raised afterwards. If it is not caught, the
          exit code is 130. During a step MindSpore turns Ctrl-C into SIGTERM.

        The signals also end a wait for data on a stream without new rows. They do not end a wait
        inside a function passed to `map`. A second signal, more than a second later, does not wait
        for the hooks. If you have installed a handler for SIGTERM or SIGINT, only your handler
        runs. Outside the main thread, `online_train` does not handle signals.

        Callbacks receive the parameters of `Model.train`. Without a planned end, `epoch_num` is
        2,147,483,647. On a stream, `batch_num` is this number too. So the number of a step within
        the epoch, in checkpoint names and logs, is the step number. Only in the hooks for the end
        of an epoch, `batch_num` is the number of steps in that epoch. `get_dataset_size()` of a
        stream is never called; during training, `train_dataset.get_dataset_size()` returns the
        largest number for which batches times batch size fits an int32. An error in a callback or
        in the data source is raised after the callbacks have been exited. Their end hooks are not
        called then, as in `Model.train`.

        Args:
            train_dataset: Yields (data, label) if there is a `loss_fn`, else the arguments of
                `network`. It is bound to this model afterwards.
            callbacks: A callback, a list of them, or None.
            dataset_sink_mode: Whether the device takes the data from a queue. Each step is then
                an epoch, as in the original. On CPU the host always fetches the data.
            sink_size: Batches for each sink; only 1 is supported.
            initial_step: The step of the checkpoint from which the training continues. Steps are
                counted from there on, in all callbacks, so that records go on after this step.
                You load the checkpoint.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: `sink_size` is not 1 in sink mode; sink mode is used with a GraphCell;
                `initial_step` is negative; or there is a `loss_fn` and a batch does not have two
                elements.
            RuntimeError: `train_dataset` belongs to another model, or the data source raised.
            SystemExit: After SIGTERM.
            KeyboardInterrupt: After Ctrl-C.
        """
        self._check_online_arguments(train_dataset, callbacks, dataset_sink_mode, sink_size)
        initial_step = check_int("initial_step", initial_step, least=0)
        _mindspore.device_number_check(self._parallel_mode, self._device_number)
        callback_list = self._transform_callbacks(callbacks)
        self._check_methods_for_custom_callbacks(callback_list, "train")
        self._check_reuse_dataset(train_dataset)

        sink = dataset_sink_mode
        if sink and mindspore.get_context("device_target") == "CPU":
            _log.info("Data sink is not available on CPU: the host fetches the data.")
            sink = False
        _mindspore.set_up_parallel_context(self._network)
        with opened(train_dataset) as stream, StopSignals(stream.wake) as signals:
            size = 1 if sink else batches_in_pass(train_dataset)
            parameters = self._callback_parameters(train_dataset, callback_list, sink, size)
            parameters.cur_step_num = initial_step
            self._online_train(parameters, signals, stream, callbacks=callback_list)
        _mindspore.clear_parallel_context(self._network)
        signals.raise_received()

    # MindSpore's decorator honours `CheckpointConfig(exception_save=True)` among `callbacks`.
    @_mindspore.save_final_checkpoint  # type: ignore[untyped-decorator]
    def _online_train(
        self, parameters: Any, signals: StopSignals, stream: OpenStream, *, callbacks: list[Any]
    ) -> None:
        if self._parameter_broadcast:
            self._train_network.set_broadcast_flag()
        with _mindspore.CallbackManager(parameters.list_callback) as manager:
            run = OnlineRun(self, manager, parameters, signals, stream)
            train = run.sink if parameters.dataset_sink_mode else run.feed
            train(parameters.train_dataset)

    def _callback_parameters(
        self, train_dataset: Dataset, callbacks: list[Any], sink: bool, size: int | None
    ) -> Any:
        """Returns the callback parameters of the begin hook, as in `Model.train`."""
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
            last_save_ckpt_step=None,
            latest_ckpt_file=None,
            loss_scale_mananger=self._loss_scale_manager,  # MindSpore's spelling
            **_mindspore.recovery_parameters(self),
        )
        if sink:
            parameters.sink_size = 1
        self.batch_num = parameters.batch_num
        return parameters

    def _check_online_arguments(
        self, train_dataset: object, callbacks: object, dataset_sink_mode: object, sink_size: object
    ) -> None:
        check_type("train_dataset", train_dataset, Dataset, "a mindspore Dataset")
        several = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        if callbacks is not None and not all(isinstance(one, Callback) for one in several):
            expected = "a mindspore Callback, a list of them, or None"
            raise TypeError(three_part("callbacks", callbacks, expected))
        check_bool("dataset_sink_mode", dataset_sink_mode)
        check_type("sink_size", sink_size, int, "an int")
        if dataset_sink_mode and sink_size != 1:
            raise ValueError(three_part("sink_size", sink_size, "1, the only supported size"))
        if dataset_sink_mode and isinstance(self._train_network, nn.GraphCell):
            expected = "False, because a GraphCell cannot be trained with data sink"
            raise ValueError(three_part("dataset_sink_mode", dataset_sink_mode, expected))


class _SummedOutputs(Callback):
    """Warns at the first step if MindSpore's training step trains the sum of several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self._checked = False

    def on_train_step_end(self, run_context: Any) -> None:
        """Checks the outputs of the first step."""
        if self._checked:
            return
        self._checked = True
        arguments = run_context.original_args()
        outputs = arguments.get("net_outputs")
        several = isinstance(outputs, (list, tuple)) and len(outputs) > 1
        if (
            several
            and type(arguments.get("train_network")) is nn.TrainOneStepCell
            and all(isinstance(output, mindspore.Tensor) for output in outputs)
        ):
            _log.warning(
                "RecModel: the network returns several values, and MindSpore trains the sum of all "
                "%d outputs, not the loss alone. Use RecModel(..., keep_outputs=True): it trains "
                "the first output and passes the others to callbacks.",
                len(outputs),
            )


def _check_keep_outputs(
    keep: object, optimizer: object, amp_level: object, boost_level: object, others: dict[str, Any]
) -> bool:
    if not check_bool("keep_outputs", keep):
        return False
    scaled = others.get("loss_scale_manager")
    wrong = {
        "optimizer": (optimizer, optimizer is None, "an optimizer"),
        "amp_level": (amp_level, amp_level != "O0", "'O0'"),
        "boost_level": (boost_level, boost_level != "O0", "'O0'"),
        "loss_scale_manager": (scaled, scaled is not None, "None"),
    }
    for name, (received, is_wrong, expected) in wrong.items():
        check_that(not is_wrong, name, received, f"{expected}, if keep_outputs is True")
    return True
