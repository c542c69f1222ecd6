"""Another training does not mix with the records of a directory; a restart goes on in it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import Parameter, nn
from mindspore.train import Model, RunContext

from rec_summary import RecModel, RecommenderMetrics, SummaryCollector, Task
from rec_summary.records.failures import Troubles
from rec_summary.training.collector.settings import training_settings
from rec_summary.training.lineage.lineage import describe_dataset
from rec_summary.training.lineage.optimizers import find_optimizers
from rec_summary.training.step_view import StepView
from tests.support.nets import BATCH, ClickNet, Journal, bounded, click_model, stream
from tests.support.training_records import lineage, scalars, statuses

STEPS = 4
EXAMPLES = "recommender/examples/last_100000"
METRICS = RecommenderMetrics(
    predictions=lambda inputs, outputs: np.full(BATCH, 0.5, np.float32),
    labels=lambda inputs, outputs: np.arange(BATCH) % 2,
    report_steps=2,
)


def train(folder: Path, rate: Any = 0.1, of_mindspore: bool = False, **options: Any) -> Any:
    """Trains a fresh network; returns the collector."""
    network = ClickNet()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=rate)
    collector = SummaryCollector(folder, collect_freq=1, **options)
    loss = nn.BCEWithLogitsLoss()
    if of_mindspore:
        model = Model(network, loss, optimizer)
        model.train(1, bounded(STEPS), [collector], dataset_sink_mode=False)
    else:
        model = RecModel(network, loss, optimizer)
        model.online_train(stream(), callbacks=[collector, Journal(stop_after=STEPS)])
    return collector


@pytest.mark.parametrize("of_mindspore", [False, True], ids=["online", "Model"])
def test_another_learning_rate_is_another_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, of_mindspore: bool
) -> None:
    folder = tmp_path / "run-1"
    first = train(folder, 0.1, of_mindspore, recommender=METRICS)
    before = scalars(folder, "loss/auto")
    assert scalars(folder, EXAMPLES)[STEPS] == STEPS * BATCH
    with caplog.at_level(logging.INFO):
        second = train(folder, 0.01, of_mindspore, recommender=METRICS)
    assert (first.summary_dir, second.summary_dir) == (str(folder), f"{folder}-2")
    assert scalars(folder, "loss/auto") == before
    assert len(scalars(tmp_path / "run-1-2", "loss/auto")) == STEPS
    # The state of the first training is not carried on.
    assert scalars(tmp_path / "run-1-2", EXAMPLES)[STEPS] == STEPS * BATCH
    assert [text for text in caplog.messages if "another training" in text] == [
        f"SummaryCollector: {folder} holds the records of another training (learning_rate 0.1 -> "
        f"0.01): this training is recorded in {folder}-2. If it continues the other one, use "
        "SummaryCollector(..., run_directory='same')"
    ]
    assert any(f"rec-summary view {folder}-2" in text for text in caplog.messages)
    assert second.troubles == {}


def evaluate(folder: Path, network: nn.Cell, **options: Any) -> str:
    collector = SummaryCollector(folder, **options)
    model = Model(network, nn.BCEWithLogitsLoss(), metrics={"loss"})
    model.eval(bounded(2), callbacks=[collector], dataset_sink_mode=False)
    return collector.summary_dir


def test_an_evaluation_alone_finds_its_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run-1"
    train(folder, 0.1)
    train(folder, 0.01)
    caplog.clear()
    assert evaluate(folder, ClickNet()) == f"{folder}-2"
    [text] = caplog.messages
    assert f"trained in {folder}-2: the evaluation is recorded there" in text
    assert len(scalars(tmp_path / "run-1-2", "eval/loss")) == 1
    assert not scalars(folder, "eval/loss")
    caplog.clear()
    assert evaluate(folder, ClickNet(), run_directory="same") == str(folder)
    assert not caplog.messages
    other = nn.SequentialCell(ClickNet())
    assert evaluate(folder, other) == str(folder)
    assert [text[:55] for text in caplog.messages] == [
        "SummaryCollector: no training of this network is record"
    ]


def test_an_evaluation_alone_is_at_the_last_step_of_its_training(tmp_path: Path) -> None:
    train(tmp_path)
    evaluate(tmp_path, ClickNet())
    assert list(scalars(tmp_path, "eval/loss")) == [STEPS]
    assert [item.train_step for item in lineage(tmp_path, "evaluation_lineage")] == [STEPS]


def test_a_restart_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    custom = {"team": "ads", "layers": [64, 32], "dropout": np.float32(0.1)}
    for _ in range(2):
        collector = train(tmp_path / "run", recommender=METRICS, custom_lineage_data=custom)
        assert collector.summary_dir == str(tmp_path / "run")
    assert "another training" not in caplog.text
    assert statuses(tmp_path / "run").count("STOPPED") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_user_says_that_it_is_a_restart(tmp_path: Path) -> None:
    train(tmp_path, 0.1, recommender=METRICS)
    collector = train(tmp_path, 0.01, recommender=METRICS, run_directory="same")
    assert collector.summary_dir == str(tmp_path)
    assert statuses(tmp_path).count("STOPPED") == 2
    assert _examples(tmp_path) == 2 * STEPS * BATCH  # the state goes on, as the user says


def test_a_directory_for_each_training(tmp_path: Path) -> None:
    collectors = [train(tmp_path, run_directory="new") for _ in range(2)]
    assert len({each.summary_dir for each in collectors}) == 2
    for each in collectors:
        assert Path(each.summary_dir).parent == tmp_path
        assert len(scalars(Path(each.summary_dir), "loss/auto")) == STEPS


def test_two_collectors_of_one_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = ClickNet()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    collectors = [SummaryCollector(tmp_path, recommender=METRICS) for _ in range(2)]
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    model.online_train(stream(), callbacks=[*collectors, Journal(stop_after=STEPS)])
    assert [each.summary_dir for each in collectors] == [str(tmp_path)] * 2
    assert caplog.text.count("another recorder of this process") == 1
    assert len(list(tmp_path.glob("*_MS"))) == 2
    # The state is that of one of them: another training counts each example once.
    train(tmp_path, recommender=METRICS)
    assert _examples(tmp_path) == 2 * STEPS * BATCH


def _examples(folder: Path) -> float:
    newest = max(folder.glob("*_MS"))
    aside = folder / "newest"
    aside.mkdir()
    (aside / newest.name).write_bytes(newest.read_bytes())
    return scalars(aside, EXAMPLES)[STEPS]


def test_a_collector_that_trains_again_goes_on(tmp_path: Path) -> None:
    network = ClickNet()
    model = RecModel(network, nn.BCEWithLogitsLoss(), nn.SGD(network.trainable_params(), 0.1))
    collector = SummaryCollector(tmp_path, collect_freq=1)
    for _ in range(2):
        model.online_train(stream(), callbacks=[collector, Journal(stop_after=STEPS)])
        # Even with another setting, or another cell around the network: it is one collector.
        with_loss = nn.WithLossCell(network, nn.BCEWithLogitsLoss())
        model = RecModel(with_loss, None, nn.SGD(network.trainable_params(), 0.2))
    assert collector.summary_dir == str(tmp_path)
    assert list(scalars(tmp_path, "loss/auto")) == list(range(1, 2 * STEPS + 1))
    assert "callbacks" not in collector.troubles


def test_a_collector_that_counts_twice_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = SummaryCollector(tmp_path)
    journal = Journal(stop_after=STEPS)
    click_model().online_train(stream(), callbacks=[collector, collector, journal])
    assert collector.troubles["callbacks"] == 1
    assert "once among its callbacks" in caplog.text


@pytest.mark.parametrize(("value", "error"), [("other", ValueError), (1, TypeError)])
def test_a_wrong_choice(tmp_path: Path, value: Any, error: type[Exception]) -> None:
    expected = "run_directory is invalid.*Expected: one of 'sibling', 'same', 'new'"
    with pytest.raises(error, match=expected):
        SummaryCollector(tmp_path, run_directory=value)


def settings(optimizer: Any = None, network: Any = None, **arguments: Any) -> dict[str, str]:
    network = network or ClickNet()
    if optimizer is not None:
        arguments["optimizer"] = optimizer(network.trainable_params())
    context: Any = type("Parameters", (dict,), {})(network=network, mode="train", **arguments)
    view = StepView(RunContext(context))
    troubles = Troubles()
    data = describe_dataset(arguments.get("train_dataset"), troubles)
    options: Any = SimpleNamespace(
        custom_lineage=arguments.get("custom") or {}, recommender=arguments.get("recommender")
    )
    found = training_settings(view, data, find_optimizers(view), options, troubles)
    assert troubles.counts == {}
    return found


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (lambda p: nn.SGD(p, 0.1), lambda p: nn.SGD(p, 0.2), {"learning_rate"}),
        (lambda p: nn.SGD(p, [0.1, 0.2]), lambda p: nn.SGD(p, [0.1, 0.3]), {"learning_rate"}),
        (
            lambda p: nn.Adam(p, nn.ExponentialDecayLR(0.1, 0.9, 4)),
            lambda p: nn.Adam(p, nn.ExponentialDecayLR(0.1, 0.8, 4)),
            {"learning_rate"},
        ),
        (lambda p: nn.Adam(p, beta1=0.9), lambda p: nn.Adam(p, beta1=0.8), {"beta1"}),
        (lambda p: nn.SGD(p, 0.1), lambda p: nn.FTRL(p, 0.1), {"optimizer"}),
        (
            lambda p: nn.AdamWeightDecay(p, 0.1),
            lambda p: nn.AdamWeightDecay(p, 0.2),
            {"learning_rate"},
        ),
        (
            lambda p: nn.SGD([{"params": p[:1], "lr": 0.3}, {"params": p[1:]}], 0.1),
            lambda p: nn.SGD([{"params": p[:1], "lr": 0.4}, {"params": p[1:]}], 0.1),
            {"group_0.lr"},
        ),
    ],
)
def test_settings_of_optimizers(first: Any, second: Any, names: set[str]) -> None:
    one, again, other = (settings(make) for make in (first, first, second))
    assert one == again
    changed = {name for name in one.keys() & other.keys() if one[name] != other[name]}
    assert names <= changed
    assert names == changed or "optimizer" in names


def test_settings_of_the_rest() -> None:
    class Wide(ClickNet):
        def __init__(self) -> None:
            super().__init__()
            self.more = Parameter(np.zeros(3, np.float32), name="more")

    base = settings()
    assert base["network"] == "ClickNet"
    wide = settings(network=Wide())
    assert {n for n in base if base[n] != wide.get(n)} == {"network", "parameters"}
    assert settings(train_dataset=stream())["train_dataset"] == "Generator"
    data = settings(train_dataset=bounded(3))
    assert (data["train_dataset"], data["batch_size"]) == ("Batch of NumpySlices", str(BATCH))
    custom = settings(custom={"long": "x" * 1000, "nested": {"a": 1.5}})
    assert custom["custom.long"].startswith("x" * 100 + "… (checksum ")
    assert custom["custom.nested"] == "a: 1.5"
    metrics = settings(recommender=RecommenderMetrics(predictions=1, labels="click"))
    assert metrics["recommender.labels"] == "click"
    tasks = {"ctr": Task(predictions=1, labels="click")}
    several = settings(recommender=RecommenderMetrics(tasks=tasks))
    assert set(several).difference(metrics) == {"recommender.tasks.ctr"}
    assert "labels: click" in several["recommender.tasks.ctr"]
