"""Probes: values of any training step, by name, and nothing of them without a collector."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import ParameterTuple, Tensor, nn, ops

import rec_summary
from rec_summary import (
    GradientProbe,
    RecModel,
    RecommenderMetrics,
    SummaryCollector,
    SummaryRecord,
    probe,
)
from rec_summary.training import _mindspore
from rec_summary.training.operators import PROBE, Mailbox, Operator
from tests.support.nets import ClickNet, Journal, batch_of_clicks, bounded, stream
from tests.support.training_records import scalars


class Losses(nn.Cell):
    """The losses of the wide part (the table) and the deep part (the head); with probes."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, fields, label):
        score = self.network(fields)
        probe("score", score.squeeze(1))  # without a copy, MindSpore drops a squeezed value
        rec_summary.probe("click", label)
        deep = self.loss(score, label)
        probe("loss/deep", deep + 1.0)
        return deep, deep + 1.0


class One(nn.Cell):
    def __init__(self, network, position):
        super().__init__(auto_prefix=False)
        self.network, self.position = network, position

    def construct(self, *columns):
        return self.network(*columns)[self.position]


class TrainStepWrap(nn.Cell):
    """Wide & Deep's own step: two optimizers, two losses, no predictions."""

    def __init__(self, network, wrap=GradientProbe):
        super().__init__()
        self.network = network
        weights = network.trainable_params()
        self.wide, self.deep = ParameterTuple(weights[:1]), ParameterTuple(weights[1:])
        self.optimizer_w = wrap(nn.FTRL(weights[:1], learning_rate=0.1))
        self.optimizer_d = wrap(nn.Adam(weights[1:], learning_rate=0.1))
        self.gradients_w = mindspore.grad(One(network, 0), None, self.wide)
        self.gradients_d = mindspore.grad(One(network, 1), None, self.deep)

    def construct(self, fields, label):
        loss_w, loss_d = self.network(fields, label)
        gradients_w = self.gradients_w(fields, label)
        gradients_d = self.gradients_d(fields, label)
        loss_w = ops.depend(loss_w, self.optimizer_w(gradients_w))
        return loss_w, ops.depend(loss_d, self.optimizer_d(gradients_d))


def step_of_its_own():
    mindspore.set_seed(3)
    return TrainStepWrap(Losses(ClickNet()))


def batches():
    """Yields batches, the last one smaller."""
    for number, rows in enumerate((8, 8, 8, 5)):
        yield batch_of_clicks(number, rows)


def metrics(**options):
    return RecommenderMetrics(
        predictions="score",
        labels="click",
        logits=True,
        host=False,
        throughput=False,
        **options,
    )


def train(network, folder, **options):
    collect = {"collect_graph": False}  # PyNative mode has none
    collector = SummaryCollector(folder, 1, collect_specified_data=collect, **options)
    journal = Journal(stop_after=4)
    RecModel(network).online_train(stream(batches), callbacks=[collector, journal])
    return collector


def test_metrics_of_a_step_with_two_optimizers_are_of_the_predictions_before_the_update(
    tmp_path, mode
):
    collector = train(step_of_its_own(), tmp_path, recommender=metrics())
    assert collector.troubles == {}
    losses = list(scalars(tmp_path, "loss/auto").values())
    assert len(losses) == 4
    mean = np.average(losses, weights=[8, 8, 8, 5])
    [log_loss] = scalars(tmp_path, "recommender/log_loss/last_100000").values()
    assert log_loss == pytest.approx(mean, rel=1e-5)
    [examples] = scalars(tmp_path, "recommender/examples/last_100000").values()
    assert examples == 29
    named = scalars(tmp_path, "loss/deep")
    assert list(named.values()) == pytest.approx([loss + 1 for loss in losses], rel=1e-5)


def test_without_a_collector_a_probe_is_no_part_of_the_network(tmp_path, mode):
    network = step_of_its_own()
    fields, label = (Tensor(each) for each in batch_of_clicks())
    network.set_train()
    network(fields, label)
    assert not _mindspore.has_operator_values()
    # The same network, with a collector: MindSpore compiles it again.
    collector = train(network, tmp_path, recommender=metrics())
    assert collector.troubles == {}
    [examples] = scalars(tmp_path, "recommender/examples/last_100000").values()
    assert examples == 29
    assert network.phase == "train"
    network(fields, label)
    assert not _mindspore.has_operator_values()


def test_a_loss_of_a_probe_that_is_not_finite_is_reported(tmp_path):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.network = ClickNet()

        def construct(self, fields, label):
            loss = self.network(fields).mean()
            probe("loss/odd", ops.log(loss * 0.0 - 1.0))
            return loss

    network = Net()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    collector = SummaryCollector(tmp_path, collect_freq=1)
    RecModel(network, optimizer=optimizer).train(1, bounded(2), callbacks=collector)
    assert collector.troubles == {"loss is not finite": 2}
    assert np.isnan(list(scalars(tmp_path, "loss/odd").values())).all()


class EveryKind(nn.Cell):
    """Probes of many types and shapes."""

    def construct(self, numbers):
        probe("squeezed", numbers.reshape((3, 2, 1)).squeeze(2))
        probe("int", numbers.astype(mindspore.int32))
        probe("int64", numbers.astype(mindspore.int64) + 2**40)
        probe("bool", numbers > 2)
        probe("half", numbers.astype(mindspore.float16))
        return numbers.sum()


def test_values_of_every_type_and_shape_arrive_as_they_are(mode):
    numbers = np.arange(6, dtype=np.float32).reshape(3, 2)
    box = Mailbox(wants=lambda operator: operator.kind == PROBE)
    EveryKind()(Tensor(numbers))
    got = {tag: value.asnumpy() for (_, tag), value in box.take().items()}
    expected = {
        "squeezed": numbers,
        "int": numbers.astype(np.int32),
        "int64": numbers.astype(np.int64) + 2**40,
        "bool": numbers > 2,
        "half": numbers.astype(np.float16),
    }
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(got[name], values)
        assert got[name].dtype == values.dtype
    box.close()


def test_only_what_is_wanted_is_computed(mode):
    box = Mailbox(wants=lambda operator: operator == Operator(PROBE, "int"))
    EveryKind()(Tensor(np.ones((3, 2), np.float32)))
    by_name, entries = _mindspore.take_operator_values()
    names = [*by_name, *(tag for _, tag, _ in entries)]
    assert len(names) == 1
    assert "probe/int" in names[0]
    box.close()


def test_probes_change_no_name_of_a_parameter():
    plain = TrainStepWrap(Losses(ClickNet()), wrap=lambda optimizer: optimizer)
    probed = TrainStepWrap(Losses(ClickNet()))
    names = [[each.name for each in network.get_parameters()] for network in (plain, probed)]
    assert names[0] == names[1]


def test_a_loop_of_ones_own_records_named_losses(tmp_path, mode):
    network = Losses(ClickNet())
    with SummaryRecord(tmp_path) as record:
        losses = []
        for step in (1, 2):
            columns = [Tensor(each) for each in batch_of_clicks(step)]
            losses.append(float(network(*columns)[1].asnumpy()))
            record.record(step)
    assert list(scalars(tmp_path, "loss/deep").values()) == pytest.approx(losses)


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (3, TypeError)])
def test_the_name_of_a_probe_is_a_text(name, error):
    with pytest.raises(error, match=r"^the name of a probe is invalid"):
        probe(name, Tensor([1.0]))
