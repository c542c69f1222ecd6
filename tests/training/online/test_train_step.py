"""A step that returns predictions: those from before the update, and the same training."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import nn
from mindspore.train import Model

from rec_summary import RecModel, TrainStep
from tests.support.nets import LEARNING_RATE, ClickNet, Journal, batch_of_clicks, bounded, clicks
from tests.support.nets import stream as stream_of

MODES = (mindspore.GRAPH_MODE, mindspore.PYNATIVE_MODE)


@pytest.fixture(params=MODES, ids=("graph", "pynative"))
def mode(request):
    mindspore.set_context(mode=request.param)
    yield
    mindspore.set_context(mode=mindspore.GRAPH_MODE)


def network_and_optimizer():
    mindspore.set_seed(3)
    network = ClickNet()
    return network, nn.SGD(network.trainable_params(), learning_rate=LEARNING_RATE)


def outputs(journal):
    return [
        tuple(np.array(each.asnumpy()) for each in step["net_outputs"])
        for step in journal.parameters["step_end"]
    ]


def test_rec_model_gives_loss_prediction_and_label(mode) -> None:
    network, optimizer = network_and_optimizer()
    fields, label = batch_of_clicks(0)
    before = network(mindspore.Tensor(fields)).asnumpy()
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer, keep_outputs=True)
    journal = Journal(stop_after=3)
    model.online_train(stream_of(clicks()), callbacks=journal, dataset_sink_mode=False)
    loss, prediction, seen = outputs(journal)[0]
    np.testing.assert_allclose(prediction, before, rtol=1e-5)  # of the network as it was
    np.testing.assert_array_equal(seen, label)
    expected = np.mean(np.logaddexp(0, prediction) - label * prediction)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_the_weights_become_what_they_become_otherwise(mode) -> None:
    trained = []
    for keep in (False, True):
        network, optimizer = network_and_optimizer()
        model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer, keep_outputs=keep)
        model.train(2, bounded(4), dataset_sink_mode=False)
        trained.append([each.asnumpy().copy() for each in network.trainable_params()])
    for plain, kept in zip(*trained, strict=True):
        np.testing.assert_allclose(kept, plain, rtol=1e-5, atol=1e-7)


def test_a_step_is_a_network_for_mindspores_model(mode) -> None:
    network, optimizer = network_and_optimizer()
    journal = Journal()
    step = TrainStep(network, optimizer, nn.BCEWithLogitsLoss())
    Model(step).train(1, bounded(2), callbacks=journal, dataset_sink_mode=False)
    assert [each.shape for each in outputs(journal)[0]] == [(), (8, 1), (8, 1)]


class OnlyLoss(nn.Cell):
    """A network that returns the loss alone."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, nn.BCEWithLogitsLoss()

    def construct(self, fields, label):
        return self.loss(self.network(fields), label)


def test_a_network_that_returns_only_the_loss(mode) -> None:
    network, optimizer = network_and_optimizer()
    journal = Journal()
    step = TrainStep(OnlyLoss(network), optimizer)
    before = network.head.weight.asnumpy().copy()
    Model(step).train(1, bounded(1), callbacks=journal, dataset_sink_mode=False)
    [end] = journal.parameters["step_end"]
    assert end["net_outputs"].shape == ()
    assert (network.head.weight.asnumpy() != before).any()


class Structured(nn.Cell):
    """A network that returns its loss and its prediction in this structure."""

    def __init__(self, structure):
        super().__init__()
        self.head = nn.Dense(3, 1, weight_init="ones", has_bias=False)
        self.structure = structure

    def construct(self, columns):
        prediction = self.head(columns)
        loss = prediction.mean()
        if self.structure == "list":
            return [loss, prediction * 100]
        if self.structure == "nested":
            return loss, (prediction * 100, columns)
        if self.structure == "one":
            return (loss,)
        return loss


@pytest.mark.parametrize(
    ("structure", "expected"), [("list", [4]), ("nested", [(4, 4)]), ("one", []), ("alone", None)]
)
def test_the_gradient_is_of_the_loss_whatever_structure_is_returned(
    mode, structure, expected
) -> None:
    network = Structured(structure)
    step = TrainStep(network, nn.SGD(network.trainable_params(), learning_rate=1.0))
    found = step(mindspore.Tensor(np.ones((4, 3), np.float32)))
    np.testing.assert_allclose(network.head.weight.asnumpy(), [[0, 0, 0]], atol=1e-6)
    if expected is None:
        assert found.shape == ()
    else:
        assert found[0].shape == ()
        assert [
            tuple(map(len, each)) if isinstance(each, tuple) else len(each) for each in found[1:]
        ] == expected


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"keep_outputs": 1}, "keep_outputs"),
        ({"keep_outputs": True, "optimizer": None}, "optimizer"),
        ({"keep_outputs": True, "amp_level": "O2"}, "amp_level"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, name) -> None:
    network, optimizer = network_and_optimizer()
    with pytest.raises((TypeError, ValueError), match=f"^{name} is invalid"):
        RecModel(network, nn.BCEWithLogitsLoss(), **{"optimizer": optimizer, **arguments})


def test_a_step_needs_a_network_and_an_optimizer() -> None:
    network, optimizer = network_and_optimizer()
    with pytest.raises(TypeError, match=r"^network is invalid"):
        TrainStep("network", optimizer)
    with pytest.raises(TypeError, match=r"^optimizer is invalid"):
        TrainStep(network, "adam")
