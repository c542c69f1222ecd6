"""Numbers of gradients and updates: those that NumPy computes, at the steps that are measured."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train import Callback, Model

from rec_summary import (
    GradientMetrics,
    GradientProbe,
    RecModel,
    SummaryCollector,
    SummaryRecord,
    TrainStep,
    probe,
)
from rec_summary.training.probes import gradient_metrics
from rec_summary.training.probes.gradient_probe import state_names
from tests.support.nets import FIELDS, VOCABULARY, ClickNet, Journal, bounded, clicks, stream
from tests.support.training_records import events, scalars

RATE = 0.1


class Watch(Callback):
    """The weights and the optimizer's states before each step, and after the last one."""

    def __init__(self, optimizer):
        super().__init__()
        self._optimizer = optimizer
        self.weights = [self.read(optimizer.parameters)]
        self.moments = [self.read(optimizer.moment1)]

    @staticmethod
    def read(parameters):
        return [np.array(each.asnumpy(), np.float64) for each in parameters]

    def on_train_step_end(self, run_context):
        self.weights.append(self.read(self._optimizer.parameters))
        self.moments.append(self.read(self._optimizer.moment1))


def norm(arrays):
    return np.sqrt(sum(np.square(each).sum() for each in arrays))


def click_step():
    mindspore.set_seed(3)
    network = ClickNet()
    return network, nn.Adam(network.trainable_params(), learning_rate=RATE)


def collector(folder, **options):
    collect = {"collect_graph": False}  # PyNative mode has none
    return SummaryCollector(
        folder, 100, collect_specified_data=collect, gradients=GradientMetrics(**options)
    )


def tags(folder):
    return {value.tag for event in events(folder) for value in event.summary.value}


def test_the_numbers_are_those_of_the_step_and_only_of_measured_steps(tmp_path, mode):
    network, optimizer = click_step()
    recorder = collector(tmp_path, every=2, groups={"tables": "table"})
    watch = Watch(optimizer)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer, keep_outputs=True)
    model.train(1, bounded(5), callbacks=[recorder, watch], dataset_sink_mode=False)
    assert recorder.troubles == {}
    found = {tag: scalars(tmp_path, tag) for tag in tags(tmp_path) if tag.startswith("gradients/")}
    assert found.keys() == {
        *("gradients/norm", "gradients/norm/tables"),
        *("gradients/update_ratio", "gradients/update_ratio/tables"),
        *("gradients/moment1_norm", "gradients/moment2_norm", "gradients/not_finite_share"),
    }
    for step in (2, 4):
        old, new = watch.weights[step - 1], watch.weights[step]
        # moment1 = 0.9 * moment1 + 0.1 * gradient
        moments = zip(watch.moments[step - 1], watch.moments[step], strict=True)
        gradients = [10 * (after - 0.9 * before) for before, after in moments]
        moved = [b - a for a, b in zip(old, new, strict=True)]
        expected = {
            "norm": norm(gradients),
            "norm/tables": norm(gradients[:1]),
            "update_ratio": norm(moved) / norm(old),
            "update_ratio/tables": norm(moved[:1]) / norm(old[:1]),
            "moment1_norm": norm(watch.moments[step]),
            "not_finite_share": 0,
        }
        for tag, number in expected.items():
            assert found[f"gradients/{tag}"][step] == pytest.approx(number, rel=1e-3), tag
    assert {tuple(steps) for steps in found.values()} == {(2, 4)}


def test_measuring_changes_no_weight(tmp_path, mode):
    trained = []
    for folder in ("without", "with"):
        network, optimizer = click_step()
        recorder = [collector(tmp_path / folder, every=2)] if folder == "with" else []
        step = TrainStep(network, optimizer, nn.BCEWithLogitsLoss())
        Model(step).train(1, bounded(4), callbacks=recorder, dataset_sink_mode=False)
        trained.append(Watch.read(optimizer.parameters))
    for plain, measured in zip(*trained, strict=True):
        np.testing.assert_allclose(measured, plain, rtol=1e-6)


class Towers(nn.Cell):
    """Two towers; the gradient of one is not finite at the third step."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(VOCABULARY, 2), nn.Embedding(VOCABULARY, 2)

    def construct(self, fields, label):
        # The slope of a root is infinite at zero; the batch of the third step has a zero.
        root = ops.sqrt(self.item(fields[:, 1]).sum(axis=1) * 0.0 + label)
        return ops.square(self.user(fields[:, 0])).mean() + root.mean()


def third_has_a_zero():
    for number in range(4):
        labels = np.ones(4, np.float32)
        labels[0] = number != 2
        yield np.full((4, FIELDS), number, np.int32), labels


def test_the_layer_whose_gradient_is_not_finite_first_is_named(tmp_path, mode, caplog):
    network = Towers()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=RATE)
    recorder = collector(tmp_path, every=1)
    model = RecModel(network, optimizer=optimizer, keep_outputs=True)
    model.online_train(stream(third_has_a_zero), callbacks=[recorder, Journal(stop_after=4)])
    assert recorder.troubles["gradients are not finite"] >= 1
    [line] = [r.message for r in caplog.records if "gradients are not finite: " in r.message]
    assert "step 3" in line
    assert "item.embedding_table" in line
    assert "user.embedding_table" not in line
    assert "all were finite at step 2" in line
    shares = scalars(tmp_path, "gradients/not_finite_share/item.embedding_table")
    assert shares[3] == pytest.approx(1 / VOCABULARY)  # one row of the table
    whole = scalars(tmp_path, "gradients/not_finite_share")
    assert [whole[1], whole[2], whole[3]] == pytest.approx([0, 0, 0.5 / VOCABULARY])


class ThroughProbe(nn.Cell):
    """A network with the gradient of its score, and a step of its own."""

    def __init__(self):
        super().__init__()
        self.network = ClickNet()

    def construct(self, fields, label):
        score = probe("score", self.network(fields), gradient=True)
        return ops.square(score - label).sum() / 2


class OwnStep(nn.Cell):
    def __init__(self, network, optimizer):
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = GradientProbe(optimizer)
        self.forward = mindspore.value_and_grad(network, None, optimizer.parameters)

    def construct(self, *columns):
        loss, gradients = self.forward(*columns)
        return ops.depend(loss, self.optimizer(gradients))


def test_the_gradient_of_a_probe_in_a_step_of_its_own(tmp_path, mode):
    mindspore.set_seed(3)
    network = ThroughProbe()
    step = OwnStep(network, nn.SGD(network.trainable_params(), learning_rate=0.01))
    recorder, journal = collector(tmp_path, every=1, updates=False, states=False), Journal()
    Model(step).train(1, bounded(3), callbacks=[recorder, journal], dataset_sink_mode=False)
    losses = [float(each["net_outputs"].asnumpy()) for each in journal.parameters["step_end"]]
    measured = scalars(tmp_path, "gradients/probe/score")
    # The gradient of half of the sum of squares is the difference itself.
    assert list(measured.values()) == pytest.approx(np.sqrt(2 * np.array(losses)), rel=1e-4)
    assert "gradients/norm" in tags(tmp_path)
    assert not {"gradients/update_ratio", "gradients/accum_norm"} & tags(tmp_path)


class Accumulating(OwnStep):
    """A step that updates the weights with the mean gradient of four batches."""

    def __init__(self, network, optimizer):
        super().__init__(network, optimizer)
        self.sums = optimizer.parameters.clone("sums", init="zeros")
        self.count = Parameter(Tensor(0, mindspore.int32), name="count")

    def construct(self, *columns):
        loss, gradients = self.forward(*columns)
        for total, gradient in zip(self.sums, gradients):  # noqa: B905  # compiled
            loss = ops.depend(loss, ops.assign_add(total, gradient / 4))
        loss = ops.depend(loss, ops.assign_add(self.count, 1))
        if self.count % 4 == 0:
            loss = ops.depend(loss, self.optimizer(self.sums))
            for total in self.sums:
                loss = ops.depend(loss, ops.assign(total, ops.zeros_like(total)))
        return loss


def test_a_loop_of_its_own_has_the_numbers_of_a_network(tmp_path, mode):
    network, optimizer = click_step()
    step = TrainStep(nn.WithLossCell(network, nn.BCEWithLogitsLoss()), optimizer)
    step.set_train()
    gradients = GradientMetrics(every=2)
    with SummaryRecord(tmp_path, network=step, gradients=gradients, control=False) as record:
        for number, batch in enumerate(clicks(5)(), 1):
            step(*map(Tensor, batch))
            assert record.record(number)
        assert record.troubles == {}
    assert list(scalars(tmp_path, "gradients/norm")) == [2, 4]


def test_a_step_that_only_accumulates_gradients_has_no_numbers(tmp_path, mode):
    mindspore.set_seed(3)
    network = ThroughProbe()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=RATE)
    recorder, watch = collector(tmp_path, every=3), Watch(optimizer)
    model = Model(Accumulating(network, optimizer))
    model.train(1, bounded(12), callbacks=[recorder, watch], dataset_sink_mode=False)
    assert recorder.troubles == {}
    found = scalars(tmp_path, "gradients/update_ratio")
    assert list(found) == [4, 8, 12]  # the first update from each multiple of 3 on
    for step, number in found.items():
        old, new = watch.weights[step - 1], watch.weights[step]
        moved = [b - a for a, b in zip(old, new, strict=True)]
        assert number == pytest.approx(norm(moved) / norm(old), rel=1e-3)
    assert set(scalars(tmp_path, "gradients/norm")) == set(found)
    assert set(scalars(tmp_path, "gradients/moment1_norm")) == set(found)


class SparseNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingLookup(VOCABULARY, 2)
        self.head = nn.Dense(FIELDS * 2, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, fields, label):
        return self.loss(self.head(self.table(fields).reshape((-1, FIELDS * 2))), label)


def test_sparse_gradients_are_not_measured_but_updates_are(tmp_path):
    network = SparseNet()
    optimizer = nn.LazyAdam(network.trainable_params(), learning_rate=RATE)
    recorder = collector(tmp_path, every=1)
    model = RecModel(network, optimizer=optimizer, keep_outputs=True)
    model.train(1, bounded(2), callbacks=recorder, dataset_sink_mode=False)
    assert recorder.troubles == {"gradients are not measured, only updates and states": 1}
    assert set(scalars(tmp_path, "gradients/update_ratio")) == {1, 2}
    assert "gradients/norm" not in tags(tmp_path)


def test_a_step_without_a_probe_is_reported(tmp_path):
    network, optimizer = click_step()
    recorder = collector(tmp_path, every=1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    model.train(1, bounded(4), callbacks=recorder, dataset_sink_mode=False)
    assert recorder.troubles == {"gradients": 2}  # each time after a second attempt


class Uncounted(nn.Optimizer):
    """An optimizer that counts no updates."""

    def construct(self, gradients):
        done = True
        for parameter, gradient in zip(self.parameters, gradients):  # noqa: B905  # compiled
            done = ops.depend(done, ops.assign_sub(parameter, gradient * RATE))
        return done


def test_an_optimizer_whose_count_of_updates_stays_is_reported(tmp_path, mode, monkeypatch):
    monkeypatch.setattr(gradient_metrics, "_MOST_IDLE", 3)  # a thousand steps take half a minute
    network, _ = click_step()
    optimizer = Uncounted(RATE, network.trainable_params())
    optimizer.global_step.set_data(Tensor([5], mindspore.int32))
    recorder = collector(tmp_path, every=2, updates=False, states=False)
    model = Model(TrainStep(network, optimizer, nn.BCEWithLogitsLoss()))
    model.train(1, bounded(6), callbacks=recorder, dataset_sink_mode=False)
    assert recorder.troubles == {"gradients": 1}


def test_in_fit_a_step_behind_an_evaluation_is_measured_one_step_later(tmp_path, mode):
    network, optimizer = click_step()
    recorder = collector(tmp_path, every=3, updates=False, states=False)
    loss = nn.BCEWithLogitsLoss()
    model = RecModel(network, loss, optimizer, metrics={"loss"}, keep_outputs=True)
    model.fit(3, bounded(4), bounded(1), callbacks=[recorder], dataset_sink_mode=False)
    assert recorder.troubles == {}
    measured = set(scalars(tmp_path, "gradients/norm"))
    assert measured == {"graph": {3, 6, 10, 12}, "pynative": {3, 6, 9, 12}}[mode]


def test_the_first_step_of_a_resumed_run_has_its_number(tmp_path):
    network, optimizer = click_step()
    recorder = collector(tmp_path, every=9)
    model = Model(TrainStep(network, optimizer, nn.BCEWithLogitsLoss()))
    model.train(3, bounded(4), callbacks=recorder, initial_epoch=2)
    assert set(scalars(tmp_path, "gradients/norm")) == {9}


class ScaledStep(nn.Cell):
    """A step with a loss scale that changes, as that of MindSpore; which the CPU cannot run."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network
        self.scale_sense = Parameter(Tensor(1024.0, mindspore.float32), requires_grad=False)

    def construct(self, *columns):
        loss = self.network(*columns)
        return ops.depend(loss, ops.assign(self.scale_sense, self.scale_sense * 2))


def test_the_loss_scale_is_recorded(tmp_path):
    network = nn.WithLossCell(ClickNet(), nn.BCEWithLogitsLoss())
    recorder = SummaryCollector(tmp_path, collect_freq=1)
    Model(ScaledStep(network)).train(1, bounded(2), callbacks=recorder, dataset_sink_mode=False)
    assert list(scalars(tmp_path, "loss_scale/auto").values()) == [2048, 4096]


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"every": 0}, ValueError, "every"),
        ({"updates": 1}, TypeError, "updates"),
        ({"groups": ["a"]}, TypeError, "groups"),
        ({"groups": {"a": "("}}, ValueError, r"groups\['a'\]"),
        ({"groups": {"a": None}}, TypeError, r"groups\['a'\]"),
        ({"groups": {"": "a"}}, ValueError, "a name of groups"),
        ({"groups": {str(n): "a" for n in range(17)}}, ValueError, "groups"),
    ],
)
def test_wrong_options_are_refused(options, error, name):
    with pytest.raises(error, match=f"^{name} is invalid"):
        GradientMetrics(**options)


def test_a_gradient_probe_needs_an_optimizer():
    with pytest.raises(TypeError, match=r"^optimizer is invalid"):
        GradientProbe("adam")


def test_a_property_of_an_optimizer_is_not_read():
    class Timed(nn.Adam):
        @property
        def last_seconds(self):
            raise RuntimeError("no step was timed yet")

    network = ClickNet()
    timed = Timed(network.trainable_params())
    TrainStep(network, timed, nn.BCEWithLogitsLoss())
    assert state_names(timed) == ("moment1", "moment2")


def test_the_states_of_an_optimizer_are_found():
    parameters = ClickNet().trainable_params()
    assert state_names(nn.Adam(parameters)) == ("moment1", "moment2")


def test_the_collector_needs_gradient_metrics(tmp_path):
    with pytest.raises(TypeError, match=r"^gradients is invalid"):
        SummaryCollector(tmp_path, gradients=True)
