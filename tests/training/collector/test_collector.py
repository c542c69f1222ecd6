"""The collector under every way of training: what it records is what happened."""

import copy
import functools
import json
import logging
import math
import pickle
import resource
import signal
import threading

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import nn, ops
from mindspore.ops.operations import debug_ops
from mindspore.train import Callback, Model, RunContext
from mindspore.train import summary_pb2 as their_summary

from rec_summary import Durability, RecModel, RecommenderMetrics, Retention, SummaryCollector
from rec_summary.records.locks import LOCK_NAME, file_lock
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.retention import rank_bytes
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.training.landscape.policy import SavePolicy
from tests.support.nets import (
    BATCH,
    LEARNING_RATE,
    ClickNet,
    Journal,
    batch_of_clicks,
    bounded,
    click_model,
    clicks,
    stream,
)
from tests.support.original_rec_model import original_rec_model
from tests.support.record_dirs import event, scalar
from tests.support.training_records import events, graphs, histograms, lineage, scalars, statuses


class Losses(Callback):
    """What really happened: the loss and a copy of the weights after every step."""

    def __init__(self, copy=()):
        super().__init__()
        self.losses, self.weights, self._copy = [], [], copy

    def on_train_step_end(self, run_context):
        parameters = run_context.original_args()
        self.losses.append(float(parameters.net_outputs.asnumpy()))
        self.weights.append([np.array(p.asnumpy(), copy=True) for p in self._copy])


def as_float32(numbers):
    return [float(np.float32(number)) for number in numbers]


@pytest.mark.parametrize("mode", [mindspore.GRAPH_MODE, mindspore.PYNATIVE_MODE])
def test_online_training_is_recorded_as_it_happened(tmp_path, mode):
    mindspore.set_context(mode=mode)
    try:
        model = click_model()
        parameters = model.predict_network.trainable_params()
        truth = Losses(copy=parameters)
        collector = SummaryCollector(tmp_path, collect_freq=1)
        model.online_train(stream(), callbacks=[truth, collector, Journal(stop_after=7)])
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    assert list(scalars(tmp_path, "loss/auto").values()) == as_float32(truth.losses)
    assert list(scalars(tmp_path, "loss/auto")) == [1, 2, 3, 4, 5, 6, 7]
    assert set(scalars(tmp_path, "learning_rate/auto").values()) == {LEARNING_RATE}
    recorded = histograms(tmp_path)
    assert list(recorded) == [f"{parameter.name}/auto" for parameter in parameters]
    for index, parameter in enumerate(parameters):
        for step, histogram in recorded[f"{parameter.name}/auto"].items():
            weights = truth.weights[step - 1][index]  # not of a later step: it was a copy
            assert histogram.count == weights.size
            assert (histogram.min, histogram.max) == (weights.min(), weights.max())
    assert collector.troubles == (
        {} if mode == mindspore.GRAPH_MODE else {"no graph in PyNative mode": 1}
    )


def test_frequency_counts_the_first_step_and_every_multiple(tmp_path):
    collector = SummaryCollector(tmp_path, collect_freq=4)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=13)])
    assert list(scalars(tmp_path, "loss/auto")) == [1, 4, 8, 12]


def test_lineage_is_there_from_the_start_and_ends_with_a_status(tmp_path):
    class Look(Callback):
        def on_train_begin(self, run_context):
            collector.flush()
            self.at_begin = statuses(tmp_path)

    look = Look()
    collector = SummaryCollector(tmp_path, custom_lineage_data={"team": "ads", "trial": 2**40})
    click_model().online_train(stream(), callbacks=[collector, look, Journal(stop_after=5)])
    assert look.at_begin[-1] == "RUNNING"
    assert set(statuses(tmp_path)[:-1]) == {"RUNNING"}
    assert statuses(tmp_path)[-1] == "STOPPED"
    last = lineage(tmp_path, "train_lineage")[-1]
    assert last.algorithm.network == "ClickNet"
    assert last.algorithm.loss == pytest.approx(scalars(tmp_path, "loss/auto")[1], abs=1)
    assert last.hyper_parameters.optimizer == "SGD"
    assert last.hyper_parameters.loss_function == "BCEWithLogitsLoss"
    assert last.hyper_parameters.learning_rate == LEARNING_RATE
    assert last.hyper_parameters.batch_size == BATCH
    state = last.run_state
    assert (state.step, state.samples, state.unbounded) == (5, 5 * BATCH, True)
    assert state.reason == "request_stop"
    assert not state.HasField("dataset_size")
    [custom] = lineage(tmp_path, "user_defined_info")
    assert custom.user_info[0].map_str["team"] == "ads"
    assert custom.user_info[1].map_int64["trial"] == 2**40


def test_lineage_is_refreshed_on_schedule(tmp_path):
    collector = SummaryCollector(tmp_path, lineage_secs=1e-6)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=6)])
    steps = [item.run_state.step for item in lineage(tmp_path, "train_lineage")]
    assert steps == [0, 1, 2, 3, 4, 5, 6, 6]


def test_a_source_that_runs_dry_finishes(tmp_path):
    collector = SummaryCollector(tmp_path, collect_freq=1)
    click_model().online_train(stream(iter(list(clicks(3)()))), callbacks=collector)
    assert list(scalars(tmp_path, "loss/auto")) == [1, 2, 3]
    last = lineage(tmp_path, "train_lineage")[-1].run_state
    assert statuses(tmp_path)[-1] == "FINISHED"
    assert last.reason == "source exhausted"


def test_the_original_rec_model_loses_no_step_to_an_exception(tmp_path):
    class Boom(Callback):
        def on_train_step_end(self, run_context):
            if run_context.original_args().cur_step_num == 200:
                raise RuntimeError("step 200 is too much")

    network = ClickNet()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    model = original_rec_model()(network, nn.BCEWithLogitsLoss(), optimizer)
    truth = Losses()
    collector = SummaryCollector(tmp_path, collect_freq=1)
    with pytest.raises(RuntimeError, match="too much"):
        model.online_train(bounded(16), callbacks=[truth, collector, Boom()])
    assert len(truth.losses) == 200
    assert scalars(tmp_path, "loss/auto") == dict(enumerate(as_float32(truth.losses), start=1))
    assert len(histograms(tmp_path)["table.embedding_table/auto"]) == 200
    assert set(scalars(tmp_path, "learning_rate/auto").values()) == {np.float32(0.1)}
    last = lineage(tmp_path, "train_lineage")[-1]
    assert statuses(tmp_path)[-1] == "FAILED"
    assert last.run_state.reason == "RuntimeError: step 200 is too much"
    assert last.run_state.step == 200
    assert last.algorithm.network == "ClickNet"
    assert last.hyper_parameters.optimizer == "SGD"
    assert collector.troubles == {}


def test_model_train_and_a_second_call_go_on_counting(tmp_path):
    model = click_model()
    collector = SummaryCollector(tmp_path, collect_freq=1)
    data = bounded(4)
    model.train(2, data, callbacks=collector)
    model.train(1, data, callbacks=collector)
    assert list(scalars(tmp_path, "loss/auto")) == list(range(1, 13))
    last = lineage(tmp_path, "train_lineage")[-1]
    assert statuses(tmp_path).count("FINISHED") == 2
    assert last.run_state.step == 12
    assert last.run_state.samples == 12 * BATCH
    assert last.train_dataset.train_dataset_size == 4 * BATCH
    assert last.run_state.unbounded is False


def test_a_resumed_run_goes_on_where_its_epochs_do(tmp_path):
    collector = SummaryCollector(tmp_path, collect_freq=1)
    click_model().train(3, bounded(4), callbacks=collector, initial_epoch=2)
    assert list(scalars(tmp_path, "loss/auto")) == [9, 10, 11, 12]


def test_an_online_training_goes_on_behind_its_initial_step(tmp_path):
    landscape = {"unit": "step", "intervals": [[701, 702, 703]]}
    specified = {"collect_landscape": landscape}
    collector = SummaryCollector(tmp_path, collect_freq=1, collect_specified_data=specified)
    journal = Journal(stop_after=702)
    click_model().online_train(stream(), callbacks=[collector, journal], initial_step=700)
    assert list(scalars(tmp_path, "loss/auto")) == [701, 702]
    assert [item.run_state.step for item in lineage(tmp_path, "train_lineage")] == [700, 701, 702]
    assert lineage(tmp_path, "train_lineage")[-1].run_state.samples == 702 * BATCH
    assert len([*tmp_path.rglob("*_702_step.ckpt")]) == 1


@pytest.mark.parametrize("first", [4, 2, 6], ids=["at the end", "before it", "after it"])
def test_the_samples_go_on_from_those_of_the_process_before(tmp_path, first):
    """Its batches may have had another size. After the last one that it states, they have that."""

    def train(rows, first, last):
        batches = stream(lambda: map(functools.partial(batch_of_clicks, rows=rows), range(99)))
        callbacks = [SummaryCollector(tmp_path), Journal(stop_after=last)]
        click_model().online_train(batches, callbacks=callbacks, initial_step=first)

    train(BATCH, 0, 4)
    train(3 * BATCH, first, first + 2)
    state = lineage(tmp_path, "train_lineage")[-1].run_state
    assert (state.step, state.samples) == (first + 2, (first + 6) * BATCH)


def test_a_training_below_recorded_steps_says_what_it_supersedes(tmp_path, caplog):
    def train(last, **arguments):
        caplog.clear()
        collector = SummaryCollector(tmp_path, collect_freq=1)
        callbacks = [collector, Journal(stop_after=last)]
        click_model().online_train(stream(), callbacks=callbacks, **arguments)
        return [text for text in caplog.messages if "superseded" in text]

    assert train(9) == []
    assert train(12, initial_step=9) == []
    assert train(14, initial_step=10) == [
        f"SummaryCollector: this training begins at step 11, and {tmp_path} has records up to "
        "step 12: those from step 11 on are superseded. If the training continues from a "
        "checkpoint of a later step N, use online_train(..., initial_step=N), or train(..., "
        "initial_epoch=...); to keep these records, use SummaryCollector(..., run_directory='new')"
    ]
    [line] = train(2)
    assert "begins at step 1, and" in line
    assert "records up to step 14" in line


def test_a_second_call_below_the_steps_of_the_first_says_so(tmp_path, caplog):
    collector = SummaryCollector(tmp_path, collect_freq=1)
    model = click_model()
    model.train(2, bounded(4), callbacks=collector)
    model.train(1, bounded(4), callbacks=collector)
    assert "superseded" not in caplog.text
    model.online_train(stream(), [collector, Journal(stop_after=6)], initial_step=5)
    [line] = [text for text in caplog.messages if "superseded" in text]
    assert "begins at step 6, and" in line
    assert "records up to step 12" in line


def test_an_evaluation_alone_is_recorded_at_the_last_step_of_its_training(tmp_path):
    click_model(metrics={"mae"}).fit(
        2, bounded(3), bounded(2), callbacks=SummaryCollector(tmp_path)
    )
    for _ in range(2):
        collector = SummaryCollector(tmp_path)
        result = click_model(metrics={"mae"}).eval(bounded(2), callbacks=collector)
        assert events(tmp_path)[-1].step == 6
        [value] = events(tmp_path)[-1].summary.value
        assert (value.tag, value.scalar_value) == ("eval/mae", np.float32(result["mae"]))
        assert lineage(tmp_path, "evaluation_lineage")[-1].train_step == 6


@pytest.mark.parametrize("subclass", [False, True])
def test_fit_records_training_steps_and_each_evaluation_once(tmp_path, subclass):
    # MindSpore calls a class named SummaryCollector in fit's evaluations not at all
    kind = type("MyCollector", (SummaryCollector,), {}) if subclass else SummaryCollector
    model = click_model(metrics={"mae"})
    collector = kind(tmp_path, collect_freq=1)
    model.fit(2, bounded(3), bounded(2), callbacks=collector)
    assert list(scalars(tmp_path, "loss/auto")) == [1, 2, 3, 4, 5, 6]
    evaluations = lineage(tmp_path, "evaluation_lineage")
    assert [item.train_step for item in evaluations] == [3, 6]
    for item in evaluations:
        assert set(json.loads(item.metric)) == {"mae", "eval_loss"}
        assert item.valid_dataset.valid_dataset_size == 2 * BATCH
    for name in ("mae", "eval_loss"):
        metrics = [json.loads(item.metric)[name] for item in evaluations]
        assert list(scalars(tmp_path, f"eval/{name}").items()) == list(
            zip([3, 6], as_float32(metrics), strict=True)
        )
    assert statuses(tmp_path)[-1] == "FINISHED"
    assert collector.troubles == {}


def test_eval_alone_records_its_lineage(tmp_path):
    model = click_model(metrics={"mae"})
    collector = SummaryCollector(tmp_path, metrics={"mae": "greater"})
    for _ in range(3):  # within one second: MindSpore's keeps one of three
        result = model.eval(bounded(2), callbacks=collector)
    evaluations = lineage(tmp_path, "evaluation_lineage")
    assert [json.loads(item.metric) for item in evaluations] == [result] * 3
    assert [dict(item.directions) for item in evaluations] == [{"mae": "greater"}] * 3
    recorded = [(v.tag, v.scalar_value) for event in events(tmp_path) for v in event.summary.value]
    assert recorded == [("eval/mae", np.float32(result["mae"]))] * 3


def test_training_states_which_values_of_metrics_are_better(tmp_path):
    collector = SummaryCollector(tmp_path, metrics={"my_score": "less", "val/auc": "greater"})
    click_model().train(1, bounded(2), callbacks=collector)
    for item in lineage(tmp_path, "train_lineage"):
        assert dict(item.run_state.directions) == {"my_score": "less", "val/auc": "greater"}


def test_two_collectors_on_two_directories(tmp_path):
    collectors = [SummaryCollector(tmp_path / name, collect_freq=1) for name in "ab"]
    click_model().online_train(stream(), callbacks=[*collectors, Journal(stop_after=3)])
    assert scalars(tmp_path / "a", "loss/auto") == scalars(tmp_path / "b", "loss/auto")
    assert len(scalars(tmp_path / "a", "loss/auto")) == 3


def test_histogram_regular_chooses_by_the_start_of_the_name(tmp_path):
    specified = {"histogram_regular": "head"}
    collector = SummaryCollector(tmp_path, collect_specified_data=specified)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=1)])
    assert list(histograms(tmp_path)) == ["head.weight/auto", "head.bias/auto"]


def test_nothing_asked_for_nothing_recorded(tmp_path):
    collector = SummaryCollector(tmp_path, keep_default_action=False)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=2)])
    assert events(tmp_path) == []
    assert lineage(tmp_path, "train_lineage") == []


class OddOutput(nn.Cell):
    """Gives what a loss should not be."""

    def __init__(self, kind):
        super().__init__()
        self.weight = mindspore.Parameter(np.ones((1,), np.float32), name="w")
        self.kind = kind

    def construct(self, fields, label):
        total = ops.reduce_sum(label) * self.weight
        if self.kind == "nan":
            return total * float("nan")
        if self.kind == "tuple":
            return total, label
        if self.kind == "none":
            return None
        if self.kind == "text":
            return "0.5"
        if self.kind == "infinite":
            return total / 0.0 + float("inf")
        return {"loss": total}


@pytest.mark.parametrize("kind", ["nan", "infinite", "tuple", "dict", "none", "text"])
def test_odd_losses_are_recorded_or_refused_and_training_goes_on(tmp_path, kind, caplog):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    collector = SummaryCollector(tmp_path, collect_freq=1)
    journal = Journal(stop_after=3)
    try:
        RecModel(OddOutput(kind)).online_train(stream(), callbacks=[collector, journal])
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    losses = scalars(tmp_path, "loss/auto")
    assert journal.hooks.count("step_end") == 3
    if kind in ("dict", "none", "text"):
        assert losses == {}
        assert collector.troubles == {"loss": 3, "no graph in PyNative mode": 1}
        warnings = [r for r in caplog.records if "rec_summary: loss" in r.message]
        assert len(warnings) == 1
        assert "Expected: a Tensor, an array or a number" in warnings[0].message
        assert lineage(tmp_path, "train_lineage")[-1].run_state.troubles["loss"] == 3
    else:
        assert len(losses) == 3
        assert math.isnan(losses[1]) is (kind == "nan")
        expected = {"no graph in PyNative mode": 1, "loss is not finite": 3}
        if kind == "tuple":
            del expected["loss is not finite"]
        assert collector.troubles == expected
        assert math.isinf(losses[1]) is (kind == "infinite")
    assert list(histograms(tmp_path)) == ["w/auto"]  # a network without optimizer


def test_schedules_and_groups_of_learning_rates(tmp_path):
    network = ClickNet()
    decay = nn.ExponentialDecayLR(0.2, 0.5, 1)
    groups = [
        {"params": network.table.trainable_params(), "lr": decay},
        {"params": network.head.trainable_params(), "lr": [0.3, 0.2, 0.1]},
    ]
    optimizer = nn.SGD(groups, learning_rate=0.1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    collector = SummaryCollector(tmp_path, collect_freq=1)
    model.online_train(stream(), callbacks=[collector, Journal(stop_after=3)])
    first = scalars(tmp_path, "learning_rate/group_0/auto")
    second = scalars(tmp_path, "learning_rate/group_1/auto")
    assert list(first.values()) == pytest.approx([0.2, 0.1, 0.05])
    assert list(second.values()) == pytest.approx([0.3, 0.2, 0.1])


def test_a_directory_lost_before_training_costs_telemetry_not_training(tmp_path, caplog):
    collector = SummaryCollector(tmp_path / "records")
    (tmp_path / "records").rmdir()
    (tmp_path / "records").write_text("in the way")
    journal = Journal(stop_after=3)
    with caplog.at_level(logging.INFO):
        click_model().online_train(stream(), callbacks=[collector, journal])
    assert journal.hooks[-2:] == ["end", "exit"]
    assert collector.troubles == {"open": 1}
    assert f"no record file can be created in {collector.summary_dir}" in caplog.text
    assert "records are in" not in caplog.text
    assert "problems while recording: open (1)" in caplog.text


def test_where_no_thread_can_be_started_training_goes_on_and_is_told(tmp_path):
    landscape = {"collect_landscape": {"unit": "step", "intervals": [[1, 2, 3]]}}
    collector = SummaryCollector(tmp_path, collect_specified_data=landscape)
    journal = Journal()
    before = threading.stack_size(1 << 50)  # more than there are addresses
    try:
        click_model().train(1, bounded(3), callbacks=[collector, journal])
    finally:
        threading.stack_size(before)
    assert journal.hooks[-2:] == ["end", "exit"]
    assert collector.troubles == {"signals": 1, "open": 1, "landscape checkpoints": 1}
    assert signal.set_wakeup_fd(-1) == -1
    assert not list(tmp_path.glob("*events*"))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_an_unused_collector_records(tmp_path, copied):
    data = {"collect_landscape": {"unit": "step", "intervals": [[1, 2, 3]]}}
    options = {"collect_specified_data": data, "retention": Retention(1 << 20)}
    original = SummaryCollector(tmp_path, recommender=RecommenderMetrics(), **options)
    collector = copied(original)
    click_model().train(1, bounded(3), callbacks=[collector])
    assert scalars(tmp_path, "loss/auto")
    assert collector.flush()
    assert original.troubles == {}


def test_training_is_the_same_with_and_without(tmp_path):
    results = []
    for callbacks in ([], [SummaryCollector(tmp_path, collect_freq=1)]):
        mindspore.set_seed(5)
        model = click_model()
        truth = Losses(copy=model.predict_network.trainable_params())
        model.online_train(stream(), callbacks=[truth, *callbacks, Journal(stop_after=10)])
        results.append((truth.losses, [w.tobytes() for w in truth.weights[-1]]))
    assert results[0] == results[1]


def test_each_call_of_train_records_its_graphs_and_custom_data(tmp_path):
    # MindSpore's second file has none of them
    model, data = click_model(), bounded(2)
    collector = SummaryCollector(tmp_path, custom_lineage_data={"a": 1})
    for _ in range(2):
        model.train(1, data, callbacks=collector)
    assert [graph.step for graph in graphs(tmp_path)] == [0, 0]
    operators = {node.op_type for node in graphs(tmp_path)[0].graph_def.node}
    assert "SGD" in operators
    assert len(lineage(tmp_path, "dataset_graph")) == 2
    assert len(lineage(tmp_path, "user_defined_info")) == 2
    assert lineage(tmp_path, "dataset_graph")[0].parameter.mapStr["op_type"] == "Batch"


def test_a_graph_that_pynative_mode_does_not_have_is_reported(tmp_path, caplog):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    collector = SummaryCollector(tmp_path)
    try:
        click_model().train(1, bounded(2), callbacks=collector)
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    assert graphs(tmp_path) == []
    assert collector.troubles == {"no graph in PyNative mode": 1}
    [line] = [r.message for r in caplog.records if "computation graph" in r.message]
    assert "PyNative mode" in line
    assert "problems while recording" not in caplog.text  # it is no failure


def test_a_histogram_regular_that_matches_nothing_is_reported(tmp_path, caplog):
    specified = {"histogram_regular": "haed"}
    collector = SummaryCollector(tmp_path, collect_specified_data=specified)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=1)])
    assert collector.troubles == {"histogram_regular": 1}
    assert "'haed'" in caplog.text
    assert "head.weight" in caplog.text  # what there is


def test_a_data_set_that_cannot_be_described_costs_only_its_description(tmp_path):
    def fails(*args):
        raise RuntimeError("no description")

    data = bounded(3)
    data.get_batch_size = data.to_json = fails
    collector = SummaryCollector(tmp_path, collect_freq=1, custom_lineage_data={"a": 1})
    click_model().train(1, data, callbacks=collector, dataset_sink_mode=False)
    assert collector.troubles == {"data set": 2, "dataset graph": 1}
    assert list(scalars(tmp_path, "loss/auto")) == [1, 2, 3]
    assert statuses(tmp_path)[-1] == "FINISHED"
    assert len(lineage(tmp_path, "user_defined_info")) == 1
    last = lineage(tmp_path, "train_lineage")[-1]
    assert last.hyper_parameters.batch_size == BATCH


def test_an_optimizer_without_a_learning_rate_costs_only_that(tmp_path):
    network = ClickNet()
    optimizer = nn.SGD(network.trainable_params(), LEARNING_RATE)
    del optimizer.learning_rate
    collector = SummaryCollector(tmp_path, collect_freq=1)
    view_of = {"train_network": network, "optimizer": optimizer}
    context = RunContext({"cur_step_num": 0, **view_of})
    with collector:
        collector.on_train_begin(context)
        collector.on_train_step_end(
            RunContext({"cur_step_num": 1, "net_outputs": mindspore.Tensor(0.5), **view_of})
        )
    assert set(collector.troubles) == {"learning rate", "no graph in PyNative mode"}
    assert scalars(tmp_path, "loss/auto") == {1: 0.5}


class NetWithLossClass(nn.Cell):
    """Returns the losses of a wide and of a deep part, as in Wide & Deep of MindSpore's models."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, fields, label):
        wide = self.loss(self.network(fields), label)
        return wide, wide + 1.0


class TrainStepWrap(nn.Cell):
    """A training step of its own, with two optimizers, that returns two losses."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.optimizer_w = nn.FTRL(network.trainable_params()[:1], learning_rate=0.1)
        self.optimizer_d = nn.Adam(network.trainable_params()[1:], learning_rate=0.1)

    def construct(self, fields, label):
        return self.network(fields, label)


def test_each_loss_and_each_optimizer_of_a_training_step_of_its_own(tmp_path):
    network = TrainStepWrap(NetWithLossClass(ClickNet()))
    collector = SummaryCollector(tmp_path, collect_freq=1)
    RecModel(network).online_train(stream(), callbacks=[collector, Journal(stop_after=2)])
    first, second = (scalars(tmp_path, tag) for tag in ("loss/auto", "loss/1/auto"))
    assert list(second.values()) == pytest.approx([loss + 1 for loss in first.values()])
    assert len(first) == 2
    last = lineage(tmp_path, "train_lineage")[-1]
    assert last.hyper_parameters.optimizer == "FTRL, Adam"
    assert last.algorithm.network == "ClickNet"
    assert collector.troubles == {}


class StepWithPredictions(TrainStepWrap):
    """A training step that returns its losses, then predictions and labels."""

    def construct(self, fields, label):
        wide, deep = self.network(fields, label)
        return wide, deep, fields, label


def test_losses_before_other_outputs_are_each_recorded(tmp_path):
    network = StepWithPredictions(NetWithLossClass(ClickNet()))
    collector = SummaryCollector(tmp_path, collect_freq=1)
    RecModel(network).online_train(stream(), callbacks=[collector, Journal(stop_after=1)])
    [loss], [further] = (scalars(tmp_path, tag).values() for tag in ("loss/auto", "loss/1/auto"))
    assert further == pytest.approx(loss + 1)


def test_under_the_original_rec_model_a_training_step_has_the_name_of_its_network(tmp_path):
    model = original_rec_model()(TrainStepWrap(NetWithLossClass(ClickNet())))
    collector = SummaryCollector(tmp_path)

    class Stop(Callback):
        def on_train_step_end(self, run_context):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.online_train(bounded(1), callbacks=[collector, Stop()])
    assert lineage(tmp_path, "train_lineage")[-1].algorithm.network == "ClickNet"


def test_a_queue_that_is_full_at_the_end_still_takes_the_last_records(tmp_path):
    class HoldsUp(Callback):
        """Holds the lock that the next file needs while the training goes on."""

        def on_train_step_end(self, run_context):
            if run_context.original_args().cur_step_num == 2:
                self.lock = file_lock(str(tmp_path / LOCK_NAME), timeout=0)
                self.lock.acquire()

        def on_train_end(self, run_context):
            self.lock.release()

    collector = SummaryCollector(
        tmp_path, collect_freq=1, max_file_size=2000, durability=Durability(back_pressure="drop")
    )
    click_model().online_train(stream(), callbacks=[HoldsUp(), collector, Journal(400)])
    assert collector.troubles["record dropped"] > 100
    assert statuses(tmp_path)[-1] == "STOPPED"
    dropped = scalars(tmp_path, "rec_summary/dropped")
    assert dropped == {400: collector.troubles["record dropped"]}


def test_an_interrupted_training_says_what_was_recorded(tmp_path, caplog):
    class Stop(Callback):
        def on_train_step_end(self, run_context):
            if run_context.original_args().cur_step_num == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        click_model().online_train(stream(), callbacks=[SummaryCollector(tmp_path), Stop()])
    [line] = [r.message for r in caplog.records if "interrupted" in r.message]
    assert "step 3" in line
    assert str(tmp_path) in line


class Reporting(nn.Cell):
    """A click network whose operators tell about training and evaluation alike."""

    def __init__(self):
        super().__init__()
        self.network = ClickNet()
        self.scalar, self.tensor = ops.ScalarSummary(), ops.TensorSummary()

    def construct(self, fields):
        logits = self.network(fields)
        self.scalar("mean", logits.mean() * 1.0)
        self.tensor("logits", logits * 1.0)
        return logits


@pytest.mark.parametrize("mode", [mindspore.GRAPH_MODE, mindspore.PYNATIVE_MODE])
def test_operators_of_evaluations_do_not_leak_into_training(tmp_path, mode):
    mindspore.set_context(mode=mode)
    try:
        network = Reporting()
        optimizer = nn.SGD(network.trainable_params(), learning_rate=0.0)
        model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer, metrics={"mae"})
        # with nothing learned, each epoch of training puts out the same again
        collector = SummaryCollector(tmp_path, collect_freq=1)
        model.fit(3, bounded(4), bounded(2), callbacks=collector)
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    means = list(scalars(tmp_path, "mean").values())
    assert len(means) == 12
    assert means[:4] == means[4:8] == means[8:]
    assert len(set(means)) == 4
    assert collector.troubles == (
        {} if mode == mindspore.GRAPH_MODE else {"no graph in PyNative mode": 1}
    )


@pytest.mark.parametrize("mode", [mindspore.GRAPH_MODE, mindspore.PYNATIVE_MODE])
def test_operators_of_an_evaluation_between_a_step_and_its_record_do_not_leak(tmp_path, mode):
    class Evaluates(Callback):
        """Evaluates after each step, before the collector takes what the step put out."""

        def on_train_step_end(self, run_context):
            model.eval(bounded(1))

    mindspore.set_context(mode=mode)
    try:
        network = Reporting()
        optimizer = nn.SGD(network.trainable_params(), learning_rate=0.0)
        model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer, metrics={"mae"})
        data = bounded(4)
        for name, callbacks in (("alone", []), ("between", [Evaluates()])):
            collector = SummaryCollector(tmp_path / name, collect_freq=1)
            model.train(1, data, callbacks=[*callbacks, collector])
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    assert len(set(scalars(tmp_path / "alone", "mean").values())) == 4
    assert scalars(tmp_path / "between", "mean") == scalars(tmp_path / "alone", "mean")


def test_an_evaluation_does_not_pile_up_what_operators_put_out(tmp_path):
    class Waiting(Callback):
        """How many values MindSpore holds when a step of an evaluation begins."""

        def __init__(self):
            super().__init__()
            self.counts = []

        def on_eval_step_begin(self, run_context):
            self.counts.append(len(debug_ops.SUMMARY_TENSOR_CACHE))

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    waiting = Waiting()
    try:
        model = RecModel(Reporting(), nn.BCEWithLogitsLoss(), metrics={"mae"})
        model.eval(bounded(4), callbacks=[SummaryCollector(tmp_path), waiting])
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    assert waiting.counts == [0, 0, 0, 0]


def test_a_training_that_ends_in_an_evaluation_has_the_loss_of_its_last_step(tmp_path):
    class Stop(Callback):
        def on_eval_step_end(self, run_context):
            raise KeyboardInterrupt

    collector = SummaryCollector(tmp_path, collect_freq=1)
    with pytest.raises(KeyboardInterrupt):
        click_model(metrics={"mae"}).fit(1, bounded(2), bounded(1), callbacks=[collector, Stop()])
    loss = lineage(tmp_path, "train_lineage")[-1].algorithm.loss
    assert loss == scalars(tmp_path, "loss/auto")[2]


def tensor_steps(folder):
    return [
        event.step
        for event in events(folder)
        for value in event.summary.value
        if value.WhichOneof("value") == "tensor"
    ]


def test_tensors_follow_a_schedule_of_their_own(tmp_path):
    network = Reporting()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    collector = SummaryCollector(tmp_path, collect_freq=2, collect_tensor_freq=3)
    model.online_train(stream(), callbacks=[collector, Journal(stop_after=9)])
    assert tensor_steps(tmp_path) == [1, 3, 6, 9]
    assert list(scalars(tmp_path, "mean")) == [1, 2, 4, 6, 8]


def test_a_second_training_has_tensors_as_the_first_one(tmp_path):
    network = Reporting()
    model = Model(network, nn.BCEWithLogitsLoss(), nn.SGD(network.trainable_params(), 0.1))
    collector = SummaryCollector(tmp_path, collect_freq=1)
    for _ in range(2):
        model.train(1, bounded(25), callbacks=[collector], dataset_sink_mode=False)
    assert tensor_steps(tmp_path) == [*range(1, 21), *range(26, 46)]


def test_rotation_keeps_every_step(tmp_path):
    collector = SummaryCollector(tmp_path, collect_freq=1, max_file_size=3000)
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=40)])
    assert len(list(tmp_path.glob("*_MS"))) > 5
    assert list(scalars(tmp_path, "loss/auto")) == list(range(1, 41))
    assert len(graphs(tmp_path)) == 1


def test_with_a_retention_the_whole_history_stays(tmp_path):
    earlier = RunWriter(tmp_path, 0, Rotation(max_file_size=32_000))
    tags = [f"metric_{number}" for number in range(50)]
    for step in range(1, 1401):
        values = [scalar(tag, step) for tag in tags]
        earlier.write(MessageRecord(event(step, *values, at=1e9 + step)))
    earlier.close()
    budget = Retention(total_bytes=1 << 20)
    assert rank_bytes(str(tmp_path), 0) > budget.total_bytes
    collector = SummaryCollector(tmp_path, collect_freq=1, retention=budget, run_directory="same")
    journal = Journal(stop_after=20)
    click_model().online_train(stream(), callbacks=[collector, journal])
    assert collector.troubles == {}
    assert rank_bytes(str(tmp_path), 0) <= budget.total_bytes * 33 // 32
    assert list(scalars(tmp_path, "loss/auto")) == list(range(1, 21))
    assert len(graphs(tmp_path)) == 1
    assert statuses(tmp_path)[-1] == "STOPPED"
    kept = list(scalars(tmp_path, "metric_0"))
    assert kept[0] == 1
    assert kept[-100:] == list(range(1301, 1401))
    assert len(kept) < 1400
    [made] = [file for file in list_files(str(tmp_path)) if file.name.last is not None][:1]
    with RecordReader(made.path) as reader:
        theirs = [their_summary.Event.FromString(record.payload) for record in reader]
    assert theirs[0].version == "MindSpore.Event:1"
    assert all(each.HasField("summary") and each.IsInitialized() for each in theirs[1:])


@pytest.mark.parametrize("level", ["O0", "O2", "O3"])
def test_mixed_precision_as_far_as_this_device_allows(tmp_path, level):
    try:
        model = click_model(amp_level=level)
    except ValueError as error:
        pytest.skip(f"MindSpore refuses it on this device: {error}")
    collector = SummaryCollector(tmp_path, collect_freq=1)
    model.train(1, bounded(2), callbacks=collector)
    assert len(scalars(tmp_path, "loss/auto")) == 2
    assert collector.troubles == {}


class OddParameters(nn.Cell):
    """Parameters that are no float32, and operators with tags and values that are odd."""

    def __init__(self):
        super().__init__()
        self.network = ClickNet()
        self.count = mindspore.Parameter(np.array([1, 2, 3], np.int32), name="count")
        self.flag = mindspore.Parameter(np.array([True, False]), name="flag")
        half = mindspore.Tensor([0.5, 1.5], mindspore.bfloat16)
        self.half = mindspore.Parameter(half, name="half")
        self.tensor, self.histogram = ops.TensorSummary(), ops.HistogramSummary()

    def construct(self, fields, label):
        logits = self.network(fields)
        self.tensor("../../" + "x" * 900, logits * 1.0)
        self.tensor("half", logits.astype(mindspore.bfloat16))
        self.histogram("ünïcode/../tag", logits > 0)
        return (logits - label).mean()


def test_odd_parameters_and_tags_are_recorded_and_stay_inside_the_directory(tmp_path):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    records = tmp_path / "records"
    journal = Journal(stop_after=3)
    collector = SummaryCollector(
        records,
        collect_freq=1,
        collect_specified_data={"histogram_regular": "count|flag|half"},
        export_options={"tensor_format": "npy"},
    )
    try:
        RecModel(OddParameters()).online_train(stream(), callbacks=[collector, journal])
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    assert collector.troubles == {"no graph in PyNative mode": 1}
    assert len(scalars(records, "loss/auto")) == 3
    found = histograms(records)
    assert set(found) == {"count/auto", "flag/auto", "half/auto", "ünïcode/../tag"}
    assert (found["half/auto"][3].min, found["half/auto"][3].max) == (0.5, 1.5)
    exported = list(tmp_path.rglob("*.npy"))
    assert len(exported) == 6
    assert {path.parent.parent.parent for path in exported} == {records}


def test_text_that_no_record_can_store_does_not_cost_the_lineage(tmp_path):
    class Boom(Callback):
        def on_train_step_end(self, run_context):
            collector.flush()
            raise RuntimeError("no file caf\udce9")  # a path that is not UTF-8

    class OddTag(nn.Cell):
        """A network whose operator has a tag that MindSpore does not check in PyNative mode."""

        def __init__(self):
            super().__init__()
            self.network, self.scalar = ClickNet(), ops.ScalarSummary()

        def construct(self, fields, label):
            loss = (self.network(fields) - label).mean()
            self.scalar("caf\udce9", loss * 1.0)
            return loss

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    collector = SummaryCollector(tmp_path, collect_freq=1)
    try:
        with pytest.raises(RuntimeError, match="no file"):
            RecModel(OddTag()).online_train(stream(), callbacks=[collector, Boom()])
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    state = lineage(tmp_path, "train_lineage")[-1].run_state
    assert statuses(tmp_path)[-1] == "FAILED"
    assert state.reason == "RuntimeError: no file caf?"
    assert state.troubles == {"no graph in PyNative mode": 1, "value caf?": 1}


def test_a_process_without_free_file_descriptors_trains_all_the_same(tmp_path):
    collector = SummaryCollector(tmp_path)
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # those that are open stay open
    try:
        collector.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    collector.__exit__(None, None, None)
    assert collector.troubles == {"signals": 1}


class Unsure:
    """A rule for checkpoints that fails."""

    def due(self, number, last, seconds):
        raise LookupError("is it time?")


@pytest.mark.parametrize("unit", ["step", "epoch"])
def test_a_policy_that_fails_costs_only_its_checkpoints(tmp_path, unit):
    landscape = {"unit": unit, "policy": SavePolicy(Unsure())}
    collector = SummaryCollector(
        tmp_path,
        collect_freq=1,
        collect_specified_data={"collect_landscape": landscape},
        lineage_secs=1e-6,
    )
    click_model(metrics={"mae"}).fit(1, bounded(2), bounded(1), callbacks=collector)
    assert set(collector.troubles) == {"landscape checkpoint"}
    steps = [item.run_state.step for item in lineage(tmp_path, "train_lineage")]
    assert steps == [0, 1, 2, 2]
    assert list(scalars(tmp_path, "eval/mae")) == [2]
