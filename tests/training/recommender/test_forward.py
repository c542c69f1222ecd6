"""Passes through the network that trains: what they find, and that they leave no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model

from rec_summary import Importance, RecModel, RecommenderMetrics, SummaryCollector
from tests.support.training_records import events, scalars

BATCH, STEPS = 512, 120
FEATURES = {"user": "user", "item": 1, "weekday": ("context", 0), "hour": ("context", 1)}
COLUMNS = ["user", "item", "context", "label"]
MODES = {"graph": mindspore.GRAPH_MODE, "pynative": mindspore.PYNATIVE_MODE}


class Network(nn.Cell):
    """Returns loss, probability and label. It has batch statistics; dropout only if asked for."""

    def __init__(self, dropout: bool = False) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(30, 8), nn.Embedding(30, 8)
        self.context = nn.Embedding(20, 4)
        self.norm, self.head = nn.BatchNorm1d(24), nn.Dense(24, 1)
        self.drop = nn.Dropout(p=0.5) if dropout else nn.Identity()
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, user: Tensor, item: Tensor, context: Tensor, label: Tensor):
        parts = self.user(user), self.item(item), ops.flatten(self.context(context))
        odds = self.head(self.drop(self.norm(ops.concat(parts, axis=1)))).squeeze(1)
        return self.loss(odds, label), ops.sigmoid(odds), label


class Counting(Network):
    """Changes a parameter also in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Parameter(Tensor([0.0], mindspore.float32), requires_grad=False)

    def construct(self, user: Tensor, item: Tensor, context: Tensor, label: Tensor):
        outputs = super().construct(user, item, context, label)
        return ops.depend(outputs[0], ops.assign_add(self.calls, 1.0)), *outputs[1:]


class Random(Network):
    """Adds noise to the predictions also in evaluation mode."""

    def construct(self, user: Tensor, item: Tensor, context: Tensor, label: Tensor):
        loss, scores, label = super().construct(user, item, context, label)
        return loss, scores + 1e-3 * ops.standard_normal(scores.shape), label


def batches():
    """Yields batches in which clicks depend on the user, a little on the weekday."""
    random = np.random.default_rng(0)
    users, days = random.normal(size=30) * 2, random.normal(size=20)
    for _ in range(STEPS):
        user, item = random.integers(0, 30, (2, BATCH)).astype(np.int32)
        context = random.integers(0, 20, (BATCH, 2)).astype(np.int32)
        odds = users[user] + days[context[:, 0]] - 0.5
        yield user, item, context, (random.random(BATCH) < 1 / (1 + np.exp(-odds))).astype("f4")


def train(
    directory: Path,
    importance: Importance | None,
    network: nn.Cell | None = None,
    source: Any = batches,
) -> tuple[nn.Cell, dict[str, int]]:
    """Trains one pass over the batches; returns the network and the troubles."""
    mindspore.set_seed(1)
    network = network or Network()
    model = RecModel(
        network, optimizer=nn.Adam(network.trainable_params(), 0.02), keep_outputs=True
    )
    metrics = RecommenderMetrics(predictions=1, labels=2, report_steps=30, importance=importance)
    collector = SummaryCollector(str(directory), recommender=metrics)
    data = GeneratorDataset(source, COLUMNS, shuffle=False)
    model.train(1, data, callbacks=[collector], dataset_sink_mode=False)
    return network, collector.troubles


def content(network: nn.Cell) -> dict[str, bytes]:
    return {each.name: each.asnumpy().tobytes() for each in network.get_parameters()}


@pytest.fixture
def mode(request: pytest.FixtureRequest):
    mindspore.set_context(mode=MODES[request.param])
    yield request.param
    mindspore.set_context(mode=mindspore.GRAPH_MODE)


@pytest.mark.parametrize("mode", MODES, indirect=True)
def test_a_training_with_passes_is_the_same_bit_for_bit(mode: str, tmp_path: Path) -> None:
    importance = Importance(every=3, budget=1.0, features=FEATURES)
    random = mindspore.get_rng_state().asnumpy()
    plain, _ = train(tmp_path / "without", None)
    mindspore.set_rng_state(Tensor(random))
    passed, troubles = train(tmp_path / "with", importance)
    assert content(passed) == content(plain)
    assert {cell.training for _, cell in passed.cells_and_names()} == {True}
    assert "recommender metrics: importance" not in troubles

    worth = {
        name: np.mean([*scalars(tmp_path / "with", f"recommender/importance/{name}").values()])
        for name in FEATURES
    }
    assert worth["user"] > 0.15
    assert worth["user"] > worth["weekday"] > worth["hour"] - 1e-3
    assert abs(worth["item"]) < 0.02
    assert not any(
        "importance" in value.tag
        for event in events(tmp_path / "without")
        for value in event.summary.value
    )


def test_dropout_is_off_in_passes(tmp_path: Path) -> None:
    """With dropout, a column that the network ignores would seem to change the predictions."""
    network = Network(dropout=True)
    for table in (network.item, network.context):
        table.embedding_table.set_data(Tensor(np.zeros(table.embedding_table.shape, "f4")))
        table.embedding_table.requires_grad = False
    importance = Importance(every=3, budget=1.0, features=["item"])
    train(tmp_path, importance, network)
    values = [*scalars(tmp_path, "recommender/importance/item").values()]
    assert values
    assert set(values) == {0.0}


def test_a_network_that_changes_in_evaluation_gets_no_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network, troubles = train(tmp_path, Importance(every=3, budget=1.0), Counting())
    assert network.calls.asnumpy().tolist() == [STEPS]
    assert troubles["recommender metrics: importance"] == 1
    assert troubles["recommender metrics: no more passes"] == 1
    assert "parameters that the network changes" in caplog.text


def test_a_network_that_draws_random_numbers_in_evaluation_gets_no_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, troubles = train(tmp_path, Importance(every=3, budget=1.0), Random())
    assert troubles["recommender metrics: importance"] == 1
    assert "nothing random without training" in caplog.text


def test_batches_of_other_shapes_than_the_first_have_passes(tmp_path: Path) -> None:
    def with_a_small_one():
        for number, columns in enumerate(batches()):
            yield tuple(column[: BATCH // 2] for column in columns) if number == 0 else columns

    importance = Importance(every=2, budget=1.0, features=["user"])
    _, troubles = train(tmp_path, importance, source=with_a_small_one)
    assert "recommender metrics: importance" not in troubles
    assert [*scalars(tmp_path, "recommender/importance/user").values()][-1] > 0.1


def test_a_training_step_without_the_predictions_is_a_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    step = nn.TrainOneStepCell(network, nn.Adam(network.trainable_params()))
    metrics = RecommenderMetrics(predictions=1, labels=2, importance=Importance(every=3))
    collector = SummaryCollector(str(tmp_path), recommender=metrics)

    class Alone(nn.Cell):
        """Keeps the training step under another name."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = step

        def construct(self, *columns: Tensor):
            return self.inner(*columns)

    data = GeneratorDataset(batches, COLUMNS, shuffle=False).take(5)
    Model(Alone()).train(1, data, callbacks=[collector], dataset_sink_mode=False)
    assert collector.troubles["recommender metrics: importance"] == 1
    assert "RecModel(..., keep_outputs=True)" in caplog.text


def test_predict_is_for_a_loop_of_ones_own(tmp_path: Path) -> None:
    importance = Importance(predict=lambda columns: columns["p"])
    metrics = RecommenderMetrics(predictions=1, labels=2, importance=importance)
    with pytest.raises(ValueError, match="predict of importance"):
        SummaryCollector(str(tmp_path), recommender=metrics)
