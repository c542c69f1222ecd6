"""`RecModel.online_train` on streams and sets, with MindSpore's callbacks, and what it inherits."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import Tensor, amp, nn
from mindspore.dataset import Dataset, GeneratorDataset
from mindspore.train import (
    CheckpointConfig,
    History,
    LambdaCallback,
    LossMonitor,
    ModelCheckpoint,
    TimeMonitor,
)

from rec_summary.training import _mindspore
from rec_summary.training.online.loop import UNBOUNDED, OnlineRun
from rec_summary.training.online.rec_model import RecModel
from rec_summary.training.process.signals import StopSignals
from tests.support import forkserver
from tests.support.nets import (
    BATCH,
    COLUMNS,
    ClickNet,
    Journal,
    Row,
    batch_of_clicks,
    bounded,
    click_model,
    clicks,
    stream,
)
from tests.support.versions import skip_without_their_collector

pytestmark = pytest.mark.mindspore

STEP = ["step_begin", "step_end"]


@pytest.fixture(scope="module")
def model() -> RecModel:
    """One model for all tests that do not look at its weights: it is compiled once."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    return click_model(metrics={"loss"})


@pytest.fixture
def notes(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="rec_summary.training")
    return caplog


def noted(notes: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [
        record.getMessage()
        for record in notes.records
        if record.levelname == level and record.name == "rec_summary.training"
    ]


# Streams


class Iterable:
    def __iter__(self) -> Iterator[Row]:
        return clicks()()


class IterableWithLength(Iterable):
    def __len__(self) -> int:
        return 10**9


class FewerThanLength(IterableWithLength):
    def __iter__(self) -> Iterator[Row]:
        return clicks(2)()


class OwnIterator:
    """Its own iterator, as in MindSpore's manual."""

    def __iter__(self) -> OwnIterator:
        self.number = 0
        return self

    def __next__(self) -> Row:
        self.number += 1
        return batch_of_clicks(self.number)


def rows() -> Iterator[Row]:
    while True:
        fields, label = batch_of_clicks()
        yield from zip(fields, label, strict=True)


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(lambda: stream(clicks()), id="generator function"),
        pytest.param(lambda: stream(clicks()()), id="generator"),
        pytest.param(lambda: stream(Iterable()), id="iterable"),
        pytest.param(lambda: stream(IterableWithLength()), id="iterable with a length"),
        pytest.param(lambda: stream(OwnIterator()), id="iterator"),
        pytest.param(lambda: stream(map(batch_of_clicks, iter(int, 1))), id="map object"),
        pytest.param(
            lambda: (
                GeneratorDataset(rows, [*COLUMNS[::-1]])
                .rename([*COLUMNS[::-1]], COLUMNS)
                .map(lambda label: label, ["label"])
                .shuffle(4)
                .batch(BATCH)
                .project(COLUMNS)
            ),
            id="behind operations",
        ),
    ],
)
def test_endless_sources_train_and_are_never_asked_for_their_size(
    model: RecModel, dataset: Callable[[], Dataset]
) -> None:
    journal = Journal(stop_after=3)

    model.online_train(dataset(), journal)  # get_dataset_size would never return

    assert journal.hooks == ["enter", "begin", "epoch_begin", *STEP * 3, "epoch_end", "end", "exit"]
    assert journal.error is None


def test_a_callback_that_asks_for_the_size_of_a_stream_gets_an_answer(model: RecModel) -> None:
    sizes = []
    ask = LambdaCallback(
        on_train_end=lambda context: sizes.append(
            context.original_args().train_dataset.get_dataset_size()
        )
    )
    dataset = stream()

    model.online_train(dataset, [Journal(stop_after=1), ask])

    assert sizes == [UNBOUNDED]
    assert "get_dataset_size" not in vars(dataset)


def test_training_learns() -> None:
    mindspore.set_seed(1)
    journal = Journal(stop_after=100)
    click_model().online_train(stream(lambda: iter([batch_of_clicks()] * 100)), journal)

    losses = [float(step["net_outputs"].asnumpy()) for step in journal.parameters["step_end"]]
    assert losses[-1] < 0.9 * losses[0]


# Passes


def test_a_set_is_repeated_and_its_passes_are_epochs(model: RecModel) -> None:
    journal = Journal(stop_after=5)

    model.online_train(bounded(2), journal)

    one_pass = ["epoch_begin", *STEP * 2, "epoch_end"]
    assert journal.hooks[2:-2] == [*one_pass * 2, "epoch_begin", *STEP, "epoch_end"]
    steps = [(s["cur_epoch_num"], s["cur_step_num"]) for s in journal.parameters["step_end"]]
    assert steps == [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5)]
    assert {step["batch_num"] for step in journal.parameters["step_end"]} == {2}


@pytest.mark.parametrize("source", [clicks(2), FewerThanLength()], ids=["function", "iterable"])
def test_a_source_that_returns_is_repeated(model: RecModel, source: Any) -> None:
    journal, dataset = Journal(stop_after=5), stream(source)
    length = dataset.source_len

    model.online_train(dataset, journal)

    assert dataset.source_len == length
    assert [e["cur_epoch_num"] for e in journal.parameters["epoch_end"]] == [1, 2, 3]
    assert [e["batch_num"] for e in journal.parameters["epoch_end"]] == [2, 2, 1]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: iter([batch_of_clicks()] * 3), id="iterator"),
        pytest.param(lambda: clicks(3)(), id="generator"),
    ],
)
def test_a_source_that_can_be_read_once_ends_training_with_a_note(
    model: RecModel, source: Any, notes: pytest.LogCaptureFixture
) -> None:
    journal = Journal()

    model.online_train(stream(source()), journal)

    assert journal.hooks == ["enter", "begin", "epoch_begin", *STEP * 3, "epoch_end", "end", "exit"]
    assert journal.parameters["end"][0]["stop_reason"] == "source exhausted"
    assert not journal.stop_seen["end"]
    (note,) = noted(notes, "WARNING")
    assert "exhausted" in note
    assert "3 steps" in note


def test_steps_go_on_behind_the_step_of_a_checkpoint(
    model: RecModel, notes: pytest.LogCaptureFixture
) -> None:
    journal = Journal()

    model.online_train(stream(iter([batch_of_clicks()] * 2)), journal, initial_step=700)

    parameters = journal.parameters
    steps = {hook: [each["cur_step_num"] for each in parameters[hook]] for hook in parameters}
    assert steps == {
        "begin": [700],
        "epoch_begin": [700],
        "step_begin": [701, 702],
        "step_end": [701, 702],
        "epoch_end": [702],
        "end": [702],
    }
    assert "2 steps" in noted(notes, "WARNING")[0]


def test_a_source_that_gives_nothing_ends_training_with_a_note(
    model: RecModel, notes: pytest.LogCaptureFixture
) -> None:
    journal = Journal()

    model.online_train(stream(iter(())), journal)

    assert journal.hooks == ["enter", "begin", "end", "exit"]
    assert journal.parameters["end"][0]["net_outputs"] is None
    assert "0 steps" in noted(notes, "WARNING")[0]


# Stopping


@pytest.mark.parametrize(
    ("hook", "at_step", "steps"),
    [
        ("begin", 0, 0),
        ("epoch_begin", 0, 1),
        ("step_begin", 2, 2),
        ("step_end", 2, 2),
        ("epoch_end", 4, 4),
    ],
)
def test_a_stop_requested_in_any_hook_is_obeyed(
    model: RecModel, hook: str, at_step: int, steps: int
) -> None:
    journal = Journal(stop_after=at_step, stop_in=hook)

    model.online_train(bounded(4), journal)

    assert journal.hooks.count("step_end") == steps
    assert journal.hooks[-3:] == [["epoch_end"], ["begin"]][steps == 0] + ["end", "exit"]
    assert journal.parameters["end"][0]["stop_reason"] == "request_stop"
    assert journal.stop_seen["end"]


def test_a_stop_does_not_wait_for_a_source_that_is_slow(model: RecModel) -> None:
    released = threading.Event()

    def slow() -> Iterator[Row]:
        yield batch_of_clicks()
        released.wait()  # the test's end, or never: the process could not end otherwise

    journal = Journal(stop_after=1)
    model.online_train(stream(slow), journal)
    released.set()

    assert journal.hooks[-2:] == ["end", "exit"]


def test_an_error_of_the_source_leaves_the_callbacks(model: RecModel) -> None:
    trained = threading.Event()

    def broken() -> Iterator[Row]:
        yield batch_of_clicks()
        trained.wait()  # MindSpore tells at once, whatever it has not trained with yet
        raise KeyError("no such topic")

    journal = Journal()
    with pytest.raises(RuntimeError, match="no such topic"):
        model.online_train(
            stream(broken), [journal, LambdaCallback(on_train_step_end=lambda _: trained.set())]
        )

    assert journal.hooks == ["enter", "begin", "epoch_begin", *STEP, "exit"]
    assert journal.error is RuntimeError


def test_an_error_in_a_callback_leaves_the_callbacks_and_frees_the_dataset(model: RecModel) -> None:
    def fail(context: Any) -> None:
        raise OSError("disk full")

    journal, dataset = Journal(), stream()
    with pytest.raises(OSError, match="disk full"):
        model.online_train(dataset, [journal, LambdaCallback(on_train_step_end=fail)])

    assert journal.error is OSError
    assert "get_dataset_size" not in vars(dataset)
    model.online_train(dataset, Journal(stop_after=2))


# Repeated calls


def test_online_train_may_be_called_again(model: RecModel) -> None:
    again, other = stream(), stream()
    for dataset in (again, again, other):
        journal = Journal(stop_after=3)
        model.online_train(dataset, journal)
        assert [s["cur_step_num"] for s in journal.parameters["step_end"]] == [1, 2, 3]


def test_a_slow_generator_goes_on_in_the_next_call(model: RecModel) -> None:
    ended = threading.Event()

    def slow() -> Iterator[Row]:
        for number in range(6):
            if number == 3:  # what MindSpore reads ahead is lost
                ended.wait()
            yield np.full((BATCH, 3), number, np.int32), batch_of_clicks()[1]

    dataset = stream(slow())
    first, second = Journal(stop_after=2), Journal()
    model.online_train(dataset, first)
    ended.set()
    model.online_train(dataset, second)

    def numbers(journal: Journal) -> list[int]:
        return [int(s["train_dataset_element"][0][0, 0]) for s in journal.parameters["step_end"]]

    seen = numbers(first) + numbers(second)
    assert seen == sorted(set(seen))  # nothing twice, and nothing out of order
    assert seen[:2] == [0, 1]
    assert seen[-1] == 5


def test_a_dataset_of_another_model_is_refused(model: RecModel) -> None:
    dataset = stream()
    model.online_train(dataset, Journal(stop_after=1))

    with pytest.raises(RuntimeError, match="had been used in other model"):
        click_model().online_train(dataset)


def test_online_train_works_outside_of_the_main_thread(model: RecModel) -> None:
    journal = Journal(stop_after=2)
    thread = threading.Thread(target=model.online_train, args=(stream(), journal))
    thread.start()
    thread.join()

    assert journal.hooks[-2:] == ["end", "exit"]


# Arguments


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"train_dataset": [1, 2]}, TypeError, r"train_dataset is invalid\. Received: \[1, 2\]"),
        ({"callbacks": "LossMonitor"}, TypeError, "callbacks is invalid. Received: 'LossMonitor'"),
        ({"callbacks": [LossMonitor(), 1]}, TypeError, "callbacks is invalid"),
        ({"dataset_sink_mode": 1}, TypeError, "dataset_sink_mode is invalid. Received: 1"),
        ({"initial_step": 1.5}, TypeError, "initial_step is invalid. Received: 1.5"),
        ({"initial_step": True}, TypeError, "initial_step is invalid. Received: True"),
        ({"initial_step": -1}, ValueError, "initial_step is invalid. Received: -1. Expected: an"),
        ({"sink_size": 1.0}, TypeError, "sink_size is invalid. Received: 1.0"),
        ({"sink_size": True}, TypeError, "sink_size is invalid. Received: True"),
        ({"sink_size": 2}, ValueError, "sink_size is invalid. Received: 2. Expected: 1"),
        ({"sink_size": -1}, ValueError, "sink_size is invalid. Received: -1. Expected: 1"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_touched(
    model: RecModel, kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    def untouchable() -> Iterator[Row]:
        raise AssertionError("the source was read")
        yield batch_of_clicks()

    journal, dataset = Journal(), stream(untouchable)
    attributes = dict(vars(dataset))

    with pytest.raises(error, match=message):
        model.online_train(**{"train_dataset": dataset, "callbacks": journal, **kwargs})

    assert journal.hooks == []
    assert vars(dataset) == attributes


def test_a_sink_size_without_sink_is_ignored(model: RecModel) -> None:
    journal = Journal(stop_after=1)
    model.online_train(stream(), journal, dataset_sink_mode=False, sink_size=7)

    assert journal.hooks[-1] == "exit"


def test_a_graph_cell_is_refused_with_sink(tmp_path: Path) -> None:
    file = str(tmp_path / "net")
    mindspore.export(nn.Dense(3, 1), Tensor(np.ones((1, 3), np.float32)), file_name=file,
                     file_format="MINDIR")  # fmt: skip
    graph = RecModel(nn.GraphCell(mindspore.load(file + ".mindir")))

    with pytest.raises(ValueError, match="dataset_sink_mode is invalid"):
        graph.online_train(stream())


@pytest.mark.parametrize("elements", [1, 3])
def test_with_a_loss_a_batch_must_have_two_elements(model: RecModel, elements: int) -> None:
    columns = ["a", "b", "c"][:elements]
    dataset = GeneratorDataset(lambda: iter([(np.zeros(2, np.float32),) * elements]), columns)

    with pytest.raises(ValueError, match=rf"Received: {elements}\. Expected: two, data and label"):
        model.online_train(dataset)


def test_a_single_tensor_is_one_element_however_long(model: RecModel) -> None:
    dataset = stream()
    dataset.create_tuple_iterator = lambda **_: iter([Tensor(np.zeros((2, 3), np.float32))])

    with pytest.raises(ValueError, match="Received: 1"):
        model.online_train(dataset)


class LossAndScore(nn.Cell):
    """Returns loss, score and label, as a network for `keep_outputs` does."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss = ClickNet(), nn.BCEWithLogitsLoss()

    def construct(self, fields: Tensor, label: Tensor) -> Any:
        logits = self.network(fields)
        return self.loss(logits, label), logits, label


@pytest.mark.parametrize("how", ["online_train", "train"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_network_that_returns_a_tuple_is_warned_of_at_once(
    notes: pytest.LogCaptureFixture, how: str, keep: bool
) -> None:
    network = LossAndScore()
    optimizer = nn.SGD(network.trainable_params(), 0.1)
    model = RecModel(network, optimizer=optimizer, keep_outputs=keep)
    if how == "train":
        model.train(1, bounded(2), dataset_sink_mode=False)
    else:
        model.online_train(stream(), callbacks=Journal(stop_after=2))
    lines = noted(notes, "WARNING")
    assert len(lines) == (0 if keep else 1)
    for line in lines:
        assert "the sum of all 3 outputs" in line
        assert "keep_outputs=True" in line


def test_the_keywords_of_model_are_taken() -> None:
    manager = amp.FixedLossScaleManager(8.0, drop_overflow_update=False)
    made = click_model(loss_scale_manager=manager, keep_batchnorm_fp32=False)
    journal = Journal(stop_after=1)

    made.online_train(stream(), journal)

    assert journal.parameters["begin"][0]["loss_scale_mananger"] is manager
    with pytest.raises(ValueError, match="no_such_keyword"):
        click_model(no_such_keyword=1)


# Callbacks


def test_callbacks_find_what_model_train_gives_them(model: RecModel) -> None:
    online, offline = Journal(stop_after=3), Journal()
    model.train(1, bounded(3), offline, dataset_sink_mode=False)
    model.online_train(bounded(3), online, dataset_sink_mode=False)

    for hook in ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end"):
        expected, found = offline.parameters[hook][0], online.parameters[hook][0]
        assert found.keys() - {"stop_reason"} == expected.keys(), hook
        for key in expected.keys() - {
            "train_dataset",
            "epoch_num",
            "list_callback",
            "train_dataset_element",
            "net_outputs",
        }:
            assert found[key] == expected[key], key
        assert [type(one) for one in found["list_callback"]] == [
            type(one) for one in expected["list_callback"]
        ]
    assert online.parameters["begin"][0]["epoch_num"] == UNBOUNDED
    batch = online.parameters["step_end"][0]["train_dataset_element"]
    assert [element.shape for element in batch] == [(BATCH, 3), (BATCH, 1)]
    assert "stop_reason" not in online.parameters["step_end"][2]
    assert online.parameters["epoch_end"][0]["stop_reason"] == "request_stop"


def test_mindspores_callbacks_work_on_a_stream(
    model: RecModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, begun = History(), []
    checkpoints = ModelCheckpoint(
        "click", str(tmp_path), CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=9)
    )
    callbacks = [
        LossMonitor(2),
        TimeMonitor(),
        history,
        checkpoints,
        LambdaCallback(on_train_begin=lambda context: begun.append(context)),
        Journal(stop_after=5),
    ]

    model.online_train(stream(), callbacks)

    printed = capsys.readouterr().out
    assert "epoch: 1 step: 2, loss is" in printed
    assert "epoch: 1 step: 4, loss is" in printed
    milliseconds, each = (
        float(part.split("time: ")[1].split(" ms")[0])
        for part in next(li for li in printed.splitlines() if "epoch time" in li).split(",")
    )
    assert each == pytest.approx(milliseconds / 5, abs=0.01)
    assert history.epoch == {"epoch": [1]}
    assert len(begun) == 1
    names = {file.name for file in tmp_path.glob("*.ckpt")}
    assert names == {"click-1_2.ckpt", "click-1_4.ckpt", "click-1_5.ckpt"}


def test_a_checkpoint_is_saved_on_an_exception_if_the_user_wants_it(
    model: RecModel, tmp_path: Path
) -> None:
    def fail(context: Any) -> None:
        if context.original_args().cur_step_num == 3:
            raise OSError("disk full")

    config = CheckpointConfig(save_checkpoint_steps=1000, exception_save=True)
    checkpoint = ModelCheckpoint("click", str(tmp_path), config)
    with pytest.raises(OSError, match="disk full"):
        model.online_train(stream(), [checkpoint, LambdaCallback(on_train_step_end=fail)])

    assert [file.name for file in tmp_path.glob("*.ckpt")] == ["click-1_3_breakpoint.ckpt"]


def test_a_callback_may_evaluate(model: RecModel) -> None:
    results = []

    def evaluate(context: Any) -> None:
        if context.original_args().cur_step_num == 2:
            results.append(model.eval(bounded(1), dataset_sink_mode=False))

    journal = Journal(stop_after=4)
    model.online_train(stream(), [LambdaCallback(on_train_step_end=evaluate), journal])

    assert len(results) == 1
    assert np.isfinite(results[0]["loss"])
    assert model.train_network.training


_THEIR_COLLECTOR = """
from mindspore.train import SummaryCollector
from tests.support.nets import Journal, click_model, stream
import sys
collector = SummaryCollector(
    sys.argv[1], collect_freq=1, collect_specified_data={"collect_landscape": None})
click_model().online_train(stream(), [collector, Journal(stop_after=3)])
print("done")
"""


def test_mindspores_own_collector_works_to_its_end(tmp_path: Path) -> None:
    skip_without_their_collector()
    # In a process of its own: the collector forks, and with a stream of no size it used to hang.
    done = forkserver.run(
        [sys.executable, "-c", _THEIR_COLLECTOR, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout
    (events,) = (file for file in tmp_path.iterdir() if file.name.endswith("_MS"))
    (lineage,) = (file for file in tmp_path.iterdir() if file.name.endswith("_lineage"))
    # Once for each step, and, a defect of the collector, once more at the end of the epoch.
    assert events.read_bytes().count(b"loss/auto") == 4
    assert b"BCEWithLogitsLoss" in lineage.read_bytes()  # the train lineage, written at the end


# Loss scale, modes, sink


class ThreeOutputs(nn.Cell):
    """What MindSpore's train cell with a loss scale returns, on CPU, where it does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = ClickNet()

    def construct(self, fields: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss = (self.backbone(fields) - label).mean()
        return loss, label.max() > 0.5, loss * 0 + 1


class ThreeOutputModel(RecModel):
    def _build_train_network(self) -> nn.Cell:
        return ThreeOutputs()


@pytest.mark.parametrize("mode", [mindspore.GRAPH_MODE, mindspore.PYNATIVE_MODE])
def test_the_loss_scale_follows_the_overflow_in_both_modes(mode: int) -> None:
    mindspore.set_context(mode=mode)
    try:
        scale = amp.DynamicLossScaleManager(2.0**10, 2, 2)
        network = ClickNet()
        optimizer = nn.SGD(network.trainable_params(), 0.1)
        made = ThreeOutputModel(network, optimizer=optimizer, loss_scale_manager=scale)
        ids, ones = batch_of_clicks()[0], np.ones((BATCH, 1), np.float32)
        journal = Journal(stop_after=4)
        made.online_train(
            stream(lambda: iter([(ids, ones), (ids, ones), (ids, 0 * ones), (ids, 0 * ones)])),
            journal,
        )
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)

    # Halved by each overflow, doubled after two steps without one.
    assert scale.get_loss_scale() == 2.0**9


def test_pynative_mode_trains_and_synchronises_each_step() -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    try:
        journal = Journal(stop_after=3)
        click_model().online_train(stream(), journal)
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)

    assert journal.hooks.count("step_end") == 3
    first = journal.parameters["begin"][0]["list_callback"][0]
    assert isinstance(first, _mindspore.StepSync)


def test_sink_falls_back_to_the_host_on_cpu_with_a_note(
    model: RecModel, notes: pytest.LogCaptureFixture
) -> None:
    journal = Journal(stop_after=2)

    model.online_train(bounded(5), journal)

    assert noted(notes, "INFO") == ["Data sink is not available on CPU: the host fetches the data."]
    assert journal.parameters["begin"][0]["dataset_sink_mode"] is False
    assert journal.parameters["begin"][0]["batch_num"] == 5


class Device:
    """Stands for the `DatasetHelper` of a device: each iteration is one sink of one batch.

    Data sink needs an Ascend or a GPU, so here only the order of the calls is tested.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __iter__(self) -> Iterator[tuple[()]]:
        yield ()

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.calls.append(name)


class Connected(nn.Cell):
    """Stands for the network that fetches its batch from the device itself."""

    def __call__(self) -> Tensor:
        return Tensor(0.5)


def test_the_sink_loop_sends_on_after_each_step_and_releases_the_queue() -> None:
    device, asked = Device(), []

    class OnDevice(RecModel):
        def _exec_preprocess(self, **kwargs: Any) -> tuple[Device, nn.Cell]:
            asked.append(kwargs)
            return device, Connected()

    made = OnDevice(ClickNet())
    journal = Journal(stop_after=3)
    dataset = stream()
    # The public `online_train` never sinks on a CPU.
    parameters = made._callback_parameters(dataset, [journal], sink=True, size=1)
    with _mindspore.CallbackManager(parameters.list_callback) as manager:
        signals = StopSignals(lambda: None)
        OnlineRun(made, manager, parameters, signals, None).sink(dataset)  # type: ignore[arg-type]

    one = ["epoch_begin", *STEP, "epoch_end"]
    assert journal.hooks == ["enter", "begin", *one * 3, "end", "exit"]
    assert device.calls == ["continue_send"] * 3 + ["stop_send", "release"]
    assert [(k["sink_size"], k["epoch_num"], k["dataset_sink_mode"]) for k in asked] == [
        (1, -1, True)
    ] * 3
    assert [k["dataset_helper"] for k in asked] == [None, device, device]
    assert journal.parameters["begin"][0]["dataset_sink_mode"] is True
    assert [s["batch_num"] for s in journal.parameters["step_end"]] == [1, 1, 1]


# What is inherited


def test_train_fit_eval_and_predict_are_models_own(model: RecModel) -> None:
    trained, fitted = Journal(), Journal()
    model.train(2, bounded(2), trained, dataset_sink_mode=False)
    model.fit(1, bounded(2), bounded(1), callbacks=fitted, dataset_sink_mode=False,
              valid_dataset_sink_mode=False)  # fmt: skip

    assert trained.hooks.count("step_end") == 4
    assert fitted.hooks.count("step_end") == 2
    assert np.isfinite(model.eval(bounded(2), dataset_sink_mode=False)["loss"])
    assert model.predict(Tensor(batch_of_clicks()[0])).shape == (BATCH, 1)


def test_build_is_models_own_and_needs_a_device(model: RecModel) -> None:
    with pytest.raises(RuntimeError, match="only supports Ascend"):
        model.build(bounded(2))
